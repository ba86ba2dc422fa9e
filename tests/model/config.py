"""The configurations to explore: small buckets, each with the actors, faults and times of one part of the protocol.

A configuration is finite by what it allows, not by a number of steps: everything that can happen in it is explored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import lcm
from typing import Any, NamedTuple

from tests.one_bucket import own, stored
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.view import EffectiveLimits

BASE_MS = 1_699_999_200_000
"""The time at phase 0. Only differences between times matter, so all times are relative to this one."""

Milli = tuple[int, ...]
"""Millitokens of each limit of a configuration, in the order of their names."""


class Order(NamedTuple):
    """A write that an actor may attempt: ask (take), settle, combine (take and settle), split, merge, or take across.

    An operator may reset, or grant a credit.

    ``effort``: how many tokens a take gives away so that it is not refused, as in ``core.add_or_set``.
    ``reserve``: what a take must leave, None if it may take everything.
    """

    kind: str
    takes: Milli
    debits: Milli
    credits: Milli
    shard: int = 0
    effort: int = 0
    reserve: Reserve | None = None


@dataclass(frozen=True)
class Config:
    """One bucket and what may happen to it.

    ``versions``: the limits, in the order in which the configuration changes to them. ``own``: the limits are the
    clients' own; client i uses version i. ``consumes``: the requests of a client. ``debts`` and ``refunds``: its
    settlements. ``reserve``: requests are also made that must leave this part of the capacity.
    ``combines``: a settlement may also be put off, and written with the client's next take. ``grain``: a
    shard is split only if its halves are multiples of this many millitokens; this keeps the states finite.
    ``deadline_ticks``: how long a write may be in flight, and how long a client retries it. ``lossy``: the actors
    whose requests and answers may be lost; the aggregator is the last. ``late``: for this many clients, a write that
    was given up may still arrive.

    ``exact``: the bucket always offers what a token bucket in one place would. ``turns``: times repeat after this many
    turns of all grids. ``forgets``: an idle actor drops a view from which no write that requires the hold could be
    made. That loses nothing while the hold is enforced; configurations without it check that. ``deletes``: the bucket
    may be deleted at any time.

    ``unsure``: client 0 at first considers times possible that are up to this many ticks later, and one tick earlier.
    Its bounds get narrower by one tick at a time. The bucket then offers at most what a token bucket in one place
    would. ``kept``: a client forgets a creation after this many ticks, or once the bucket has ``most_writes`` writes.
    Nothing is explored beyond that. ``resets``: clients may reset the bucket. ``grants``: an operator's credits.
    """

    name: str
    about: str
    versions: tuple[tuple[Limit, ...], ...]
    own: bool = False
    consumes: tuple[Mapping[str, int], ...] = ({"fast": 1},)
    debts: tuple[Mapping[str, int], ...] = ()
    refunds: tuple[Mapping[str, int], ...] = ()
    reserve: Reserve | None = None
    combines: bool = False
    efforts: tuple[int, ...] = (0,)
    clients: int = 2
    aggregator: bool = False
    most_shards: int = 1
    clients_split: bool = False
    grain: int = 500
    across: bool = False
    tick_ms: int = 1_000
    deadline_ticks: int = 0
    lossy: tuple[int, ...] = (0, 1)
    late: int = 0
    ttl: int = 0
    created: bool = False
    exact: bool = False
    most_debt: int = 2
    turns: int = 1
    forgets: bool = False
    deletes: bool = False
    unsure: int = 0
    kept: int = 3
    most_writes: int = 4
    resets: bool = False
    grants: tuple[Mapping[str, int], ...] = ()
    deeper: Mapping[str, Any] = field(default_factory=dict)

    def deepened(self) -> "Config":
        """Return the configuration with larger bounds, for a long run."""
        return replace(self, **self.deeper)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all limits."""
        return tuple(sorted({limit.name for limits in self.versions for limit in limits}))

    @cached_property
    def terms(self) -> tuple[EffectiveLimits, ...]:
        """The effective limits of each version."""
        if self.own:
            return tuple(own(*limits, ttl=self.ttl) for limits in self.versions)
        return tuple(stored(*limits, stamp=at, ttl=self.ttl) for at, limits in enumerate(self.versions, start=1))

    @cached_property
    def capacities(self) -> tuple[Milli, ...]:
        """The capacities that each limit may have, smallest first."""
        return tuple(tuple(sorted({limit.capacity_milli for limit in self._all(name)})) for name in self.names)

    @cached_property
    def fold_ms(self) -> int:
        """The time after which every limit of every shard is at the same position in its grid again."""
        whole = (
            lcm(*(limit.refill_period_ms for limits in self.versions for limit in limits), self.tick_ms) * self.turns
        )
        even = all(self._is_even(limit, whole) for limits in self.versions for limit in limits)
        return whole if even else whole * self.most_shards

    @property
    def reserves(self) -> tuple[Reserve | None, ...]:
        """What requests must leave; None is nothing."""
        return (None,) if self.reserve is None else (None, self.reserve)

    @property
    def phases(self) -> int:
        """The number of ticks until times repeat."""
        return self.fold_ms // self.tick_ms

    def now_ms(self, phase: int) -> int:
        """Return the time at a phase."""
        return BASE_MS + phase * self.tick_ms

    def most_earned(self, name: str, ticks: int) -> int:
        """Return the most that a limit earns in this many ticks."""
        span_ms = ticks * self.tick_ms
        return max(-(-span_ms * one.refill_amount_milli // one.refill_period_ms) for one in self._all(name))

    def milli(self, tokens: Mapping[str, int]) -> Milli:
        """Return whole tokens by name as millitokens by position."""
        return tuple(tokens.get(name, 0) * 1000 for name in self.names)

    @cached_property
    def client_orders(self) -> tuple[Order, ...]:
        """Every write that a client may attempt."""
        shards = range(self.most_shards)
        none = self.milli({})
        asks = [Order("ask", self.milli(one), none, none, k, e, reserve)
                for one in self.consumes for k in shards
                for e in self.efforts for reserve in self.reserves]  # fmt: skip
        across = [Order("across", self.milli(one), none, none, 0, e, reserve)
                  for one in self.consumes for e in (0, 1) for reserve in self.reserves if self.across]  # fmt: skip
        debits = [Order("settle", none, self.milli(one), none, k) for one in self.debts for k in shards]
        credits = [Order("settle", none, none, self.milli(one), k) for one in self.refunds for k in shards]
        apart = [(debt, refund) for debt in self.debts for refund in self.refunds if not set(debt) & set(refund)]
        both = [Order("settle", none, self.milli(one), self.milli(other), k) for one, other in apart for k in shards]
        splits = [one for one in self.aggregator_orders if self.clients_split and one.kind == "split"]
        settled = [*debits, *credits, *both]
        return (*asks, *across, *settled, *self._combined(settled), *splits, *self._by_operator())

    def _by_operator(self) -> list[Order]:
        """Every write of an operator. It is written to all shards."""
        none = self.milli({})
        resets = [Order("reset", none, none, none)] if self.resets else []
        return [*resets, *(Order("grant", none, none, self.milli(one)) for one in self.grants)]

    def _combined(self, settlements: Sequence[Order]) -> list[Order]:
        """Return every take with every settlement that may be put off."""
        taken = [(self.milli(one), reserve) for one in self.consumes for reserve in self.reserves if self.combines]
        return [
            one._replace(kind="combine", takes=takes, reserve=reserve)
            for takes, reserve in taken
            for one in settlements
        ]

    @cached_property
    def aggregator_orders(self) -> tuple[Order, ...]:
        """Every write that the aggregator may attempt."""
        none = self.milli({})
        return tuple(Order(kind, none, none, none, k) for kind in ("split", "merge") for k in range(self.most_shards))

    def _all(self, name: str) -> list[Limit]:
        return [limit for limits in self.versions for limit in limits if limit.name == name]

    def _is_even(self, limit: Limit, span_ms: int) -> bool:
        return span_ms * limit.refill_amount_milli // limit.refill_period_ms % self.most_shards == 0
