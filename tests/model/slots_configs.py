"""The configurations of the model of slots: limits, clocks, orders, and what may happen in each."""

from dataclasses import dataclass, replace
from functools import cached_property

from tests.one_bucket import stored
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.view import EffectiveLimits

BASE_MS = 1_700_000_040_000
"""The time of tick 0. It is a full minute, to which the expiry of an item is rounded."""

TICK_MS = 3_000
"""The width of a cohort of the usual hold."""

EXACT, BEHIND, AHEAD, WIDE = (0, 0), (-1, 0), (0, 1), (-1, 1)
"""By how many ticks the earliest and the latest time of a client differ from the true time."""

FAR_AHEAD = (0, 3)
"""More than a hold."""


def slots(capacity: int, hold_s: int = 6, name: str = "s") -> Limit:
    """Return a limit whose slots are held for two ticks."""
    return Limit.concurrent(name, capacity, hold_seconds=hold_s)


@dataclass(frozen=True)
class SlotConfig:
    """What is explored.

    ``versions`` are the limits in force, one after the other. Each client has ``clocks`` and takes one of ``orders``.
    The first ``lossy`` clients lose requests and answers, and copies of the writes of the first ``late`` arrive later.
    ``only_late``: nothing else is lost.
    ``slow``: time may pass while a write is in flight. ``split``: the bucket has two shards at first. ``reshards`` is
    the largest generation that a split or a merge may lead to, 0 for none. ``renews``: leases renew their slots.
    ``reserve`` is what takes of the first client must leave; None if they may take everything.
    ``writes`` is the largest number of writes; those that are sent again do not count.
    """

    name: str
    versions: tuple[tuple[Limit, ...], ...] = ((slots(2),),)
    clocks: tuple[tuple[int, int], ...] = (EXACT, EXACT)
    orders: tuple[tuple[tuple[str, int], ...], ...] = ((("s", 1),),)
    ticks: int = 4
    lossy: int = 0
    late: int = 0
    only_late: bool = False
    slow: bool = False
    split: bool = False
    reshards: int = 0
    renews: bool = True
    releases: bool = True
    across: bool = False
    deletes: int = 0
    ttl: int = 0
    created: bool = True
    base_ms: int = BASE_MS
    reserve: Reserve | None = None
    writes: int = 4

    @cached_property
    def terms(self) -> tuple[EffectiveLimits, ...]:
        """The effective limits of each version."""
        return tuple(stored(*limits, stamp=at, ttl=self.ttl) for at, limits in enumerate(self.versions, start=1))

    @property
    def shards(self) -> int:
        """The largest number of shards."""
        return 2 if self.split or self.reshards else 1

    @property
    def longest_s(self) -> int:
        """The longest time between a take or a renewal and the end of its cohort, in seconds."""
        return max(one.hold_seconds + one.cohort_seconds for limits in self.versions for one in limits)

    def deepened(self) -> "SlotConfig":
        """Return a larger configuration, for minutes: more time, more writes, and lost answers."""
        return replace(self, ticks=self.ticks + 1, lossy=max(1, self.lossy), writes=self.writes + 1)


_ONE_OR_TWO = ((("s", 1),), (("s", 2),))
_RPM = Limit.custom("r", 1, 1, 3)
_REMOVED = ((slots(1), _RPM), (_RPM,), (slots(1), _RPM))

SLOT_CONFIGS = (
    SlotConfig("takes", orders=_ONE_OR_TWO, ticks=3, lossy=1, writes=3),
    SlotConfig("late", ticks=2, lossy=1, late=1, writes=3, versions=((slots(1),),)),
    SlotConfig("slow", ticks=3, slow=True, versions=((slots(1),),), writes=4),
    SlotConfig("three", clocks=(EXACT, BEHIND, AHEAD), ticks=2, writes=3),
    SlotConfig("clocks", clocks=(BEHIND, AHEAD), versions=((slots(1),),), ticks=5, writes=5),
    SlotConfig("deleted", created=False, deletes=1, lossy=1, ticks=1, writes=4),
    SlotConfig("deleted late", created=False, deletes=1, lossy=1, late=1, ticks=0, versions=((slots(1),),), writes=4),
    SlotConfig("expiry", clocks=(EXACT,), ticks=32, ttl=2, versions=((slots(1, 30),),), base_ms=BASE_MS - 91_000),
    SlotConfig("expiry late", lossy=1, late=1, only_late=True, ticks=8, ttl=2, base_ms=BASE_MS - 22_000, writes=2),
    SlotConfig(
        "expiry renewed late",
        lossy=1,
        late=1,
        only_late=True,
        ticks=8,
        ttl=2,
        base_ms=BASE_MS - 22_000,
        releases=False,
        writes=3,
    ),
    SlotConfig("lowered", orders=_ONE_OR_TWO, versions=((slots(2),), (slots(1),), (slots(2),)), ticks=2, writes=4),
    SlotConfig("removed", versions=_REMOVED, ticks=3, writes=4),
    SlotConfig("held longer", versions=((slots(1),), (slots(1, 9),), (slots(1, 5),)), ticks=3, writes=4),
    SlotConfig(
        "created ahead", created=False, clocks=(FAR_AHEAD, EXACT), ticks=0, versions=_REMOVED, renews=False, writes=6
    ),
    SlotConfig(
        "two limits",
        versions=((slots(1), slots(1, name="u")),),
        orders=((("s", 1),), (("s", 1), ("u", 1)), (("u", 1),)),
        ticks=3,
        writes=4,
    ),
    SlotConfig("reserve", versions=((slots(3),), (slots(2),)), reserve=Reserve(1, 3), ticks=3, writes=4),
    SlotConfig(
        "reserve across",
        versions=((slots(4),),),
        reserve=Reserve(1, 2),
        split=True,
        across=True,
        orders=_ONE_OR_TWO,
        ticks=1,
        writes=3,
    ),
    SlotConfig("shards", reshards=4, ticks=2, writes=4),
    SlotConfig("merged", clocks=(EXACT,), split=True, reshards=3, ticks=2, writes=5, orders=_ONE_OR_TWO),
    SlotConfig(
        "merged lowered",
        clocks=(EXACT,),
        split=True,
        reshards=4,
        ticks=1,
        writes=5,
        renews=False,
        versions=((slots(2),), (slots(1),)),
    ),
    SlotConfig("shards lost", reshards=3, ticks=1, orders=_ONE_OR_TWO, lossy=1, late=1, writes=3),
    SlotConfig("shards lowered", reshards=3, ticks=0, versions=((slots(2),), (slots(1),)), writes=5, renews=False),
    SlotConfig("across", split=True, across=True, orders=_ONE_OR_TWO, ticks=1, lossy=1, writes=3),
    SlotConfig(
        "shards removed",
        split=True,
        versions=((slots(2), _RPM), (_RPM,), (slots(2), _RPM)),
        ticks=2,
        renews=False,
        writes=4,
    ),
)
"""What CI explores."""


def slot_config(name: str) -> SlotConfig:
    """Return a configuration by its name."""
    (found,) = [one for one in SLOT_CONFIGS if one.name == name]
    return found
