"""A local AWS for trying things out: up, down, what it is, what it said, and how to reach it.

A process by default, a container on request; never both at once from one directory.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.core.location import DynamoLocation, dynamo_url
from zae_limiter.infra import local_container, local_process
from zae_limiter.infra.local_files import CONTAINER, POLL_S, PROCESS, SHOWN_LINES, LocalFiles, LogReader, Server

DEFAULT_PORT = 4566
DEFAULT_REGION = "us-east-1"

_START_S = 120.0
_STOP_S = 60.0
_ABANDON_S = 3.0
"""One that never answered holds nothing that the files do not."""
_HEALTH_S = 5.0
_FOLLOW_S = 0.2


@dataclass(frozen=True, slots=True)
class Wanted:
    """A local AWS as somebody wants it; whatever is None may be as it is."""

    port: int | None = None
    region: str | None = None
    image: str | None = None
    in_docker: bool = False


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """A local AWS that is there: whether it answers, and the number of its process, if it is one."""

    server: Server
    answers: bool
    pid: int | None


def default_directory() -> Path:
    """Return the directory that is used where nobody names another."""
    from platformdirs import user_state_path

    return Path(user_state_path("zae-limiter", appauthor=False)) / "local"


class LocalAws:
    """The local AWS of a directory."""

    def __init__(self, directory: Path) -> None:
        self._files = LocalFiles(directory.absolute())

    @property
    def directory(self) -> Path:
        """Where its record, log and state are."""
        return self._files.directory

    def up(self, wanted: Wanted) -> LocalStatus:
        """Start it and wait until it answers; one that runs as wanted is left alone.

        Raises:
            LocalAwsError: it cannot be started, or runs otherwise than wanted.
        """
        with self._files.changing():
            running = self._server()
            if running is not None:
                _require_like(running, wanted)
                self._await_answer(running, 0)
            else:
                running = self._start(wanted)
        return self._standing(running)

    def down(self, *, wipe: bool = False) -> Server | None:
        """Stop it and return what was stopped, if anything; ``wipe`` removes what it has kept.

        Raises:
            LocalAwsError: it does not end, or what it has kept cannot be removed.
        """
        with self._files.changing():
            running = self._server()
            if running is not None:
                self._stop(running, _STOP_S)
            self._files.forget_record()
            if wipe:
                self._files.wipe_state()
        return running

    def status(self) -> LocalStatus | None:
        """Return what runs, if anything."""
        running = self._server()
        return None if running is None else self._standing(running)

    def logs(self, lines: int = SHOWN_LINES) -> list[str]:
        """Return the last lines it said; a process's are kept after its end."""
        record = self._files.read_record()
        if record is not None and record.container is not None:
            return local_container.last_lines(record.container, lines)
        return self._files.tail(lines)

    def follow(self, lines: int = SHOWN_LINES) -> Iterator[str]:
        """Yield the last lines it said, and what it says from now on, until it has ended."""
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

    def environment(self, name: str | None = None) -> dict[str, str]:
        """Return what a client's environment must hold to reach it, and the limiter of a name in it.

        Raises:
            LocalAwsError: it does not run.
        """
        running = self._server()
        if running is None:
            raise LocalAwsError("it does not run; start it: zae-limiter local up")
        return environment_of(running, name)

    def _server(self) -> Server | None:
        """Return the server that lives."""
        record = self._files.read_record()
        if record is not None and record.container is not None:
            return record if local_container.lives(record.container) else None
        if not self._files.lives():
            return None
        if record is None:
            raise LocalAwsError(f"process {self._files.pid()} runs, but its record is gone; end it by hand")
        return record

    def _start(self, wanted: Wanted) -> Server:
        kind = CONTAINER if wanted.in_docker else PROCESS
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        server = Server(kind, wanted.port or DEFAULT_PORT, wanted.region or DEFAULT_REGION, started_at)
        said_before = self._files.turn_log()
        try:
            if wanted.in_docker:
                state = self._files.state / "container"
                container = local_container.start(server, wanted.image or local_container.IMAGE, state)
                server = replace(server, container=container)
                self._files.write_record(server)
            else:
                local_process.start(self._files, server)
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
                why = f"it does not answer after {_START_S:.0f} s" if lives else "it ended while it started"
                raise LocalAwsError(f"{why}; it said:", self._last_words(server, said_before))
            time.sleep(POLL_S)

    def _lives(self, server: Server) -> bool:
        return self._files.lives() if server.container is None else local_container.lives(server.container)

    def _last_words(self, server: Server, said_before: int) -> list[str]:
        if server.container is not None:
            return local_container.last_lines(server.container, SHOWN_LINES)
        return self._files.tail(start=said_before) or ["(nothing)"]

    def _stop(self, server: Server, patience_s: float) -> None:
        if server.container is None:
            local_process.stop(self._files, patience_s)
        else:
            local_container.stop(server.container)

    def _standing(self, server: Server) -> LocalStatus:
        return LocalStatus(server, answers(server), None if server.container else self._files.pid())


def environment_of(server: Server, name: str | None = None) -> dict[str, str]:
    """Return what a client's environment must hold to reach a server; the credentials are nobody's."""
    known = {
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "AWS_REGION": server.region,
        "AWS_DEFAULT_REGION": server.region,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    if name is None:
        return known
    return {**known, "ZAE_LIMITER_URL": dynamo_url(DynamoLocation(name, server.region, server.endpoint_url))}


def session_of(server: Server) -> Any:
    """Return a session of botocore with a server's region and keys; its endpoint goes with every client made."""
    import botocore.session

    known = environment_of(server)
    session = botocore.session.Session()
    session.set_credentials(known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"])
    session.set_config_variable("region", server.region)
    return session


def answers(server: Server) -> bool:
    """Say whether a server is ready for calls."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.endpoint_url}/_localstack/health", timeout=_HEALTH_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _require_like(running: Server, wanted: Wanted) -> None:
    """Require a server that runs to be as wanted."""
    differences = {
        f"on port {running.port}": wanted.port not in (None, running.port),
        f"in region {running.region}": wanted.region not in (None, running.region),
        f"as a {running.kind}": wanted.in_docker and running.kind != CONTAINER,
    }
    found = [text for text, differs in differences.items() if differs]
    if found:
        raise LocalAwsError(f"it runs already, {', '.join(found)}; stop it first: zae-limiter local down")
