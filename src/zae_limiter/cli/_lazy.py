"""Define a group that imports its commands when they are called, but lists them before."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli._failures import told_in_one_line
from zae_limiter.cli._groups import CommandGroup, closest
from zae_limiter.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The module and attribute of a command, and its summary."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        """Import the command."""
        command = getattr(import_module(self.module), self.attribute)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(CommandGroup):
    """The outermost group: load commands when they are called, and report failures in one line."""

    def __init__(self, *, lazy_commands: dict[str, LazyCommand], **settings: Any) -> None:
        super().__init__(**settings)
        self._lazy_commands = lazy_commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in an order that suits new users."""
        return list(self._lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        found = self._lazy_commands.get(cmd_name)
        return None if found is None else found.load()

    def similar(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that a mistyped name may mean, else the commands of groups, such as entity create."""
        found = super().similar(ctx, name)
        return found or self._similar_members(ctx, name)

    def _similar_members(self, ctx: click.Context, name: str) -> list[str]:
        paths: dict[str, list[str]] = {}
        for own in self._lazy_commands:
            group = self.get_command(ctx, own)
            for member in group.list_commands(ctx) if isinstance(group, click.Group) else []:
                paths.setdefault(member, []).append(f"{own} {member}")
        return [path for member in closest(name, paths)[:1] for path in paths[member]]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self._lazy_commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete the name of a command without loading any, and the options before it."""
        from click.shell_completion import CompletionItem

        if not incomplete or incomplete[0].isalnum():
            named = [(name, command.summary) for name, command in self._lazy_commands.items()]
            return [CompletionItem(name, help=summary) for name, summary in named if name.startswith(incomplete)]
        return click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        with told_in_one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with told_in_one_line():
            return super().invoke(ctx)
