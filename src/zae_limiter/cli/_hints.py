"""Suggest the next command, with the options that select the same store as the current command."""

import click

STORE = "zae_limiter.store"
"""Key of the options that select the store and the namespace of this command."""
PLACE = "zae_limiter.place"
"""Key of the options that select the store alone."""


def remember(kind: str, options: str) -> None:
    """Store the options of this command for later suggestions."""
    context = click.get_current_context(silent=True)
    if context is not None:
        # ``meta`` is shared with the parent groups, and one of them reports failures.
        context.meta[kind] = options


def is_named() -> bool:
    """Return whether this command selects a limiter on AWS by its name."""
    context = click.get_current_context(silent=True)
    return context is not None and str(context.meta.get(PLACE, "")).startswith(" --name ")


def calling(words: str, kind: str = STORE) -> str:
    """Return a command for the same store: ``zae-limiter system get-defaults --name my-app``."""
    context = click.get_current_context(silent=True)
    options = "" if context is None else context.meta.get(kind, "")
    return f"zae-limiter {words}{options}"
