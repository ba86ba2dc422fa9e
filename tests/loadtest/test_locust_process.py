"""Tests that Locust runs in processes of its own: one, two on one file, on DynamoDB, interrupted, failing."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.test_programs import OF_LOAD_TESTS
from tests.dynamodb import engines
from tests.loadtest.locust_runs import LOCUSTFILES, PATIENCE_S, environment, python
from zae_limiter import SyncRepository, ValidationError
from zae_limiter.loadtest.locust_process import (
    LoadShape,
    LocustFailedError,
    LocustProgress,
    LocustResult,
    LocustTest,
    failure_in,
    file_arguments,
    require_classes,
    run_locust,
    shape_arguments,
)
from zae_limiter.loadtest.measurements import Measurements

LOGGED = 20
# The tests end a run as soon as it has shown what they need, however slow the machine is.
LONG = LoadShape(users=4, spawn_rate=100, duration_s=600)

FAULTY = """
from locust import constant, task
from zae_limiter.locust import RateLimiterUser

class FaultyUser(RateLimiterUser):
    wait_time = constant(0.001)

    @task
    def call(self):
        self.client.is_available()
        1 / 0
"""
TARGETLESS = """
from locust import task
from zae_limiter.locust import RateLimiterUser

class TargetlessUser(RateLimiterUser):
    @task
    def call(self):
        raise AssertionError("it has nothing to call")
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """Give Locust long deadlines, and no limiter but that of the test."""
    for name in ("ZAE_LIMITER_URL", "TARGET_STACK_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def run(test: LocustTest, until: Callable[[Measurements], bool]) -> LocustResult:
    """Run a test until it has measured something, and then interrupt it as Ctrl-C does."""

    def look(progress: LocustProgress) -> None:
        if progress.measured is not None and until(progress.measured):
            raise KeyboardInterrupt

    return run_locust(test, LONG, look)


def written(folder: Path, program: str) -> Path:
    path = folder / "locustfile.py"
    path.write_text(program, encoding="utf-8")
    return path


class TestRuns:
    def test_two_processes_on_one_file_are_measured_together(self, tmp_path):
        """The parent is shared by both, and has given exactly what the children of both have taken."""
        url = f"sqlite:///{tmp_path / 'load.db'}"
        test = LocustTest(LOCUSTFILES / "simple.py", url, ["SimpleCascadeUser"], processes=2)
        measured = run(test, until=lambda measured: measured.admitted > 20 and measured.rejected > 20).measured
        taken = {key.entity_id: tally.taken for key, tally in measured.limits.items() if key.limit_name == "rps"}
        children = {entity: amount for entity, amount in taken.items() if entity.endswith("-child")}

        assert {"simple-0", "simple-1"} == {re.sub(r"-\d+-child", "", entity) for entity in children}
        assert measured.admitted == taken["simple-parent"] == sum(children.values())
        assert {} == measured.errors

    def test_run_in_memory_ends_after_its_duration(self):
        """One process needs no file, and no interrupt."""
        test = LocustTest(LOCUSTFILES / "max_rps.py", "memory://", ["MaxRpsUser"])
        result = run_locust(test, LoadShape(users=2, spawn_rate=10, duration_s=3))

        assert (False, {}) == (result.is_interrupted, result.measured.errors)
        assert 0 < result.measured.admitted

    def test_paced_users_that_adjust_and_disconnect_are_measured(self, tmp_path):
        """Their latencies count from the schedule, and some of them are charged without an answer."""
        test = LocustTest(LOCUSTFILES / "llm.py", f"sqlite:///{tmp_path / 'load.db'}")
        result = run(test, until=lambda measured: bool(measured.scheduled) and "COMMIT" in measured.latencies)

        assert (True, {}) == (result.is_interrupted, result.measured.errors)
        assert 0 < result.measured.latencies["COMMIT"].count <= result.measured.admitted

    def test_run_on_dynamodb_counts_what_it_consumes(self, monkeypatch):
        """Users wait for the network at the same time, by greenlets."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "engine")
        url = f"dynamodb://{engines.fresh_table_name()}?region=us-east-1&endpoint_url={engines.running().url}"
        SyncRepository.open(f"{url}&create=true", deadline_s=60).close()
        measured = run(
            LocustTest(LOCUSTFILES / "simple.py", url), until=lambda measured: measured.rejected > 0
        ).measured

        assert {} == measured.errors
        assert 0 < measured.admitted <= measured.calls["UpdateItem"] + measured.calls["PutItem"]
        assert 0 < measured.write_units

    def test_interrupt_that_a_greenlet_would_lose_ends_the_test_with_its_report(self, tmp_path):
        """Python raises SIGINT in whatever runs at that time, such as a call in the background."""
        deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        path = written(tmp_path, deaf + (LOCUSTFILES / "simple.py").read_text(encoding="utf-8"))

        result = run(LocustTest(path, "memory://"), until=lambda measured: measured.admitted > 0)

        assert (True, {}) == (result.is_interrupted, result.measured.errors)

    @pytest.mark.parametrize("block", OF_LOAD_TESTS, ids=lambda block: block.place)
    def test_locust_file_of_a_page_runs_as_shown(self, block, tmp_path):
        """A reader pastes it into a file."""
        test = LocustTest(written(tmp_path, block.text), "memory://")
        measured = run(test, until=lambda measured: "COMMIT" in measured.latencies).measured

        assert {} == measured.errors

    def test_plain_locust_runs_the_same_file(self, tmp_path):
        """It needs no command of this package; the host selects the limiter."""
        file, host = LOCUSTFILES / "simple.py", f"sqlite:///{tmp_path / 'load.db'}"
        command = [sys.executable, "-m", "locust", "-f", str(file), "--host", host, "--headless", "SimpleUser"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            with SyncRepository.open(host, deadline_s=60) as repo:
                # Later calls than the first, because an interrupt of a call ends Locust in another way.
                while process.poll() is None and not any(
                    state.total_consumed_milli > 2_000 for state in repo.get_buckets("simple-0-1", "load-simple")
                ):
                    time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=PATIENCE_S)

        assert 0 == process.returncode, output
        assert "ACQUIRE" in re.findall(r"^(\w+) +load-simple ", output, re.MULTILINE)


class TestFailures:
    def test_exceptions_of_tasks_are_counted_and_do_not_fill_the_log(self, tmp_path):
        """Locust would log a traceback for each."""
        test = LocustTest(written(tmp_path, FAULTY), "memory://")
        measured = run(test, until=lambda measured: measured.errors.total() > 2 * LOGGED).measured

        assert LOGGED < measured.errors["TASK ZeroDivisionError"]
        assert {"TASK ZeroDivisionError": "division by zero"} == measured.error_examples

    def test_store_that_cannot_be_opened_ends_the_test_with_its_reason(self, tmp_path):
        """No user could call anything."""
        with pytest.raises(LocustFailedError) as caught:
            run_locust(LocustTest(LOCUSTFILES / "simple.py", f"sqlite:///{tmp_path}", processes=2), LONG)

        assert "is a directory" in caught.value.reason
        assert [] == caught.value.lines

    def test_user_without_a_limiter_ends_the_test_with_advice(self, tmp_path):
        """Locust's exit code says that it failed."""
        done = python("-m", "locust", "-f", str(written(tmp_path, TARGETLESS)), *shape_arguments(LONG))

        assert 1 == done.returncode
        assert 1 == done.stderr.count("No limiter was selected. Pass --host NAME to Locust")

    def test_file_that_cannot_be_loaded_is_a_failure_with_its_traceback(self, tmp_path):
        """The reason is its last line."""
        with pytest.raises(LocustFailedError) as caught:
            run_locust(LocustTest(written(tmp_path, "import nothing_of_this_name"), "memory://"), LONG)

        assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" == caught.value.reason
        assert caught.value.reason == caught.value.lines[-1]

    def test_unknown_class_lists_those_that_exist(self):
        """The message has everything that is needed to correct the command."""
        with pytest.raises(ValidationError) as caught:
            require_classes(["SimpleUser", "SimplUser"], LOCUSTFILES / "simple.py")

        assert "Invalid class 'SimplUser': simple.py has: SimpleUser, SimpleCascadeUser" == str(caught.value)


class TestArguments:
    def test_processes_talk_at_a_port_of_their_own(self):
        """Another test on this machine may use Locust's default port."""
        one, two = (file_arguments(LocustTest(Path("a.py"), "memory://", ["A"], processes)) for processes in (1, 2))
        ports = [two[two.index(option) + 1] for option in ("--master-bind-port", "--master-port")]

        assert ["-f", "a.py", "A"] == one[:3]
        assert "--processes" not in one
        assert ports[0] == ports[1] != "5557"

    @pytest.mark.parametrize(
        ("output", "reason"),
        [
            ([], "Locust wrote nothing"),
            (["[1] vm/ERROR/locust.main: No User class found!"], "No User class found!"),
            (["[1] vm/ERROR/zae_limiter.locust: it is locked", "[2] vm/INFO/locust.main: bye"], "it is locked"),
            (
                ["Traceback (most recent call last):", "  1 / 0", "ZeroDivisionError: division"],
                "ZeroDivisionError: division",
            ),
            (["usage: locust", "locust: error: unrecognized"], "locust: error: unrecognized"),
        ],
    )
    def test_reason_of_a_failure_is_found_in_the_output(self, output, reason):
        """The line of this package comes first, then an exception, then an error of Locust."""
        assert reason == failure_in(output).reason
