"""Record the demo as an animated picture, docs/images/demo.svg.

    python tools/record_demo.py            run the demo for 20 seconds, and write the picture
    python tools/record_demo.py FILE       write it to another file

The picture shows a terminal of 80x24, in light or dark colours as the reader prefers. A reader who
prefers reduced motion sees the summary only.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from xml.sax.saxutils import escape

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from zae_limiter.cli.demo import watch
from zae_limiter.cli.demo.live import drawing, summary_drawing
from zae_limiter.cli.demo.progress import DemoFrame, DemoReport
from zae_limiter.cli.demo.summary import MARKS

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"

COLUMNS, ROWS = 80, 24
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 19, 16
WIDTH, HEIGHT = round(COLUMNS * CELL_WIDTH) + 2 * MARGIN, ROWS * CELL_HEIGHT + 2 * MARGIN
_SIZE = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
SECONDS = 20.0
EVENTS = 4
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


def picture(frames: Sequence[DemoFrame], report: DemoReport) -> str:
    """Return the animated SVG: the frames, then the summary."""
    screens = [drawing(frame, EVENTS) for frame in frames] + [summary_drawing(report, MARKS)]
    groups = [
        f'<g class="f {"last" if number == len(frames) else ""} f{number}">{"".join(_screen(screen))}</g>'
        for number, screen in enumerate(screens)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" {_SIZE}>',
            "<title>zae-limiter demo</title>",
            f"<style>{STYLES}{_animation(len(frames))}</style>",
            f'<rect class="bg" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
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


def _screen(screen: RenderableType) -> Iterator[str]:
    """Draw a screen, segment by segment."""
    console = Console(width=COLUMNS, height=ROWS, force_terminal=True, color_system="standard", highlight=False)
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
    """Run the demo, and write its picture."""
    view = RecordingView()
    report = asyncio.run(watch(SECONDS, view))
    if report.is_failed or report.is_interrupted:
        sys.stderr.write("the demo failed or was interrupted; no picture was written\n")
        return 1
    path = Path(arguments[0]) if arguments else PICTURE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture(view.frames, report), encoding="utf-8")
    sys.stdout.write(f"{path}: {len(view.frames)} frames, {path.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
