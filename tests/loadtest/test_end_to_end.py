"""A load test on a local AWS, from its deployment to its deletion."""

import json
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.e2e.deployment import comes_to
from tests.loadtest.end_to_end import (
    BROKEN,
    CREDENTIALS,
    ENDLESS,
    FEW_CALLS,
    KilledWorker,
    LoadTestCommands,
    LocustPage,
    write_locust_files,
)
from zae_limiter.loadtest.aws_page import serve_page
from zae_limiter.loadtest.locust_process import answers, free_port
from zae_limiter.loadtest.run_config import INTERRUPTED, RunMode


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadTestCommands:
    try:
        url = running("aws").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return LoadTestCommands(fresh_table_name(), url, write_locust_files(tmp_path))


def test_load_test_runs_in_all_modes_and_leaves_nothing_behind(commands):
    """Deploy, push, run, tune, list and delete, against a local AWS."""
    deployed = commands.deploy()

    assert "CREATE_COMPLETE" == deployed["stack_status"]
    check_push(commands)
    check_headless(commands)
    check_distributed(commands)
    check_failure(commands)
    check_page(commands)
    check_page_command(commands)
    check_tune(commands)
    assert [0] == [one["running_masters"] for one in commands.listed()]
    assert {"deleted": True} == commands.printed("loadtest", "delete", "--yes")
    assert {} == comes_to({}, commands.remains)


def check_push(commands: LoadTestCommands) -> None:
    """A push uploads the locust files that changed, and not the code of the workers that did not."""
    with (commands.folder / ENDLESS).open("a") as file:
        file.write("# changed\n")

    pushed = commands.printed("loadtest", "push", "-C", str(commands.folder))

    assert (True, False) == (pushed["locust_files_changed"], pushed["worker_changed"])


def check_headless(commands: LoadTestCommands) -> None:
    """One function runs all users; an unknown class lists those that exist."""
    unknown = commands.command("loadtest", "run", "-f", FEW_CALLS, "FewCallUser", "--duration", "50")
    assert (2, True) == (unknown.returncode, "few_calls.py has: EndlessUser, FewCallsUser" in unknown.stderr), (
        unknown.stderr
    )

    report = commands.printed("loadtest", "run", "-f", FEW_CALLS, "FewCallsUser", "--users", "2", "--duration", "50")

    assert 20 <= report["admitted"]
    assert 0 == commands.service_tasks()


def check_distributed(commands: LoadTestCommands) -> None:
    """A worker that is killed is replaced, and an interrupt ends the test with its result."""
    run = KilledWorker(commands)

    result = run.run()

    assert INTERRUPTED == result.stopped
    # A busy machine may lose others too.
    assert 1 <= result.lost_workers <= result.replaced_workers
    assert ("worker-1", "Locust was killed by signal 9") in [(one.worker_id, one.reason) for one in run.failures]
    assert 0 < result.measurements.admitted
    assert 0 == commands.service_tasks()


def check_failure(commands: LoadTestCommands) -> None:
    """A run that fails shows the log of its process, and the service is at zero."""
    failed = commands.command("loadtest", "run", "-f", BROKEN, "--standalone")

    assert 69 == failed.returncode
    assert "No module named 'a_module_that_does_not_exist'" in failed.stderr
    assert 0 == commands.service_tasks()


def check_page(commands: LoadTestCommands) -> None:
    """The web page of a master is served until it is interrupted; then it has a result."""
    port = free_port()
    test = commands.opened(port)
    statuses = []

    def look(url: str) -> None:
        with urllib.request.urlopen(url) as answer:
            statuses.append(answer.status)
        raise KeyboardInterrupt

    result = serve_page(test, test.configure(RunMode.UI, ENDLESS), port, look)

    assert [200] == statuses
    assert (INTERRUPTED, None) == (result.stopped, result.measurements.started_s)
    assert not answers(port)
    assert 0 == commands.service_tasks()


def check_page_command(commands: LoadTestCommands) -> None:
    """A test of the page runs on a worker, and Ctrl-C prints its report."""
    port = free_port()
    page = LocustPage(f"http://127.0.0.1:{port}")
    with commands.started("loadtest", "ui", "-f", ENDLESS, "--port", str(port), "--no-browser", "--json") as process:
        assert process.stderr is not None
        announced = next((line for line in process.stderr if page.url in line), None)
        assert announced is not None
        page.wait_until(lambda stats: bool(stats["workers"]))
        page.start_users(2)
        page.wait_until(lambda stats: any(one["name"] == "gpt-4" and one["num_requests"] for one in stats["stats"]))
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()

    assert 0 == process.returncode, stderr
    assert 0 < json.loads(stdout)["admitted"]
    assert 0 == commands.service_tasks()


def check_tune(commands: LoadTestCommands) -> None:
    """The baseline has at least 100 calls, and the commands use the best number of users."""
    steps = ("--max-users", "2", "--step-duration", "2", "--baseline-duration", "3", "--threshold", "0.01")

    tuned = commands.printed("loadtest", "tune", "-f", ENDLESS, *steps)

    assert [1, 2] == [one["users"] for one in tuned["steps"]]
    assert 100 <= tuned["steps"][0]["requests"]
    assert 3 == len(tuned["commands"])
