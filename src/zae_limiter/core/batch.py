"""Decide which requests to one bucket are sent together, and which of them a balance admits.

Requests are decided in the order of their arrival, each after those before it, as if each had been
sent alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.reserve import Reserve, floor_of
from zae_limiter.core.view import EffectiveLimits, View

Request = Mapping[str, int]
"""Tokens, by the names of limits."""


def together(requests: Iterable[Request]) -> dict[str, int]:
    """Return the sum of requests, by limit."""
    total: dict[str, int] = {}
    for request in requests:
        for name, amount in request.items():
            total[name] = total.get(name, 0) + amount
    return total


def admitted(requests: Iterable[Request], available: Mapping[str, int]) -> list[bool]:
    """Return for each request whether the available tokens suffice for it, after those admitted before it.

    A limit that is not in ``available`` rejects nothing.
    """
    left = dict(available)
    result = []
    for request in requests:
        fits = all(amount <= left.get(name, amount) for name, amount in request.items() if amount)
        if fits:
            for name, amount in request.items():
                if name in left:
                    left[name] -= amount
        result.append(fits)
    return result


def fitting(requests: Sequence[Request], room: Mapping[str, int]) -> int:
    """Return how many requests, counted from the first, fit into ``room`` together."""
    left = dict(room)
    for count, request in enumerate(requests):
        for name, amount in request.items():
            if amount and name in left:
                left[name] -= amount
                if left[name] < 0:
                    return count
    return len(requests)


def room_of(
    view: View[Any], terms: EffectiveLimits, now: TimeBounds, reserve: Reserve | None = None, *, of_soft: bool = False
) -> dict[str, int]:
    """Return the tokens that each limit in force has above a reserve, by a view.

    A soft limit rejects nothing. With ``of_soft``, soft rate limits are included: what they lack is only counted.
    """
    shares = enumerate(view.layout.shared.shares[: len(view.layout.limits)])
    return {
        one.name: view.level(position, now[0]) // 1000 - floor_of(one.limit, reserve)
        for position, one in shares
        if one.name in terms.positions and (one.limit.enforce or (of_soft and one.limit.kind == "rate"))
    }


def capacities_of(terms: EffectiveLimits, reserve: Reserve | None = None) -> dict[str, int]:
    """Return the capacity of each limit that rejects, above a reserve: the most that one write can take."""
    return {limit.name: limit.capacity - floor_of(limit, reserve) for limit in terms.limits if limit.enforce}
