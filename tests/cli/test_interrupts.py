"""Ctrl-C and closed pipes, with real processes and real signals."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.cli.aws import printed_json
from tests.cli.test_terminal import Terminal, command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

ONE_AN_HOUR = ("acquire", "user-1", "gpt-4", "-c", "rph:1", "-l", "rph:1/h")
WAIT_S = 60
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
IN_A_SHELL = ["bash", "-o", "pipefail", "-c"]


@pytest.fixture
def silent_server():
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        yield server


def start(*words):
    """Start a command with pipes."""
    return subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | KEYS
    )


def interrupt(process):
    """Send Ctrl-C, and return the exit code and the output."""
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=WAIT_S)
    return process.returncode, out, error


@pytest.mark.parametrize(
    "words", ["system get-defaults --name app", "status --name app", "namespace list --name app", "list"]
)
def test_an_interrupt_while_the_network_is_waited_for_exits_with_130(silent_server, words):
    """One short line is printed, and no traceback."""
    endpoint = f"http://127.0.0.1:{silent_server.getsockname()[1]}"
    process = start(*words.split(), "--region", "us-east-1", "--endpoint-url", endpoint)
    connection, _ = silent_server.accept()
    with connection:
        # The request has arrived, so the command waits for the answer.
        connection.recv(1)
        done = interrupt(process)

    assert (130, "", "Interrupted.\n") == done


def test_an_interrupt_of_acquire_that_waits_exits_with_130_and_takes_nothing(run):
    """All tokens that refill while it waits stay."""
    limit = ("-l", "rps:1/s:burst=100")
    run("acquire", "user-1", "gpt-4", "-c", "rps:100", *limit)
    process = start("acquire", "user-1", "gpt-4", "-c", "rps:100", *limit, "--wait", "100")
    told = process.stderr.readline()
    done = interrupt(process)
    (bucket,) = printed_json(run("entity", "buckets", "user-1", "--json"))

    assert told.startswith("Waiting ")
    assert (130, "", "Interrupted.\n") == done
    assert 100_000 == bucket["total_consumed_milli"]


def test_an_interrupt_of_acquire_that_waits_in_a_terminal_ends_its_status_line(run):
    """The line shows the seconds left, which count down."""
    run(*ONE_AN_HOUR)
    with Terminal(*command(*ONE_AN_HOUR, "--wait", "4000")) as terminal:
        first = terminal.wait_for(r"Waiting for the tokens: (\d+) s left \.\.\.")
        terminal.wait_for(rf"Waiting for the tokens: {int(first[1]) - 1} s left")
        code, shown = terminal.interrupt()

    assert 130 == code
    assert shown.endswith("\r\nInterrupted.\r\n")
    assert "Traceback" not in shown


def test_an_interrupt_at_a_question_exits_with_130_and_deletes_nothing(run):
    """Declining exits with 1, an interrupt with 130."""
    run("entity", "create", "user-1")
    with Terminal(*command("entity", "delete", "user-1")) as terminal:
        terminal.wait_for(r"\[y/N\]:")
        code, shown = terminal.interrupt()

    assert (130, True) == (code, shown.endswith("\r\nInterrupted.\r\n"))
    assert 0 == run("entity", "show", "user-1").exit_code


def test_an_interrupt_while_modules_are_imported_exits_with_130():
    """The command line may be interrupted before it parses its arguments."""
    script = "import os, signal, sys\nfrom importlib.abc import MetaPathFinder\n"
    script += "class Interrupting(MetaPathFinder):\n    def find_spec(self, name, path, target=None):\n"
    script += "        if name == 'zae_limiter.cli': signal.raise_signal(signal.SIGINT)\n"
    script += "sys.meta_path.insert(0, Interrupting())\nfrom zae_limiter.__main__ import run\nrun()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=WAIT_S)

    assert (130, "", "Interrupted.\n") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", ["--help", "cfn-template", "namespace list", "status --json"])
def test_a_closed_pipe_ends_a_command_quietly(run, words):
    """The reader has ended before the first line. There is no traceback, and no message at the exit of Python."""
    reader, pipe = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*words.split()), stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=WAIT_S
    )
    os.close(pipe)

    assert (1, "") == (done.returncode, done.stderr)


def test_head_of_a_long_list_is_all_that_is_printed(run):
    """The list is larger than a pipe holds, so the command still writes when head has ended."""
    names = [f"tenant-{'x' * 40}-{number}" for number in range(2000)]
    run("namespace", "register", *names)
    line = f"{sys.executable} -m zae_limiter namespace list | head -n 1"
    done = subprocess.run([*IN_A_SHELL, line], capture_output=True, text=True, check=False, timeout=WAIT_S)

    assert "" == done.stderr
    assert ["NAMESPACE", "ID", "CREATED"] == done.stdout.split()
