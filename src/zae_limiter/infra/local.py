"""Start, stop and describe a local AWS for experiments, show its log, and return how to reach it.

It is a process by default, or a container on request. A directory has at most one of them at a
time.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.local_endpoint import ENDPOINT_VARIABLE, PLACEHOLDER_KEY, STORE_VARIABLE
from zae_limiter.core.location import DynamoLocation, dynamo_url
from zae_limiter.infra import local_container, local_process
from zae_limiter.infra.local_environment import server_python
from zae_limiter.infra.local_files import CONTAINER, POLL_S, PROCESS, SHOWN_LINES, LocalFiles, LogReader, Server

DEFAULT_PORT = 4566
DEFAULT_REGION = "us-east-1"

_START_S = 120.0
_STOP_S = 60.0
_ABANDON_S = 3.0
"""A server that never answered has no unsaved state, so it is stopped after this many seconds."""
_HEALTH_S = 5.0
_FOLLOW_S = 0.2


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested local AWS; any value is accepted for a field that is None."""

    port: int | None = None
    region: str | None = None
    image: str | None = None
    in_docker: bool = False


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """A running local AWS: whether it answers, and its process id, None for a container."""

    server: Server
    answers: bool
    pid: int | None


def default_directory() -> Path:
    """Return the directory that is used unless another one is given."""
    from platformdirs import user_state_path

    return Path(user_state_path("zae-limiter", appauthor=False)) / "local"


def _ignore(_: str) -> None:
    """Ignore a step."""


class LocalAws:
    """The local AWS of a directory."""

    def __init__(self, directory: Path) -> None:
        self._files = LocalFiles(directory.absolute())

    @property
    def directory(self) -> Path:
        """The directory of its record, log and state."""
        return self._files.directory

    def up(self, wanted: Wanted, say: Callable[[str], None] = _ignore) -> LocalStatus:
        """Start it and wait until it answers; one that already runs as requested is left alone.

        The first start installs the server, and ``say`` gets each step of that.

        Raises:
            LocalAwsError: It cannot be started, or runs with other settings.
        """
        with self._files.changing():
            running = self.server()
            if running is not None:
                _require_like(running, wanted)
                self._await_answer(running, 0)
            else:
                running = self._start(wanted, say)
        return self._status_of(running)

    def down(self, *, wipe: bool = False) -> Server | None:
        """Stop it and return the stopped server, None if none was running; ``wipe`` deletes its state.

        Raises:
            LocalAwsError: It does not stop, or its state cannot be deleted.
        """
        with self._files.changing():
            running = self.server()
            if running is not None:
                self._stop(running, _STOP_S)
            self._files.forget_record()
            if wipe:
                self._files.wipe_state()
        return running

    def status(self) -> LocalStatus | None:
        """Return the status of the running server, or None."""
        running = self.server()
        return None if running is None else self._status_of(running)

    def logs(self, lines: int = SHOWN_LINES) -> list[str]:
        """Return the last lines of its log. The log of a process is kept after its end."""
        record = self._files.read_record()
        if record is not None and record.container is not None:
            return local_container.last_lines(record.container, lines)
        return self._files.tail(lines)

    def follow(self, lines: int = SHOWN_LINES) -> Iterator[str]:
        """Yield the last lines of its log, and new lines until it ends."""
        record = self._files.read_record()
        if record is not None and record.container is not None:
            yield from local_container.follow(record.container, lines)
            return
        reader = LogReader(self._files.log)
        yield from reader.last(lines)
        while self._files.lives():
            yield from reader.new()
            time.sleep(_FOLLOW_S)
        yield from reader.new()

    def server(self) -> Server | None:
        """Return the running server, or None.

        Raises:
            LocalAwsError: A server runs, but its record is missing.
        """
        record = self._files.read_record()
        if record is not None and record.container is not None:
            return record if local_container.lives(record.container) else None
        if not self._files.lives():
            return None
        if record is None:
            raise LocalAwsError(f"process {self._files.pid()} is running, but its record is missing; stop it by hand")
        return record

    def _start(self, wanted: Wanted, say: Callable[[str], None]) -> Server:
        python = None if wanted.in_docker else server_python(say)
        kind = CONTAINER if wanted.in_docker else PROCESS
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        server = Server(kind, wanted.port or DEFAULT_PORT, wanted.region or DEFAULT_REGION, started_at)
        said_before = self._files.turn_log()
        try:
            if python is None:
                state = self._files.state / "container"
                container = local_container.start(server, wanted.image or local_container.IMAGE, state)
                server = replace(server, container=container)
                self._files.write_record(server)
            else:
                local_process.start(self._files, server, python)
            self._await_answer(server, said_before)
        except BaseException:
            self._stop(server, _ABANDON_S)
            self._files.forget_record()
            raise
        return server

    def _await_answer(self, server: Server, said_before: int) -> None:
        end = time.monotonic() + _START_S
        while not answers(server):
            lives = self._lives(server)
            if not lives or time.monotonic() > end:
                why = f"it does not answer after {_START_S:.0f} s" if lives else "it ended during startup"
                raise LocalAwsError(f"{why}; the end of its log:", self._last_words(server, said_before))
            time.sleep(POLL_S)

    def _lives(self, server: Server) -> bool:
        return self._files.lives() if server.container is None else local_container.lives(server.container)

    def _last_words(self, server: Server, said_before: int) -> list[str]:
        if server.container is not None:
            return local_container.last_lines(server.container, SHOWN_LINES)
        return self._files.tail(start=said_before) or ["(empty)"]

    def _stop(self, server: Server, patience_s: float) -> None:
        if server.container is None:
            local_process.stop(self._files, patience_s)
        else:
            local_container.stop(server.container)

    def _status_of(self, server: Server) -> LocalStatus:
        return LocalStatus(server, answers(server), None if server.container else self._files.pid())


def default_server() -> Server:
    """Return the server that ``up`` starts without options."""
    return Server(PROCESS, DEFAULT_PORT, DEFAULT_REGION, "")


def environment_of(server: Server, name: str | None = None) -> dict[str, str]:
    """Return the environment variables with which a client reaches a server; the credentials are placeholders."""
    known = {
        ENDPOINT_VARIABLE: server.endpoint_url,
        "AWS_REGION": server.region,
        "AWS_DEFAULT_REGION": server.region,
        "AWS_ACCESS_KEY_ID": PLACEHOLDER_KEY,
        "AWS_SECRET_ACCESS_KEY": PLACEHOLDER_KEY,
    }
    if name is None:
        return known
    return {**known, STORE_VARIABLE: dynamo_url(DynamoLocation(name, server.region, server.endpoint_url))}


def session_of(server: Server) -> Any:
    """Return a botocore session with a server's region and keys. Pass its endpoint to every client."""
    import botocore.session

    known = environment_of(server)
    session = botocore.session.Session()
    session.set_credentials(known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"])
    session.set_config_variable("region", server.region)
    return session


def answers(server: Server) -> bool:
    """Return whether a server is ready for calls."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.endpoint_url}/_localstack/health", timeout=_HEALTH_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _require_like(running: Server, wanted: Wanted) -> None:
    """Require that a running server has the requested settings."""
    differences = {
        f"on port {running.port}": wanted.port not in (None, running.port),
        f"in region {running.region}": wanted.region not in (None, running.region),
        f"as a {running.kind}": wanted.in_docker and running.kind != CONTAINER,
    }
    found = [text for text, differs in differences.items() if differs]
    if found:
        raise LocalAwsError(f"it is already running {', '.join(found)}; stop it first: zae-limiter local down")
