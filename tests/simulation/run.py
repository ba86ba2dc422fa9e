"""Run one plan in simulated time, and report what happened."""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from tests.simulation.clocks import ClockFollowing, set_forward
from tests.simulation.copies import copy_some, remove
from tests.simulation.fleet import Fleet, Process, Users, administer, prepare, reshard
from tests.simulation.invariants import Violation
from tests.simulation.levels import ACROSS, BLOCK, MOVE
from tests.simulation.loop import StalledError, Timeline
from tests.simulation.plan import CRASH, HARMLESS, LOSSES, QUOTAS, STALE, USAGE, Plan, plan_of, scenario_of
from tests.simulation.quota_ledger import time_zone_data
from tests.simulation.rearrange import rearrange
from tests.simulation.server import Lags, Server
from tests.simulation.stream import Counting, Lane, check_usage
from tests.simulation.table import Partitions

_SETTLE_S = 30.0
_MOST_UNAVAILABLE = 0.001
"""The share of requests that may fail as unavailable in a run without faults."""
# The limiter warns of every fault that it tolerates, and a run has thousands of them.
_LOG = logging.getLogger("zae_limiter")


@dataclass(slots=True)
class Report:
    """The result of a run."""

    plan: Plan
    tally: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    digest: int = 0
    violation: Violation | None = None

    @property
    def acquires(self) -> int:
        """The number of acquires."""
        return self.tally["acquires"]


def simulate_each(plans: Iterable[Plan]) -> Iterator[Report]:
    """Run one plan after the other, and collect garbage only between them."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for plan in plans:
            yield simulate_seed(plan.seed, plan)
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def simulate_seed(seed: int, plan: Plan | None = None, watch: Callable[[Fleet], None] | None = None) -> Report:
    """Run a seed, or a plan made of it, and return its report; ``watch`` receives the fleet before it starts."""
    plan = plan or plan_of(seed)
    timeline = Timeline()
    fleet = _fleet(plan, timeline)
    if watch is not None:
        watch(fleet)
    report = Report(plan)
    _LOG.disabled = True
    try:
        with time_zone_data() if QUOTAS in plan.faults else nullcontext():
            timeline.run(_live(fleet))
        _check_end(fleet)
    except Violation as violation:
        report.violation = violation
    except StalledError as stalled:
        report.violation = Violation("stalled", stalled, [repr(task) for task in _waiting(timeline)][:5])
    except Exception as error:  # noqa: BLE001 - whatever it is, no user was to meet it
        report.violation = Violation("error", repr(error))
        report.violation.__cause__ = error
    finally:
        timeline.close()
        _LOG.disabled = False
    report.tally = fleet.tally
    report.tally.update({"slots opened": fleet.slots.opened})
    report.tally.update({"edges": fleet.quotas.edges, "takes of quotas": fleet.quotas.takes})
    for port in fleet.ports:
        report.tally.update(port.faults)
    report.tally.update(
        throttles=fleet.server.throttles, conflicts=fleet.server.conflicts, expiries=fleet.server.expiries
    )
    report.steps, report.digest = fleet.invariants.steps, fleet.invariants.digest
    return report


def _fleet(plan: Plan, timeline: Timeline) -> Fleet:
    scenario = scenario_of(plan)
    partitions = Partitions(writes_per_s=scenario.partition_writes_per_s, burst_s=1.0)
    lags = Lags(stale=0.3 if STALE in plan.faults else 0.0)
    server = Server(timeline, plan.part("server"), partitions, lags)
    fleet = Fleet(plan, scenario, timeline, server)
    server.watchers.append(fleet.invariants.step)
    server.watchers.append(fleet.hierarchy.watch)
    server.watchers.append(ClockFollowing().watch)
    server.watchers.append(fleet.slots.step)
    server.watchers.append(fleet.quotas.step)
    server.expiry_watchers.append(fleet.slots.expire)
    server.expiry_watchers.append(fleet.quotas.expire)
    server.expiry_watchers.append(fleet.invariants.expire)
    if USAGE in plan.faults:
        server.watchers.append(fleet.stream.watch)
        server.expiry_watchers.append(lambda now_ms, change: fleet.stream.watch(now_ms, [change]))
    return fleet


async def _live(fleet: Fleet) -> None:
    """Let all processes work, crash some, and wait until the last of them has ended."""
    await _started(fleet, "preparation", prepare).ended
    helpers = [
        _started(fleet, "administrator", administer),
        _started(fleet, "keeper", reshard),
        _started(fleet, "remover", remove),
    ]
    if {ACROSS, BLOCK, MOVE} & fleet.plan.faults:
        helpers.append(_started(fleet, "rearranger", rearrange))
    share = -(-fleet.plan.requests // plan_of(fleet.plan.seed).clients)
    clients = [_Client(fleet, f"client {number}", share) for number in range(fleet.plan.clients)]
    lanes = fleet.stream.lanes if USAGE in fleet.plan.faults else []
    counters = [_Aggregator(fleet, f"aggregator {number}", lane) for number, lane in enumerate(lanes)]
    steps = fleet.timeline.network.create_task(set_forward(fleet))
    copying = asyncio.create_task(copy_some(fleet, lambda: [one.process for one in clients]))
    if CRASH in fleet.plan.faults:
        await _crash_some(fleet, [*clients, *counters])
    for process in (*(one.process for one in clients), *helpers, *await copying):
        await process.ended
    await steps
    await asyncio.sleep(_SETTLE_S)
    fleet.over = True
    for counter in counters:
        await counter.process.ended


async def _crash_some(fleet: Fleet, running: Sequence["_Client | _Aggregator"]) -> None:
    random = fleet.plan.part("crashes")
    for _ in range(random.randint(1, 4)):
        await asyncio.sleep(fleet.scenario.seconds / 3 * random.random())
        victim = random.choice(running)
        victim.process.crash()
        fleet.tally["crash"] += 1
        await asyncio.sleep(0.5 * random.random())
        victim.begin()


class _Client:
    """A client, and its successors after crashes."""

    def __init__(self, fleet: Fleet, name: str, requests: int) -> None:
        self._fleet = fleet
        self._names = (f"{name}{mark}" for mark in ("", *(f" after crash {number}" for number in range(1, 100))))
        self._users: Users | None = None
        self._requests = requests
        self.begin()

    def begin(self) -> None:
        """Start a process with the requests that are left."""
        left = self._requests if self._users is None else self._users.left
        self.process = Process(self._fleet, next(self._names), self._fleet.network)
        self._users = Users(self.process, left)
        self.process.start(self._users.work)


class _Aggregator:
    """The aggregator of one lane, and its successors after crashes."""

    def __init__(self, fleet: Fleet, name: str, lane: Lane) -> None:
        self._fleet = fleet
        self._names = (f"{name}{mark}" for mark in ("", *(f" after crash {number}" for number in range(1, 100))))
        self._lane = lane
        self.begin()

    def begin(self) -> None:
        """Start a process where the lane was left."""
        self.process = Process(self._fleet, next(self._names), self._fleet.network)
        self.process.start(Counting(self._fleet, self._lane).work)


def _started(fleet: Fleet, name: str, work: Callable[..., object]) -> Process:
    process = Process(fleet, name, fleet.reliable)
    process.start(work)  # type: ignore[arg-type] # a coroutine function
    return process


def _check_end(fleet: Fleet) -> None:
    """Check that the table has counted exactly what users hold, if no message was ever lost.

    In a run without faults, also check that almost no request failed as unavailable, however many came at once.
    """
    fleet.slots.check_end()
    if USAGE in fleet.plan.faults:
        check_usage(fleet.stream, fleet.server.items())
    unavailable = fleet.tally["RateLimiterUnavailable"] + fleet.tally["degraded"]
    if not fleet.plan.faults - HARMLESS and unavailable > _MOST_UNAVAILABLE * fleet.tally["acquires"]:
        raise Violation("unavailable", unavailable, "requests failed as unavailable, without faults", fleet.tally)
    # A lease that took more from other buckets than at first knows only of some that it gives back to them.
    rearranged = {ACROSS, MOVE} & fleet.plan.faults
    if rearranged or LOSSES & fleet.plan.faults or any(port.failures for port in fleet.ports):
        return
    for bucket, name, account in fleet.holdings.unsettled():
        if account.most < 10**20:
            raise Violation("unsettled", bucket, name, account.least, "to", account.most, "held,", account.total)


def _waiting(timeline: Timeline) -> list["asyncio.Task[object]"]:
    return [task for loop in timeline.loops if loop.alive for task in asyncio.all_tasks(loop) if not task.done()]
