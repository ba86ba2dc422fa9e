"""Replacement for the module of the same name that only AWS Lambda's runtime has: it stores the hooks to call."""

from collections.abc import Callable
from typing import Any

hooks: list[Callable[[], Any]] = []


def register_after_restore(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Call a function after a snapshot was restored."""
    hooks.append(hook)
    return hook
