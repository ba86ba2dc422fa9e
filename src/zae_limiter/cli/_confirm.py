"""Ask for confirmation before something is deleted or replaced."""

import sys

import click

from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._output import paused, print_note, visible


def require_consent(question: str, declined: str = "Nothing was deleted.", action: str = "delete it") -> None:
    """Ask before something is deleted or replaced, and end the command unless the user agrees.

    Raises:
        click.UsageError: There is no terminal.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    if not somebody_is_there():
        raise click.UsageError(f"cannot ask without a terminal; pass --yes to {action}", click.get_current_context())
    if not _agrees(question):
        print_note(declined)
        raise click.exceptions.Exit(FAILED)


def ask_or_warn(question: str, warning: str) -> None:
    """Ask before something is deleted that can be recovered. Without a terminal, print the warning and continue.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    if somebody_is_there():
        require_consent(question)
    else:
        print_note(f"Warning: {visible(warning)}")


def _agrees(question: str) -> bool:
    with paused():
        try:
            return click.confirm(visible(question), err=True)
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            # The end of the input counts as "no". End the line of the question.
            click.echo(err=True)
            return False


def somebody_is_there() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin.isatty()
