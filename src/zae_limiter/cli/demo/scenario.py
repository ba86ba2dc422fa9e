"""Who takes part in the demo: projects with the same limits and different habits. Pure."""

from dataclasses import dataclass
from random import Random

from zae_limiter.core.limit import Limit

RESOURCE = "demo-model"
LIMITS = (Limit.per_second("rps", 5, burst=10), Limit.per_second("tps", 3_000, burst=6_000))
FAILS_ONE_IN = 30


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the model: what is thought of it before, and what comes of it."""

    estimated: int
    used: int
    takes_s: float
    pause_s: float
    fails: bool


@dataclass(frozen=True, slots=True)
class Project:
    """An entity whose callers share its limits."""

    entity_id: str
    habit: str
    callers: int
    tokens: int
    takes_s: float
    pause_s: float

    def call(self, random: Random) -> Call:
        """Make up the next call of one caller."""
        estimated = round(self.tokens * random.uniform(0.7, 1.3) / 10) * 10
        return Call(
            estimated=estimated,
            used=round(estimated * random.uniform(0.5, 1.4)),
            takes_s=self.takes_s * random.uniform(0.5, 1.5),
            pause_s=self.pause_s * random.uniform(0.5, 1.5),
            fails=random.randrange(FAILS_ONE_IN) == 0,
        )


PROJECTS = (
    Project("demo-project-1", "many short calls", callers=5, tokens=400, takes_s=0.25, pause_s=0.1),
    Project("demo-project-2", "long documents", callers=4, tokens=1_500, takes_s=0.6, pause_s=0.1),
    Project("demo-project-3", "now and then", callers=2, tokens=400, takes_s=0.3, pause_s=0.6),
)
