"""One process of a steady soak: a fixed number of writes per second on a SQLite file.

    python -m tests.soak.steady_worker '{"url": ..., "kind": "async", "writes_per_second": 250, "reports": true, ...}'

It prints ``ready``, waits for the time to stop at (seconds since the epoch) on stdin, works, and exits with 0. Once per
second it writes what it has done so far to a file.
"""

import json
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.dynamodb.trees import tree
from tests.soak.worker import end_with_parent, run
from zae_limiter import Limit, RateLimiterUnavailable

LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
RESOURCE = "gpt-4"
CONSUME = {"rpm": 1, "tpm": 500}
DEADLINE_S = 5.0
ADMINISTER_EVERY_S = 5.0
TELL_EVERY_S = 1.0
MADE_UP_FOR_S = 60.0
ONE_CASCADE_IN = 5
ONE_FAILURE_IN = 11


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of a process; ``reports``: it also reads reports, and creates and deletes entities."""

    url: str
    counts_path: str
    kind: str
    writes_per_second: float
    entities: int
    reports: bool

    def command(self) -> list[str]:
        """Return the command that starts the process."""
        return [sys.executable, "-m", "tests.soak.steady_worker", json.dumps(asdict(self))]


class WorkFailedError(Exception):
    """The work that tokens were taken for has failed."""


class Worker:
    """Carries out operations at a fixed rate."""

    def __init__(self, limiter: Any, assignment: Assignment) -> None:
        self._limiter = limiter
        self._assignment = assignment
        self._deeds = 0
        self.done: Counter[str] = Counter()

    def work(self, until_s: float) -> None:
        """Write at the rate until it is time to stop; after a pause, make up for at most a minute."""
        due_s = tell_s = time.monotonic()
        end_s = due_s + until_s - time.time()
        while (now_s := time.monotonic()) < end_s:
            if now_s >= tell_s:
                self.tell()
                tell_s = now_s + TELL_EVERY_S
            writes = self._tried(self._lease)
            due_s = max(due_s + writes / self._assignment.writes_per_second, now_s - MADE_UP_FOR_S)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def administer(self, until_s: float) -> None:
        """Read reports, and create and delete entities, besides the writes."""
        while time.time() < until_s:
            self._tried(self._churn)
            self._tried(self._report)
            time.sleep(max(0.0, min(ADMINISTER_EVERY_S, until_s - time.time())))

    def warm_up(self) -> None:
        """Do everything once, so that caches and file have their size from the start."""
        for number in range(self._assignment.entities):
            for entity_id in (f"user-{number}", f"child-{number}"):
                with suppress(RateLimiterUnavailable), self._limiter.acquire(entity_id, RESOURCE, CONSUME):
                    pass
        if self._assignment.reports:
            self._tried(self._report)

    def tell(self) -> None:
        """Write the counts so far to a file."""
        path = Path(self._assignment.counts_path)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(self.done), encoding="utf-8")
        fresh.replace(path)

    def _tried(self, deed: Any) -> int:
        try:
            writes: int = deed()
        except RateLimiterUnavailable:
            self.done["unavailable"] += 1
            writes = 1
        else:
            self.done["writes"] += writes
        return writes

    def _lease(self) -> int:
        """Acquire and adjust, sometimes also from a parent, and sometimes roll back; return the number of writes."""
        self._deeds += 1
        number = self._deeds % self._assignment.entities
        cascades = not self._deeds % ONE_CASCADE_IN
        with suppress(WorkFailedError):
            entity_id = f"child-{number}" if cascades else f"user-{number}"
            with self._limiter.acquire(entity_id, RESOURCE, CONSUME) as lease:
                if not self._deeds % ONE_FAILURE_IN:
                    raise WorkFailedError
                lease.adjust(tpm=self._deeds % 90 - 50 or 1)
        self.done["leases"] += 1
        return 4 if cascades else 2

    def _churn(self) -> int:
        """Create an entity, use it, and delete it."""
        entity_id = f"guest-{self._assignment.kind}"
        self._limiter.create_entity(entity_id, name="for a while")
        with self._limiter.acquire(entity_id, RESOURCE, CONSUME):
            pass
        self._limiter.delete_entity(entity_id)
        self.done["created"] += 1
        return 3

    def _report(self) -> int:
        """Read what an operator would read."""
        self._limiter.get_resource_capacity(RESOURCE, "rpm")
        self._limiter.get_usage_summary(resource=RESOURCE)
        self._limiter.get_status()
        self.done["reports"] += 1
        return 0


def main() -> None:
    end_with_parent()
    assignment = Assignment(**json.loads(sys.argv[1]))
    with tree(assignment.kind) as opened:
        limiter = opened.limiter(opened.open(assignment.url, deadline_s=DEADLINE_S))
        worker = Worker(limiter, assignment)
        worker.warm_up()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        until_s = float(sys.stdin.readline())
        run([worker.work, worker.administer] if assignment.reports else [worker.work], until_s)
        worker.tell()
        limiter.close()


if __name__ == "__main__":
    main()
