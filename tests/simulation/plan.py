"""Derive a run from its seed: number of clients, faults, limits and demand.

Each part of a run has random numbers of its own. So a plan with fewer clients or faults is still almost the same run,
which is what makes shrinking possible.

The names of these parts select their random numbers. If you change one, every seed becomes another run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.levels import (
    ACROSS,
    ALSO,
    BLOCK,
    LEVELS,
    MOVE,
    OTHER_RESOURCE,
    RESOURCE,
    TREE_FAULTS,
    Link,
    Tree,
    some_tree,
    tree_faults,
    with_across,
)
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
"""Faults of the server's clock: single answers with a wrong date, and a clock that is set forward."""

DELETE, COPY = "delete", "copy"
_LIFE_FAULTS = (DELETE, COPY)
"""Buckets that are deleted and recreated, and clients that are copied as by a fork."""

CANCEL_SETTLING = "cancel-settling"
"""Users that are cancelled, once or more, while their lease settles, releases or closes."""

DEFER = "defer"
"""Clients that put settlements off, and write them with their next takes."""

RESERVE = "reserve"
"""Clients whose requests must leave a part of each capacity."""

SLOTS = "slots"
"""A limit of concurrent use beside the others. No seed draws it: ``with_slots`` adds it to a plan."""

SLOT_LIMIT = "slots"
"""The name of that limit."""

QUOTAS = "quotas"
"""Quotas and soft limits beside the others. No seed draws them: ``with_quotas`` adds them to a plan."""

QUOTA, SOFT_QUOTA, SOFT_RATE = "spend", "trial", "soft"
"""The names of these limits."""

_ADDED = frozenset((CANCEL_SETTLING, DEFER, RESERVE, SLOTS, QUOTAS, *TREE_FAULTS))
"""Faults with random numbers of their own. Without them, a run is what it is for a plan that never had them."""

FAULTS = (*_DRAWN, *_CLOCK_FAULTS, *_LIFE_FAULTS, CANCEL_SETTLING, DEFER, RESERVE, *TREE_FAULTS)
"""Everything that can fail or change during a run."""

HARMLESS = frozenset((DEFER, RESERVE, SLOTS, QUOTAS, LEVELS, ACROSS, MOVE, BLOCK, ALSO))
"""Faults that make no call fail."""

LOSSES = frozenset(NETWORK_FAULTS) | {CRASH, PARTITIONS}
"""Faults after which a user may not know whether a write was applied."""

_NAMES = ("rpm", "tpm", "tpd")
_CAPACITIES = (1, 2, 3, 5, 10, 20, 50, 100, 500)
_PERIODS_S = (1, 1, 2, 5, 10, 60, 600)
_LEAST_S, _MOST_S = 3.0, 900.0
_SHORTENED, _SHORTENED_S = 0.05, 60.0
"""The share of runs that are short and have fast limits, and their maximum length in seconds."""
_MOST_WITH_SLOTS = 400
_LEAST_WITH_SLOTS_S = 45.0
_LIGHT = 3
"""Runs with fewer faults than this are cheap, so they get more requests."""
_REQUESTS_OF_TREES = 0.5
"""The share of the requests that runs with several levels make."""
_RESERVED = 0.2
"""How often a run has clients that must leave a reserve."""
_RARELY = {PARTITIONS: 0.4, THROTTLE: 0.6, USAGE: 0.4}
"""How likely expensive faults are, relative to the others."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: its seed, and what was drawn from it or chosen on the command line."""

    seed: int
    clients: int
    requests: int
    faults: frozenset[str]

    def part(self, name: str) -> Random:
        """Return the random numbers of one part of the run."""
        return Random(f"{name} of {self.seed}")

    def reduced(self, clients: int | None = None, requests: int | None = None, without: Iterable[str] = ()) -> "Plan":
        """Return the same run with fewer clients, fewer requests, or without some faults."""
        return replace(
            self,
            clients=self.clients if clients is None else clients,
            requests=self.requests if requests is None else requests,
            faults=self.faults - frozenset(without),
        )

    @property
    def crowded(self) -> bool:
        """Whether users arrive in crowds, far more at the same time than a bucket has writes in flight."""
        return _is_crowded(self.seed, len(plan_of(self.seed).faults - _ADDED))

    @property
    def command(self) -> str:
        """The command that replays the run."""
        whole = plan_of(self.seed)
        words = [f"python -m tests.simulation --seed {self.seed}"]
        if self.clients != whole.clients:
            words.append(f"--clients {self.clients}")
        if self.requests != whole.requests:
            words.append(f"--steps {self.requests}")
        if SLOTS in self.faults:
            words.append("--slots")
        if QUOTAS in self.faults:
            words.append("--quotas")
        gone = sorted(whole.faults - self.faults)
        if gone:
            words.append(f"--without {','.join(gone)}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Scenario:
    """The entities with the tree above them, the limits, the duration and the demand of a run.

    ``own`` is how often a request brings its own limits. ``deep`` is how often an adjustment goes far beyond the
    balance. ``quiet_s`` are intervals without requests. ``crowd`` is the least and the largest number of users that
    arrive at the same time, and how often. ``habits`` is what users do besides.
    """

    entities: tuple[str, ...]
    tree: Tree
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
    resources: tuple[str, ...] = (RESOURCE,)

    @property
    def everyone(self) -> list[str]:
        """All entities."""
        return list(dict.fromkeys((*self.entities, *self.tree.links, *self.tree.uppers)))


@dataclass(frozen=True, slots=True)
class Habits:
    """How often users do things that rarely happen by chance.

    ``large``: request any amount up to the capacity. ``long_leases``: hold a lease for many seconds.
    ``own_before_quiet``: bring their own limits just before a quiet interval. ``greedy``: request nearly the whole
    capacity, and fail. ``own_missing_one``: bring their own limits, without one of the configured limits.
    ``reshard_pause_s``: shards are split and merged all the time, with pauses of at most this many seconds; 0 if that
    happens rarely.
    """

    large: float = 0.1
    long_leases: float = 0.0
    own_before_quiet: float = 0.0
    greedy: float = 0.0
    own_missing_one: float = 0.0
    reshard_pause_s: float = 0.0


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    plan, kept = _drawn_plan(seed)
    added = set()
    if Random(f"settling {seed}").random() < kept / 2:
        added.add(CANCEL_SETTLING)
    if Random(f"deferring {seed}").random() < (1 + kept) / 5:
        added.add(DEFER)
    if Random(f"reserves {seed}").random() < _RESERVED:
        added.add(RESERVE)
    trees = tree_faults(seed, kept)
    # A request to many buckets costs as much as several others.
    requests = int(plan.requests * _REQUESTS_OF_TREES) if LEVELS in trees else plan.requests
    return replace(plan, requests=requests, faults=plan.faults | added | trees)


def with_slots(seed: int) -> Plan:
    """Return the plan of a seed with a limit of concurrent use."""
    plan = plan_of(seed)
    return replace(plan, faults=plan.faults | {SLOTS}, requests=min(plan.requests, _MOST_WITH_SLOTS))


def with_quotas(seed: int) -> Plan:
    """Return the plan of a seed with quotas and soft limits; in some of them also with a limit of concurrent use."""
    plan = plan_of(seed)
    added = {QUOTAS, SLOTS} if Random(f"quotas and slots {seed}").random() < 0.2 else {QUOTAS}
    return replace(plan, faults=plan.faults | added, requests=min(plan.requests, _MOST_WITH_SLOTS))


def drawn_requests(seed: int) -> int:
    """Return the requests that the demand of a run is made for; a plan with fewer ends earlier."""
    return _drawn_plan(seed)[0].requests


def _drawn_plan(seed: int) -> tuple[Plan, float]:
    """Return a plan without the faults that are added to it, and the probability of each fault."""
    random = Random(f"plan {seed}")
    clients = random.choice((1, 2, 2, 3, 3, 4, 5, 6))
    kept = random.choice((0.0, 0.0, 0.25, 0.5, 0.75, 1.0))
    faults = frozenset(fault for fault in _DRAWN if random.random() < kept * _RARELY.get(fault, 1.0))
    # Separate random numbers, so that the rest of a seed is the same without them.
    clocks = Random(f"clocks {seed}")
    faults |= {fault for fault in _CLOCK_FAULTS if clocks.random() < kept / 2}
    lives = Random(f"lives {seed}")
    faults |= {fault for fault in _LIFE_FAULTS if lives.random() < kept / 2}
    # Runs with few faults are cheap, so they get more requests; crowded runs are cheaper still.
    few = random.randint(200, 250)
    plan = Plan(seed, clients, few, faults)
    crowded = _is_crowded(seed, len(faults))
    if len(faults) < _LIGHT:
        return replace(plan, requests=20 * few if crowded else 4 * few), kept
    return (replace(plan, requests=4 * few) if crowded else plan), kept


def _is_crowded(seed: int, faults: int) -> bool:
    return Random(f"crowd {seed}").random() < (0.8 if faults < _LIGHT else 0.08)


def scenario_of(plan: Plan) -> Scenario:
    """Return the scenario of a plan."""
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
    # Drawn from the full plan: a plan with fewer requests ends earlier, and is the same until then.
    asked = drawn_requests(plan.seed) * amounts[tightest.name] / 2 / (1 if cascades else len(entities))
    rate = tightest.refill_amount / tightest.refill_period_seconds
    seconds = (asked / load - tightest.capacity) / rate
    seconds = min(_MOST_S, max(_LEAST_S, seconds))
    scenario = Scenario(
        entities=entities,
        tree=Tree(dict.fromkeys(entities, Link("team")) if cascades else {}),
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
    scenario = _with_tree(_crowded(scenario, plan) if plan.crowded else _shortened(scenario, plan), plan)
    scenario = _with_slots(scenario, plan) if SLOTS in plan.faults else scenario
    return _with_quotas(scenario, plan) if QUOTAS in plan.faults else scenario


def _with_slots(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the scenario with a limit of concurrent use, and with leases that are often held for long."""
    random = plan.part("slots")
    limit = Limit.concurrent(SLOT_LIMIT, random.choice((1, 1, 2, 3, 5, 10)), hold_seconds=random.choice((5, 5, 6, 9)))
    habits = replace(scenario.habits, long_leases=random.choice((0.1, 0.3, 0.6)))
    return replace(
        scenario,
        limits=(*scenario.limits, limit),
        amounts={**scenario.amounts, SLOT_LIMIT: 1},
        seconds=max(_LEAST_WITH_SLOTS_S, min(scenario.seconds, 180.0)),
        habits=habits,
    )


def _with_quotas(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the scenario with a quota, and in some runs with soft limits. An edge is at any step of it."""
    random = plan.part("quotas")
    limits = [some_quota(random)]
    if random.random() < 0.4:
        limits.append(replace(some_limit(SOFT_RATE, random), enforce=False))
    if random.random() < 0.3:
        limits.append(replace(some_quota(random), name=SOFT_QUOTA, enforce=False))
    amounts = {limit.name: max(1, limit.capacity // random.choice((2, 5, 20, 50))) for limit in limits}
    habits = replace(scenario.habits, long_leases=max(scenario.habits.long_leases, random.choice((0.0, 0.1, 0.3))))
    return replace(
        scenario,
        limits=(*scenario.limits, *limits),
        amounts={**scenario.amounts, **amounts},
        # The edge that all runs may reach is a few seconds after the start; the others are whole minutes later.
        seconds=max(random.choice((8.0, 20.0, 70.0, 130.0)), min(scenario.seconds, 200.0)),
        habits=habits,
        deep=max(scenario.deep, 0.05),
    )


def some_quota(random: Random) -> Limit:
    """Return a quota with an edge soon after the start of a run."""
    amount = random.choice((1, 3, 20, 100, 100, 1_000, 1_000, 10**13))
    minute = random.choice((0, 0, 0, 1, 2, 30))
    if random.random() < 0.6:
        return Limit.quota(QUOTA, amount, every="hour", starts=minute)
    return Limit.quota(QUOTA, amount, every="day", starts=f"00:{minute:02}")


def _with_tree(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the scenario, in some runs with several levels, and with limits across resources."""
    random = plan.part("tree")
    if LEVELS in plan.faults:
        entities, tree = some_tree(scenario.limits, random)
        cache_s = random.choice((scenario.cache_s, 0, 1, 1, 5))
        resources = (RESOURCE, RESOURCE, OTHER_RESOURCE)
        scenario = replace(scenario, entities=entities, tree=tree, cache_s=cache_s, resources=resources)
    if ACROSS in plan.faults:
        tree = with_across(scenario.tree, scenario.entities, scenario.limits, plan.part("limits across resources"))
        scenario = replace(scenario, tree=tree)
    return scenario


def _habits(plan: Plan, fast: bool) -> Habits:
    """Return the special habits of the users of some runs."""
    random = plan.part("habits")
    long_leases, own_before_quiet, greedy = (random.random() for _ in range(3))
    return Habits(
        long_leases=0.1 if {CONFIG, OWN} & plan.faults and long_leases < 0.25 else 0.0,
        own_before_quiet=0.8 if fast and OWN in plan.faults and own_before_quiet < 0.5 else 0.0,
        greedy=0.2 if SHARDS in plan.faults and greedy < 0.25 else 0.0,
    )


def _shortened(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the scenario, in some runs shorter and with fast limits, for cases that need both.

    A full limit can be dropped while a lease on it is open. Shards that are split and merged all the time may refuse a
    retried credit, and then accept the first one.
    """
    # Separate random numbers, so that all other runs are the same without them.
    random = plan.part("hurry")
    missing_one, resharding = (random.random() < _SHORTENED for _ in range(2))
    habits = scenario.habits
    if missing_one and OWN in plan.faults and len(scenario.limits) > 1:
        habits = replace(habits, own_missing_one=0.3, long_leases=0.3)
    elif resharding and {SHARDS, LATE} <= plan.faults:
        habits = replace(habits, reshard_pause_s=0.4, greedy=0.4)
    else:
        return scenario
    limits = tuple(_fast(limit) for limit in scenario.limits)
    return replace(scenario, limits=limits, seconds=min(_SHORTENED_S, scenario.seconds), habits=habits)


def _crowded(scenario: Scenario, plan: Plan) -> Scenario:
    """Return the scenario for users that arrive in crowds: short, with limits that admit a good part of a crowd."""
    random = plan.part("crowd's scenario")
    crowd = random.choice(((20, 100, 0.2), (50, 300, 0.5), (50, 300, 0.5)))
    seconds = random.choice((3.0, 10.0, 30.0))
    tree = scenario.tree if random.random() < 0.1 else Tree()
    load = random.choice((0.3, 0.8, 1.2, 2.0, 4.0, 8.0))
    asked = 0.4 * drawn_requests(plan.seed) / (1 if tree.links else len(scenario.entities)) / seconds
    limits = []
    for limit in scenario.limits:
        amount = scenario.amounts[limit.name]
        refill = max(1, round(asked * amount * limit.refill_period_seconds / load))
        capacity = max(limit.capacity, int(amount * crowd[1] * random.choice((0.2, 0.5, 1, 2))))
        limits.append(replace(limit, capacity=capacity, refill_amount=refill))
        load /= random.choice((1, 1.5, 3))
    habits = replace(scenario.habits, large=0.01)
    return replace(scenario, seconds=seconds, tree=tree, limits=tuple(limits), crowd=crowd, habits=habits, quiet_s=())


def _fast(limit: Limit) -> Limit:
    """Return a limit that fills in one or two seconds, so that its bucket expires soon."""
    return replace(limit, refill_amount=limit.capacity, refill_period_seconds=min(2, limit.refill_period_seconds))


def _quiet_s(seconds: float, fast: bool, random: Random) -> tuple[tuple[float, float], ...]:
    """Return intervals without requests in which buckets expire: many short ones if the limits are fast."""
    fewest, most, longest_s = (4, 16, 8) if fast else (1, 4, 25)
    begins = sorted(seconds * random.random() for _ in range(random.randint(fewest, most)))
    return tuple((begin_s, begin_s + 5 + longest_s * random.random()) for begin_s in begins)


def some_limit(name: str, random: Random) -> Limit:
    """Return a limit of any size and rate."""
    capacity = random.choice(_CAPACITIES)
    amount = random.choice((capacity, max(1, capacity // 2), 1, random.randint(1, capacity)))
    return Limit(name, capacity, amount, random.choice(_PERIODS_S))


def changed_limits(limits: tuple[Limit, ...], random: Random) -> tuple[Limit, ...]:
    """Return limits that an administrator might set instead: larger, smaller, faster, slower, more or fewer."""
    counted = tuple(limit for limit in limits if limit.is_quota or not limit.enforce)
    if counted:
        others = tuple(limit for limit in limits if limit not in counted)
        return (*changed_limits(others, random), *_changed_quotas(counted, random))
    slots = tuple(limit for limit in limits if limit.hold_seconds)
    if slots:
        others = tuple(limit for limit in limits if not limit.hold_seconds)
        return (*changed_limits(others, random), *_changed_slots(slots[0], random))
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


def _changed_quotas(limits: tuple[Limit, ...], random: Random) -> tuple[Limit, ...]:
    """Return quotas and soft limits, one of them with another amount or schedule, or without one of them."""
    place, drawn = random.randrange(len(limits)), random.random()
    found = limits[place]
    if drawn < 0.2:
        return (*limits[:place], *limits[place + 1 :])
    if drawn < 0.5:
        capacity = max(1, found.capacity * random.choice((1, 3, 4, 8)) // 4)
        found = replace(found, capacity=min(capacity, 10**15))
    elif drawn < 0.8 and found.is_quota:
        found = replace(found, schedule=some_quota(random).schedule)
    return (*limits[:place], found, *limits[place + 1 :])


def _changed_slots(limit: Limit, random: Random) -> tuple[Limit, ...]:
    """Return a limit of concurrent use with another capacity or hold, or none."""
    drawn = random.random()
    if drawn < 0.3:
        return ()
    if drawn < 0.6:
        return (replace(limit, capacity=max(1, limit.capacity + random.choice((-2, -1, 1, 3)))),)
    if drawn < 0.8:
        return (replace(limit, hold_seconds=random.choice((5, 6, 9, 10))),)
    return (limit,)
