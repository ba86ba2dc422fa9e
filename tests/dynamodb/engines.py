"""DynamoDB engines as child processes, started on first use and once per test process.

An engine ends with the process that started it, however that ends. A shell reads a pipe that is
never written to, and kills the process group when the pipe closes.
"""

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO

from tests.dynamodb import raw

# Differences of the engines from DynamoDB, measured with ministack 1.5.33 and dynoxide 1.2.1:
#
# |                              | ministack                            | dynoxide                            |
# | ---------------------------- | ------------------------------------ | ----------------------------------- |
# | starts in                    | 450 ms                               | 15 ms                               |
# | new table is                 | ACTIVE                               | CREATING in the answer, usable      |
# | Date, whole seconds          | never stale, also after idling       | the same                            |
# | keep-alive                   | 75 s; every 1,000th answer on one    | no end seen in 4,000 answers        |
# |                              | connection says `connection: close`  |                                     |
# | x-amz-crc32                  | right, on errors too                 | right, on errors too                |
# | __type                       | without its namespace                | with it, as DynamoDB                |
# | message of a cancelled       | `message`                            | `Message`, as DynamoDB              |
# | transaction                  |                                      |                                     |
# | reserved words in expressions| accepted                             | refused, as DynamoDB                |
# | one path in SET and in ADD   | accepted                             | refused, as DynamoDB                |
# | 38 digits                    | kept and compared; ADD and + round   | exact                               |
# |                              | to 28                                |                                     |
# | ConsumedCapacity             | writes, GetItem, Query exact, with   | the same, and                       |
# |                              | the indexes; none for BatchGetItem;  | BatchGetItem                        |
# |                              | TransactWriteItems has no Table part |                                     |
# | items of a failed condition  | plain and transacted                 | plain and transacted                |
# | ClientRequestToken           | idempotent; another body is refused  | the same                            |
# | UnprocessedKeys              | never: 24 MB in one BatchGetItem     | beyond 16 MB, as DynamoDB           |
# | Query                        | pages of 1 MB                        | pages of 1 MB                       |
# | TransactionConflict          | never                                | never                               |
# | 16 threads on one item       | no update lost                       | no update lost                      |
# | writes/s by 1 and 16 clients | 860 and 860                          | 2,300 and 3,300                     |
# | memory, started              | 48 MB                                | 5 MB                                |
# | memory, by 50,000 writes to  | none                                 | none                                |
# | 4 items                      |                                      |                                     |
#
# Neither counts capacity for a refused condition (nor does DynamoDB, which bills it), and neither checks a signature.

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".engines" / "node_modules" / "@dynoxide"

START_S = 300.0
POLL_S = 0.02
PORTS_TRIED = 3
SHOWN_OUTPUT_BYTES = 4_000

# The first line ends the engine when the pipe closes. The rest reaps both, and ends all processes of the
# engine.
KEEPER = """
exec 3<&0; "$@" 3<&- & engine=$!; (read -r _; kill -9 $engine) <&3 & watcher=$!
wait $engine; kill $watcher; wait $watcher 2>/dev/null
kill -9 0
"""

# Ports below the ephemeral range, with a part for each pytest worker: a port stays free until it is used.
PORTS = range(20_000, 32_000)
PARTS = 16

_part = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PARTS
_ports = itertools.cycle(Random().sample(PORTS[_part::PARTS], len(PORTS) // PARTS))
_table_numbers = itertools.count()


class EngineAbsentError(Exception):
    """The engine is not installed; the text says how to install it."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command that starts an engine on a port."""

    arguments: list[str]
    environment: dict[str, str]


@dataclass(slots=True)
class Engine:
    """A running engine at its URL."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def stop(self) -> None:
        """Kill the engine and all its processes."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.output.close()

    def pid(self) -> int:
        """The process id of the engine itself, below the shell; it can be stopped and continued."""
        keeper = self.process.pid
        below = Path(f"/proc/{keeper}/task/{keeper}/children").read_text(encoding="ascii").split()
        return int(below[0])

    def last_output(self) -> str:
        """The end of the engine's output."""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - SHOWN_OUTPUT_BYTES))
        return self.output.read().decode(errors="replace")


def ministack(port: int) -> Command:
    """The server of `ministack`, without the file it leaves in the temporary directory."""
    if importlib.util.find_spec("ministack") is None:
        raise EngineAbsentError("ministack is not installed; tools/setup.sh dev installs it")
    server = [sys.executable, "-m", "hypercorn", "ministack.app:app", "--workers", "0", "--keep-alive", "75"]
    off = {"SFTP_ENABLED": "0", "IOT_MTLS_ENABLED": "0", "DOCKER_HOST": "unix:///nonexistent"}
    return Command(
        [*server, "--bind", f"127.0.0.1:{port}", "--log-level", "WARNING"],
        {"GATEWAY_PORT": str(port), "SERVICES": "dynamodb", "LOG_LEVEL": "WARNING", **off},
    )


def aws(port: int) -> Command:
    """The same server with all its services, for stacks; functions run as its child processes."""
    alone = ministack(port)
    every = {name: value for name, value in alone.environment.items() if name != "SERVICES"}
    return Command(alone.arguments, every)


def dynoxide(port: int) -> Command:
    """The binary that tools/engines.sh installs, or one on the path; it stores everything in memory."""
    installed = next(iter(INSTALLED.glob("*/dynoxide")), None)
    binary = str(installed) if installed else shutil.which("dynoxide")
    if binary is None:
        raise EngineAbsentError(
            "dynoxide is not installed; tools/engines.sh installs it where npm and the platform have it"
        )
    return Command([binary, "serve", "--host", "127.0.0.1", "--port", str(port)], {})


ENGINES: dict[str, Callable[[int], Command]] = {"ministack": ministack, "dynoxide": dynoxide}
WHOLE: dict[str, Callable[[int], Command]] = {"aws": aws}
"""What has a table among other things; not compared with the others."""
DEFAULT = "ministack"


@functools.cache
def running(name: str = DEFAULT) -> Engine:
    """The engine of that name, started now if it is not running in this process yet.

    Raises:
        EngineAbsentError: it is not installed.
        RuntimeError: it does not come up; the text has its last output.
    """
    engine = start(name)
    atexit.register(engine.stop)
    return engine


def start(name: str = DEFAULT) -> Engine:
    """Start a separate engine; the caller stops it."""
    for _ in range(PORTS_TRIED):
        port = free_port()
        said = _started(engine := _spawn(name, {**ENGINES, **WHOLE}[name](port), port))
        if said is None:
            return engine
        if "in use" not in said:
            break
    raise _mute(name, said)


def start_as(name: str, command: Command, port: int) -> Engine:
    """Start a separate engine by a command on a port; the caller stops it."""
    said = _started(engine := _spawn(name, command, port))
    if said is None:
        return engine
    raise _mute(name, said)


def free_port() -> int:
    """Return a port that is free and outside the ephemeral range."""
    return next(port for port in _ports if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def fresh_table_name() -> str:
    """Return a table name that no other test of this run has; dynoxide requires at least 11 characters."""
    return f"limiter-{os.getpid():07d}-{next(_table_numbers):05d}"


def _spawn(name: str, command: Command, port: int) -> Engine:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - the engine keeps it until it is stopped
    process = subprocess.Popen(
        ["sh", "-c", KEEPER, "sh", *command.arguments],
        env={"PATH": os.environ["PATH"], **command.environment},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return Engine(name, f"http://127.0.0.1:{port}", process, output)


def _started(engine: Engine) -> str | None:
    """Return None if an engine answers; otherwise stop it and return its last output."""
    if _answers(engine):
        return None
    said = engine.last_output()
    engine.stop()
    return said


def _mute(name: str, said: str) -> RuntimeError:
    return RuntimeError(f"{name} does not answer; it said:\n{said or '(nothing)'}")


def _answers(engine: Engine) -> bool:
    """Return whether it answers before it ends or the time is up."""
    end = time.monotonic() + START_S
    while engine.process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            return raw.call(engine.url, "ListTables", {}).status == 200
        time.sleep(POLL_S)
    return False
