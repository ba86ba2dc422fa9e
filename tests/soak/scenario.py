"""The entities and limits of a soak, and the leases that are drawn. Values only."""

from dataclasses import dataclass
from random import Random

from zae_limiter import Limit

RESOURCE = "api"
DEADLINE_S = 1.0
CONFIG_CACHE_TTL_S = 1.0
# No bucket expires while a busy machine does not use it: its totals would be lost.
TTL_MULTIPLIER = 1_000

# One limit that refills in a second, and one that refills slowly.
LIMITS = (Limit.per_second("rps", 8), Limit.custom("tpm", 200, 20, 1))
LOWER = (Limit.per_second("rps", 5), Limit.custom("tpm", 100, 10, 1))
HIGHER = (Limit.per_second("rps", 12), Limit.custom("tpm", 250, 25, 1))
PARENT_LIMITS = (Limit.per_second("rps", 12), Limit.custom("tpm", 300, 30, 1))
# These limits have enough for any number of requests.
PLENTY = (Limit.per_second("rps", 400), Limit.custom("tpm", 4_000, 400, 1))
NAMES = tuple(limit.name for limit in LIMITS)


@dataclass(frozen=True, slots=True)
class Member:
    """An entity: its possible limits, its parent, and its largest number of shards."""

    variants: tuple[tuple[Limit, ...], ...] = (LIMITS,)
    parent_id: str | None = None
    most_shards: int = 1
    merges: bool = False

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Its first limits."""
        return self.variants[0]

    @property
    def is_steady(self) -> bool:
        """Whether its limits never change."""
        return len(self.variants) == 1

    def most(self, name: str) -> tuple[int, float]:
        """Return the largest capacity of a limit, and the most that it earns per second, in millitokens."""
        found = [limit for limits in self.variants for limit in limits if limit.name == name]
        return max(one.capacity for one in found) * 1000, max(one.refill_rate for one in found) * 1000


PARENT_ID = "family"
MEMBERS = {
    "solo": Member(),
    "busy": Member(variants=(PLENTY,)),
    "wide": Member(most_shards=8, merges=True),
    "tuned": Member(variants=(LIMITS, LOWER, HIGHER)),
    "kid-0": Member(parent_id=PARENT_ID),
    "kid-1": Member(parent_id=PARENT_ID),
    PARENT_ID: Member(variants=(PARENT_LIMITS,), most_shards=4),
}
CALLED = tuple(entity_id for entity_id in MEMBERS if entity_id != PARENT_ID)
SHARDED = tuple(entity_id for entity_id, member in MEMBERS.items() if member.most_shards > 1)

SMALL = 5
# More than an eighth of the capacity, so that a bucket of eight shards has to give it from several.
LARGE = 40
OFTEN_LARGE = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one lease: a take, perhaps another or a release, then an adjustment or a failure."""

    entity_id: str
    consume: dict[str, int]
    more: int = 0
    released: int = 0
    adjusted: int = 0
    fails: bool = False
    held_s: float = 0.0
    on_unavailable: str = "block"


def draw(random: Random) -> Plan:
    """Draw a lease at random; every kind of settlement occurs."""
    tokens = LARGE if random.random() < OFTEN_LARGE else random.randint(0, SMALL)
    plan = {"consume": {"rps": 1, "tpm": tokens}}
    kinds = [
        {},
        {"adjusted": random.randint(1, SMALL)},
        {"adjusted": -random.randint(0, tokens)},
        {"fails": True},
        {"released": random.randint(0, tokens)},
        {"more": random.randint(1, SMALL)},
        {"held_s": random.random() / 10, "more": 1, "fails": True},
    ]
    kind = random.choice(kinds)
    # A further take that is allowed while the store is unavailable is charged when the lease ends without error.
    choice = "block" if "more" in kind else random.choice(["block", "allow"])
    return Plan(random.choice(CALLED), **plan, **kind, on_unavailable=choice)
