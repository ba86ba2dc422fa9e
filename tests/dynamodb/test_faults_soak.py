"""Many workers on one bucket while faults are drawn at random; in the end the table itself says what was used.

A run is a seed. SOAK_SECONDS makes the runs longer, SOAK_SEED replays one: the faults are drawn as they were, though
whom they meet depends on who comes first.
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
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.proxy import Seen
from tests.dynamodb.stage import CONSUME, FAULTS, PATIENT_S, Stage, WorkFailedError
from tests.dynamodb.trees import KINDS
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded

SECONDS = float(os.environ.get("SOAK_SECONDS", "2"))
SEEDS = [int(os.environ.get("SOAK_SEED", "1"))]
WORKERS = 16
DEADLINE_S = 0.3
GENEROUS = 20
# How much longer workers go on, at most, until all has happened that is looked for.
LONGER_S = 60.0
USER = "user-1"
NAMES = ("rps", "tpm")
LOOKED_FOR = ("admitted", "rejected")
HEALTHY_ACQUIRES = 50
# One that binds, and one that is only counted.
LIMITS = [Limit.per_second("rps", 5), Limit.per_minute("tpm", 1_000_000)]
# A faulty call in so many; of the faults each is as likely as the other.
ONE_IN = 4
REJECTED_S = 0.005
LATE_S = 0.4


class Weather:
    """Draws a fault, or none, for each call."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        late = {"late": Delay(LATE_S * 1000, applied=False), "slow": Delay(60)}
        self._faults: list[Fault] = [*FAULTS.values(), *late.values()]

    async def play(self, exchange: Exchange) -> None:
        fault = self._random.choice(self._faults) if self._random.randrange(ONE_IN) == 0 else Nothing()
        await fault.play(exchange)


@dataclass(slots=True)
class Tally:
    """What the callers were told, in tokens by limit."""

    # Takes and debits that were acknowledged.
    charged: Counter[str] = field(default_factory=Counter)
    # What was asked to be given back: it was, or it is lost.
    credited: Counter[str] = field(default_factory=Counter)
    # Takes and debits of which nobody was told what became of them.
    in_doubt: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0


class Worker:
    """Takes, and settles in one way or another, until it is time to stop."""

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
        """One lease from beginning to end, entered in the books as its caller saw it."""
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
            tally.in_doubt.update({"tpm": change} if entered else consume)
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


def soak(stage: Stage, seed: int) -> tuple[Tally, float]:
    """Let all work through the weather; what they were told together, and how long it took."""
    limiter = stage.new_limiter(PATIENT_S)
    limiter.set_limits(USER, LIMITS, resource=RESOURCE)
    with limiter.acquire(USER, RESOURCE, {"rps": 0}):
        pass
    workers = [Worker(limiter, Random(f"{seed}-{number}")) for number in range(WORKERS)]
    limiter._client._deadline_s = DEADLINE_S
    stage.proxy.always(Weather(seed))
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
    stage.proxy.calm()
    total = Tally(longest_s=max(worker.tally.longest_s for worker in workers))
    for worker in workers:
        for name in ("charged", "credited", "in_doubt", "outcomes"):
            getattr(total, name).update(getattr(worker.tally, name))
    return total, took_s


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(request.param, stack)


def sent_again(seen: list[Seen]) -> Counter[str]:
    """What was asked for again after a lost answer: others may have written since, and so it may count twice."""
    total: Counter[str] = Counter()
    for body in (one.body for one in seen if one.target == "UpdateItem"):
        if " <> " in body["ConditionExpression"]:
            names, values = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
            added = body["UpdateExpression"].partition(" SET ")[0].removeprefix("ADD ").split(", ")
            charged = {names[name]: int(values[value]["N"]) for name, value in (pair.split() for pair in added)}
            total.update({name: max(0, charged.get(f"b_{name}_tc", 0)) // 1000 for name in NAMES})
    return total


def not_given_back(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """The credits that are lost, or may be: each is in the log."""
    total: Counter[str] = Counter()
    for record in caplog.records:
        if record.msg.startswith("Not settled") and isinstance(record.args, tuple):
            changes: Any = record.args[0]
            total.update({name: max(0, -amount) for name, amount in changes.items()})
    return total


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_goes_wrong_the_table_has_counted_what_was_used(
    stage: Stage, seed: int, caplog: pytest.LogCaptureFixture
):
    """All that callers were told is charged, no credit is given twice, and what was in doubt at most comes on top."""
    told, took_s = soak(stage, seed)
    time.sleep(LATE_S)  # what comes late is on its way
    used = stage.ledger.used(USER)
    doubts = told.in_doubt + sent_again(stage.proxy.seen) + not_given_back(caplog)
    offered = LIMITS[0].capacity + LIMITS[0].refill_amount * (took_s + DEADLINE_S)

    for name in NAMES:
        settled = told.charged[name] - told.credited[name]
        assert settled <= used[name] <= settled + doubts[name]
    assert told.charged["rps"] - told.credited["rps"] <= offered
    assert told.longest_s < 2 * DEADLINE_S * GENEROUS
    assert min(told.outcomes[name] for name in LOOKED_FOR) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_connections_are_good_after_the_storm(stage: Stage, seed: int):
    """Every acquire works, and no more connections are open than there were workers, and one for each other client."""
    soak(stage, seed)
    limiter = stage.limiter(PATIENT_S)
    degraded = []
    for number in range(HEALTHY_ACQUIRES):
        with limiter.acquire(f"calm-{number % 5}", RESOURCE, CONSUME, on_unavailable="block") as lease:
            degraded.append(lease.degraded)

    assert [False] * HEALTHY_ACQUIRES == degraded
    assert stage.proxy.open_connections <= WORKERS + 2
