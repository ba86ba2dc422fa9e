"""``zae-limiter local``: what it prints, and what a shell sees of it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.dynamodb.engines import free_port
from tests.infra.local_servers import BROKEN, SILENT, in_place_of_ministack, stopped_in_the_end
from tests.long_waits import PATIENT
from zae_limiter import SyncRepository
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.local import session_of
from zae_limiter.infra.stack import Stack

UP_AND_USE = """
set -e
eval "$($LIMITER local env --name my-app)"
$LIMITER acquire user-1 gpt-4 -c rpd:1 -l rpd:100/d
"""


@pytest.fixture
def aws(tmp_path, monkeypatch):
    """A local AWS of the test's own, named by the environment."""
    monkeypatch.setenv("ZAE_LIMITER_LOCAL_DIR", str(tmp_path / "local"))
    with stopped_in_the_end(tmp_path / "local") as aws:
        yield aws


@pytest.fixture
def port() -> str:
    return str(free_port())


def test_up_prints_where_it_is_and_how_to_use_it(run, aws, port, monkeypatch):
    """Status prints the same; a program reads it as JSON."""
    monkeypatch.setattr("zae_limiter.infra.local._HEALTH_S", 60.0)
    up, status, as_json = run("local", "up", "--port", port), run("local", "status"), run("local", "status", "--json")

    running = aws.status()
    assert (0, 0, 0) == (up.exit_code, status.exit_code, as_json.exit_code)
    assert f"state      running (pid {running.pid})\nendpoint   http://127.0.0.1:{port}\n" in up.stdout
    assert up.stdout == status.stdout
    assert 'eval "$(zae-limiter local env)"' in up.stderr
    assert {
        "running": True,
        "answers": True,
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "kind": "process",
        "pid": running.pid,
        "container": None,
        "started_at": running.server.started_at,
        "directory": str(aws.directory),
    } == json.loads(as_json.stdout)


def test_down_says_where_its_state_is_kept(run, aws, port):
    """And whether there was anything to stop."""
    run("local", "up", "--port", port)
    told = [run("local", "down").stdout, run("local", "down").stdout, run("local", "down", "--wipe").stdout]

    assert [
        f"Stopped; its state is kept in {aws.directory}.\n",
        f"It was not running; its state is kept in {aws.directory}.\n",
        "It was not running; its state was deleted.\n",
    ] == told
    assert {"stopped": False, "wiped": False} == json.loads(run("local", "down", "--json").stdout)


def test_a_shell_that_evaluates_the_environment_uses_the_limiter_in_it(run, aws, port):
    """The limiter of the name is there after up, and data commands work on it, whatever keys the user has."""
    done = run("local", "up", "--port", port, "--name", "my-app")
    shell = {"PATH": os.environ["PATH"], "LIMITER": f"{sys.executable} -m zae_limiter", "AWS_PROFILE": "mine"}
    shell |= {"ZAE_LIMITER_LOCAL_DIR": str(aws.directory), **PATIENT}
    used = subprocess.run(["sh", "-c", UP_AND_USE], env=shell, capture_output=True, text=True, timeout=120, check=False)

    assert 'eval "$(zae-limiter local env --name my-app)"' in done.stderr
    assert ("LIMIT  TAKEN  LEFT\nrpd        1    99\n", 0) == (used.stdout, used.returncode), used.stderr


def test_what_was_deployed_goes_on_after_a_restart(run, aws, port, monkeypatch):
    """Stack, table and balances are there, and the aggregator counts on; deploying again leaves them as they are."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("zae_limiter.cli.acquire.QUICK_S", 60.0)
    endpoint_url = f"http://127.0.0.1:{port}"
    url = f"dynamodb://my-app?region=us-east-1&endpoint_url={endpoint_url}"
    left, counted = [], []
    for amount in (1, 2):
        assert 0 == run("local", "up", "--port", port, "--name", "my-app").exit_code
        done = run("acquire", "user-1", "gpt-4", "-c", f"rpd:{amount}", "-l", "rpd:100/d", "--json", "--url", url)
        left.append(json.loads(done.stdout)["available"])
        counted.append(usage_that_comes(url, 3 if amount == 2 else 1))
        if amount == 1:
            run("local", "down")
    clients = Clients("us-east-1", endpoint_url, session_of(aws.status().server))

    assert [{"rpd": 99}, {"rpd": 97}] == left
    assert [1, 3] == counted
    assert "CREATE_COMPLETE" == Stack("my-app", clients).require().status


def usage_that_comes(url, expected):
    """Return what was used in all, as soon as it is what is expected, or as it is when patience ends."""
    end = time.monotonic() + 120
    with SyncRepository.open(url, deadline_s=30) as repo:
        while True:
            snapshots, _ = repo.get_usage_snapshots("user-1", window_type="hourly")
            total = sum(snapshot.counters["rpd"] for snapshot in snapshots)
            if total == expected or time.monotonic() > end:
                return total
            time.sleep(0.2)


def test_env_as_json(run, aws, port):
    """For programs that have no shell."""
    run("local", "up", "--port", port, "--region", "eu-west-1")
    told = json.loads(run("local", "env", "--json").stdout)

    assert {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    } == told


def test_logs_are_the_last_lines(run, aws, port):
    """Following ends with the server, here at once."""
    run("local", "up", "--port", port)
    last = run("local", "logs", "-n", "1").stdout
    run("local", "down")
    followed = run("local", "logs", "--follow", "--lines", "2").stdout

    assert f"Running on http://127.0.0.1:{port} (CTRL + C to quit)\n" in last
    assert 2 == followed.count("\n")


class TestNotRunning:
    def test_status_is_exit_code_69(self, run, aws):
        """So that a script can ask."""
        plain, as_json = run("local", "status"), run("local", "status", "--json")

        assert (69, "", "It is not running. Start it: zae-limiter local up\n") == (
            plain.exit_code,
            plain.stdout,
            plain.stderr,
        )
        assert (69, {"running": False, "directory": str(aws.directory)}) == (
            as_json.exit_code,
            json.loads(as_json.stdout),
        )

    def test_env_prints_nothing_that_could_be_evaluated(self, run, aws):
        """It is an error."""
        done = run("local", "env")

        assert (69, "") == (done.exit_code, done.stdout)
        assert "Error: Local AWS: it is not running; start it: zae-limiter local up\n" == done.stderr

    def test_why_it_does_not_start_is_told(self, run, aws, port, tmp_path, monkeypatch):
        """The end of its log, below the error."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, BROKEN))
        done = run("local", "up", "--port", port)

        assert (69, "") == (done.exit_code, done.stdout)
        assert "Error: Local AWS: it ended during startup; the end of its log:\n  no such luck\n" == done.stderr

    def test_an_interrupted_start_leaves_nothing_behind(self, aws, port, tmp_path, monkeypatch):
        """Ctrl-C while one waits is quiet, and exit code 130."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, SILENT))
        command = [sys.executable, "-m", "zae_limiter", "local", "up", "--port", port]
        starter = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while "waiting for something" not in aws.logs() and time.monotonic() < end:
            time.sleep(0.05)
        seen = aws.status()
        starter.send_signal(signal.SIGINT)
        told = starter.communicate(timeout=120)

        assert (False, 130, ("", "")) == (seen.answers, starter.returncode, told)
        assert (None, False) == (aws.status(), (aws.directory / "server.json").exists())

    def test_docker_without_an_engine_is_said_so(self, run, aws, port, monkeypatch):
        """With what to do."""
        monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
        done = run("local", "up", "--docker", "--port", port)

        assert (69, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "no docker engine answers; start one, or omit --docker" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("up", "--port", "0"), "'--port'"),
        (("up", "--image", "x"), "--image requires --docker"),
        (("up", "--name", "my_app"), "'my_app': a stack name starts with a letter"),
        (("env", "--name", "my_app"), "'my_app': a stack name starts with a letter"),
        (("logs", "-n", "-1"), "'--lines'"),
    ],
)
def test_misused_it_is_told_in_one_line_with_exit_code_2(run, aws, arguments, words):
    """And nothing is started."""
    done = run("local", *arguments)

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert words in done.stderr
    assert aws.status() is None
