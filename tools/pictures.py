"""Draws the pictures of the documentation into docs/images/, for light and dark mode.

    python tools/pictures.py            write them
    python tools/pictures.py --check    fail if a file differs from what would be written

The numbers are those of the programs on the same pages, and come from the functions that count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from zae_limiter import BucketState
from zae_limiter.bucket import force_consume, refill_bucket, try_consume

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
# On a phone a picture is shown at two thirds of its width, so text is large.
WIDTH = 520
STYLE = """
  svg { color-scheme: light dark; font: 16px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
  .card { fill: #ffffff; stroke: #d9dde4; } .box { fill: #f2f4f8; stroke: #cfd5df; }
  text { fill: #14181f; } .dim { fill: #5b6472; font-size: 15px; } .bold { font-weight: 600; }
  .bar { fill: #2f6feb; } .used { fill: #f29f05; } .debt { fill: #d13438; } .bad { fill: #c62a2f; }
  .on { fill: #ffffff; font-weight: 600; }
  .line { stroke: #2f6feb; stroke-width: 3; fill: none; stroke-linejoin: round; }
  .axis { stroke: #5b6472; stroke-width: 1.5; fill: none; }
  .dash { stroke: #5b6472; stroke-dasharray: 5 4; fill: none; }
  .cross { stroke: #c62a2f; stroke-width: 3; fill: none; } .head { fill: #5b6472; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #171b22; stroke: #2f3642; } .box { fill: #222832; stroke: #3a4250; }
    text { fill: #e8ebf0; } .dim { fill: #a3adbd; } .bad { fill: #ff8f8f; }
    .bar { fill: #5a93ff; } .used { fill: #f5b642; } .debt { fill: #f2777b; } .on { fill: #10141b; }
    .line { stroke: #6098ff; } .axis, .dash { stroke: #98a2b3; } .cross { stroke: #ff8f8f; } .head { fill: #98a2b3; }
  }
"""


def picture(title: str, height: int, parts: Iterable[str]) -> str:
    """Return a picture on a card of its own, readable on any background."""
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="12"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(title)}</title>'
    return "\n".join([head, f"<style>{STYLE}</style>", card, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a line of text."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box", radius: int = 8) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'


def path(drawn: str, kind: str) -> str:
    """Return a line."""
    return f'<path class="{kind}" d="{drawn}"/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a vertical arrow, upwards or downwards, which may lean."""
    back = 9 if to_y < y else -9
    head = f"M{to_x:g} {to_y:g} l-6 {back} h12 z"
    return path(f"M{x:g} {y:g} L{to_x:g} {to_y + back:g}", "axis") + path(head, "head")


def bucket_of(capacity: int, refill_amount: int, refill_period_s: int, tokens: int) -> BucketState:
    """Return a bucket as of time 0."""
    return BucketState(
        entity_id="user-1",
        resource="gpt-4",
        limit_name="tpm",
        tokens_milli=tokens * 1000,
        last_refill_ms=0,
        capacity_milli=capacity * 1000,
        refill_amount_milli=refill_amount * 1000,
        refill_period_ms=refill_period_s * 1000,
    )


def level_milli(bucket: BucketState, now_ms: int) -> int:
    """Return the level at a time, in thousandths."""
    return refill_bucket(bucket, now_ms).new_tokens_milli


def debt() -> str:
    """Draw the level of a bucket before a call, after the estimate, after the adjustment and after the refill."""
    start = bucket_of(1_000, 1_000, 60, tokens=600)
    taken = try_consume(start, 500, 0)
    levels = [600_000, taken.new_tokens_milli]
    after = replace(start, tokens_milli=taken.new_tokens_milli)
    after = replace(after, tokens_milli=force_consume(after, 230, 0).new_tokens_milli)
    levels += [after.tokens_milli, level_milli(after, 8_000)]
    steps = [
        ("before", "600 left"),
        ("acquire", "takes 500"),
        ("adjust", "takes 230 more"),
        ("8 s later", "debt is paid"),
    ]
    zero, parts = 205, [text(22, 34, "tokens left, of a limit of 1,000 per minute", "dim", "start")]
    for place, (milli, (name, what)) in enumerate(zip(levels, steps, strict=True)):
        x, tokens = 82 + place * 119, milli // 1000
        size = max(3, abs(tokens) * 0.2)
        parts.append(box(x - 38, zero - size if tokens >= 0 else zero, 76, size, "bar" if tokens >= 0 else "debt", 3))
        y = zero - size - 9 if tokens >= 0 else zero + size + 20
        parts.append(text(x, y, f"{tokens:,}".replace("-", "\N{MINUS SIGN}"), "bold" if tokens >= 0 else "bold bad"))
        parts += [text(x, 275, name, "bold"), text(x, 297, what, "dim")]
    first = 82 + 119
    parts.append(path(f"M{first - 38} {zero - 20} v-100 h76 v100", "dash"))
    parts += [text(first, zero - 78, "estimate", "dim"), path(f"M22 {zero} H498", "axis")]
    return picture("Estimate, adjust and debt", 318, parts)


CALLS = {1: 6, 2: 4, 5: 6, 7: 6, 9: 1}


def token_bucket() -> str:
    """Draw the level over twenty seconds of the program in docs/guide/token-bucket.md."""
    bucket = bucket_of(10, 1, 1, tokens=10)
    left, bottom, wide, high = 46, 236, 22.5, 17.5

    def point(ms: int, milli: int) -> str:
        return f"{left + ms * wide / 1000:g} {bottom - milli * high / 1000:g}"

    drawn, parts = f"M{point(0, 10_000)}", [text(left - 10, 30, "tokens", "dim", "start")]
    for second, amount in CALLS.items():
        now_ms = second * 1000
        before = level_milli(bucket, now_ms)
        result = try_consume(bucket, amount, now_ms)
        drawn += f" L{point(now_ms, before)}"
        x, y = (float(part) for part in point(now_ms, before).split())
        if result.success:
            drawn += f" L{point(now_ms, result.new_tokens_milli)}"
            parts.append(text(x + 6, y - 7, f"\N{MINUS SIGN}{amount}", "bold", "start"))
        else:
            parts.append(path(f"M{x - 6} {y - 6} l12 12 m0 -12 l-12 12", "cross"))
            parts.append(path(f"M{x} {y - 9} V{bottom - 7.6 * high}", "dash"))
            wait = f"{amount} rejected: wait {result.retry_after_seconds:g} s"
            parts.append(text(x - 8, bottom - 8 * high, wait, "bold bad", "start"))
        bucket = replace(bucket, tokens_milli=result.new_tokens_milli, last_refill_ms=result.new_last_refill_ms)
    full_ms = bucket.last_refill_ms + bucket.capacity_milli - bucket.tokens_milli
    drawn += f" L{point(full_ms, 10_000)} L{point(20_000, 10_000)}"
    top = bottom - 10 * high
    parts += [
        path(f"M{left} {top} H{left + 20 * wide}", "dash"),
        text(left + 20 * wide, top - 10, "capacity 10", "dim", "end"),
        text(left + 12.2 * wide, bottom - 3 * high, "refill: 1 per second", "dim", "start"),
        path(f"M{left} {top - 12} V{bottom} H{left + 20 * wide + 6}", "axis"),
        path(drawn, "line"),
        *(text(left - 10, bottom - level * high + 5, str(level), "dim", "end") for level in (0, 5, 10)),
        *(text(left + second * wide, bottom + 22, f"{second} s", "dim") for second in (0, 5, 10, 15, 20)),
    ]
    return picture("A token bucket over time", 274, parts)


LEVELS = [
    ("entity and resource", "big-customer on gpt-4", "rpm 200, tpm 90,000"),
    ("entity", "big-customer", "rpm 600"),
    ("resource", "gpt-4", "rpm 20, tpm 10,000"),
    ("system", "every call", "rpm 60"),
]


def config_levels() -> str:
    """Draw the levels of the program in docs/guide/config.md, in the order of the lookup."""
    parts = [text(22, 34, "The first level that has limits applies.", "dim", "start")]
    for place, (name, whose, limits) in enumerate(LEVELS):
        y = 50 + place * 78
        parts += [
            box(22, y, 476, 54),
            text(38, y + 23, f"{place + 1}. {name}", "bold", "start"),
            text(38, y + 44, whose, "dim", "start"),
            text(484, y + 33, limits, "bold", "end"),
        ]
        if place < len(LEVELS) - 1:
            parts += [arrow(48, y + 55, 48, y + 77), text(62, y + 71, "if it has no limits", "dim", "start")]
    return picture("The four levels of stored limits", 356, parts)


def hierarchy() -> str:
    """Draw the levels of docs/guide/hierarchical.md after the first call, and the second call."""
    parts = [
        *_entity(160, 20, "acme", 2_000, 900),
        *_entity(160, 148, "search", 1_500, 900),
        *_entity(22, 292, "key-1", 1_000, 900),
        *_entity(298, 292, "key-2", 1_000, 0),
        arrow(260, 147, 260, 105),
        arrow(130, 291, 215, 233),
        arrow(390, 291, 305, 233),
        arrow(122, 418, 122, 377),
        arrow(398, 418, 398, 377),
        text(122, 439, "takes 900 from", "bold"),
        text(122, 460, "key-1, search and acme", "dim"),
        text(398, 439, "wants 900: rejected", "bold bad"),
        text(398, 460, "search has 600 left", "dim"),
        text(274, 131, "cascade", "dim", "start"),
        text(150, 264, "cascade", "dim", "end"),
        text(370, 264, "cascade", "dim", "start"),
    ]
    return picture("A hierarchy of an organisation, a team and two keys", 478, parts)


def _entity(x: float, y: float, name: str, capacity: int, used: int) -> list[str]:
    width = 200
    filled = (width - 32) * used / capacity
    return [
        box(x, y, width, 84),
        text(x + 16, y + 25, name, "bold", "start"),
        text(x + width - 16, y + 25, f"{capacity:,} tpm", "dim", "end"),
        box(x + 16, y + 37, width - 32, 14, "bar", 4),
        *([box(x + 16, y + 37, filled, 14, "used", 4)] if used else []),
        text(x + 16, y + 71, f"{used:,} used", "dim", "start"),
        text(x + width - 16, y + 71, f"{capacity - used:,} left", "dim", "end"),
    ]


def shards() -> str:
    """Draw a bucket of 1,000 tokens as one, two and four shards."""
    parts = [text(22, 34, "One limit of 1,000 per minute, more and more writes", "dim", "start")]
    for row, count in enumerate((1, 2, 4)):
        y, wide = 50 + row * 92, (476 - 12 * (count - 1)) / count
        for shard in range(count):
            x = 22 + shard * (wide + 12)
            parts += [box(x, y, wide, 32, "bar", 6), text(x + wide / 2, y + 22, f"{1_000 // count:,}", "on")]
        writes = f"{count} shard{'s' if count > 1 else ''}: up to {count * 1_000:,} writes per second"
        parts.append(text(22, y + 55, writes, "", "start"))
        if count < 4:
            parts += [arrow(480, y + 40, 480, y + 85), text(466, y + 72, "split", "dim", "end")]
    parts.append(text(22, 326, "The shares always add up to the limit. Each has a partition.", "dim", "start"))
    return picture("A bucket that is split into shards", 346, parts)


PICTURES: dict[str, Callable[[], str]] = {
    "debt.svg": debt,
    "token-bucket.svg": token_bucket,
    "config-levels.svg": config_levels,
    "hierarchy.svg": hierarchy,
    "shards.svg": shards,
}


def outdated(folder: Path = FOLDER) -> list[str]:
    """Return the names of the files that differ from what would be written."""
    wanted = {name: draw() for name, draw in PICTURES.items()}
    return [
        name
        for name, drawn in wanted.items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != drawn
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the pictures, or check them, and return the exit code."""
    if "--check" in arguments:
        for name in outdated():
            print(f"docs/images/{name} is outdated; run python tools/pictures.py")
        return 1 if outdated() else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
