"""Many workers on one bucket with random faults; at the end the table itself shows what was used.

A run is defined by a seed. SOAK_SECONDS makes runs longer, and SOAK_SEED repeats one. The faults
are the same, but which calls they hit depends on timing.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.dynamodb.faults import Delay, Exchange, Fault, Nothing
from tests.dynamodb.faulty_table import CONSUME, FAULTS, LONG_DEADLINE_S, FaultyTable, WorkFailedError
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.proxy import Seen
from tests.dynamodb.trees import KINDS
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded

SECONDS = float(os.environ.get("SOAK_SECONDS", "2"))
SEEDS = [int(os.environ.get("SOAK_SEED", "1"))]
WORKERS = 16
DEADLINE_S = 0.3
GENEROUS = 20
# The longest extension, in seconds, until every expected event has occurred.
LONGER_S = 60.0
USER = "user-1"
NAMES = ("rps", "tpm")
LOOKED_FOR = ("admitted", "rejected")
HEALTHY_ACQUIRES = 50
# A limit that rejects, and one that only counts.
LIMITS = [Limit.per_second("rps", 5), Limit.per_minute("tpm", 1_000_000)]
# One in this many calls has a fault; all faults are equally likely.
ONE_IN = 4
REJECTED_S = 0.005
LATE_S = 0.4


class RandomFaults:
    """Draw a fault, or none, for each call."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        late = {"late": Delay(LATE_S * 1000, applied=False), "slow": Delay(60)}
        self._faults: list[Fault] = [*FAULTS.values(), *late.values()]

    async def play(self, exchange: Exchange) -> None:
        fault = self._random.choice(self._faults) if self._random.randrange(ONE_IN) == 0 else Nothing()
        await fault.play(exchange)


@dataclass(slots=True)
class Tally:
    """What the callers observed, in tokens by limit."""

    # Acknowledged takes and debits.
    charged: Counter[str] = field(default_factory=Counter)
    # Requested credits: each was applied or is lost.
    credited: Counter[str] = field(default_factory=Counter)
    # Takes and debits with an unknown outcome.
    unknown: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0


class Worker:
    """Take and settle in random ways until told to stop."""

    def __init__(self, limiter: Any, random: Random) -> None:
        self.tally = Tally()
        self._limiter = limiter
        self._random = random

    def work(self, go_on: Callable[[], bool]) -> None:
        while go_on():
            began_s = time.monotonic()
            self.tally.outcomes[self._lease()] += 1
            self.tally.longest_s = max(self.tally.longest_s, time.monotonic() - began_s)

    def _lease(self) -> str:
        """Run one lease, and record it as its caller saw it."""
        tally, consume = self.tally, {"rps": 1, "tpm": self._random.randint(5, 50)}
        change = self._random.choice([0, 0, 7, -3, -5, None])
        entered = False
        try:
            with self._limiter.acquire(USER, RESOURCE, consume, on_unavailable="block") as lease:
                entered = True
                tally.charged.update(consume)
                self._change(lease, change, consume)
        except RateLimitExceeded:
            time.sleep(REJECTED_S)
            return "rejected"
        except WorkFailedError:
            return "rolled back"
        except RateLimiterUnavailable:
            tally.unknown.update({"tpm": change} if entered else consume)
            return "debit lost" if entered else "unavailable"
        if change is not None and change > 0:
            tally.charged.update({"tpm": change})
        return "admitted"

    def _change(self, lease: Any, change: int | None, consume: dict[str, int]) -> None:
        if change is None:
            self.tally.credited.update(consume)
            raise WorkFailedError
        lease.adjust(tpm=change)
        if change < 0:
            self.tally.credited.update({"tpm": -change})


def soak(faulty: FaultyTable, seed: int) -> tuple[Tally, float]:
    """Run all workers with faults; return their tally and the duration in seconds."""
    limiter = faulty.new_limiter(LONG_DEADLINE_S)
    limiter.set_limits(USER, LIMITS, resource=RESOURCE)
    with limiter.acquire(USER, RESOURCE, {"rps": 0}):
        pass
    workers = [Worker(limiter, Random(f"{seed}-{number}")) for number in range(WORKERS)]
    limiter._client._deadline_s = DEADLINE_S
    faulty.proxy.always(RandomFaults(seed))
    began_s = time.monotonic()

    def go_on() -> bool:
        worked_s = time.monotonic() - began_s
        seen = {name for worker in workers for name in LOOKED_FOR if worker.tally.outcomes[name]}
        return worked_s < SECONDS or (seen != set(LOOKED_FOR) and worked_s < SECONDS + LONGER_S)

    threads = [threading.Thread(target=worker.work, args=(go_on,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - began_s
    faulty.proxy.clear_faults()
    total = Tally(longest_s=max(worker.tally.longest_s for worker in workers))
    for worker in workers:
        for name in ("charged", "credited", "unknown", "outcomes"):
            getattr(total, name).update(getattr(worker.tally, name))
    return total, took_s


@pytest.fixture(params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def sent_again(seen: list[Seen]) -> Counter[str]:
    """Return the requests repeated after a lost answer.

    Other clients may have written in between, so they may count twice.
    """
    total: Counter[str] = Counter()
    for body in (one.body for one in seen if one.target == "UpdateItem"):
        if " <> " in body["ConditionExpression"]:
            names, values = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
            added = body["UpdateExpression"].partition(" SET ")[0].removeprefix("ADD ").split(", ")
            charged = {names[name]: int(values[value]["N"]) for name, value in (pair.split() for pair in added)}
            total.update({name: max(0, charged.get(f"b_{name}_tc", 0)) // 1000 for name in NAMES})
    return total


def not_given_back(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Return the credits that are or may be lost; each is logged."""
    total: Counter[str] = Counter()
    for record in caplog.records:
        if record.msg.startswith("Not settled") and isinstance(record.args, tuple):
            settlements: Any = record.args[0]
            # Every bucket of a lease has the same changes.
            _, changes = settlements[0]
            total.update({name: max(0, -amount) for name, amount in changes.items()})
    return total


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_leave_the_table_with_the_acknowledged_usage(
    faulty: FaultyTable, seed: int, caplog: pytest.LogCaptureFixture
):
    """Acknowledged usage is charged, no credit is applied twice, and at most the unknown outcomes are added."""
    tally, took_s = soak(faulty, seed)
    time.sleep(LATE_S)  # late writes may still arrive
    used = faulty.ledger.used(USER)
    unknown = tally.unknown + sent_again(faulty.proxy.seen) + not_given_back(caplog)
    offered = LIMITS[0].capacity + LIMITS[0].refill_amount * (took_s + DEADLINE_S)

    for name in NAMES:
        settled = tally.charged[name] - tally.credited[name]
        assert settled <= used[name] <= settled + unknown[name]
    assert tally.charged["rps"] - tally.credited["rps"] <= offered
    assert tally.longest_s < 2 * DEADLINE_S * GENEROUS
    assert min(tally.outcomes[name] for name in LOOKED_FOR) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_connections_work_after_random_faults(faulty: FaultyTable, seed: int):
    """Every acquire works, with at most one connection per worker and per other client."""
    soak(faulty, seed)
    limiter = faulty.limiter(LONG_DEADLINE_S)
    degraded = []
    for number in range(HEALTHY_ACQUIRES):
        with limiter.acquire(f"calm-{number % 5}", RESOURCE, CONSUME, on_unavailable="block") as lease:
            degraded.append(lease.degraded)

    assert [False] * HEALTHY_ACQUIRES == degraded
    assert faulty.proxy.open_connections <= WORKERS + 2
