"""Divide a bucket into shards: compute shares, route requests, and decide when shards split and merge.

Shard k of N splits into shard k of 2N, the larger half, and shard k+N, the smaller half. So bit i
of a shard number says which half it got when the count went from 2**i to 2**(i+1). The shares of
any whole add up to it exactly, at every count.

Each shard splits by itself, so shards of different counts coexist. A shard k of count N serves
every number that leaves k when divided by N. Together the shards serve every number exactly once.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

MOST_SHARDS = 64

_SPLIT_AT = 0.8
_MERGE_BELOW = 0.25
_QUIET_MS = 180_000
LOOK_APART_MS = 1_000
"""Two readings of a write counter must be at least this many milliseconds apart to give a rate."""
_RELIEVE_APART_MS = 20
_SHORTEST_HOLD_S = 0.02
_LONGEST_HOLD_S = 0.2
_FORGET_HOLD_S = 1.0


def share(whole: int, shard: int, shard_count: int) -> int:
    """Return the part of ``whole`` that belongs to one shard out of ``shard_count``, a power of two."""
    doublings = shard_count.bit_length() - 1
    for doubling in range(doublings):
        # A set bit selects the smaller half, so both halves always add up to the whole.
        whole = whole // 2 if shard >> doubling & 1 else (whole + 1) // 2
    return whole


def least_whole(part: int, shard: int, shard_count: int) -> int:
    """Return the smallest whole of which the shard's share is at least ``part``."""
    doublings = shard_count.bit_length() - 1
    # The inverse of ``share``, from the last halving back to the first.
    for doubling in reversed(range(doublings)):
        part = part * 2 if shard >> doubling & 1 else part * 2 - 1
    return part


def parent(shard: int) -> int:
    """Return the shard that this shard was split from; the shard must not be 0."""
    return shard ^ (1 << (shard.bit_length() - 1))


def ancestor(shard: int, seen: Container[int]) -> int:
    """Return the nearest ancestor of a shard that was seen, 0 if none was."""
    shard = parent(shard)
    while shard and shard not in seen:
        shard = parent(shard)
    return shard


def route(number: int, counts: Mapping[int, int]) -> int:
    """Return the shard for a number, given the counts of the known shards; a count of 0 marks an absent one.

    The result may be a shard that is not in ``counts``. The caller then reads it and routes again.
    A known shard is used even if its parent's count does not include it, because either view may be
    old.
    """
    shard, size = 0, 1
    most = max(counts.values(), default=1)
    while size < most:
        size *= 2
        half = number % size
        count = counts.get(half)
        if count:
            shard = half
        # The count of the current shard says that this half exists, but it was never seen.
        elif count is None and size <= (counts.get(shard) or most):
            return half
    return shard


def is_complete(counts: Mapping[int, int]) -> bool:
    """Return whether shards with these counts serve every number exactly once; 0 marks an absent shard."""
    numbers = [number for shard, count in counts.items() if count for number in range(shard, MOST_SHARDS, count)]
    return len(numbers) == MOST_SHARDS == len(set(numbers))


class Gauge(NamedTuple):
    """A reading of a shard's write counter."""

    at_ms: int
    writes: int


def write_rate(before: Gauge, now: Gauge) -> float | None:
    """Return a shard's writes per second by all clients, None if the two readings are too close."""
    elapsed_ms = now.at_ms - before.at_ms
    if elapsed_ms < LOOK_APART_MS:
        return None
    return (now.writes - before.writes) * 1000 / elapsed_ms


def wants_split(rate: float, most_per_s: int, shard_count: int) -> bool:
    """Return whether a shard with this many writes per second should be split."""
    return rate >= _SPLIT_AT * most_per_s and shard_count < MOST_SHARDS


def splits_for_throttle(partition: bool | None, rate: float | None, most_per_s: int, shard_count: int) -> bool:
    """Return whether a throttled shard should be split.

    ``partition`` says whether the shard's own partition is exhausted, None if the store gives no
    reason. Without a reason, ``rate`` decides: the shard's writes per second, None if unknown.
    Exhausted capacity of the table, an index or the account is no reason, because a new shard would
    be throttled as well.
    """
    if partition is None:
        return rate is not None and wants_split(rate, most_per_s, shard_count)
    return partition and shard_count < MOST_SHARDS


def may_relieve(last_ms: int | None, now_ms: int) -> bool:
    """Return whether a client should read a throttled shard again, which it last read at ``last_ms``.

    Of all requests that a throttle hits at the same time, one reads. The others use its result.
    """
    return last_ms is None or not 0 <= now_ms - last_ms < _RELIEVE_APART_MS


class Hold(NamedTuple):
    """A pause of writes to a throttled shard: its end, on the monotonic clock, and its nominal length."""

    until_s: float
    length_s: float


def held(before: Hold | None, now_s: float, jitter: float) -> Hold:
    """Return the pause after a throttled write; about twice as long as a pause that ended just before.

    During a pause the result is the same pause: the write was sent before it began and adds no
    information. ``jitter`` is at least 0 and below 1.
    """
    if before is not None and now_s < before.until_s:
        return before
    recent = before is not None and now_s < before.until_s + _FORGET_HOLD_S
    length_s = min(_LONGEST_HOLD_S, before.length_s * 2) if before is not None and recent else _SHORTEST_HOLD_S
    return Hold(now_s + length_s * (0.5 + jitter / 2), length_s)


class Calm(NamedTuple):
    """A shard's count, and for how many milliseconds its write rate has stayed low enough for a merge."""

    shard_count: int
    calm_ms: int


def is_calm(rate: float, most_per_s: int) -> bool:
    """Return whether a shard's writes per second are low enough for a merge with another shard."""
    return rate < _MERGE_BELOW * most_per_s


def pair_to_merge(shards: Mapping[int, Calm]) -> tuple[int, int] | None:
    """Return two shards that should be merged, the one that stays first, None if there are none.

    Shards with higher numbers are merged first.
    """
    for shard in sorted(shards, reverse=True):
        count, calm_ms = shards[shard]
        other = shard - count // 2
        fits = count > 1 and other >= 0 and other in shards and shards[other].shard_count == count
        if fits and min(calm_ms, shards[other].calm_ms) >= _QUIET_MS:
            return other, shard
    return None
