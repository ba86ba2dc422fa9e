"""A run: a seed, what is made of it, and what came of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.books import Violation
from tests.simulation.fleet import Fleet, Process, Users, administer, keep, prepare
from tests.simulation.loop import StalledError, Timeline
from tests.simulation.plan import CRASH, LOSSES, STALE, Plan, plan_of, scenario_of
from tests.simulation.server import Lags, Server
from tests.simulation.table import Partitions

_SETTLE_S = 30.0
# The limiter warns of every fault that it rides out, and there are thousands of them here.
_LOG = logging.getLogger("zae_limiter")


@dataclass(slots=True)
class Report:
    """What came of a run."""

    plan: Plan
    tally: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    digest: int = 0
    violation: Violation | None = None

    @property
    def acquires(self) -> int:
        """How many acquires were made."""
        return self.tally["acquires"]


def simulate_seed(seed: int, plan: Plan | None = None, spoil: Callable[[Fleet], None] | None = None) -> Report:
    """Run a seed, or a plan made of it, and report what came of it; ``spoil`` may change the fleet before it begins."""
    plan = plan or plan_of(seed)
    timeline = Timeline()
    fleet = _fleet(plan, timeline)
    if spoil is not None:
        spoil(fleet)
    report = Report(plan)
    _LOG.disabled = True
    try:
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
    for port in fleet.ports:
        report.tally.update(port.faults)
    report.tally.update(
        throttles=fleet.server.throttles, conflicts=fleet.server.conflicts, expiries=fleet.server.expiries
    )
    report.steps, report.digest = fleet.books.steps, fleet.books.digest
    return report


def _fleet(plan: Plan, timeline: Timeline) -> Fleet:
    scenario = scenario_of(plan)
    partitions = Partitions(writes_per_s=scenario.partition_writes_per_s, burst_s=1.0)
    lags = Lags(stale=0.3 if STALE in plan.faults else 0.0)
    server = Server(timeline, plan.part("server"), partitions, lags)
    fleet = Fleet(plan, scenario, timeline, server)
    server.watchers.append(fleet.books.step)
    server.expired = fleet.books.expire
    return fleet


async def _live(fleet: Fleet) -> None:
    """Let all processes work, crash some, and wait for the last of them to end."""
    await _ended(_started(fleet, "preparation", prepare))
    helpers = [_started(fleet, "administrator", administer), _started(fleet, "keeper", keep)]
    share = -(-fleet.plan.requests // plan_of(fleet.plan.seed).clients)
    clients = [_client(fleet, f"client {number}", share) for number in range(fleet.plan.clients)]
    random = fleet.plan.part("crashes")
    if CRASH in fleet.plan.faults:
        for number in range(random.randint(1, 4)):
            await asyncio.sleep(fleet.scenario.seconds / 3 * random.random())
            place = random.randrange(len(clients))
            left = clients[place][1]._requests
            clients[place][0].crash()
            fleet.tally["crash"] += 1
            await asyncio.sleep(0.5 * random.random())
            if left:
                clients[place] = _client(fleet, f"client {place} after crash {number}", left)
    for process, _ in clients:
        await process.ended
    for process in helpers:
        await process.ended
    await asyncio.sleep(_SETTLE_S)


def _started(fleet: Fleet, name: str, work: Callable[..., object]) -> Process:
    process = Process(fleet, name, fleet.calm)
    process.start(work)  # type: ignore[arg-type] # a coroutine function
    return process


async def _ended(process: Process) -> None:
    await process.ended


def _client(fleet: Fleet, name: str, requests: int) -> tuple[Process, Users]:
    process = Process(fleet, name, fleet.network)
    users = Users(process, requests)
    process.start(users.work)
    return process, users


def _check_end(fleet: Fleet) -> None:
    """Once all is quiet, and nothing was ever lost, the table has counted exactly what users hold."""
    if LOSSES & fleet.plan.faults or any(port.troubles for port in fleet.ports):
        return
    for bucket, name, account in fleet.holdings.unsettled():
        if account.most < 10**20:
            raise Violation("unsettled", bucket, name, account.least, "to", account.most, "held,", account.total)


def _waiting(timeline: Timeline) -> list["asyncio.Task[object]"]:
    return [task for loop in timeline.loops if loop.alive for task in asyncio.all_tasks(loop) if not task.done()]
