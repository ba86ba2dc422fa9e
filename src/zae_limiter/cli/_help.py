"""Format the help of commands: options below headings, and preformatted text below the options."""

from itertools import groupby
from typing import Any

import click

# Makes click keep the line breaks of a paragraph.
_AS_WRITTEN = "\b"


def examples(*commands: str) -> str:
    """Format example commands that can be copied."""
    return section("Examples" if len(commands) > 1 else "Example", *commands)


def section(title: str, *lines: str) -> str:
    """Format lines below a title."""
    return "\n".join([_AS_WRITTEN, f"{title}:", *(f"  {line}" for line in lines)])


def json_shape(*lines: str) -> str:
    """Format the description of what ``--json`` prints."""
    return section("JSON", *lines)


def help_of(*sections: str) -> str:
    """Join sections."""
    return "\n\n".join(sections)


class SectionedOption(click.Option):
    """An option that is listed below a heading."""

    def __init__(self, *declarations: Any, section: str, **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.section = section


class SectionedCommand(click.Command):
    """List the options below their headings, in the order of their declaration, after the options without one."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        parameters = self.get_params(ctx)
        sectioned = [one for one in parameters if isinstance(one, SectionedOption)]
        others = [one for one in parameters if not isinstance(one, SectionedOption)]
        self._write("Options", others, formatter, ctx)
        for section, members in groupby(sectioned, key=lambda one: one.section):
            self._write(section, list(members), formatter, ctx)

    def _write(self, title: str, parameters: list[Any], formatter: click.HelpFormatter, ctx: click.Context) -> None:
        records = [record for one in parameters if (record := one.get_help_record(ctx)) is not None]
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
