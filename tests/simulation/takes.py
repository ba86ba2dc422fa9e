"""Recognize a take by the conditions of its write."""

from tests.simulation.server import Change
from zae_limiter.schema.operations import Ranges, Update


def takes(change: Change) -> bool:
    """Return whether a write is a take. Only a take, or a rebase that uses tokens, has conditions on balances."""
    operation = change.operation
    if not isinstance(operation, Update):
        return False
    return "rf" in operation.set or any(condition.__class__ is Ranges for condition in operation.when)


def is_bounded(change: Change, balance: str) -> bool:
    """Return whether a take requires a lowest balance of a limit. Others of its limits are only settled with."""
    when = change.operation.when if isinstance(change.operation, Update) else ()
    ranges = [one for condition in when if isinstance(condition, Ranges) for one in condition.ranges]
    return not ranges or any(name == balance for name, _, _ in ranges)
