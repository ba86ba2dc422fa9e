"""Define groups of commands: with aliases, and with suggestions for a mistyped command."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

_MOST_SUGGESTED = 3


class CommandGroup(click.Group):
    """A group of commands. An alias calls a command by another name, and is not listed."""

    def __init__(self, *declarations: Any, aliases: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.aliases = dict(aliases or {})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name or alias, None if there is none."""
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the called command; suggest similar names if it does not exist."""
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"No such command {name!r}.{did_you_mean(self.similar(ctx, name))}", ctx)

    def similar(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands and aliases that a mistyped name may mean, the most similar first."""
        return closest(name, [*self.list_commands(ctx), *self.aliases])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command. An option of a command is an error that says where it belongs."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            reason = f"No such option {error.option_name!r} before the command; pass options after it."
            raise click.UsageError(reason, ctx) from error


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Return the most similar names, the best first; none if all are too different."""
    # Imported here, because only a mistyped command needs it.
    from difflib import get_close_matches

    return get_close_matches(name.lower(), list(names), _MOST_SUGGESTED)


def did_you_mean(names: list[str]) -> str:
    """Return a question that suggests names, after a space; empty without names."""
    if not names:
        return ""
    *others, last = [repr(name) for name in names]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
