"""tools/record_demo.py: the pictures of the demo."""

import re
from xml.etree import ElementTree

import pytest

from tools.record_demo import IMAGES, PHONE, SHOWN_AT_S, TERMINAL, Canvas, RecordingView, pictures
from zae_limiter.cli.demo.progress import Counts, DemoFrame, DemoReport, DemoStanding, Line, Step, StepState
from zae_limiter.cli.demo.scenario import PROJECTS, RESOURCE_LIMITS, members
from zae_limiter.cli.demo.show import STEPS

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 200_000
MEMBERS = list(members(PROJECTS))
LIMITS = {limit.name: limit for limit in RESOURCE_LIMITS}
STANDINGS = [DemoStanding(one, LIMITS, "resource", {"rpm": 5, "tpm": -10}, Counts(), None) for one in MEMBERS]
STEP_LINES = [Step(name, StepState.RUNNING, text) for name, text in STEPS]
REPORT = DemoReport(20.0, 4, [Line(one, Counts(), 0.5) for one in MEMBERS], STEP_LINES, {})


def frame(elapsed_s: float) -> DemoFrame:
    return DemoFrame(elapsed_s, 20.0, STANDINGS, STEP_LINES, ["1 < 2 & 3"])


def texts(group: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in group.iter(f"{SVG}text")]


def words(group: ElementTree.Element) -> str:
    """The text of a screen, with wrapped lines joined."""
    return " ".join(" ".join(texts(group)).split())


def picture(frames: list[DemoFrame], canvas: Canvas = TERMINAL) -> ElementTree.Element:
    return ElementTree.fromstring(pictures(frames, REPORT)[canvas])


class TestPicture:
    def test_picture_has_a_group_for_each_frame_and_the_summary_last(self):
        """Only the last group is visible without animation."""
        groups = list(picture([frame(1.0), frame(2.5)]).iter(f"{SVG}g"))

        assert ["f  f0", "f  f1", "f last f2"] == [group.get("class") for group in groups]
        assert "2.5 of 20 s, Ctrl-C ends it" in texts(groups[1])
        assert "Try next:" in texts(groups[2])

    def test_picture_escapes_the_text_of_events(self):
        """An event may contain any character."""
        root = picture([frame(1.0)])

        assert "1 < 2 & 3" in texts(root)

    @pytest.mark.parametrize("canvas", [TERMINAL, PHONE], ids=["terminal", "phone"])
    def test_picture_has_the_same_size_for_any_number_of_frames(self, canvas):
        """A page does not jump when the demo is recorded again."""
        sizes = {picture([frame(1.0)] * count, canvas).get("viewBox") for count in (1, 2, 13)}

        assert {f"0 0 {canvas.width} {canvas.height}"} == sizes

    @pytest.mark.parametrize("canvas", [TERMINAL, PHONE], ids=["terminal", "phone"])
    def test_picture_contains_all_of_its_text(self, canvas):
        """Nothing is drawn outside the picture."""
        root = picture([frame(1.0)], canvas)

        ends = [float(text.get("x", "0")) + float(text.get("textLength", "0")) for text in root.iter(f"{SVG}text")]
        assert max(ends) <= canvas.width
        assert max(float(text.get("y", "0")) for text in root.iter(f"{SVG}text")) <= canvas.height

    def test_phone_picture_wraps_the_steps_instead_of_cutting_them_off(self):
        """A narrow picture shows every step completely."""
        running, _ = picture([frame(1.0)], PHONE).iter(f"{SVG}g")

        for name, text in STEPS:
            assert f"{name} " in words(running)
            assert all(word in words(running) for word in text.split())

    def test_phone_picture_can_be_read_on_a_phone(self):
        """At a width of 358 pixels, which a README has on a phone, text is at least 12 pixels high."""
        assert 14 * 358 / PHONE.width >= 12

    def test_recording_keeps_the_first_frame_after_each_chosen_time(self):
        """The number of frames does not depend on the speed of the machine."""
        with RecordingView() as view:
            for tenths in range(201):
                view.show(frame(tenths / 10))

        assert list(SHOWN_AT_S) == [kept.elapsed_s for kept in view.frames]


@pytest.mark.parametrize("canvas", [TERMINAL, PHONE], ids=["terminal", "phone"])
class TestCommittedPicture:
    @pytest.fixture
    def committed(self, canvas) -> str:
        """The text of a picture in the README."""
        return (IMAGES / canvas.file).read_text(encoding="utf-8")

    def test_committed_picture_is_small_and_has_the_recorded_size(self, committed, canvas):
        """It loads fast, as a part of the README."""
        assert len(committed.encode()) < MOST_BYTES
        assert f"0 0 {canvas.width} {canvas.height}" == ElementTree.fromstring(committed).get("viewBox")

    def test_committed_picture_has_colours_for_light_and_dark_pages(self, committed):
        """It can be read on both."""
        assert "prefers-color-scheme:dark" in committed

    def test_committed_picture_contains_no_path_and_loads_nothing(self, committed):
        """Nothing of the machine that recorded it is shown, and a page without network shows it."""
        assert [] == re.findall(r"/(?:tmp|home|root|Users|work)\b|url\(|@import|href", committed)

    @pytest.mark.parametrize("name", [name for name, _ in STEPS])
    def test_committed_picture_shows_every_step_done(self, committed, name):
        """The picture in the README is of a demo that succeeded."""
        *_, summary = ElementTree.fromstring(committed).iter(f"{SVG}g")

        assert f"✓ {name} " in words(summary)
