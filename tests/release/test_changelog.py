"""Changelog fragments and the Unreleased section become the section of a version, by the real towncrier."""

import shutil
from pathlib import Path

import pytest

from tools import changelog

HEAD = "# Changelog\n\nWhat a user would notice.\n\n"
BY_HAND = "### Added\n\n- Zebras, which\n  have stripes.\n- Apes.\n\n### Fixed\n\n- A leak.\n"


@pytest.fixture
def clone(tmp_path) -> Path:
    """Return a clone's changelog files, without fragments."""
    shutil.copy(changelog.ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "changelog.d").mkdir()
    for name in ("README.md", "template.md.jinja"):
        shutil.copy(changelog.ROOT / "changelog.d" / name, tmp_path / "changelog.d")
    (tmp_path / "CHANGELOG.md").write_text(f"{HEAD}## [Unreleased]\n\n{BY_HAND}")
    return tmp_path


def tell(clone: Path, name: str, text: str) -> None:
    (clone / "changelog.d" / name).write_text(text)


def test_unreleased_text_becomes_the_section_of_the_version(clone):
    """Word for word, in its order; so the first release works as the next."""
    changelog.write(clone, "0.1.0", "2030-01-02")

    expected = f"{HEAD}## [Unreleased]\n\n## [0.1.0] - 2030-01-02\n\n{BY_HAND}"
    assert expected == (clone / "CHANGELOG.md").read_text()


def test_fragments_join_the_section_under_their_kind(clone):
    """In the order of Keep a Changelog, each kind once; the fragments are deleted, their page stays."""
    tell(clone, "+bears.added.md", "Bears,\nbrown ones.")
    tell(clone, "12.changed.md", "Bees hum.\n")
    changelog.write(clone, "0.1.0", "2030-01-02")

    expected = (
        "### Added\n\n- Zebras, which\n  have stripes.\n- Apes.\n- Bears,\n  brown ones.\n\n"
        "### Changed\n\n- Bees hum.\n\n### Fixed\n\n- A leak."
    )
    assert expected == changelog.notes(clone, "0.1.0")
    assert {"README.md", "template.md.jinja"} == {path.name for path in (clone / "changelog.d").iterdir()}


def test_next_version_is_written_above_the_last(clone):
    """The last section is unchanged."""
    changelog.write(clone, "0.1.0", "2030-01-02")
    first = changelog.notes(clone, "0.1.0")
    tell(clone, "+more.security.md", "Locks.")
    changelog.write(clone, "0.2.0", "2030-02-03")

    headings = [line for line in (clone / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert ["## [Unreleased]", "## [0.2.0] - 2030-02-03", "## [0.1.0] - 2030-01-02"] == headings
    assert ("### Security\n\n- Locks.", first) == tuple(changelog.notes(clone, one) for one in ("0.2.0", "0.1.0"))


def test_draft_of_the_next_section_changes_nothing(clone):
    """The next section can be read at any time."""
    tell(clone, "+bears.added.md", "Bears.")
    before = {path: path.read_text() for path in clone.rglob("*.*") if path.is_file()}
    shown = changelog.released(clone, "next", "2030-01-02")

    assert "- Apes.\n- Bears." in shown
    assert before == {path: path.read_text() for path in clone.rglob("*.*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        ("+bears.new.md", "0.1.0", "Invalid news fragment name"),
        ("+bears.added.md", "v0.1.0", "write it as 1.2.3"),
    ],
)
def test_fragment_with_a_wrong_name_is_refused(name, version, said, clone):
    """A fragment of an unknown kind would be lost silently."""
    tell(clone, name, "Bears.")

    with pytest.raises(SystemExit, match=said):
        changelog.write(clone, version, "2030-01-02")
    assert (clone / "changelog.d" / name).exists()


def test_version_that_is_already_written_is_refused(clone):
    """It means that a tag was forgotten."""
    changelog.write(clone, "0.1.0", "2030-01-02")

    with pytest.raises(SystemExit, match="has a section"):
        changelog.write(clone, "0.1.0", "2030-01-02")


def test_version_without_text_has_no_notes(clone):
    """So no tag is released before its section is written."""
    with pytest.raises(SystemExit, match="make changelog"):
        changelog.notes(clone, "0.3.0")


def test_changelog_of_this_clone_can_be_released():
    """Its fragments have names that towncrier knows, and known kinds."""
    shown = changelog.released(changelog.ROOT, "99.0.0", "2030-01-02")

    assert changelog.section(shown, "99.0.0")
    assert "" == changelog.section(shown, "Unreleased")
