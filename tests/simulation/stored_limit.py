"""One limit of one shard as the simulation's table stores it, computed here and not by the code under test."""

from fractions import Fraction
from math import ceil
from typing import NamedTuple

from tests.many_shards import part_of
from zae_limiter.core.outcome import Item


class Left(NamedTuple):
    """What is left on a shard, and the least that should be, in millitokens."""

    left: int
    least: int


class StoredLimit:
    """One limit of one shard as stored: the part that stays the same while its baseline does."""

    __slots__ = ("amount", "capacity", "count", "dormant", "grid", "name", "period", "rf", "shard", "tc", "tk", "whole")

    def __init__(self, item: Item, name: str, shard: int) -> None:
        self.name = name
        self.tk, self.tc = f"b_{name}_tk", f"b_{name}_tc"
        self.amount, self.period = item[f"b_{name}_ra"], item[f"b_{name}_rp"]
        self.rf, self.shard, self.count = item["rf"], shard, item["shard_count"]
        self.whole = item[f"b_{name}_cp"]
        self.capacity = part_of(self.whole, shard, self.count)
        self.grid = part_of(self.rf * self.amount // self.period, shard, self.count)
        self.dormant = f"b_{name}_dm" in item

    @property
    def terms(self) -> tuple[int, int, int]:
        """The baseline and the rate."""
        return self.rf, self.amount, self.period

    def earned(self, now_ms: int) -> int:
        """Return what the shard has earned since its baseline."""
        if now_ms <= self.rf:
            return 0
        whole = now_ms * self.amount // self.period
        return (whole if self.count == 1 else part_of(whole, self.shard, self.count)) - self.grid

    def offered(self, item: Item, now_ms: int) -> int:
        """Return balance plus earnings, even if that is above the capacity."""
        return int(item[self.tk]) + self.earned(now_ms)

    def left_by(self, fraction: float, balance: int, at_ms: int) -> Left:
        """Return what a take that must leave a part of the capacity has left, by the balance after it."""
        whole = ceil(Fraction(str(fraction)) * self.whole / 1000) * 1000
        return Left(min(self.capacity, balance + self.earned(at_ms)), part_of(whole, self.shard, self.count))
