"""Asking before anything is deleted."""

import sys

import click

from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._output import paused, print_note, visible


def require_consent(question: str) -> None:
    """Ask whether something may be deleted, and end the command unless it may.

    Raises:
        click.UsageError: Nobody is there to ask.
    """
    if not somebody_is_there():
        raise click.UsageError("nobody is there to ask; give --yes to delete it", click.get_current_context())
    if not _agrees(question):
        print_note("Nothing was deleted.")
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
