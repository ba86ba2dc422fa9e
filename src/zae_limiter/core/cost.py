"""Decide how a lease is adjusted once the cost of a call is known."""

from collections.abc import Collection, Mapping

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.names import check_amount, check_limit_name


def cost_changes(taken: Mapping[str, int], counted: Collection[str], cost: object) -> dict[str, int]:
    """Return by how much each limit is adjusted for a cost: amounts by the names of limits, or None for no change.

    The first amount of a limit replaces what was taken of it, and later amounts are added. A limit without an amount
    keeps what was taken.

    Args:
        taken: What was taken before the call, by the names of limits.
        counted: The limits that have had an amount before, from earlier items of the same call.
        cost: The actual amounts, as the caller's function has returned them.

    Raises:
        ValidationError: The cost is neither a mapping nor None, or a name or an amount is invalid.
    """
    if cost is None:
        return {}
    if not isinstance(cost, Mapping):
        raise ValidationError("cost", cost, "must return a dict of limit names and amounts, or None")
    changes: dict[str, int] = {}
    for name, amount in cost.items():
        check_limit_name(name)
        check_amount(f"cost[{name}]", amount)
        changes[name] = amount if name in counted else amount - taken.get(name, 0)
    return changes
