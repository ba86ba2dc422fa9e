"""The pages that readers see, and the programs and commands on them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHELLS = ("bash", "console", "sh", "shell")
PROGRAM = "zae-limiter"

# A fence may be in a list or a tab, and so be indented.
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
_INLINE = re.compile(rf"`({PROGRAM} [^`\n]+)`")
_SUBSTITUTED = re.compile(rf"\$\(({PROGRAM} [^)]*)\)")
_ENDS_A_COMMAND = set("();<>|&")
_KEYWORDS = {"!", "do", "else", "if", "then", "time", "until", "while"}
# A reader sees it too: `# Needs the extra cdk.`
_NEEDS = re.compile(r"# Needs the extra (\w+)\.")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, its first line, and the output that is shown right below it."""

    page: Path
    line: int
    language: str
    text: str
    output: str | None = None

    @property
    def place(self) -> str:
        """Its place, for error messages."""
        return f"{named(self.page)}:{self.line}"

    @property
    def needs(self) -> str | None:
        """The extra that its first line says it needs, None if it says nothing."""
        found = _NEEDS.match(self.text)
        return found and found[1]


class Command(NamedTuple):
    """A call of the program on a page; in prose it may leave out required arguments."""

    place: str
    arguments: tuple[str, ...]
    in_prose: bool


def named(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in these languages."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, one.start()) + 1, one["language"], _text(one), _output(text, one.end()))
        for one in _BLOCK.finditer(text)
        if one["language"] in languages
    ]


def programs(page: Path) -> list[Block]:
    """Return the Python programs of a page."""
    return blocks(page, "python", "py", "python3")


def commands(page: Path) -> Iterator[Command]:
    """Return every call of the program on a page, in blocks and in prose."""
    for block in blocks(page, *SHELLS):
        for arguments in calls(block.text):
            yield Command(block.place, arguments, in_prose=False)
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for shown in _INLINE.findall(prose):
        for arguments in calls(shown):
            yield Command(named(page), arguments, in_prose=True)


def calls(script: str) -> Iterator[tuple[str, ...]]:
    """Return the arguments of every call of the program in a script, including those within `$(...)`."""
    for inner in _SUBSTITUTED.findall(script):
        yield from calls(inner)
    for line in _SUBSTITUTED.sub("", script).replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        yield from _calls_of(list(words))


def _calls_of(words: list[str]) -> Iterator[tuple[str, ...]]:
    for position, word in enumerate(words):
        if word != PROGRAM or not (position == 0 or _comes_before_a_command(words[position - 1])):
            continue
        rest = words[position + 1 :]
        end = next((number for number, one in enumerate(rest) if _is_punctuation(one)), len(rest))
        yield tuple(rest[:end])


def _comes_before_a_command(word: str) -> bool:
    return _is_punctuation(word) or word in _KEYWORDS or re.match(r"[A-Z_]+=", word) is not None


def _is_punctuation(word: str) -> bool:
    return bool(word) and set(word) <= _ENDS_A_COMMAND


def _output(page: str, end: int) -> str | None:
    """Return the text block that directly follows a block: its output."""
    below = _BLOCK.match(page, end + 2) if page[end : end + 2] == "\n\n" else None
    return _text(below) if below is not None and below["language"] == "text" else None


def _text(block: re.Match[str]) -> str:
    return re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
