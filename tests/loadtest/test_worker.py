"""The handler of the worker function, with a bucket in memory and real Locust processes."""

import io
import zipfile

from tests.loadtest.memory_bucket import MemoryBucket
from tests.loadtest.run_configs import a_run
from zae_limiter.loadtest.code_bucket import LOCUSTFILES_KEY
from zae_limiter.loadtest.run_config import INTERRUPTED, WORKER_TIME_USED, RunMode
from zae_limiter.loadtest.run_objects import RunObjects
from zae_limiter.loadtest.worker import LoadWorker, list_classes

EVENT = {"task": "run", "run_id": "20260101-000000-abc", "worker": "worker-1"}

# A user that makes no call, so that no limiter is needed.
IDLE = """
from locust import User, constant, task
import zae_limiter.locust

class IdleUser(User):
    wait_time = constant(1)

    @task
    def wait(self):
        pass
"""
BROKEN = "import a_module_that_does_not_exist\n"


class SandboxTime:
    """A context with 100 seconds, of which 10 are left after some looks at it."""

    memory_limit_in_mb = 1769

    def __init__(self, looks: int | None = None) -> None:
        self._looks = looks

    def get_remaining_time_in_millis(self) -> int:
        if self._looks is not None:
            self._looks -= 1
        return 10_000 if self._looks is not None and self._looks <= 0 else 100_000


def run_of(source: str, **options) -> RunObjects:
    """Return a run of a locust file."""
    return RunObjects(bucket_with(source), a_run(RunMode.HEADLESS, "user.py", users=1, **options))


def bucket_with(source: str) -> MemoryBucket:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        files.writestr("user.py", source)
    bucket = MemoryBucket()
    bucket.put_file(LOCUSTFILES_KEY, packed.getvalue())
    return bucket


class TestWorker:
    def test_worker_stops_when_a_tenth_of_its_time_is_left(self):
        """It reports what it has measured."""
        run = run_of(IDLE, duration_s=600)

        outcome = LoadWorker(run, EVENT, SandboxTime(looks=12)).run()

        assert {"outcome": "ended", "stopped": WORKER_TIME_USED} == outcome
        assert WORKER_TIME_USED == run.result()["stopped"]
        assert 0 == run.result()["measurements"]["admitted"]

    def test_worker_stops_when_the_run_has_reached_its_ceiling(self):
        """Also if the command that started it is gone."""
        run = run_of(IDLE, duration_s=600, max_usd=1e-9)

        outcome = LoadWorker(run, EVENT, SandboxTime()).run()

        assert outcome["stopped"].endswith("and --max-usd is 1e-09")

    def test_worker_that_cannot_load_the_file_reports_the_end_of_its_log(self):
        """It returns, because Lambda would repeat an invocation that raises."""
        run = run_of(BROKEN)

        outcome = LoadWorker(run, EVENT, SandboxTime()).run()

        assert "failed" == outcome["outcome"]
        assert ["worker-1"] == run.failed_workers()
        assert "a_module_that_does_not_exist" in "\n".join(run.failure("worker-1").log_lines)
        assert run.result() is None

    def test_worker_without_the_file_reports_those_that_exist(self):
        """The last push was from another folder."""
        run = RunObjects(bucket_with(IDLE), a_run(RunMode.HEADLESS, "other.py"))

        assert "the bucket has: user.py" in LoadWorker(run, EVENT, SandboxTime()).run()["reason"]

    def test_worker_of_a_run_that_was_stopped_starts_no_users(self):
        """Lambda may invoke it late."""
        run = run_of(IDLE)
        run.request_stop()

        assert {"outcome": "ended", "stopped": INTERRUPTED} == LoadWorker(run, EVENT, SandboxTime()).run()
        assert run.progress("worker-1") is None

    def test_repeated_invocation_does_nothing(self):
        """Lambda may deliver an event twice."""
        run = run_of(IDLE)
        run.report_progress("worker-1", {"state": "running"})

        assert {"outcome": "repeated"} == LoadWorker(run, EVENT, SandboxTime()).run()
        assert {"state": "running"} == run.progress("worker-1")


class TestListClasses:
    def test_listed_classes_are_those_that_locust_would_run(self):
        """Abstract classes are not among them."""
        assert {"classes": ["IdleUser"]} == list_classes(bucket_with(IDLE), "user.py")

    def test_file_that_cannot_be_loaded_is_reported_with_its_traceback(self):
        """The user sees the line."""
        found = list_classes(bucket_with(BROKEN), "user.py")

        assert "Locust cannot load user.py" == found["error"]
        assert "a_module_that_does_not_exist" in "\n".join(found["log_lines"])
