"""Commands that a user is told to call next, with the options that lead to the store this one works on."""

import click

STORE = "zae_limiter.store"
"""The options that lead to the store and the namespace of this command."""
PLACE = "zae_limiter.place"
"""Those that lead to the store alone."""


def remember(kind: str, options: str) -> None:
    """Keep the options of this command for what the user is told later."""
    context = click.get_current_context(silent=True)
    if context is not None:
        # Shared with the groups above, one of which tells of failures.
        context.meta[kind] = options


def is_named() -> bool:
    """Say whether the store of this command is a limiter on AWS that was given by its name."""
    context = click.get_current_context(silent=True)
    return context is not None and str(context.meta.get(PLACE, "")).startswith(" --name ")


def calling(words: str, kind: str = STORE) -> str:
    """Return a command on the same store: ``zae-limiter system get-defaults --name my-app``."""
    context = click.get_current_context(silent=True)
    options = "" if context is None else context.meta.get(kind, "")
    return f"zae-limiter {words}{options}"
