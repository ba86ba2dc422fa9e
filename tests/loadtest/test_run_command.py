"""`loadtest run` and `loadtest ui`: which options go together, and what a person sees."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.loadtest.locust_runs import LOCUSTFILES, PATIENCE_S, environment
from zae_limiter import SyncRepository
from zae_limiter.cli import main
from zae_limiter.cli.loadtest._local_run import progress_text
from zae_limiter.cli.loadtest._run_options import impossible, misplaced
from zae_limiter.loadtest.locust_process import LocustProgress, free_port
from zae_limiter.loadtest.measurements import Measurements, Second

SIMPLE = str(LOCUSTFILES / "simple.py")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["loadtest", *arguments], prog_name="zae-limiter", catch_exceptions=False)


def start(*arguments: str) -> "subprocess.Popen[str]":
    """Start a command as a shell does."""
    return subprocess.Popen(
        [sys.executable, "-m", "zae_limiter", "loadtest", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_calls(url: str, process: "subprocess.Popen[str]") -> None:
    """Wait until a user has taken tokens."""
    with SyncRepository.open(url, deadline_s=60) as repo:
        while process.poll() is None and not repo.get_buckets("simple-0-1", "load-simple"):
            time.sleep(0.1)


class TestOptions:
    @pytest.mark.parametrize(
        ("given", "on_aws", "native", "problem"),
        [
            ({"users", "file"}, False, False, None),
            ({"workers"}, True, False, None),
            ({"workers"}, False, False, "--workers requires --name"),
            ({"max_usd"}, False, False, "--max-usd requires --name"),
            ({"processes"}, True, False, "--processes requires --url"),
            ({"driver"}, True, True, "--driver requires --url"),
            ({"entities"}, False, False, "--entities requires --driver native"),
            ({"entities", "amounts"}, False, True, None),
            ({"file"}, False, True, "--file does not apply to --driver native"),
            ({"classes"}, False, True, "CLASS does not apply to --driver native"),
        ],
    )
    def test_option_of_another_way_to_run_is_a_problem(self, given, on_aws, native, problem):
        """It would be ignored otherwise."""
        assert problem == misplaced(given, on_aws=on_aws, native=native)

    @pytest.mark.parametrize(
        ("url", "given", "problem"),
        [
            ("memory://", {}, None),
            ("sqlite:///a", {"processes": 2}, None),
            ("memory://", {"processes": 2}, "processes do not share memory://"),
            ("sqlite:///a", {"file": None}, "pass a Locust file with --file, or --driver native"),
            ("sqlite:///a", {"driver": "native"}, "--driver native requires --consume"),
            ("dynamodb://app", {"workers": 2, "standalone": True}, "pass --workers or --standalone, not both"),
        ],
    )
    def test_combination_that_cannot_run_is_a_problem(self, url, given, problem):
        """Nothing is started."""
        complete = {"driver": "locust", "file": Path("a.py"), "amounts": (), "workers": None, "standalone": False}
        found = impossible(url, {**complete, "processes": 1, **given})

        assert (problem is None) == (found is None)
        assert (problem or "") in (found or "")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["run", "-f", SIMPLE],
                "pass --url sqlite:///load.db to run on this machine, or --name NAME to run on AWS",
            ),
            (["ui", "-f", SIMPLE], "pass --url sqlite:///load.db to run on this machine, or --name NAME to run on AWS"),
            (["run", "-n", "app", "--url", "memory://", "-f", SIMPLE], "pass --name or --url, not both"),
            (["run", "--url", "memory://", "-f", "none.py"], "there is no Locust file 'none.py'"),
            (["ui", "--url", "memory://"], "pass a Locust file with --file"),
            (["ui", "-n", "app", "-f", SIMPLE, "SimpleUser"], "CLASS and --processes require --url"),
            (["ui", "--url", "memory://", "-f", SIMPLE, "--max-usd", "1"], "--max-usd requires --name"),
            (["ui", "--url", "memory://", "-f", SIMPLE, "--html", "/no/such/page.html"], "there is no directory"),
            (["ui", "--url", "memory://", "-f", SIMPLE, "--processes", "2"], "processes do not share memory://"),
            (["run", "--url", "memory://", "-f", SIMPLE, "--html", "/no/such/page.html"], "there is no directory"),
        ],
    )
    def test_misuse_is_reported_before_anything_starts(self, arguments, message, monkeypatch):
        """The environment selects no store, because a test changes it."""
        monkeypatch.setenv("ZAE_LIMITER_URL", "memory://")
        done = run(*arguments)

        assert (2, "") == (done.exit_code, done.stdout)
        assert message in done.stderr

    def test_command_without_locust_names_the_command_that_installs_it(self, monkeypatch):
        """Only tests need the extra."""
        monkeypatch.setitem(sys.modules, "locust", None)
        done = run("run", "--url", "memory://", "-f", SIMPLE)

        assert 1 == done.exit_code
        assert "Error: locust is not installed; install it: " in done.stderr


class TestProgress:
    def test_progress_has_the_rate_of_the_last_whole_second(self):
        """The current second is not over."""
        seconds = {10: Second(3, 4, 1), 11: Second(900, 0, 0)}
        measured = Measurements(started_s=8.5, ended_s=11.5, admitted=903, rejected=4, seconds=seconds)
        measured.errors["ACQUIRE StorageError"] += 1
        progress = LocustProgress(5.0, 1, measured)

        assert "3 of 60 s, 1 user, 8 calls/s, 903 admitted, 4 rejected, 1 error" == progress_text(progress, 60)

    def test_progress_before_the_first_call_is_unknown(self):
        """Locust takes a second to start."""
        assert (None, None) == (
            progress_text(LocustProgress(1.0, 0, None)),
            progress_text(LocustProgress(1.0, 5, Measurements())),
        )


class TestRuns:
    def test_interrupted_run_ends_with_its_report_and_leaves_no_process(self, tmp_path):
        """Ctrl-C in a terminal reaches the command alone."""
        url = f"sqlite:///{tmp_path / 'load.db'}"
        page = tmp_path / "report.html"
        shape = ["--users", "2", "--duration", "600", "--processes", "2"]
        with start("run", "--url", url, "-f", SIMPLE, "SimpleUser", *shape, "--json", "--html", str(page)) as process:
            wait_for_calls(url, process)
            os.kill(process.pid, signal.SIGINT)
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        report = json.loads(stdout)

        assert 130 == process.returncode, stderr
        assert "Interrupted." in stderr
        assert 0 < report["admitted"]
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
        assert [] == locusts_on(url)

    def test_command_that_is_killed_leaves_no_process(self, tmp_path):
        """Locust ends itself when its parent is gone."""
        url = f"sqlite:///{tmp_path / 'load.db'}"
        with start("run", "--url", url, "-f", SIMPLE, "SimpleUser", "--duration", "600") as process:
            wait_for_calls(url, process)
            found = locusts_on(url)
            process.kill()
            process.communicate(timeout=PATIENCE_S)
        while locusts_on(url):
            time.sleep(0.1)

        assert found

    def test_page_is_served_until_it_is_interrupted(self, tmp_path):
        """Without a test there is nothing to report."""
        url, port = f"sqlite:///{tmp_path / 'load.db'}", free_port()
        with start("ui", "--url", url, "-f", SIMPLE, "--port", str(port), "--no-browser") as process:
            assert process.stderr is not None
            announced = process.stderr.readline()
            with OPENER.open(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S) as answer:
                page = answer.read().decode()
            os.kill(process.pid, signal.SIGINT)
            stdout, _ = process.communicate(timeout=PATIENCE_S)

        assert f"http://127.0.0.1:{port}" in announced
        assert "SimpleCascadeUser" in page
        assert (0, "") == (process.returncode, stdout)

    def test_last_test_of_a_page_is_reported_when_it_ends(self, tmp_path):
        """As JSON alone on stdout, and as a page."""
        url, port, html = f"sqlite:///{tmp_path / 'load.db'}", free_port(), tmp_path / "report.html"
        form = ["--port", str(port), "--html", str(html), "--no-browser", "--json"]
        with start("ui", "--url", url, "-f", SIMPLE, *form) as process:
            assert process.stderr is not None
            process.stderr.readline()
            users = urllib.parse.urlencode({"user_classes": "SimpleUser", "user_count": 1, "spawn_rate": 1}).encode()
            OPENER.open(f"http://127.0.0.1:{port}/swarm", users, timeout=PATIENCE_S).close()
            wait_for_calls(url, process)
            os.kill(process.pid, signal.SIGINT)
            stdout, stderr = process.communicate(timeout=PATIENCE_S)

        assert 0 == process.returncode, stderr
        assert 0 < json.loads(stdout)["admitted"]
        assert html.read_text(encoding="utf-8").startswith("<!doctype html>")

    def test_page_at_a_used_port_is_refused(self, tmp_path):
        """Locust would start and then fail."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            done = run("ui", "--url", "memory://", "-f", SIMPLE, "--port", str(port), "--no-browser")

        assert 2 == done.exit_code
        assert f"port {port} is in use; pass another one with --port" in done.stderr


def locusts_on(url: str) -> list[str]:
    """Return the processes whose environment names a store."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"ZAE_LOADTEST_URL={url}".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found
