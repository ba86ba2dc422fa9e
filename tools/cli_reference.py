"""Write docs/cli.md, the reference of the command line, from the commands themselves.

    python tools/cli_reference.py            write it
    python tools/cli_reference.py --check    fail if it is out of date

A new command or option needs no edit here: the page contains whatever `zae-limiter --help` prints.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import click

from zae_limiter.cli import main as root
from zae_limiter.cli._failures import BLOCKED, FAILED, INTERRUPTED, MISUSED, TRY_LATER, UNAVAILABLE

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"
PROGRAM = "zae-limiter"

# An option that at least this many commands have, with the same help, is described once.
COMMON_FROM = 6

_COLUMNS = 100
_AS_WRITTEN = "\b"
_CODE = re.compile(
    r"(?<![\w`/-])(--[a-z][a-z-]+|_[a-z]+_|[A-Z]+(?:_[A-Z]+)+|(?:sqlite|dynamodb|memory)://[^\s,;`]*[^\s.,;`:])"
)

INTRODUCTION = f"""\
<!-- Written by tools/cli_reference.py; change the commands, not this page. -->

# Command line

`{PROGRAM} --help`, and `--help` after any command, print the same as this page.

- **Data goes to stdout; notes, progress and errors go to stderr.** Tables are drawn in a terminal
  and are plain when piped. `--json` prints JSON for programs.
- **Errors are one line** that says what to do. A mistyped command or option suggests similar ones.
- **Deletions ask for confirmation** unless you pass `--yes`. Without a terminal they need `--yes`.
  `namespace delete` only warns then, because a namespace can be recovered.
- **Reading creates nothing.** Only commands that write create a SQLite file. All others report a
  missing one, with exit code {FAILED}.
- **Select a limiter** on AWS with `--name`, or any store with `--url`. With neither, commands that
  read and write data use `ZAE_LIMITER_URL`, else a SQLite file in your data directory.

## Exit codes

| code | what it means |
| --- | --- |
| 0 | The command succeeded. |
| {FAILED} | The command failed, or you declined. |
| {MISUSED} | The command or one of its arguments is invalid. |
| {UNAVAILABLE} | The store or AWS does not answer, refuses, or does not exist (`EX_UNAVAILABLE`). |
| {TRY_LATER} | A limit has too few tokens; stderr says when to retry (`EX_TEMPFAIL`). |
| {BLOCKED} | An operator has blocked the entity, or one that it cascades to (`EX_NOPERM`). |
| {INTERRUPTED} | You interrupted the command. |
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command, and the words that call it."""

    path: tuple[str, ...]
    command: click.Command
    context: click.Context

    @property
    def title(self) -> str:
        """The words after the program's name."""
        return " ".join(self.path[1:])

    def options(self) -> list[click.Parameter]:
        """Return the documented options: all but hidden ones and --help."""
        return [
            one
            for one in self.command.get_params(self.context)
            if isinstance(one, click.Option) and not one.hidden and "--help" not in one.opts
        ]


class Row(NamedTuple):
    """An option: its form, and its help."""

    written: str
    told: str


def entries(
    command: click.Command = root, path: tuple[str, ...] = (PROGRAM,), above: click.Context | None = None
) -> Iterator[Entry]:
    """Yield all commands, each group before its members."""
    context = click.Context(command, info_name=path[-1], parent=above)
    yield Entry(path, command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            if not member.hidden:
                yield from entries(member, (*path, name), context)


def page(command: click.Command = root, program: str = PROGRAM) -> str:
    """Return the whole page."""
    everything = list(entries(command, (program,)))
    common = _common(everything)
    parts = [INTRODUCTION, _contents(everything), _common_options(common)]
    parts += [_told(entry, common) for entry in everything[1:]]
    return "\n".join(parts)


def row(option: click.Parameter, context: click.Context) -> Row:
    """Return the form and the help of an option."""
    record = option.get_help_record(context)
    assert record is not None, f"{option.name} has no help"
    written, told = record
    return Row(written, re.sub(r"\s+", " ", told).strip())


def code(text: str) -> str:
    """Return text as code that is valid in a table."""
    if "|" not in text:
        return f"`{text}`"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return f"<code>{escaped}</code>"


def _common(everything: Sequence[Entry]) -> list[Row]:
    """Return the options that many commands have, in the order of their first use."""
    told = [row(option, entry.context) for entry in everything for option in entry.options()]
    return [one for one, times in Counter(told).items() if times >= COMMON_FROM]


def _contents(everything: Sequence[Entry]) -> str:
    rows = [
        f"| [`{entry.title}`](#{_anchor(entry)}) | {_summary(entry)} |" for entry in everything if len(entry.path) == 2
    ]
    return "\n".join(["## Commands", "", "| command | what it does |", "| --- | --- |", *rows, ""])


def _common_options(common: Sequence[Row]) -> str:
    told = "Many commands have these options. The section of a command lists only its other options."
    return "\n".join(["## Common options", "", told, "", *_table(common), ""])


def _told(entry: Entry, common: Sequence[Row]) -> str:
    """Return the section of one command."""
    usage = " ".join([*entry.path, *entry.command.collect_usage_pieces(entry.context)])
    parts = [f"{'#' * len(entry.path)} {entry.title}", *_prose(entry.command.help or "")]
    if isinstance(entry.command, click.Group):
        parts.append("\n".join(_members(entry)))
    else:
        parts += [f"```text\n{usage}\n```", *_options(entry, common)]
    parts += _below(entry.command.epilog or "")
    return "\n\n".join(parts) + "\n"


def _members(entry: Entry) -> list[str]:
    members = [one for one in entries(entry.command, entry.path, entry.context.parent) if len(one.path) == 3]
    rows = [f"| [`{one.title}`](#{_anchor(one)}) | {_summary(one)} |" for one in members]
    return ["| command | what it does |", "| --- | --- |", *rows]


def _options(entry: Entry, common: Sequence[Row]) -> list[str]:
    """Return the tables of a command's own options below their headings, and a line with the common ones."""
    parts = []
    own = [one for one in entry.options() if row(one, entry.context) not in common]
    for title, members in groupby(sorted(own, key=_has_section), key=lambda one: getattr(one, "section", "")):
        rows = [row(one, entry.context) for one in members]
        parts.append("\n".join([*([f"**{title}**", ""] if title else []), *_table(rows)]))
    also = [one for one in entry.options() if row(one, entry.context) in common]
    if also:
        names = ", ".join(f"`{_long(one)}`" for one in also)
        parts.append(_wrapped(f"{'And' if own else 'With'} the [common options](#common-options) {names}."))
    return parts


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [f"| {code(written)} | {_worded(told)} |" for written, told in rows]
    return ["| option | what it does |", "| --- | --- |", *lines]


def _has_section(option: click.Parameter) -> bool:
    return hasattr(option, "section")


def _long(option: click.Parameter) -> str:
    return max(option.opts, key=len)


def _summary(entry: Entry) -> str:
    """Return the one-line summary of a command."""
    return _worded(entry.command.get_short_help_str(limit=200))


def _anchor(entry: Entry) -> str:
    """Return the anchor of a command's heading."""
    return "-".join(entry.path[1:])


def _worded(text: str) -> str:
    """Return a sentence with options, variables and URLs as code; what click adds in brackets is in italics."""
    text = _CODE.sub(lambda match: f"`{match[0]}`", text).replace("|", "&#124;").replace("<", "&lt;")
    return re.sub(r"\s*\[((?:default|env var|required|x|\d)[^\]]*)\]", lambda match: f" *({match[1]})*", text)


def _prose(text: str) -> list[str]:
    """Return the paragraphs of a help text; preformatted ones stay as they are."""
    paragraphs = inspect.cleandoc(text.partition("\f")[0]).split("\n\n")
    return [
        f"```text\n{inspect.cleandoc(one.partition(_AS_WRITTEN)[2])}\n```"
        if one.startswith(_AS_WRITTEN)
        else _wrapped(_worded(" ".join(one.split())))
        for one in paragraphs
        if one.strip()
    ]


def _wrapped(text: str) -> str:
    """Return a paragraph in lines of at most 100 columns."""
    return "\n".join(textwrap.wrap(text, _COLUMNS, break_long_words=False, break_on_hyphens=False))


def _below(epilog: str) -> list[str]:
    """Return the text below the options: examples, exit codes, and other lists."""
    parts = []
    for block in filter(None, (part.strip("\n") for part in epilog.split(_AS_WRITTEN))):
        title, _, rest = block.partition("\n")
        lines = inspect.cleandoc(rest).splitlines() if rest else []
        parts.append(_list_of(title.strip().removesuffix(":"), lines))
    return parts


def _list_of(title: str, lines: Sequence[str]) -> str:
    if title.startswith("Example"):
        return "\n".join(["```bash", *lines, "```"])
    codes = [re.fullmatch(r"(\d+)\s+(.*)", line) for line in lines]
    if title == "Exit codes" and all(codes):
        rows = [f"| {match[1]} | {_worded(match[2])} |" for match in codes if match]
        return "\n".join(["| exit code | what it means |", "| --- | --- |", *rows])
    if len(lines) < 2:
        return _wrapped(f"{title}: {code(lines[0])}" if lines else _worded(title))
    return "\n".join([f"{title}:", "", "```text", *lines, "```"])


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it, and return the exit code."""
    wanted = page()
    if "--check" not in arguments:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if found == wanted:
        return 0
    changes = difflib.unified_diff(found.splitlines(), wanted.splitlines(), "docs/cli.md", "expected", n=1)
    print("\n".join([*changes, "docs/cli.md is out of date; run: make reference"][:80]), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
