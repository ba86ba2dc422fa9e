"""Stands in for the module of the same name that only the runtime of AWS Lambda has: it keeps hooks to be called."""

from collections.abc import Callable
from typing import Any

hooks: list[Callable[[], Any]] = []


def register_after_restore(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Call a function after a snapshot was restored."""
    hooks.append(hook)
    return hook
