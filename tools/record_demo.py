"""Record the demo as animated pictures, docs/images/demo.svg and demo-phone.svg.

    python tools/record_demo.py            run the demo for 20 seconds, and write both pictures
    python tools/record_demo.py FOLDER     write them to another folder

The first picture shows a terminal of 80x24. On a phone its text would be too small to read, so the second one is
narrow, with fewer columns and wrapped lines. Both are in light or dark colours as the reader prefers. A reader who
prefers reduced motion sees the summary only.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from xml.sax.saxutils import escape

from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.demo import watch
from zae_limiter.cli.demo.live import Bar, balance_cells, drawing, summary_drawing
from zae_limiter.cli.demo.progress import DemoFrame, DemoReport, Step
from zae_limiter.cli.demo.scenario import Member
from zae_limiter.cli.demo.summary import COLOURS, MARKS, TEXT_STYLES, summary_steps

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"

CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 19, 16


class Canvas(NamedTuple):
    """A picture: the name of its file, and its size in characters."""

    file: str
    columns: int
    rows: int

    @property
    def width(self) -> int:
        """The width in pixels."""
        return round(self.columns * CELL_WIDTH) + 2 * MARGIN

    @property
    def height(self) -> int:
        """The height in pixels."""
        return self.rows * CELL_HEIGHT + 2 * MARGIN


TERMINAL = Canvas("demo.svg", 80, 24)
PHONE = Canvas("demo-phone.svg", 42, 31)
SECONDS = 20.0
EVENTS, PHONE_EVENTS = 4, 3
# The times at which the demo is shown, in seconds, and how long the picture shows each frame and the summary.
SHOWN_AT_S = (0.5, 2.2, 3.2, 4.6, 5.6, 7.0, 9.5, 10.4, 12.0, 14.3, 15.0, 17.0, 19.5)
FRAME_S, SUMMARY_S = 1.3, 8.0
# Characters that are drawn as boxes, because fonts leave gaps between them: top and height as parts of a cell.
BOXES = {"█": (0.12, 0.76), "░": (0.12, 0.76), "─": (0.47, 0.06)}

STYLES = """\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#24292f;white-space:pre}
.bg{fill:#f6f8fa;stroke:#d0d7de}.bold{font-weight:700}
.dim{fill:#59636e}.green{fill:#1a7f37}.yellow{fill:#9a6700}.red{fill:#cf222e}.cyan{fill:#0969da}.blue{fill:#0969da}
.empty{fill:#d8dee4}.rule{fill:#8c959f}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#0d1117;stroke:#30363d}
.dim{fill:#9198a1}.green{fill:#3fb950}.yellow{fill:#d29922}.red{fill:#ff7b72}.cyan{fill:#58a6ff}.blue{fill:#58a6ff}
.empty{fill:#2a313c}.rule{fill:#6e7681}}
.f{visibility:hidden}.last{visibility:visible}
"""


class RecordingView:
    """A view that keeps the frames at the chosen times."""

    every_s = 0.1

    def __init__(self) -> None:
        self.frames: list[DemoFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, frame: DemoFrame) -> None:
        """Keep the first frame after each chosen time."""
        if len(self.frames) < len(SHOWN_AT_S) and frame.elapsed_s >= SHOWN_AT_S[len(self.frames)]:
            self.frames.append(frame)


def pictures(frames: Sequence[DemoFrame], report: DemoReport) -> dict[Canvas, str]:
    """Return both animated pictures: the frames, then the summary."""
    wide = [*(drawing(frame, EVENTS) for frame in frames), summary_drawing(report, MARKS)]
    narrow = [*(narrow_drawing(frame) for frame in frames), narrow_summary(report)]
    return {TERMINAL: picture(wide, TERMINAL), PHONE: picture(narrow, PHONE)}


def narrow_drawing(frame: DemoFrame) -> RenderableType:
    """Draw the demo for a phone: the tokens that are left, the steps with wrapped lines, and the last events."""
    time = Table.grid(expand=True)
    time.add_column(ratio=1)
    time.add_column(justify="right")
    time.add_row(Text("zae-limiter demo", style="bold"), f"{frame.elapsed_s:.1f} of {frame.total_s:g} s")
    balances = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
    balances.add_column(no_wrap=True)
    balances.add_column(ratio=1)
    balances.add_column(justify="right", min_width=len("-10,000"))
    balances.add_row("", "tokens per minute", "left", style="dim")
    for standing in frame.standings:
        shown = balance_cells(standing.limits.get("tpm"), standing.balances.get("tpm", 0))
        balances.add_row(_name(standing.member), *shown)
    passed = Bar(frame.elapsed_s / frame.total_s, "blue")
    log = [Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in frame.events[-PHONE_EVENTS:]]
    return Group(time, passed, Text(), balances, Text(), _steps(frame.steps), Text(), *log)


def narrow_summary(report: DemoReport) -> RenderableType:
    """Draw the summary for a phone."""
    counts = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
    counts.add_column(ratio=1, no_wrap=True)
    for _ in range(3):
        counts.add_column(justify="right")
    counts.add_row("", "admitted", "rejected", "peak", style="dim")
    for line in report.lines:
        numbers = (f"{line.counts.admitted:,}", f"{line.counts.rejected:,}", f"{line.highest_share * 100:.1f} %")
        counts.add_row(_name(line.member), *numbers)
    title = Text(f"zae-limiter demo: {report.processes} processes", style="bold")
    return Group(title, Text(), counts, Text(), _steps(summary_steps(report)))


def _name(member: Member) -> Text:
    return Text(f"  {member.entity_id}") if member.is_key else Text(member.entity_id, style="bold")


def _steps(steps: Iterable[Step]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for step in steps:
        mark_and_name = (Text(text, style=COLOURS[step.state]) for text in (MARKS[step.state], step.name))
        table.add_row(*mark_and_name, Text(step.text, style=TEXT_STYLES[step.state]))
    return table


def picture(screens: Sequence[RenderableType], canvas: Canvas) -> str:
    """Return the animated SVG of these screens. The last one is also shown without animation."""
    last = len(screens) - 1
    groups = [
        f'<g class="f {"last" if number == last else ""} f{number}">{"".join(_screen(screen, canvas))}</g>'
        for number, screen in enumerate(screens)
    ]
    size = f'viewBox="0 0 {canvas.width} {canvas.height}" width="{canvas.width}" height="{canvas.height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" {size}>',
            "<title>zae-limiter demo</title>",
            f"<style>{STYLES}{_animation(last)}</style>",
            f'<rect class="bg" x=".5" y=".5" width="{canvas.width - 1}" height="{canvas.height - 1}" rx="8"/>',
            *groups,
            "</svg>\n",
        ]
    )


def _animation(frames: int) -> str:
    """Return the rules that show one frame after the other, and the summary last."""
    total_s = frames * FRAME_S + SUMMARY_S
    rules = [f".f{{animation:{total_s:.1f}s step-end infinite}}"]
    for number in range(frames + 1):
        start = 100 * number * FRAME_S / total_s
        end = 100 * (number + 1) * FRAME_S / total_s
        begins = (
            "0%{visibility:visible}" if number == 0 else f"0%{{visibility:hidden}}{start:.2f}%{{visibility:visible}}"
        )
        ends = "" if number == frames else f"{end:.2f}%{{visibility:hidden}}"
        last = "visible" if number == frames else "hidden"
        rules.append(
            f"@keyframes k{number}{{{begins}{ends}100%{{visibility:{last}}}}}.f{number}{{animation-name:k{number}}}"
        )
    return f"@media(prefers-reduced-motion:no-preference){{{''.join(rules)}}}"


def _screen(screen: RenderableType, canvas: Canvas) -> Iterator[str]:
    """Draw a screen, segment by segment."""
    width, height = canvas.columns, canvas.rows
    console = Console(width=width, height=height, force_terminal=True, color_system="standard", highlight=False)
    for row, line in enumerate(console.render_lines(screen, pad=False)):
        column = 0
        for segment in Segment.simplify(line):
            yield from _segment(segment, column, row)
            column += segment.cell_length


def _segment(segment: Segment, column: int, row: int) -> Iterator[str]:
    text = segment.text.rstrip()
    if not text:
        return
    start = column + len(text) - len(text.lstrip())
    text = text.lstrip()
    x, y, width = MARGIN + start * CELL_WIDTH, MARGIN + row * CELL_HEIGHT, len(text) * CELL_WIDTH
    if set(text) <= set(BOXES) and len(set(text)) == 1:
        top, height = BOXES[text[0]]
        kind = {"░": "empty", "─": "rule"}.get(text[0]) or " ".join(_classes(segment.style))
        box = f'y="{y + top * CELL_HEIGHT:.1f}" width="{width:.1f}" height="{height * CELL_HEIGHT:.1f}"'
        yield f'<rect class="{kind}" x="{x:.1f}" {box}/>'
        return
    classes = " ".join(_classes(segment.style))
    kind = f' class="{classes}"' if classes else ""
    yield f'<text{kind} x="{x:.1f}" y="{y + 14}" textLength="{width:.1f}">{escape(text)}</text>'


def _classes(style: Style | None) -> Iterable[str]:
    if style is None:
        return
    if style.bold:
        yield "bold"
    if style.dim:
        yield "dim"
    if style.color is not None and not style.color.is_default:
        yield style.color.name


def main(arguments: Sequence[str]) -> int:
    """Run the demo, and write its pictures."""
    view = RecordingView()
    report = asyncio.run(watch(SECONDS, view))
    if report.is_failed or report.is_interrupted:
        sys.stderr.write("the demo failed or was interrupted; no picture was written\n")
        return 1
    folder = Path(arguments[0]) if arguments else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for canvas, text in pictures(view.frames, report).items():
        path = folder / canvas.file
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}: {len(view.frames)} frames, {path.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
