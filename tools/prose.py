"""Checks the wording of what people read: the pages, and the comments and messages of the source.

    python tools/prose.py                          everything that `make lint` checks
    python tools/prose.py README.md src/x.py       these files only

Three rules, each reported as `file:line: what`:

- Words that a reader stumbles over (`UNCLEAR`), in prose, tables, code blocks, comments, messages and descriptions.
- Sentences above 25 words, in the prose of pages, in docstrings, in comments and in messages of one line.
- Lines above 100 columns, in the prose of pages.

Tables, code blocks, headings, front matter and the targets of links have no maximum length. Inline code is never
searched for words, and counts as one word.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

MOST_WORDS = 25
MOST_COLUMNS = 100
PAGES = ("*.md", "changelog.d/*.md", "docs/**/*.md", "examples/**/*.md", "bench/**/*.md")
SOURCES = ("src/**/*.py", "tools/**/*.py", "bench/**/*.py", "tests/**/*.py", "examples/**/*.py")
SETTINGS = ("*.yml", "*.toml", "Makefile", "src/**/*.yaml", "tools/*.sh", "bench/run", ".ci/run", ".github/**/*.yml")
# Generated from the async tree, or installed.
SKIPPED_FOLDERS = {"_sync", ".venv", ".engines", ".versions", "node_modules"}
# They quote what the check looks for.
SKIPPED_FILES = {"tests/tools/test_prose.py", "tools/prose.py"}

# "none" is lower case only: `is None` is Python. "If there is none" is plain English.
UNCLEAR = re.compile(
    r"\b(?:(?i:aloft|anew|whoever|nobody|under\s+way|so\s+long|is\s+away|in\s+truth|is\s+told)"
    r"|(?<!there )[Ii]s\s+none(?! of\b))\b"
)
_FENCE = re.compile(r"^[\s>]*(`{3,}|~{3,})")
_HEADING = re.compile(r'^\s*(#{1,6}\s|!!! |\?\?\?\+? |=== ")')
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_QUOTE = re.compile(r"^\s*>\s?")
_REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s")
_TARGET = re.compile(r"(?<=\])\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\s+\"[^\"]*\")?\)|https?://[^\s)>]+")
_ATTRIBUTES = re.compile(r"\{[:\s]*[.#][^}]*\}")
_INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TAG = re.compile(r"</?\w[^>]*>|<!--.*?-->", re.DOTALL)
_END_OF_SENTENCE = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!etc)(?<!vs)(?<!cf)[.!?][\"')\]*_”]*(?=\s|$)")
_WORD = re.compile(r"\S*\w\S*")
_SECTION = re.compile(r"^\s*(Args|Attributes|Raises|Returns|Yields|Notes?|Warning|Example|Examples):\s*$")
_ENTRY = re.compile(r"^\s*[*\w][\w.*, ]*(?:\s\([^)]*\))?:\s")
# Not a first line such as #!/bin/sh, a ruler, or an indented line, which is code.
_WHOLE_COMMENT = re.compile(r"^\s*#(?!!| ?-| {3}) ?(.+)$")
_DESCRIBED = re.compile(r"^\s*(?:Description:|AlarmDescription:|[a-z-]+:.*?##)\s*(?:!Sub )?\"?(.+?)\"?$")
_DIRECTIVE = re.compile(r"^(noqa|type:|pragma|fmt:|ruff:|mypy:|!|-\*-)")


class Kind(Enum):
    """What a stretch of text is, which decides the rules that hold for it."""

    PROSE = "prose"
    """A paragraph, or one item of a list."""
    APART = "apart"
    """A heading, a table, or code: only its words are checked."""


class Passage(NamedTuple):
    """Lines that belong together, and the number of the first."""

    line: int
    text: str
    kind: Kind = Kind.PROSE


class Finding(NamedTuple):
    """A line to rewrite, and why."""

    line: int
    what: str


def passages_of_page(page: str) -> Iterator[Passage]:
    """Split a Markdown page into its paragraphs, items, headings, tables and code; front matter is left out."""
    lines = page.splitlines()
    first = _after_front_matter(lines)
    collected: list[str] = []
    began = 0
    fence = ""
    for number, line in enumerate(lines[first:], first + 1):
        marker = _FENCE.match(line)
        closes = bool(fence) and marker is not None and marker[1].startswith(fence)
        kind = _kind_of_line(line) if not fence and marker is None else Kind.APART
        if collected and (kind is not Kind.PROSE or not line.strip() or _ITEM.match(line)):
            yield Passage(began, "\n".join(collected))
            collected = []
        if kind is Kind.APART:
            yield Passage(number, line, kind)
        elif line.strip():
            began = began if collected else number
            collected.append(line)
        if marker and (closes or not fence):
            fence = "" if closes else marker[1]
    if collected:
        yield Passage(began, "\n".join(collected))


def _after_front_matter(lines: Sequence[str]) -> int:
    if lines and lines[0] == "---" and "---" in lines[1:]:
        return lines.index("---", 1) + 1
    return 0


def _kind_of_line(line: str) -> Kind:
    bare = line.strip()
    apart = bare.startswith(("|", "<", "::: ")) or _HEADING.match(line) or _REFERENCE.match(line)
    return Kind.APART if apart else Kind.PROSE


def passages_of_docstring(docstring: str, line: int) -> Iterator[Passage]:
    """Split a docstring that begins on this line into paragraphs, items and entries; indented blocks are code."""
    collected: list[str] = []
    began = line
    in_section = False
    base = _indentation(docstring.splitlines()[1:])
    after_blank = True
    for number, text in enumerate(docstring.splitlines(), line):
        bare = text.strip()
        indented = number > line and bool(bare) and len(text) - len(text.lstrip()) > base
        in_section = bool(_SECTION.match(text)) or (in_section and (indented or not bare))
        is_code = bare.startswith((">>>", "|", "```")) or (indented and after_blank and not in_section)
        is_code = is_code and not _ITEM.match(text)
        starts = _ITEM.match(text) or (in_section and (_ENTRY.match(text) or _SECTION.match(text)))
        if collected and (not bare or is_code or starts):
            yield Passage(began, "\n".join(collected))
            collected = []
        if is_code:
            yield Passage(number, text, Kind.APART)
        elif bare:
            began = began if collected else number
            collected.append(text)
        after_blank = not bare or is_code
    if collected:
        yield Passage(began, "\n".join(collected))


def _indentation(lines: Iterable[str]) -> int:
    return min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)


def passages_of_comments(source: str) -> Iterator[Passage]:
    """Join the comments of consecutive lines; a comment behind code is a passage of its own."""
    collected: list[str] = []
    began = last = column = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string.lstrip("#:").strip()
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(text):
            continue
        line, found_column = token.start
        if text.startswith("|"):
            yield Passage(line, text, Kind.APART)
            continue
        if collected and (line != last + 1 or found_column != column or not text or _ITEM.match(text)):
            yield Passage(began, "\n".join(collected))
            collected = []
        if text:
            began = began if collected else line
            collected.append(text)
        last, column = line, found_column
    if collected:
        yield Passage(began, "\n".join(collected))


def passages_of_settings(text: str) -> Iterator[Passage]:
    """Join the comments of consecutive lines in a template, a script or settings; descriptions are text too."""
    collected: list[str] = []
    began = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = _WHOLE_COMMENT.match(line)
        if comment:
            began = began if collected else number
            collected.append(comment[1])
            continue
        if collected:
            yield Passage(began, "\n".join(collected))
            collected = []
        if described := _DESCRIBED.search(line):
            yield Passage(number, described[1])


def words_of(text: str) -> int:
    """Count the words that a reader reads: inline code is one, the target of a link none."""
    return len(_WORD.findall(_readable(text)))


def _readable(text: str) -> str:
    """The text as a reader sees it, on the same lines."""
    coded = _INLINE_CODE.sub(lambda found: "code" + "\n" * found[0].count("\n"), text)
    return _TAG.sub(" ", _ATTRIBUTES.sub("", _TARGET.sub("", coded)))


def unclear_words(passage: Passage) -> Iterator[Finding]:
    """Report the words that readers stumble over."""
    text = passage.text if passage.kind is Kind.APART and "|" not in passage.text else _readable(passage.text)
    for found in UNCLEAR.finditer(text):
        yield Finding(passage.line + text.count("\n", 0, found.start()), f"unclear: {' '.join(found[0].split())!r}")


def long_sentences(passage: Passage) -> Iterator[Finding]:
    """Report the sentences of a paragraph that have too many words."""
    if passage.kind is not Kind.PROSE:
        return
    lines = [_ITEM.sub("", _QUOTE.sub("", line)) for line in passage.text.split("\n")]
    text = _readable("\n".join(lines))
    start = 0
    for end in [*(found.end() for found in _END_OF_SENTENCE.finditer(text)), len(text)]:
        sentence = text[start:end]
        count = words_of(sentence)
        if count > MOST_WORDS:
            skipped = len(sentence) - len(sentence.lstrip())
            line = passage.line + text.count("\n", 0, start + skipped)
            opening = " ".join(sentence.split()[:6])
            yield Finding(line, f"sentence of {count} words: {opening} ...")
        start = end


def long_lines(passage: Passage) -> Iterator[Finding]:
    """Report the lines of a paragraph that are too wide and could be wrapped."""
    if passage.kind is not Kind.PROSE:
        return
    for number, line in enumerate(passage.text.split("\n"), passage.line):
        width = len(_TARGET.sub("()", line))
        breakable = " " in _INLINE_CODE.sub("code", _ITEM.sub("", line)).strip()
        if width > MOST_COLUMNS and breakable:
            yield Finding(number, f"line of {width} columns")


def check_page(page: str) -> list[Finding]:
    """Check a Markdown page."""
    return sorted(
        finding
        for passage in passages_of_page(page)
        for rule in (unclear_words, long_sentences, long_lines)
        for finding in rule(passage)
    )


def check_settings(text: str) -> list[Finding]:
    """Check the comments and descriptions of a template, a script, settings or a Makefile."""
    passages = passages_of_settings(text)
    return sorted(found for passage in passages for rule in (unclear_words, long_sentences) for found in rule(passage))


def check_source(source: str) -> list[Finding]:
    """Check the docstrings, comments and messages of a Python module."""
    tree = ast.parse(source)
    docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node.value)]
    passages = list(passages_of_comments(source))
    for node in docstrings:
        passages += passages_of_docstring(_text_of(node), node.lineno)
    findings = [found for passage in passages for rule in (unclear_words, long_sentences) for found in rule(passage)]
    for message in _messages(tree, {id(node) for node in docstrings}):
        findings += unclear_words(message)
        # Literals of several lines are mostly SQL, style sheets and scripts.
        if "\n" not in message.text:
            findings += long_sentences(message)
    return sorted(set(findings))


def _messages(tree: ast.AST, known: set[int]) -> Iterator[Passage]:
    """The string literals that read as prose: three words or more. A part of an f-string is not taken twice."""
    literals = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_text(node)]
    parts = {id(part) for node in literals if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in literals:
        if id(node) not in known and id(node) not in parts:
            text = _text_of(node)
            if words_of(text) > 2:
                yield Passage(node.lineno, text)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _text_of(node: ast.expr) -> str:
    """The text of a literal; a value that is put into it becomes a word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) if isinstance(part, ast.Constant) else "value" for part in node.values)
    assert isinstance(node, ast.Constant)
    return str(node.value)


def check(path: Path) -> list[Finding]:
    """Check a file by its kind."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return check_source(text)
    return check_page(text) if path.suffix == ".md" else check_settings(text)


def files(patterns: Iterable[str], root: Path = ROOT) -> Iterator[Path]:
    """The files of the repository that match, without those that are skipped."""
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        if not _is_skipped(path, root):
            yield path


def _is_skipped(path: Path, root: Path) -> bool:
    relative = path.relative_to(root) if path.is_relative_to(root) else path
    return bool(SKIPPED_FOLDERS.intersection(relative.parts)) or relative.as_posix() in SKIPPED_FILES


def main(arguments: Sequence[str]) -> int:
    """Check the named files, or all, and return the exit code."""
    named = [Path(name).resolve() for name in arguments]
    kept = [path for path in named if not _is_skipped(path, ROOT)]
    chosen = kept if named else list(files([*PAGES, *SOURCES, *SETTINGS]))
    findings = [(path, found) for path in chosen for found in check(path)]
    for path, found in findings:
        print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{found.line}: {found.what}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
