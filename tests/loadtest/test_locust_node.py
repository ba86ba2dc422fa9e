"""Nodes of a distributed test: real Locust processes on this machine, without AWS."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loadtest.run_configs import a_run
from tests.loadtest.test_worker import IDLE
from zae_limiter.loadtest.locust_process import free_port
from zae_limiter.loadtest.node_process import NodeProcess, headless_arguments, locust_arguments

PATIENCE_S = 300.0
CONFIG = a_run(file="user.py", users=2, duration_s=600)


class Nodes:
    """A master and its workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = str(free_port())
        self._nodes: dict[str, NodeProcess] = {}
        (folder / "user.py").write_text(IDLE)

    def start_master(self) -> NodeProcess:
        role = ["--master", "--master-bind-port", self._port, "--enable-rebalancing", *headless_arguments(CONFIG)]
        return self._start("master", role)

    def start_worker(self, name: str) -> NodeProcess:
        return self._start(name, ["--worker", "--master-host", "127.0.0.1", "--master-port", self._port])

    def stop(self) -> None:
        for node in self._nodes.values():
            node.stop(0.0)

    def _start(self, name: str, role: list[str]) -> NodeProcess:
        (self._folder / name).mkdir()
        node = self._nodes[name] = NodeProcess(self._folder / name)
        node.start(locust_arguments(CONFIG, *role), self._folder, {"ZAE_LOADTEST_WORKER": name})
        return node


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    started = Nodes(tmp_path)
    yield started
    started.stop()


def awaited(look: Callable[[], Any], node: NodeProcess) -> Any:
    """Return what is seen as soon as it is true."""
    end_s = time.monotonic() + PATIENCE_S
    while not (seen := look()) and time.monotonic() < end_s and node.exit_code is None:
        time.sleep(0.1)
    assert seen, node.last_lines()
    return seen


def test_test_continues_when_its_last_worker_is_lost_and_replaced(nodes):
    """Locust alone would stop it."""
    master = nodes.start_master()

    def has_users_on(worker: str) -> bool:
        state = master.master_state()
        return state is not None and [worker] == state["workers"] and state["users"] == CONFIG.users

    first = nodes.start_worker("first")
    awaited(lambda: has_users_on("first"), master)
    first.kill()
    awaited(lambda: master.master_state()["state"] == "stopped", master)
    nodes.start_worker("second")

    assert awaited(lambda: has_users_on("second"), master)
    assert master.master_state()["is_over"] is False


def test_node_ends_with_its_parent(tmp_path):
    """A sandbox that is lost leaves no Locust behind."""
    (tmp_path / "user.py").write_text(IDLE)
    program = (
        "import sys, time; from pathlib import Path;"
        "from tests.loadtest.test_locust_node import CONFIG;"
        "from zae_limiter.loadtest.node_process import NodeProcess, headless_arguments, locust_arguments;"
        "folder = Path(sys.argv[1]); node = NodeProcess(folder);"
        "node.start(locust_arguments(CONFIG, *headless_arguments(CONFIG)), folder, {});"
        "print(node.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        node = int(parent.stdout.readline())
        parent.kill()

    assert awaited_end(node)


def awaited_end(pid: int) -> bool:
    """Return whether a process ends; it is killed if it does not."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        state = Path(f"/proc/{pid}/stat")
        # A process without a parent may stay as a zombie.
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return False
