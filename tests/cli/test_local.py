"""``zae-limiter local``: its output and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.dynamodb.engines import free_port
from tests.infra.local_servers import BROKEN, SILENT, always_stopped, in_place_of_ministack
from tests.long_waits import LONG_DEADLINE
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
    with always_stopped(tmp_path / "local") as aws:
        yield aws


@pytest.fixture
def port() -> str:
    return str(free_port())


def test_local_up_prints_the_endpoint_and_how_to_use_it(run, aws, port, monkeypatch):
    """`local status` prints the same, and `--json` prints it as JSON."""
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


def test_local_down_prints_where_the_state_is_kept(run, aws, port):
    """It also says whether a server was stopped."""
    run("local", "up", "--port", port)
    printed = [run("local", "down").stdout, run("local", "down").stdout, run("local", "down", "--wipe").stdout]

    assert [
        f"Stopped; its state is kept in {aws.directory}.\n",
        f"It was not running; its state is kept in {aws.directory}.\n",
        "It was not running; its state was deleted.\n",
    ] == printed
    assert {"stopped": False, "wiped": False} == json.loads(run("local", "down", "--json").stdout)


def test_local_env_evaluated_by_a_shell_makes_commands_use_the_local_limiter(run, aws, port):
    """The named limiter exists after `local up`, and commands use it even if the user has AWS keys."""
    done = run("local", "up", "--port", port, "--name", "my-app")
    shell = {"PATH": os.environ["PATH"], "LIMITER": f"{sys.executable} -m zae_limiter", "AWS_PROFILE": "mine"}
    shell |= {"ZAE_LIMITER_LOCAL_DIR": str(aws.directory), **LONG_DEADLINE}
    used = subprocess.run(["sh", "-c", UP_AND_USE], env=shell, capture_output=True, text=True, timeout=120, check=False)

    assert 'eval "$(zae-limiter local env --name my-app)"' in done.stderr
    assert ("LIMIT  TAKEN  LEFT\nrpd        1    99\n", 0) == (used.stdout, used.returncode), used.stderr


def test_local_aws_keeps_its_stacks_across_a_restart(run, aws, port, monkeypatch):
    """The stack, the table and the balances persist.

    Deploying again does not change them, and the aggregator continues to count.
    """
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
        counted.append(wait_for_usage(url, 3 if amount == 2 else 1))
        if amount == 1:
            run("local", "down")
    clients = Clients("us-east-1", endpoint_url, session_of(aws.status().server))

    assert [{"rpd": 99}, {"rpd": 97}] == left
    assert [1, 3] == counted
    assert "CREATE_COMPLETE" == Stack("my-app", clients).require().status


def wait_for_usage(url, expected):
    """Wait up to two minutes for the expected total usage; return the total read last."""
    end = time.monotonic() + 120
    with SyncRepository.open(url, deadline_s=30) as repo:
        while True:
            snapshots, _ = repo.get_usage_snapshots("user-1", window_type="hourly")
            total = sum(snapshot.counters["rpd"] for snapshot in snapshots)
            if total == expected or time.monotonic() > end:
                return total
            time.sleep(0.2)


def test_local_env_json_prints_the_variables(run, aws, port):
    """JSON is for programs that have no shell."""
    run("local", "up", "--port", port, "--region", "eu-west-1")
    printed = json.loads(run("local", "env", "--json").stdout)

    assert {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    } == printed


def test_local_logs_prints_the_last_lines(run, aws, port):
    """`--follow` ends with the server, which is stopped here."""
    run("local", "up", "--port", port)
    last = run("local", "logs", "-n", "1").stdout
    run("local", "down")
    followed = run("local", "logs", "--follow", "--lines", "2").stdout

    assert f"Running on http://127.0.0.1:{port} (CTRL + C to quit)\n" in last
    assert 2 == followed.count("\n")


class TestNotRunning:
    def test_local_status_of_a_stopped_server_exits_with_69(self, run, aws):
        """A script can test for it."""
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

    def test_local_env_of_a_stopped_server_prints_nothing_to_evaluate(self, run, aws):
        """The command fails."""
        done = run("local", "env")

        assert (69, "") == (done.exit_code, done.stdout)
        assert "Error: Local AWS: it is not running; start it: zae-limiter local up\n" == done.stderr

    def test_local_up_of_a_server_that_fails_to_start_prints_its_log(self, run, aws, port, tmp_path, monkeypatch):
        """The end of the log follows the error."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, BROKEN))
        done = run("local", "up", "--port", port)

        assert (69, "") == (done.exit_code, done.stdout)
        assert "Error: Local AWS: it ended during startup; the end of its log:\n  no such luck\n" == done.stderr

    def test_local_up_interrupted_during_the_start_leaves_no_server(self, aws, port, tmp_path, monkeypatch):
        """Ctrl-C prints nothing and exits with 130."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, SILENT))
        command = [sys.executable, "-m", "zae_limiter", "local", "up", "--port", port]
        starter = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while "waiting for something" not in aws.logs() and time.monotonic() < end:
            time.sleep(0.05)
        seen = aws.status()
        starter.send_signal(signal.SIGINT)
        printed = starter.communicate(timeout=120)

        assert (False, 130, ("", "")) == (seen.answers, starter.returncode, printed)
        assert (None, False) == (aws.status(), (aws.directory / "server.json").exists())

    def test_local_up_with_docker_but_no_engine_says_what_to_do(self, run, aws, port, monkeypatch):
        """The error says to start an engine or to leave out --docker."""
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
def test_local_with_invalid_arguments_prints_one_line_and_exits_with_2(run, aws, arguments, words):
    """No server is started."""
    done = run("local", *arguments)

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert words in done.stderr
    assert aws.status() is None
