"""The stores of a soak, and how each is made unavailable while processes work.

| store     | outages                                                | after it                                       |
| --------- | ------------------------------------------------------ | ---------------------------------------------- |
| SQLite    | never: a file has no process of its own                |                                                |
| dynoxide  | killed with -9 and started again on its port and file  | answered writes exist, but the tokens of       |
|           |                                                        | transactions are lost, unlike in DynamoDB      |
| ministack | its connections are cut, because it keeps its state    | a cut request may have been carried out        |
|           | only after an orderly end                              |                                                |
| both      | stopped (SIGSTOP) for longer than a request's deadline | waiting requests are carried out late          |
"""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from tests.dynamodb import engines
from tests.dynamodb.engines import Command, Engine
from tests.dynamodb.faults import Drop
from tests.dynamodb.ledgers import table_url
from tests.dynamodb.proxy import Proxy
from tests.soak.scenario import DEADLINE_S

STOPPED_S = (1.5 * DEADLINE_S, 2.5 * DEADLINE_S)
OUTAGE_S = (0.0, 1.5 * DEADLINE_S)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the store was unavailable; ``forgets``: it has lost the tokens of transactions since."""

    kind: str
    began_ns: int
    ended_ns: int
    forgets: bool

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that makes a store unavailable until it is undone."""

    kind: str
    seconds: tuple[float, float]
    begin: Callable[[], None]
    end: Callable[[], None]
    forgets: bool = False


class Store(Protocol):
    """The place of a soak's table."""

    name: str
    # This URL creates the table if it does not exist.
    making_url: str

    def disturbances(self, random: Random) -> list[Disturbance]:
        """Return the possible disturbances."""

    def tidy(self) -> None:
        """Drop what accumulates during a run."""

    def problems(self) -> list[str]:
        """Return what is wrong with the store at the end."""


class SqliteStore:
    """A SQLite file."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "limiter.db"
        self.making_url = f"sqlite:///{self._path}"

    def disturbances(self, random: Random) -> list[Disturbance]:
        """Return none: a file is never unavailable."""
        return []

    def tidy(self) -> None:
        """Do nothing: nothing accumulates."""

    def problems(self) -> list[str]:
        """Return what SQLite finds wrong with the file."""
        connection = sqlite3.connect(self._path)
        try:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        finally:
            connection.close()
        return [] if found == ["ok"] else [f"the file is damaged: {found}"]


class _EngineStore:
    """A table on an engine of this run."""

    engine: Engine

    def problems(self) -> list[str]:
        """Return whether the engine has ended."""
        return [] if self.engine.process.poll() is None else [f"the engine ended: {self.engine.last_output()}"]

    def stopping(self) -> Disturbance:
        """Stop the engine, whatever it is doing."""
        pids: list[int] = []

        def stop() -> None:
            pids.append(self.engine.pid())
            os.kill(pids[0], signal.SIGSTOP)

        return Disturbance("stop", STOPPED_S, stop, lambda: os.kill(pids[0], signal.SIGCONT))


class DynoxideStore(_EngineStore):
    """Dynoxide with its data in a file, which survives the process."""

    name = "dynamodb on dynoxide"

    def __init__(self, directory: Path) -> None:
        self._port = engines.free_port()
        self._file = directory / "dynoxide.db"
        self.engine = self._started()
        self.making_url = table_url(engines.fresh_table_name(), self.engine.url)

    def disturbances(self, random: Random) -> list[Disturbance]:
        """Stop it, or kill and restart it."""
        killing = Disturbance("restart", OUTAGE_S, lambda: self.engine.stop(), self._restart, forgets=True)
        return [self.stopping(), killing]

    def tidy(self) -> None:
        """Do nothing: nothing accumulates."""

    def _restart(self) -> None:
        self.engine = self._started()

    def _started(self) -> Engine:
        plain = engines.dynoxide(self._port)
        arguments = [*plain.arguments, "--db-path", str(self._file)]
        return engines.start_as("dynoxide", Command(arguments, plain.environment), self._port)


class MinistackStore(_EngineStore):
    """Ministack in memory, behind a proxy that can cut its connections."""

    name = "dynamodb on ministack"

    def __init__(self, proxy: Proxy, engine: Engine) -> None:
        self.engine = engine
        self._proxy = proxy
        self.making_url = table_url(engines.fresh_table_name(), proxy.url)

    def disturbances(self, random: Random) -> list[Disturbance]:
        """Stop it, or cut its connections; requests in flight may or may not be carried out."""
        drop = Drop(applied=random.random() < 0.5)
        cutting = Disturbance("cut", OUTAGE_S, lambda: self._proxy.always(drop), self._proxy.clear_faults)
        return [self.stopping(), cutting]

    def tidy(self) -> None:
        """Clear the proxy's log."""
        self._proxy.forget()


@contextmanager
def opened(table: str, engine: str, directory: Path) -> Iterator[Store]:
    """Open a store of a kind, and close it at the end.

    Raises:
        EngineAbsentError: The engine is not installed.
    """
    if table == "sqlite":
        yield SqliteStore(directory)
    elif engine == "dynoxide":
        store = DynoxideStore(directory)
        try:
            yield store
        finally:
            store.engine.stop()
    else:
        own = engines.start("ministack")
        try:
            with Proxy(own.url) as proxy:
                yield MinistackStore(proxy, own)
        finally:
            own.stop()


def url_of(store: Store) -> str:
    """Return the URL that uses the existing table."""
    return store.making_url.removesuffix("&create=true")


def drawn(store: Store, random: Random) -> Disturbance | None:
    """Return one of the disturbances of a store, None if it has none."""
    found = store.disturbances(random)
    return random.choice(found) if found else None


def ended(disturbance: Disturbance, began_ns: int) -> Outage:
    """Undo a disturbance, and return its outage."""
    disturbance.end()
    return Outage(disturbance.kind, began_ns, time.time_ns(), disturbance.forgets)
