"""Track shards over time: how often each is written, and how long it has been calm. Pure.

A shard counts its own writes, so two readings of the counter give its rate, even if records in
between were missed. A container without memory starts again: a split or a merge then comes later,
and nothing is wrong.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from zae_limiter.core.sharding import Calm, Gauge, is_calm, pair_to_merge, write_rate
from zae_limiter_aggregator.records import BucketRecord

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Watch(NamedTuple):
    """The last reading of a shard, its writes per second before that, and since when it has been calm.

    ``rate`` is None at the first reading, and after the shard count has changed.
    """

    gauge: Gauge
    shard_count: int
    rate: float | None
    calm_since_ms: int

    @property
    def calm(self) -> Calm:
        """The shard's count, and for how many milliseconds it has been calm."""
        return Calm(self.shard_count, self.gauge.at_ms - self.calm_since_ms)


def looked_at(before: Watch | None, at_ms: int, record: BucketRecord, most_per_s: int) -> Watch:
    """Return what is known about a shard after one more reading.

    A reading that is older than the last one, or too close to it, is ignored. Writes before a
    split, a merge or a new creation do not count for the rate after it.
    """
    count, writes = record
    if before is not None and at_ms < before.gauge.at_ms:
        return before
    now = Gauge(at_ms, writes)
    if before is None or before.shard_count != count or writes < before.gauge.writes:
        return Watch(now, count, None, at_ms)
    rate = write_rate(before.gauge, now)
    if rate is None:
        return before
    return Watch(now, count, rate, before.calm_since_ms if is_calm(rate, most_per_s) else at_ms)


def pairs_to_merge(shards: Mapping[int, Watch]) -> list[tuple[int, int]]:
    """Return pairs of shards that should be merged, the shard that stays first."""
    left = {shard: watch.calm for shard, watch in shards.items()}
    pairs = []
    while (pair := pair_to_merge(left)) is not None:
        pairs.append(pair)
        left = {shard: calm for shard, calm in left.items() if shard not in pair}
    return pairs


class Memory(Generic[K, V]):
    """The most recent values, up to a maximum number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """Return the remembered value, or None."""
        return self._kept.get(key)

    def keep(self, key: K, value: V) -> None:
        """Remember a value, and forget the oldest one if there are too many."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
