"""What a seed stands for: how many clients, what goes wrong, which limits, how much is asked for.

Everything is drawn from the seed, each part from chance of its own, so that a plan with fewer clients or faults is
still much the same run: that is what makes shrinking work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.port import LATE, NETWORK_FAULTS, THROTTLE, WRONG_DATE
from zae_limiter import Limit

CRASH, SKEW, STALE, CANCEL, CONFIG, SHARDS, PARTITIONS, EXPIRY, OWN, USAGE = (
    "crash",
    "skew",
    "stale",
    "cancel",
    "config",
    "shards",
    "partitions",
    "expiry",
    "own-limits",
    "usage",
)
_DRAWN = (*NETWORK_FAULTS, CRASH, SKEW, STALE, CANCEL, CONFIG, SHARDS, PARTITIONS, EXPIRY, OWN, USAGE)

STEP = "step"
_CLOCK_FAULTS = (WRONG_DATE, STEP)
"""What goes wrong with the server's clock: single answers dated off, and a clock that is set forward."""

DELETE, COPY = "delete", "copy"
_LIFE_FAULTS = (DELETE, COPY)
"""Buckets that are deleted and created again, and clients that are copied as a fork does."""

CANCEL_SETTLING = "cancel-settling"
"""Users that are cancelled, once or more, while their lease settles, releases or is left."""

FAULTS = (*_DRAWN, *_CLOCK_FAULTS, *_LIFE_FAULTS, CANCEL_SETTLING)
"""What can go wrong, or change, while clients are at work."""

LOSSES = frozenset(NETWORK_FAULTS) | {CRASH, PARTITIONS}
"""What may leave users in doubt."""

_NAMES = ("rpm", "tpm", "tpd")
_CAPACITIES = (1, 2, 3, 5, 10, 20, 50, 100, 500)
_PERIODS_S = (1, 1, 2, 5, 10, 60, 600)
_LEAST_S, _MOST_S = 3.0, 900.0
_HURRIED, _HURRIED_S = 0.05, 60.0
"""The part of runs that are short and have limits that soon are full, and how long those last at the most."""
_LIGHT = 3
"""Fewer faults than these make a run that goes fast."""
_RARELY = {PARTITIONS: 0.4, THROTTLE: 0.6, USAGE: 0.4}
"""Faults that make every request a long story."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: the seed, and what was made of it or asked for."""

    seed: int
    clients: int
    requests: int
    faults: frozenset[str]

    def part(self, name: str) -> Random:
        """Return chance for one part of the run."""
        return Random(f"{name} of {self.seed}")

    def less(self, clients: int | None = None, requests: int | None = None, without: Iterable[str] = ()) -> "Plan":
        """Return the same run with fewer clients, fewer requests, or without some faults."""
        return replace(
            self,
            clients=self.clients if clients is None else clients,
            requests=self.requests if requests is None else requests,
            faults=self.faults - frozenset(without),
        )

    @property
    def crowded(self) -> bool:
        """Whether users come in crowds, far more at once than a bucket has writes under way."""
        return _is_crowded(self.seed, len(plan_of(self.seed).faults - {CANCEL_SETTLING}))

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        whole = plan_of(self.seed)
        words = [f"python -m tests.simulation --seed {self.seed}"]
        if self.clients != whole.clients:
            words.append(f"--clients {self.clients}")
        if self.requests != whole.requests:
            words.append(f"--steps {self.requests}")
        gone = sorted(whole.faults - self.faults)
        if gone:
            words.append(f"--without {','.join(gone)}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What clients meet: entities with their parents, limits, how long it lasts, how much is asked for.

    ``own`` is how often a request brings limits of its own, ``deep`` how often an adjustment goes far beyond what there
    is; ``quiet_s`` are spells in which nobody asks for anything. ``crowd`` is how many come at once at the least and at
    the most, and how often. ``habits`` are what users do beside that.
    """

    entities: tuple[str, ...]
    parents: Mapping[str, str]
    limits: tuple[Limit, ...]
    seconds: float
    amounts: Mapping[str, int]
    cache_s: float
    reject_s: float
    deadline_s: float
    ttl_multiplier: int
    partition_writes_per_s: int
    chance: float
    own: float = 0.0
    deep: float = 0.0
    quiet_s: tuple[tuple[float, float], ...] = ()
    crowd: tuple[int, int, float] = (2, 12, 0.1)
    habits: "Habits" = field(default_factory=lambda: Habits())


@dataclass(frozen=True, slots=True)
class Habits:
    """How often users do what seldom happens by itself.

    ``large``: ask for anything up to all that there can be. ``patient``: hold a lease for many seconds. ``parting``:
    bring limits of their own, just before a quiet spell. ``greedy``: ask for nearly all that there can be, and fail.
    ``lacking``: bring limits of their own that lack one. ``restless_s``: shards are split and merged again, with pauses
    of at most this many seconds; 0 if that happens seldom.
    """

    large: float = 0.1
    patient: float = 0.0
    parting: float = 0.0
    greedy: float = 0.0
    lacking: float = 0.0
    restless_s: float = 0.0


def plan_of(seed: int) -> Plan:
    """Return what a seed stands for."""
    plan, kept = _drawn_plan(seed)
    settling = Random(f"settling {seed}").random() < kept / 2
    return replace(plan, faults=plan.faults | {CANCEL_SETTLING}) if settling else plan


def _drawn_plan(seed: int) -> tuple[Plan, float]:
    """Return a plan without cancelled settlements, and how likely each fault was."""
    random = Random(f"plan {seed}")
    clients = random.choice((1, 2, 2, 3, 3, 4, 5, 6))
    kept = random.choice((0.0, 0.0, 0.25, 0.5, 0.75, 1.0))
    faults = frozenset(fault for fault in _DRAWN if random.random() < kept * _RARELY.get(fault, 1.0))
    # Chance of their own, so that all else of a seed is as it would be without them.
    clocks = Random(f"clocks {seed}")
    faults |= {fault for fault in _CLOCK_FAULTS if clocks.random() < kept / 2}
    lives = Random(f"lives {seed}")
    faults |= {fault for fault in _LIFE_FAULTS if lives.random() < kept / 2}
    # What goes well goes fast, so there is more of it, and what comes in crowds goes faster still.
    few = random.randint(200, 250)
    plan = Plan(seed, clients, few, faults)
    crowded = _is_crowded(seed, len(faults))
    if len(faults) < _LIGHT:
        return replace(plan, requests=20 * few if crowded else 4 * few), kept
    return (replace(plan, requests=4 * few) if crowded else plan), kept


def _is_crowded(seed: int, faults: int) -> bool:
    return Random(f"crowd {seed}").random() < (0.8 if faults < _LIGHT else 0.08)


def scenario_of(plan: Plan) -> Scenario:
    """Return what the clients of a run meet."""
    random = plan.part("scenario")
    alone = random.random() < 0.4
    entities = ("user-1",) if alone else tuple(f"user-{number}" for number in range(1, random.randint(2, 4)))
    cascades = random.random() < 0.3
    variety = plan.part("variety")
    fast = EXPIRY in plan.faults and variety.random() < 0.7
    limits = tuple(some_limit(name, random) for name in _NAMES[: random.randint(1, 3)])
    limits = tuple(_fast(limit) for limit in limits) if fast else limits
    amounts = {limit.name: max(1, limit.capacity // random.choice((1, 2, 4, 10, 20, 50))) for limit in limits}
    load = random.choice((0.3, 0.8, 1.2, 2.0, 4.0, 8.0))
    tightest = limits[0]
    # As the seed would have it: a plan with fewer requests ends earlier, and what it does until then is the same.
    asked = plan_of(plan.seed).requests * amounts[tightest.name] / 2 / (1 if cascades else len(entities))
    rate = tightest.refill_amount / tightest.refill_period_seconds
    seconds = (asked / load - tightest.capacity) / rate
    seconds = min(_MOST_S, max(_LEAST_S, seconds))
    scenario = Scenario(
        entities=entities,
        parents=dict.fromkeys(entities, "team") if cascades else {},
        limits=limits,
        seconds=seconds,
        amounts=amounts,
        cache_s=random.choice((0, 1, 5, 5, 60, 60, 60, 60)),
        reject_s=random.choice((0, 0.1, 1, 1, 1, 1, 1, 1)),
        deadline_s=random.choice((0.5, 1, 1)),
        ttl_multiplier=2 if EXPIRY in plan.faults else random.choice((0, 7)),
        partition_writes_per_s=random.choice((5, 10, 20, 50)) if PARTITIONS in plan.faults else 1_000,
        chance=random.choice((0.005, 0.02, 0.05, 0.1)),
        own=variety.choice((0.02, 0.02, 0.1)),
        deep=0.5 if fast else 0.005,
        quiet_s=_quiet_s(seconds, fast, variety) if EXPIRY in plan.faults else (),
    )
    scenario = replace(scenario, habits=_habits(plan, fast))
    return _crowded(scenario, plan) if plan.crowded else _hurried(scenario, plan)


def _habits(plan: Plan, fast: bool) -> Habits:
    """Return what the users of some runs do beside what all do."""
    random = plan.part("habits")
    patient, parting, greedy = (random.random() for _ in range(3))
    return Habits(
        patient=0.1 if {CONFIG, OWN} & plan.faults and patient < 0.25 else 0.0,
        parting=0.8 if fast and OWN in plan.faults and parting < 0.5 else 0.0,
        greedy=0.2 if SHARDS in plan.faults and greedy < 0.25 else 0.0,
    )


def _hurried(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the same, in some runs short and with limits that soon are full, for what happens only then.

    A limit that is full can be dropped while a lease on it is open. And shards that are split and merged all the time
    may refuse a give-back that was sent again, and then let the first one through.
    """
    # Chance of its own, so that all other runs are as they would be without it.
    random = plan.part("hurry")
    lacking, restless = (random.random() < _HURRIED for _ in range(2))
    habits = scenario.habits
    if lacking and OWN in plan.faults and len(scenario.limits) > 1:
        habits = replace(habits, lacking=0.3, patient=0.3)
    elif restless and {SHARDS, LATE} <= plan.faults:
        habits = replace(habits, restless_s=0.4, greedy=0.4)
    else:
        return scenario
    limits = tuple(_fast(limit) for limit in scenario.limits)
    return replace(scenario, limits=limits, seconds=min(_HURRIED_S, scenario.seconds), habits=habits)


def _crowded(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the same for users that come in crowds: short, and with limits that let a good part of a crowd through."""
    random = plan.part("crowd's scenario")
    crowd = random.choice(((20, 100, 0.2), (50, 300, 0.5), (50, 300, 0.5)))
    seconds = random.choice((3.0, 10.0, 30.0))
    parents = scenario.parents if random.random() < 0.1 else {}
    load = random.choice((0.3, 0.8, 1.2, 2.0, 4.0, 8.0))
    asked = 0.4 * plan_of(plan.seed).requests / (1 if parents else len(scenario.entities)) / seconds
    limits = []
    for limit in scenario.limits:
        amount = scenario.amounts[limit.name]
        refill = max(1, round(asked * amount * limit.refill_period_seconds / load))
        capacity = max(limit.capacity, int(amount * crowd[1] * random.choice((0.2, 0.5, 1, 2))))
        limits.append(replace(limit, capacity=capacity, refill_amount=refill))
        load /= random.choice((1, 1.5, 3))
    habits = replace(scenario.habits, large=0.01)
    return replace(
        scenario, seconds=seconds, parents=parents, limits=tuple(limits), crowd=crowd, habits=habits, quiet_s=()
    )


def _fast(limit: Limit) -> Limit:
    """Return a limit that fills in a second or two, so that its bucket soon expires."""
    return replace(limit, refill_amount=limit.capacity, refill_period_seconds=min(2, limit.refill_period_seconds))


def _quiet_s(seconds: float, fast: bool, random: Random) -> tuple[tuple[float, float], ...]:
    """Return spells in which what is to expire expires: many short ones where that is soon."""
    fewest, most, longest_s = (4, 16, 8) if fast else (1, 4, 25)
    begins = sorted(seconds * random.random() for _ in range(random.randint(fewest, most)))
    return tuple((begin_s, begin_s + 5 + longest_s * random.random()) for begin_s in begins)


def some_limit(name: str, random: Random) -> Limit:
    """Return a limit of any size and speed."""
    capacity = random.choice(_CAPACITIES)
    amount = random.choice((capacity, max(1, capacity // 2), 1, random.randint(1, capacity)))
    return Limit(name, capacity, amount, random.choice(_PERIODS_S))


def changed_limits(limits: tuple[Limit, ...], random: Random) -> tuple[Limit, ...]:
    """Return limits that an administrator might put in their place: larger, smaller, faster, slower, more, fewer."""
    kind = random.randrange(5)
    names = [limit.name for limit in limits]
    if kind == 0 and len(limits) > 1:
        gone = random.choice(names)
        return tuple(limit for limit in limits if limit.name != gone)
    missing = [name for name in _NAMES if name not in names]
    if kind == 1 and missing:
        return (*limits, some_limit(missing[0], random))
    place = random.randrange(len(limits))
    found = limits[place]
    if kind == 2:
        other = some_limit(found.name, random)
    elif kind == 3:
        other = replace(found, capacity=max(1, found.capacity * random.choice((1, 2, 4)) // 2))
    else:
        other = replace(found, refill_amount=max(1, found.refill_amount * random.choice((1, 4)) // 2))
    return (*limits[:place], other, *limits[place + 1 :])
