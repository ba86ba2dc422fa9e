"""Where a soak keeps its table, and how that place is disturbed while others work.

| store     | away                                                   | after it                                       |
| --------- | ------------------------------------------------------ | ---------------------------------------------- |
| SQLite    | never: its file has no process of its own              |                                                |
| dynoxide  | killed with -9 and started again on its port and file  | what was answered is there, but the tokens of  |
|           |                                                        | transactions are not, as DynamoDB's would be   |
| ministack | its connections are cut, for it keeps state over an    | a request that was cut was carried out, or not |
|           | orderly end only                                       |                                                |
| both      | stopped (SIGSTOP) for longer than a request's deadline | what waited is carried out late                |
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
AWAY_S = (0.0, 1.5 * DEADLINE_S)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the store was away; ``forgets``: it no longer knows the tokens of transactions after it."""

    kind: str
    began_ns: int
    ended_ns: int
    forgets: bool

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that puts a store out of reach until it is undone."""

    kind: str
    seconds: tuple[float, float]
    begin: Callable[[], None]
    end: Callable[[], None]
    forgets: bool = False


class Store(Protocol):
    """Where a soak keeps its table."""

    name: str
    # With this the table is made where there is none.
    making_url: str

    def disturbances(self, random: Random) -> list[Disturbance]:
        """What can be done to it."""

    def tidy(self) -> None:
        """Let go of what gathers while it runs."""

    def problems(self) -> list[str]:
        """What is wrong with it in the end."""


class SqliteStore:
    """A file."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "limiter.db"
        self.making_url = f"sqlite:///{self._path}"

    def disturbances(self, random: Random) -> list[Disturbance]:
        """None: a file is never away."""
        return []

    def tidy(self) -> None:
        """Nothing gathers."""

    def problems(self) -> list[str]:
        """What SQLite finds wrong with the file."""
        connection = sqlite3.connect(self._path)
        try:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        finally:
            connection.close()
        return [] if found == ["ok"] else [f"the file is damaged: {found}"]


class _EngineStore:
    """A table on an engine that is this run's own."""

    engine: Engine

    def problems(self) -> list[str]:
        """An engine that is gone."""
        return [] if self.engine.process.poll() is None else [f"the engine ended: {self.engine.last_output()}"]

    def stopping(self) -> Disturbance:
        """The engine is stopped, with whatever it is at."""
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
        """It is stopped, or killed and started again."""
        killing = Disturbance("restart", AWAY_S, lambda: self.engine.stop(), self._restart, forgets=True)
        return [self.stopping(), killing]

    def tidy(self) -> None:
        """Nothing gathers."""

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
        """It is stopped, or its connections are cut, and requests with them that are carried out or not."""
        drop = Drop(applied=random.random() < 0.5)
        cutting = Disturbance("cut", AWAY_S, lambda: self._proxy.always(drop), self._proxy.clear_faults)
        return [self.stopping(), cutting]

    def tidy(self) -> None:
        """Let the proxy forget what it has seen."""
        self._proxy.forget()


@contextmanager
def opened(table: str, engine: str, directory: Path) -> Iterator[Store]:
    """A store of a kind, gone afterwards.

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
    """With this the table is used that is there."""
    return store.making_url.removesuffix("&create=true")


def drawn(store: Store, random: Random) -> Disturbance | None:
    """One of the things that can be done to a store, None if there are none."""
    found = store.disturbances(random)
    return random.choice(found) if found else None


def ended(disturbance: Disturbance, began_ns: int) -> Outage:
    """Undo a disturbance; the outage that it was."""
    disturbance.end()
    return Outage(disturbance.kind, began_ns, time.time_ns(), disturbance.forgets)
