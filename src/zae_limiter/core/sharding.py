"""Shards of a bucket: a shard's share of a whole, which shard a request goes to, and when shards split and merge.

Shard k of 2N is the larger half of shard k of N, shard k+N the smaller, so bit i of the shard number says which
half it got when the count went from 2**i to 2**(i+1). Shares of any whole add up to it exactly, at every count.
Each shard splits by itself, so shards of different counts stand side by side: a shard of count N has every number
that leaves k when divided by N, and together they have every number once.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

MOST_SHARDS = 64

_SPLIT_AT = 0.8
_MERGE_BELOW = 0.25
_QUIET_MS = 180_000
LOOK_APART_MS = 1_000
"""Looks at a write counter that are closer than this do not tell a rate."""
_RELIEVE_APART_MS = 20
_SHORTEST_HOLD_S = 0.02
_LONGEST_HOLD_S = 0.2
_FORGET_HOLD_S = 1.0


def share(whole: int, shard: int, shard_count: int) -> int:
    """Return what of ``whole`` falls to one shard out of ``shard_count``, a power of two."""
    doublings = shard_count.bit_length() - 1
    for doubling in range(doublings):
        whole = whole // 2 if shard >> doubling & 1 else (whole + 1) // 2
    return whole


def least_whole(part: int, shard: int, shard_count: int) -> int:
    """Return the smallest whole of which the shard's share is at least ``part``."""
    doublings = shard_count.bit_length() - 1
    for doubling in reversed(range(doublings)):
        part = part * 2 if shard >> doubling & 1 else part * 2 - 1
    return part


def parent(shard: int) -> int:
    """Return the shard that a shard other than 0 was split off."""
    return shard ^ (1 << (shard.bit_length() - 1))


def ancestor(shard: int, seen: Container[int]) -> int:
    """Return the nearest of the shards that a shard was split off which was seen, 0 if none was."""
    shard = parent(shard)
    while shard and shard not in seen:
        shard = parent(shard)
    return shard


def route(number: int, counts: Mapping[int, int]) -> int:
    """Return the shard that a number falls to, by the counts of the shards that are known, 0 for one that is absent.

    The answer may be a shard that nothing is known of: then it is to be looked at, and the number routed again. A shard
    that is known counts though the one it was split off does not tell of it: either may have been seen long ago.
    """
    shard, size = 0, 1
    most = max(counts.values(), default=1)
    while size < most:
        size *= 2
        half = number % size
        count = counts.get(half)
        if count:
            shard = half
        elif count is None and size <= (counts.get(shard) or most):
            return half
    return shard


def is_complete(counts: Mapping[int, int]) -> bool:
    """Say whether shards of these counts, 0 for one that is absent, have every number, and each of them once."""
    numbers = [number for shard, count in counts.items() if count for number in range(shard, MOST_SHARDS, count)]
    return len(numbers) == MOST_SHARDS == len(set(numbers))


class Gauge(NamedTuple):
    """A shard's write counter at a time."""

    at_ms: int
    writes: int


def write_rate(before: Gauge, now: Gauge) -> float | None:
    """Return a shard's writes per second, by all clients; None if the two looks are too close to tell."""
    elapsed_ms = now.at_ms - before.at_ms
    if elapsed_ms < LOOK_APART_MS:
        return None
    return (now.writes - before.writes) * 1000 / elapsed_ms


def wants_split(rate: float, most_per_s: int, shard_count: int) -> bool:
    """Say whether a shard with so many writes per second should be split."""
    return rate >= _SPLIT_AT * most_per_s and shard_count < MOST_SHARDS


def splits_for_throttle(partition: bool | None, rate: float | None, most_per_s: int, shard_count: int) -> bool:
    """Say whether a throttled shard should be split.

    ``partition`` is what the store says: whether the shard's own partition is full, None if it gives no reason. Then
    the ``rate`` of the shard's own writes per second decides, None if it is not known yet. A throttle of the table, an
    index or the account is not a reason: every shard would be throttled as well.
    """
    if partition is None:
        return rate is not None and wants_split(rate, most_per_s, shard_count)
    return partition and shard_count < MOST_SHARDS


def may_relieve(last_ms: int | None, now_ms: int) -> bool:
    """Say whether a client should look at a shard that takes no writes, which it last did at ``last_ms``.

    Of all its requests that a throttle hits at once, one looks, and the others find what it has learnt.
    """
    return last_ms is None or not 0 <= now_ms - last_ms < _RELIEVE_APART_MS


class Hold(NamedTuple):
    """Until when a client leaves a shard alone that took no write, by the clock that never goes back, and how long."""

    until_s: float
    length_s: float


def held(before: Hold | None, now_s: float, jitter: float) -> Hold:
    """Return the hold that follows a write that was not taken, about twice as long as one that ended just before.

    Where one is on, the write was sent before it began and says nothing new. ``jitter`` is at least 0 and below 1.
    """
    if before is not None and now_s < before.until_s:
        return before
    recent = before is not None and now_s < before.until_s + _FORGET_HOLD_S
    length_s = min(_LONGEST_HOLD_S, before.length_s * 2) if before is not None and recent else _SHORTEST_HOLD_S
    return Hold(now_s + length_s * (0.5 + jitter / 2), length_s)


class Calm(NamedTuple):
    """A shard's count, and for how long its rate of writes has stayed under what a merge allows."""

    shard_count: int
    calm_ms: int


def is_calm(rate: float, most_per_s: int) -> bool:
    """Say whether a shard has so few writes per second that it could be merged with another."""
    return rate < _MERGE_BELOW * most_per_s


def pair_to_merge(shards: Mapping[int, Calm]) -> tuple[int, int] | None:
    """Return two shards that should be merged, the one that stays and the one that goes; shard 0 comes last."""
    for shard in sorted(shards, reverse=True):
        count, calm_ms = shards[shard]
        other = shard - count // 2
        fits = count > 1 and other >= 0 and other in shards and shards[other].shard_count == count
        if fits and min(calm_ms, shards[other].calm_ms) >= _QUIET_MS:
            return other, shard
    return None
