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


FAST = Limit("fast", 2, 1, 1)
"""Two tokens, one of which is refilled with every tick."""

SLOW = Limit("slow", 1, 1, 3)
"""One token that is refilled in thirds, which are rounded."""

_PAIR = {"fast": 1, "slow": 1}
_SHARDS = Config(
    "shards",
    "one shard is split and two are merged, based on old views, while a client takes from either",
    ((FAST,),),
    clients=1,
    aggregator=True,
    most_shards=2,
    created=True,
    lossy=(),
    deeper={"lossy": (0, 1)},
)

CONFIGS = (
    Config(
        "takes",
        "two clients with old views create and take one or two tokens; requests and answers are lost",
        ((FAST,),),
        consumes=({"fast": 1}, {"fast": 2}),
        exact=True,
        deeper={"versions": ((Limit("fast", 4, 1, 1),),), "clients": 3, "lossy": (0, 1, 2)},
    ),
    Config(
        "efforts",
        "takes that give tokens away so that they are not refused again",
        ((FAST,),),
        efforts=(0, 1, 2),
        deeper={"versions": ((Limit("fast", 3, 1, 1),),), "consumes": ({"fast": 1}, {"fast": 2})},
    ),
    Config(
        "settle",
        "a lease is adjusted up, also into debt, or credited",
        ((FAST,),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        exact=True,
        most_debt=1,
        deeper={"debts": ({"fast": 1}, {"fast": 2}), "most_debt": 3, "consumes": ({"fast": 1}, {"fast": 2})},
    ),
    Config(
        "combined",
        "a settlement is put off and written with the client's next take; requests and answers are lost",
        ((FAST,),),
        consumes=({"fast": 1}, {"fast": 2}),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        combines=True,
        exact=True,
        most_debt=1,
        lossy=(0,),
        deeper={"lossy": (0, 1), "debts": ({"fast": 1}, {"fast": 2}), "most_debt": 2},
    ),
    Config(
        "combined limits",
        "a take is combined with the settlement of another limit, and the bucket may expire",
        ((Limit("fast", 1, 1, 1), Limit("slow", 1, 1, 1)),),
        consumes=({"fast": 1}, _PAIR),
        debts=({"slow": 1},),
        refunds=({"fast": 1}, {"slow": 1}),
        combines=True,
        ttl=2,
        most_debt=1,
        lossy=(),
        deeper={"lossy": (0,), "debts": ({"slow": 1}, {"fast": 1})},
    ),
    Config(
        "combined deleted",
        "the bucket is deleted and created again while settlements are put off",
        ((FAST,),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        combines=True,
        most_debt=1,
        deletes=True,
        exact=True,
        lossy=(),
        deeper={"lossy": (0, 1)},
    ),
    Config(
        "combined late",
        "a combined write that was given up for lost still arrives",
        ((FAST,),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        clients=1,
        combines=True,
        most_debt=1,
        late=1,
        lossy=(0,),
        deeper={"clients": 2, "deletes": True},
    ),
    Config(
        "late",
        "a request that was given up for lost still arrives",
        ((FAST,),),
        late=1,
        deeper={"late": 2},
    ),
    Config(
        "delay",
        "writes are in flight while time passes, up to a deadline of one tick",
        ((FAST,),),
        deadline_ticks=1,
        deeper={"deadline_ticks": 2, "consumes": ({"fast": 1}, {"fast": 2})},
    ),
    Config(
        "top-ups",
        "a client that knew the time roughly returns what its create withheld, while another takes and credits",
        ((Limit("fast", 3, 1, 1),),),
        consumes=({"fast": 1}, {"fast": 2}),
        refunds=({"fast": 1},),
        unsure=2,
        lossy=(),
        deeper={"lossy": (0,), "kept": 4, "most_writes": 6},
    ),
    Config(
        "top-ups late",
        "requests and answers of the same client are lost, or arrive late",
        ((FAST,),),
        consumes=({"fast": 1}, {"fast": 2}),
        unsure=1,
        kept=2,
        late=1,
        lossy=(0,),
        deeper={"refunds": ({"fast": 1},), "kept": 3, "most_writes": 5},
    ),
    Config(
        "speeds",
        "two limits with different rates, one of which is refilled in rounded parts",
        ((Limit("fast", 1, 1, 1), SLOW),),
        consumes=({"fast": 1}, _PAIR),
        exact=True,
        lossy=(),
        deeper={"lossy": (0, 1)},
    ),
    Config(
        "stored",
        "stored limits are lowered and raised, and each client learns of it at some later time",
        ((FAST,), (Limit("fast", 1, 1, 1),), (Limit("fast", 3, 2, 1),)),
        lossy=(0,),
        forgets=True,
        deeper={"lossy": (0, 1), "forgets": False},
    ),
    Config(
        "own",
        "two clients bring their own limits, and each rebases the bucket to them again and again",
        ((FAST,), (Limit("fast", 3, 2, 1),)),
        own=True,
        deeper={"consumes": ({"fast": 1}, {"fast": 2})},
    ),
    Config(
        "added",
        "a limit is added and removed again and again",
        ((FAST,), (FAST, Limit("slow", 1, 1, 2))),
        own=True,
        consumes=({"fast": 1}, _PAIR),
        lossy=(),
        deeper={"lossy": (0, 1)},
    ),
    Config(
        "expiry",
        "an unused item expires and is created again; a debt is not forgotten with it",
        ((FAST,),),
        ttl=2,
        debts=({"fast": 1},),
        most_debt=1,
        lossy=(),
        deeper={"lossy": (0, 1), "late": 1},
    ),
    Config(
        "deleted",
        "the bucket is deleted and created again at any time, while leases are credited or charged",
        ((FAST,),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        most_debt=1,
        deletes=True,
        exact=True,
        lossy=(),
        deeper={"lossy": (0, 1), "late": 1},
    ),
    Config(
        "resets",
        "a bucket is reset again and again, while leases are credited or charged; requests and answers are lost",
        ((FAST,),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        resets=True,
        exact=True,
        most_debt=1,
        lossy=(0,),
        deeper={"lossy": (0, 1), "deletes": True, "most_debt": 2},
    ),
    Config(
        "resets limits",
        "a bucket is reset while two clients move it to other limits, and remove and add one",
        ((FAST,), (Limit("fast", 1, 1, 1), Limit("slow", 1, 1, 2))),
        own=True,
        consumes=({"fast": 1}, _PAIR),
        resets=True,
        lossy=(),
        deeper={"lossy": (0, 1)},
    ),
    Config(
        "resets unsure",
        "a client that knows the time roughly resets the bucket",
        ((FAST,),),
        consumes=({"fast": 1}, {"fast": 2}),
        resets=True,
        unsure=1,
        kept=2,
        lossy=(),
        deeper={"lossy": (0,)},
    ),
    Config(
        "resets expiry",
        "a bucket is reset while it may expire; a debt is not forgotten with it",
        ((FAST,),),
        ttl=2,
        debts=({"fast": 1},),
        most_debt=1,
        resets=True,
        lossy=(),
        deeper={"lossy": (0,)},
    ),
    Config(
        "operator credits",
        "two operators give back what was spent, with the same key, while leases are credited or charged",
        ((FAST,),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        grants=({"fast": 2},),
        exact=True,
        most_debt=1,
        lossy=(0, 1),
        deeper={"most_debt": 2, "deletes": True, "late": 1},
    ),
    Config(
        "operator credits limits",
        "an operator gives back what was spent while two clients move the bucket to other limits",
        ((FAST,), (Limit("fast", 1, 1, 1),)),
        own=True,
        grants=({"fast": 1},),
        lossy=(),
        deeper={"lossy": (0,)},
    ),
    _SHARDS,
    replace(
        _SHARDS,
        name="resets shards",
        about="all shards are reset, based on views from before they split and merged, while leases are credited",
        refunds=({"fast": 1},),
        resets=True,
        forgets=True,
        deeper={"lossy": (0,), "forgets": False},
    ),
    replace(
        _SHARDS,
        name="operator credits shards",
        about="an operator gives back what was spent, to all shards, while they split and merge",
        grants=({"fast": 2},),
        forgets=True,
        deeper={"lossy": (0,), "refunds": ({"fast": 1},), "forgets": False},
    ),
    replace(
        _SHARDS,
        name="reborn",
        about="a bucket with several shards is deleted and created again, while leases are credited",
        refunds=({"fast": 1},),
        deletes=True,
        forgets=True,
        deeper={"forgets": False},
    ),
    replace(
        _SHARDS,
        name="rivals",
        about="the client also splits, based on views from before the aggregator split and merged",
        clients_split=True,
        deeper={"lossy": (0,)},
    ),
    replace(
        _SHARDS,
        name="torn",
        about="transactions of the aggregator whose requests and answers are lost are resent with their token",
        lossy=(1,),
        forgets=True,
        deeper={"forgets": False},
    ),
    replace(
        _SHARDS,
        name="across",
        about="a client takes more than a shard's share, from all shards in one write, while they split and merge",
        consumes=({"fast": 2},),
        across=True,
        lossy=(0,),
        deeper={"consumes": ({"fast": 1}, {"fast": 2}), "lossy": (0, 1)},
    ),
    Config(
        "reserves",
        "some requests must leave half of the capacity; others take it meanwhile",
        ((Limit("fast", 3, 1, 1),),),
        consumes=({"fast": 1}, {"fast": 2}),
        reserve=Reserve(1, 3),
        efforts=(0, 1),
        lossy=(0,),
        deeper={"versions": ((Limit("fast", 4, 1, 1),),), "lossy": (0, 1), "efforts": (0, 1, 2)},
    ),
    Config(
        "reserves rebased",
        "requests that must leave a part take from a bucket whose capacity is lowered and raised",
        ((Limit("fast", 2, 1, 1),), (Limit("fast", 3, 1, 1),)),
        own=True,
        reserve=Reserve(1, 3),
        lossy=(),
        deeper={"consumes": ({"fast": 1}, {"fast": 2}), "lossy": (0,)},
    ),
    Config(
        "reserves combined",
        "requests that must leave a part are written with settlements that were put off",
        ((Limit("fast", 3, 1, 1),),),
        debts=({"fast": 1},),
        refunds=({"fast": 1},),
        reserve=Reserve(1, 3),
        combines=True,
        most_debt=1,
        lossy=(),
        deeper={"lossy": (0,), "consumes": ({"fast": 1}, {"fast": 2})},
    ),
    replace(
        _SHARDS,
        name="reserves across",
        about="a request that must leave a part of each shard takes from all of them, while they split and merge",
        reserve=Reserve(1, 2),
        across=True,
        forgets=True,
        deeper={"consumes": ({"fast": 1}, {"fast": 2}), "lossy": (0, 1)},
    ),
    replace(
        _SHARDS,
        name="refunds",
        about="shards split and merge while leases are credited",
        refunds=({"fast": 1},),
        forgets=True,
        deeper={"debts": ({"fast": 1},), "most_debt": 1},
    ),
)


def config(name: str) -> Config:
    """Return a configuration by its name."""
    return next(one for one in CONFIGS if one.name == name)
