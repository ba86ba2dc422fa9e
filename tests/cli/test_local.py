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
from zae_limiter.infra.local import default_server, environment_of, session_of
from zae_limiter.infra.local_files import Server
from zae_limiter.infra.stack import Stack

UP_AND_USE = """
set -e
eval "$($LIMITER local env --name my-app)"
$LIMITER acquire user-1 gpt-4 -c rpd:1 -l rpd:100/d
"""

LEAVE = """
set -e
eval "$($LIMITER local env --name my-app 2>/dev/null)"
export AWS_ACCESS_KEY_ID=mine
eval "$($LIMITER local env --unset)"
env
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
    printed = [run("local", "down").stdout, run("local", "down").stdout, run("local", "down", "--wipe", "--yes").stdout]

    assert [
        f"Stopped; its state is kept in {aws.directory}.\n",
        f"It was not running; its state is kept in {aws.directory}.\n",
        "It was not running; its state was deleted.\n",
    ] == printed
    assert {"stopped": False, "wiped": False} == json.loads(run("local", "down", "--json").stdout)


def test_local_down_that_deletes_the_state_asks_in_a_terminal(run, aws, interactive):
    """Declining stops nothing and keeps the state."""
    aws.directory.mkdir()
    declined = run("local", "down", "--wipe", answers="n\n")
    agreed = run("local", "down", "--wipe", answers="y\n")

    assert (1, "") == (declined.exit_code, declined.stdout)
    assert f"Delete the state of the local AWS in {aws.directory}, with all its limiters?" in declined.stderr
    assert (0, "It was not running; its state was deleted.\n") == (agreed.exit_code, agreed.stdout)


def test_local_down_that_deletes_the_state_requires_yes_without_a_terminal(run, aws):
    """A script has to say so."""
    done = run("local", "down", "--wipe")

    assert (2, "") == (done.exit_code, done.stdout)
    assert "pass --yes to delete it" in done.stderr


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
    last = run("local", "logs", "--tail", "1").stdout
    run("local", "down")
    followed = run("local", "logs", "--follow", "--lines", "2").stdout

    assert f"Running on http://127.0.0.1:{port} (CTRL + C to quit)\n" in last
    assert 2 == followed.count("\n")


class TestLeaving:
    @pytest.fixture
    def endpoint(self, port, monkeypatch):
        """An endpoint without a server, to which the environment leads."""
        known = environment_of(Server("process", int(port), "us-east-1", ""), "my-app")
        for name, value in known.items():
            monkeypatch.setenv(name, value)
        return known["AWS_ENDPOINT_URL"]

    @pytest.mark.parametrize(
        "arguments",
        [
            ("deploy", "--name", "my-app"),
            ("status",),
            ("list",),
            ("acquire", "user-1", "gpt-4", "-c", "rpm:1", "-l", "rpm:5"),
        ],
    )
    def test_command_that_finds_no_local_aws_says_how_to_leave_it(self, run, endpoint, port, arguments):
        """The shell was told to use it, and it was stopped since."""
        done = run(*arguments)

        assert (69, "") == (done.exit_code, done.stdout)
        assert (
            f"Error: no server answers at {endpoint}, which AWS_ENDPOINT_URL names; "
            f"start it: zae-limiter local up --port {port}, "
            'or stop using it: eval "$(zae-limiter local env --unset)"'
        ) == done.stderr.splitlines()[-1]

    def test_command_that_finds_no_local_aws_names_the_variable_of_the_store(self, run, endpoint, monkeypatch):
        """Without an endpoint for all of AWS, the URL of the store has one."""
        monkeypatch.delenv("AWS_ENDPOINT_URL")

        assert f"no server answers at {endpoint}, which ZAE_LIMITER_URL names" in run("status").stderr

    def test_failure_of_a_file_does_not_mention_the_local_aws(self, run, endpoint, tmp_path):
        """The endpoint has nothing to do with it."""
        (tmp_path / "limits.db").write_text("This is no database, and it is longer than the header of one. " * 4)
        done = run("available", "user-1", "gpt-4", "--url", f"sqlite:///{tmp_path}/limits.db")

        assert (69, False) == (done.exit_code, "local env" in done.stderr), done.stderr

    def test_failure_of_a_given_endpoint_does_not_mention_the_environment(self, run, endpoint):
        """Unsetting variables would not help."""
        done = run("list", "--endpoint-url", f"http://127.0.0.1:{free_port()}", "--region", "us-east-1")

        assert (69, False) == (done.exit_code, "local env" in done.stderr)

    def test_local_env_unset_evaluated_by_a_shell_removes_what_local_env_has_set(self, aws):
        """Keys that were set since are the user's own."""
        shell = {"PATH": os.environ["PATH"], "LIMITER": f"{sys.executable} -m zae_limiter", "HOME": str(aws.directory)}
        used = subprocess.run(["sh", "-c", LEAVE], env=shell, capture_output=True, text=True, timeout=120, check=True)

        assert ["AWS_ACCESS_KEY_ID=mine"] == [line for line in used.stdout.splitlines() if "AWS" in line]

    def test_local_env_unset_without_a_local_aws_changes_nothing(self, run, aws, monkeypatch):
        """A note says so."""
        for name in environment_of(default_server(), "my-app"):
            monkeypatch.delenv(name, raising=False)
        plain, as_json = run("local", "env", "--unset"), run("local", "env", "--unset", "--json")

        assert (0, "", "This shell does not use the local AWS.\n") == (plain.exit_code, plain.stdout, plain.stderr)
        assert {} == json.loads(as_json.stdout)

    def test_local_env_unset_mentions_a_store_that_the_user_has_set(self, run, endpoint, monkeypatch):
        """It is the user's own, so it is not removed."""
        monkeypatch.setenv("ZAE_LIMITER_URL", "dynamodb://my-app?region=us-east-1")
        done = run("local", "env", "--unset")

        assert (0, False) == (done.exit_code, "ZAE_LIMITER_URL" in done.stdout)
        assert "ZAE_LIMITER_URL is still set; remove it: unset ZAE_LIMITER_URL\n" == done.stderr

    def test_local_env_unset_as_json_has_every_variable_with_null(self, run, endpoint):
        """For programs that have no shell."""
        printed = json.loads(run("local", "env", "--unset", "--json").stdout)

        assert dict.fromkeys(environment_of(default_server(), "my-app")) == printed


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

    def test_local_env_of_a_stopped_server_prints_the_values_of_the_next_start(self, run, aws):
        """A note on stderr says that it is not running."""
        done = run("local", "env", "--name", "my-app")

        assert (0, "It is not running. Start it: zae-limiter local up\n") == (done.exit_code, done.stderr)
        assert [
            "export AWS_ENDPOINT_URL=http://127.0.0.1:4566",
            "export AWS_REGION=us-east-1",
            "export AWS_DEFAULT_REGION=us-east-1",
            "export AWS_ACCESS_KEY_ID=test",
            "export AWS_SECRET_ACCESS_KEY=test",
            "export ZAE_LIMITER_URL='dynamodb://my-app?region=us-east-1&endpoint_url=http://127.0.0.1:4566'",
            "unset AWS_PROFILE AWS_SESSION_TOKEN",
        ] == done.stdout.splitlines()

    def test_local_up_of_a_server_that_fails_to_start_prints_its_log(self, run, aws, port, tmp_path, monkeypatch):
        """The end of the log follows the error."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, BROKEN))
        done = run("local", "up", "--port", port)

        assert (69, "") == (done.exit_code, done.stdout)
        assert "Error: Local AWS: it ended during startup; the end of its log:\n  no such luck\n" == done.stderr

    def test_local_up_interrupted_during_the_start_leaves_no_server(self, aws, port, tmp_path, monkeypatch):
        """Ctrl-C prints one line and exits with 130."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, SILENT))
        command = [sys.executable, "-m", "zae_limiter", "local", "up", "--port", port]
        starter = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while "waiting for something" not in aws.logs() and time.monotonic() < end:
            time.sleep(0.05)
        seen = aws.status()
        starter.send_signal(signal.SIGINT)
        printed = starter.communicate(timeout=120)

        assert (False, 130, ("", "Interrupted.\n")) == (seen.answers, starter.returncode, printed)
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
        (("env", "--name", "my-app", "--unset"), "pass --name or --unset, not both"),
        (("logs", "-n", "-1"), "'--lines'"),
    ],
)
def test_local_with_invalid_arguments_prints_one_line_and_exits_with_2(run, aws, arguments, words):
    """No server is started."""
    done = run("local", *arguments)

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert words in done.stderr
    assert aws.status() is None
