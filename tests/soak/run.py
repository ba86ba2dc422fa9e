"""One soak of one store: work while processes are killed and stopped and the store is unavailable, then check."""

import heapq
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.soak import checks, stores
from tests.soak.accounts import accounts_of
from tests.soak.checks import LONG_DEADLINE_S, Items, Margin
from tests.soak.fleet import Fleet
from tests.soak.journal import Record
from tests.soak.scenario import LIMITS, MEMBERS, RESOURCE, TTL_MULTIPLIER
from tests.soak.stores import STOPPED_S, Outage, Store
from zae_limiter import SyncRateLimiter, SyncRepository

# Mean seconds between faults in a long run; a short run has shorter intervals, so that each happens.
KILL_EVERY_S = 5.0
STOP_EVERY_S = 6.0
OUTAGE_EVERY_S = 12.0
OFTEN_IN_A_RUN = 4
PROGRESS_EVERY_S = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """The store, the duration, the number of workers, the seed and the mutation of a run; ``calm``: no faults."""

    table: str
    engine: str
    seconds: float
    processes: int
    seed: int
    mutation: str | None = None
    calm: bool = False


@dataclass(slots=True)
class Report:
    """What happened, and the violations."""

    store: str
    processes: int
    seconds: float
    kills: int = 0
    stops: int = 0
    outages: list[Outage] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    margins: dict[tuple[str, str], Margin] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Agenda:
    """Actions with their due times."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(self, in_s: float, action: Callable[[], None]) -> None:
        """Schedule an action in this many seconds."""
        heapq.heappush(self._due, (time.monotonic() + in_s, next(self._numbers), action))

    def work_until(self, end_s: float) -> None:
        """Carry out due actions in their order until a time; later ones are dropped."""
        while self._due and self._due[0][0] < end_s:
            due_s, _, action = heapq.heappop(self._due)
            time.sleep(max(0.0, due_s - time.monotonic()))
            action()
        time.sleep(max(0.0, end_s - time.monotonic()))


class FaultInjector:
    """Kills and stops processes and makes the store unavailable at random, and undoes it at the end."""

    def __init__(self, fleet: Fleet, store: Store, random: Random, seconds: float) -> None:
        self._fleet = fleet
        self._store = store
        self._random = random
        self._agenda = Agenda()
        self._undoing: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._shortest_s = seconds / OFTEN_IN_A_RUN
        self.outages: list[Outage] = []

    def schedule(self) -> None:
        """Schedule the first fault of each kind."""
        self._again(STOP_EVERY_S, self._stop)
        self._again(KILL_EVERY_S, lambda: self._fleet.kill(self._random))
        self._again(OUTAGE_EVERY_S, self._begin_outage)

    def run_until(self, until_s: float, progress: Callable[[], None]) -> None:
        """Inject faults until a time."""
        self._every(PROGRESS_EVERY_S, progress)
        try:
            self._agenda.work_until(until_s)
        finally:
            for undo in list(self._undoing.values()):
                undo()

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self._agenda.add(seconds, act)

        self._agenda.add(seconds, act)

    def _again(self, mean_s: float, action: Callable[[], None]) -> None:
        """Repeat an action at random intervals."""

        def wait_s() -> float:
            return min(mean_s, self._shortest_s) * (0.5 + self._random.random())

        def act() -> None:
            action()
            self._agenda.add(wait_s(), act)

        self._agenda.add(wait_s(), act)

    def _stop(self) -> None:
        stopped = self._fleet.stop(self._random)
        if stopped is not None:
            self._undo_in(self._random.uniform(*STOPPED_S), lambda: self._fleet.go_on(stopped))

    def _begin_outage(self) -> None:
        disturbance = stores.drawn(self._store, self._random)
        if disturbance is not None and not self._unavailable:
            began_ns = time.time_ns()
            disturbance.begin()
            self._unavailable = True

            def undo() -> None:
                self.outages.append(stores.ended(disturbance, began_ns))
                self._unavailable = False

            self._undo_in(self._random.uniform(*disturbance.seconds), undo)

    _unavailable = False

    def _undo_in(self, seconds: float, undo: Callable[[], None]) -> None:
        """Undo something later, or at the end."""
        number = next(self._numbers)
        self._undoing[number] = undo

        def act() -> None:
            if self._undoing.pop(number, None) is not None:
                undo()

        self._agenda.add(seconds, act)


def prepared(url: str) -> Items:
    """Create the entities, limits and buckets, and return the buckets."""
    with SyncRepository.open(url, deadline_s=LONG_DEADLINE_S, bucket_ttl_multiplier=TTL_MULTIPLIER) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults(list(LIMITS))
        for entity_id in sorted(MEMBERS, key=lambda one: MEMBERS[one].parent_id is not None):
            member = MEMBERS[entity_id]
            repo.create_entity(entity_id, parent_id=member.parent_id, cascade=member.parent_id is not None)
            if member.limits != LIMITS or not member.is_steady:
                repo.set_limits(entity_id, list(member.limits))
            with limiter.acquire(entity_id, RESOURCE, {limit.name: 0 for limit in LIMITS}):
                pass
        return checks.stored(repo)


def soak(options: Options, say: Say) -> Report:
    """Run a soak, and check its invariants."""
    report = Report(options.table, options.processes, options.seconds)
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as place,
        stores.opened(options.table, options.engine, Path(place)) as store,
    ):
        report.store = store.name
        first = prepared(store.making_url)
        url = stores.url_of(store)
        fleet = Fleet(url, Path(place), options.seed, options.mutation)
        try:
            fleet.start(options.processes)
            report.outages = _run_with_faults(fleet, store, options, say)
            report.violations += fleet.failures()
            report.kills, report.stops = fleet.kills, fleet.stops
            record = fleet.record()
        finally:
            fleet.end()
        report.violations += store.problems()
        _judge(report, url, first, record)
    return report


def _run_with_faults(fleet: Fleet, store: Store, options: Options, say: Say) -> list[Outage]:
    faults = FaultInjector(fleet, store, Random(options.seed), options.seconds)
    began_s = time.monotonic()
    fleet.work_until(time.time_ns() + int(options.seconds * 1e9))

    def progress() -> None:
        store.tidy()
        outages = len(faults.outages)
        say(f"{time.monotonic() - began_s:6.0f} s  {fleet.kills} kills, {fleet.stops} stops, {outages} outages")

    if not options.calm:
        faults.schedule()
    faults.run_until(began_s + options.seconds, progress)
    return faults.outages


def _judge(report: Report, url: str, first: Items, record: Record) -> None:
    accounts = accounts_of(record, report.outages)
    for step in record.steps:
        report.steps[f"{step.kind} {step.outcome or 'in doubt'}"] += 1
    with SyncRepository.open(url, deadline_s=LONG_DEADLINE_S) as repo:
        items = checks.stored(repo)
        report.shards = {entity_id: len(shards) for entity_id, shards in items.items() if len(shards) > 1}
        report.margins = checks.margins_of(items, accounts)
        for found in (
            checks.incomplete(items),
            checks.made(first, items, accounts),
            checks.miscounted(items, accounts),
            checks.unequal(items, accounts),
            checks.overdrawn(report.margins),
            checks.uncounted(repo, items, accounts),
        ):
            report.violations += found
        # Slow, and of no use for a table that already violates an invariant.
        report.violations += [] if report.violations else checks.not_working(repo)
