"""Keep the workers of a distributed test alive: invoke, watch, replace and stop them. Runs next to the master."""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from zae_limiter.core.errors import StorageError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.loadtest.load_test_error import LoadTestError
from zae_limiter.loadtest.run_config import RunConfig, RunMode
from zae_limiter.loadtest.run_objects import RunObjects
from zae_limiter.loadtest.worker import RUN
from zae_limiter.loadtest.worker_fleet import FleetRules, FleetWorker, decide_fleet, wanted_workers

_FAILURES_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """The address at which workers reach the master."""

    host: str
    port: int


class WorkerInvoker(Protocol):
    """The means to start a worker."""

    def invoke(self, worker_id: str) -> None:
        """Start a worker, without waiting for it."""
        ...


class LambdaInvoker:
    """Start workers as Lambda functions."""

    def __init__(self, clients: Clients, bucket_name: str, config: RunConfig, master: MasterAddress | None) -> None:
        self._clients = clients
        self._function_name = config.limits.function_name
        self._event: dict[str, Any] = {"task": RUN, "bucket": bucket_name, "run_id": config.run_id}
        if master is not None:
            self._event["master"] = {"host": master.host, "port": master.port}

    def invoke(self, worker_id: str) -> None:
        """Invoke the function asynchronously.

        Raises:
            StorageError: AWS refuses the invocation, or cannot be reached.
        """
        payload = json.dumps(self._event | {"worker": worker_id}).encode()
        try:
            self._clients.of("lambda").invoke(FunctionName=self._function_name, InvocationType="Event", Payload=payload)
        except FAILURES as failed:
            raise StorageError(self._function_name, reason_of(failed)) from failed


class Orchestrator:
    """The workers of one run."""

    def __init__(self, run: RunObjects, invoker: WorkerInvoker, clock: Callable[[], float]) -> None:
        self._run = run
        self._invoker = invoker
        self._clock = clock
        self._workers: dict[str, FleetWorker] = {}
        self._numbers = itertools.count(1)
        self._failed: frozenset[str] = frozenset()
        self._looked_s = clock()

    @property
    def worker_count(self) -> int:
        """The number of workers that run."""
        return sum(not one.has_ended for one in self._workers.values())

    @property
    def replaced_count(self) -> int:
        """The number of workers that were invoked in place of others."""
        return max(0, len(self._workers) - self._run.config.workers)

    @property
    def lost_count(self) -> int:
        """The number of workers that ended without being told to, so that their last measurements are missing."""
        return sum(one.has_ended and one.has_connected and not one.is_stopping for one in self._workers.values())

    def step(self, master: Mapping[str, Any]) -> None:
        """Compare the workers with the state of the master, then start and stop workers.

        Raises:
            LoadTestError: Workers do not connect; the message has the log of the last one.
        """
        if master["is_over"]:
            return
        now_s = self._clock()
        self._see(frozenset(master["workers"]), now_s)
        decision = decide_fleet(list(self._workers.values()), self._rules(master["target_users"]), now_s)
        for worker_id in decision.stop:
            self._workers[worker_id] = replace(self._workers[worker_id], is_stopping=True)
            self._run.request_stop(worker_id)
        if decision.gives_up:
            raise self._no_worker_connects()
        for _ in range(decision.start):
            worker_id = f"worker-{next(self._numbers)}"
            self._workers[worker_id] = FleetWorker(worker_id, now_s)
            self._invoker.invoke(worker_id)

    def _see(self, connected: frozenset[str], now_s: float) -> None:
        """Update the workers: connected, lost, or failed before they connected."""
        if now_s - self._looked_s >= _FAILURES_EVERY_S:
            self._looked_s = now_s
            self._failed = frozenset(self._run.failed_workers())
        for one in self._workers.values():
            has_connected = one.has_connected or one.worker_id in connected
            has_ended = one.worker_id in self._failed or (has_connected and one.worker_id not in connected)
            if has_ended and not one.has_ended:
                # The master lost it, but it may still run.
                self._run.request_stop(one.worker_id)
            self._workers[one.worker_id] = replace(one, has_connected=has_connected, has_ended=has_ended)

    def _rules(self, target_users: int) -> FleetRules:
        config, limits = self._run.config, self._run.config.limits
        wanted = config.workers
        if config.mode is RunMode.UI:
            wanted = wanted_workers(target_users, limits.users_per_worker, limits.fewest, limits.most)
        return FleetRules(wanted, limits.most, limits.time_s, config.connect_within_s)

    def _no_worker_connects(self) -> LoadTestError:
        for worker_id in reversed(self._workers):
            if failure := self._run.failure(worker_id):
                return LoadTestError(f"no worker starts: {failure.reason}", failure.log_lines)
        reason = (
            "no worker connects to the master. Check that its security group admits the workers "
            "on port 5557, and that functions can run in the subnets"
        )
        return LoadTestError(reason)
