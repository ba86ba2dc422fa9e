"""Asking before anything is deleted or replaced."""

import sys

import click

from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._output import paused, print_note, visible


def require_consent(question: str, declined: str = "Nothing was deleted.", action: str = "delete it") -> None:
    """Ask before something is deleted or replaced, and end the command unless the user agrees.

    Raises:
        click.UsageError: There is no terminal to ask in.
    """
    if not somebody_is_there():
        raise click.UsageError(f"nobody is there to ask; give --yes to {action}", click.get_current_context())
    if not _agrees(question):
        print_note(declined)
        raise click.exceptions.Exit(FAILED)


def _agrees(question: str) -> bool:
    with paused():
        try:
            return click.confirm(visible(question), err=True)
        except click.Abort:
            # To go away is an answer too; the line of the question ends here.
            click.echo(err=True)
            return False


def somebody_is_there() -> bool:
    """Say whether there is somebody who can answer."""
    return sys.stdin.isatty()
