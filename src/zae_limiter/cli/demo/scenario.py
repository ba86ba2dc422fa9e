"""Define the entities of the demo: projects, their API keys, and the limits stored for them. Pure."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import DEFAULT_RESOURCE

RESOURCE = "demo-model"
FAILS_ONE_IN = 30
LIMIT_NAMES = ("rpm", "tpm")
# Each process learns of a raised limit within this many seconds.
CACHE_TTL_S = 1.0
# A busy machine may delay a write. The demo shows an outage on a file of its own, and not by accident.
TRAFFIC_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class DemoCall:
    """A call of the model: its estimate, and what it actually uses."""

    estimated: int
    used: int
    takes_s: float
    pause_s: float
    fails: bool


@dataclass(frozen=True, slots=True)
class DemoKey:
    """An API key with a process of its own; its callers share its limits, and also take from its project."""

    entity_id: str
    callers: int
    tokens: int
    takes_s: float
    pause_s: float

    def call(self, random: Random) -> DemoCall:
        """Draw the next call of one caller."""
        estimated = round(self.tokens * random.uniform(0.7, 1.3) / 10) * 10
        return DemoCall(
            estimated=estimated,
            used=round(estimated * random.uniform(0.5, 1.4)),
            takes_s=self.takes_s * random.uniform(0.5, 1.5),
            pause_s=self.pause_s * random.uniform(0.5, 1.5),
            fails=random.randrange(FAILS_ONE_IN) == 0,
        )


@dataclass(frozen=True, slots=True)
class Project:
    """An entity with child keys."""

    entity_id: str
    keys: tuple[DemoKey, ...]


class Member(NamedTuple):
    """An entity of the demo: a project, or a key with its project as parent."""

    entity_id: str
    parent_id: str | None

    @property
    def is_key(self) -> bool:
        """Whether it is a key."""
        return self.parent_id is not None


class StoredLimits(NamedTuple):
    """Limits stored for an entity, for one resource or for all."""

    entity_id: str
    resource: str
    limits: tuple[Limit, ...]


class Raise(NamedTuple):
    """A limit of an entity that is raised while the demo runs."""

    entity_id: str
    resource: str
    before: Limit
    after: Limit


def members(projects: tuple[Project, ...]) -> Iterator[Member]:
    """Return every entity, each project before its keys."""
    for project in projects:
        yield Member(project.entity_id, None)
        yield from (Member(key.entity_id, project.entity_id) for key in project.keys)


PROJECTS = (
    Project(
        "demo-project-1",
        (
            DemoKey("demo-key-1a", callers=5, tokens=300, takes_s=0.25, pause_s=0.1),
            DemoKey("demo-key-1b", callers=3, tokens=800, takes_s=0.5, pause_s=0.2),
        ),
    ),
    Project(
        "demo-project-2",
        (
            DemoKey("demo-key-2a", callers=4, tokens=1_500, takes_s=0.6, pause_s=0.1),
            DemoKey("demo-key-2b", callers=2, tokens=400, takes_s=0.3, pause_s=0.6),
        ),
    ),
)


def _per_minute(name: str, rate: int, capacity: int) -> Limit:
    return Limit.custom(name, capacity=capacity, refill_amount=rate, refill_period_seconds=60)


# Each capacity is a few seconds of refill, so that effects show within seconds.
RESOURCE_LIMITS = (_per_minute("rpm", 300, 10), _per_minute("tpm", 120_000, 6_000))
RAISED = Raise(
    "demo-project-2",
    DEFAULT_RESOURCE,
    before=_per_minute("tpm", 120_000, 6_000),
    after=_per_minute("tpm", 480_000, 24_000),
)
ENTITY_LIMITS = (
    StoredLimits(
        "demo-project-1",
        RESOURCE,
        (_per_minute("rpm", 480, 16), _per_minute("tpm", 180_000, 9_000)),
    ),
    # A parent may have other limits than its children: here only tokens, for all resources.
    StoredLimits(RAISED.entity_id, RAISED.resource, (RAISED.before,)),
    StoredLimits(
        "demo-key-2a",
        RESOURCE,
        (_per_minute("rpm", 600, 20), _per_minute("tpm", 300_000, 15_000)),
    ),
)

# A caller that uses up its only token, and waits for the next.
WAITER = "demo-waiter"
# A stream that uses more than its estimate.
STREAM = "demo-stream"
STREAM_ESTIMATE = 500
STREAM_CHUNK = 300
STREAM_CHUNKS = 8
STEP_LIMITS = (
    StoredLimits(WAITER, RESOURCE, (Limit.custom("rps", capacity=1, refill_amount=2, refill_period_seconds=1),)),
    StoredLimits(STREAM, RESOURCE, (_per_minute("tpm", 30_000, 1_000),)),
)
# So slow that the refill does not change the balance within the demo.
OUTAGE_LIMIT = Limit.per_day("rpd", 5)
