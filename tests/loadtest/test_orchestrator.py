"""How the orchestrator starts, replaces and stops workers, with a clock and a bucket of the test."""

import pytest

from tests.loadtest.memory_bucket import MemoryBucket
from tests.loadtest.run_configs import a_run
from zae_limiter.loadtest.load_test_error import LoadTestError
from zae_limiter.loadtest.orchestrator import Orchestrator
from zae_limiter.loadtest.run_config import RunMode
from zae_limiter.loadtest.run_objects import RunFailure, RunObjects


class Fleet:
    """An orchestrator whose workers are names in a list."""

    def __init__(self, **options) -> None:
        self.now_s = 0.0
        self.invoked: list[str] = []
        self.run = RunObjects(MemoryBucket(), a_run(**options))
        self.orchestrator = Orchestrator(self.run, self, lambda: self.now_s)

    def invoke(self, worker_id: str) -> None:
        self.invoked.append(worker_id)

    def step(self, connected: list[str], after_s: float = 1.0, target_users: int = 0, is_over: bool = False) -> None:
        self.now_s += after_s
        state = {"workers": connected, "target_users": target_users, "is_over": is_over}
        self.orchestrator.step(state)

    def stopped(self) -> list[str]:
        """Return the workers that were told to stop."""
        return [name for name in self.invoked if self.run.is_stop_requested(name)]


class TestOrchestrator:
    def test_first_step_invokes_all_workers(self):
        """They have ids of their own."""
        fleet = Fleet(workers=3)

        fleet.step([])

        assert ["worker-1", "worker-2", "worker-3"] == fleet.invoked
        assert 3 == fleet.orchestrator.worker_count

    def test_worker_that_the_master_loses_is_stopped_and_replaced(self):
        """It may still run, and would take users that the replacement has."""
        fleet = Fleet(workers=2)
        fleet.step([])
        fleet.step(["worker-1", "worker-2"])

        fleet.step(["worker-2"])

        assert ["worker-1", "worker-2", "worker-3"] == fleet.invoked
        assert ["worker-1"] == fleet.stopped()
        assert 1 == fleet.orchestrator.replaced_count

    def test_worker_that_reports_a_failure_is_replaced_before_the_master_misses_it(self):
        """The master needs several heartbeats for that."""
        fleet = Fleet(workers=2)
        fleet.step([])
        fleet.step(["worker-1", "worker-2"])
        fleet.run.report_failure(RunFailure("worker-2", "killed", ()))

        fleet.step(["worker-1", "worker-2"], after_s=2)

        assert "worker-3" == fleet.invoked[-1]

    def test_worker_without_a_connection_is_stopped_and_replaced(self):
        """After 30 seconds."""
        fleet = Fleet(workers=2)
        fleet.step([])
        fleet.step(["worker-1"], after_s=30)
        assert [] == fleet.stopped()

        fleet.step(["worker-1"], after_s=1)

        assert ["worker-2"] == fleet.stopped()
        assert "worker-3" == fleet.invoked[-1]

    def test_worker_near_the_end_of_its_time_is_stopped_when_its_replacement_is_connected(self):
        """The users move without a gap."""
        fleet = Fleet(workers=1)
        fleet.step([])
        fleet.step(["worker-1"])
        fleet.step(["worker-1"], after_s=240)
        assert ["worker-1", "worker-2"] == fleet.invoked
        assert [] == fleet.stopped()

        fleet.step(["worker-1", "worker-2"])

        assert ["worker-1"] == fleet.stopped()

    def test_workers_that_leave_at_the_end_of_a_test_are_not_replaced(self):
        """The master sends them away."""
        fleet = Fleet(workers=2)
        fleet.step([])
        fleet.step(["worker-1", "worker-2"])

        fleet.step([], is_over=True)

        assert 2 == len(fleet.invoked)

    def test_page_gets_as_many_workers_as_its_users_need(self):
        """One at first, then one for ten users."""
        fleet = Fleet(mode=RunMode.UI)
        fleet.step([])
        assert 1 == len(fleet.invoked)

        fleet.step(["worker-1"], target_users=35)

        assert 4 == len(fleet.invoked)

    def test_workers_that_all_fail_end_the_run_with_the_log_of_one(self):
        """A mistake in the locust file does not cost money for hours."""
        fleet = Fleet(workers=1)
        fleet.step([])
        for number in (1, 2):
            fleet.run.report_failure(RunFailure(f"worker-{number}", "no module", ("Traceback", "ImportError: x")))
            fleet.step([], after_s=2)
        fleet.run.report_failure(RunFailure("worker-3", "no module", ("Traceback", "ImportError: x")))

        with pytest.raises(LoadTestError, match="no worker starts: no module\n  Traceback\n  ImportError: x"):
            fleet.step([], after_s=2)

    def test_workers_that_never_connect_end_the_run_with_advice(self):
        """The network may not let them."""
        fleet = Fleet(workers=1)
        fleet.step([])
        fleet.step([], after_s=31)
        fleet.step([], after_s=31)

        with pytest.raises(LoadTestError, match="security group"):
            fleet.step([], after_s=31)
