"""A worker process of a test: ``python -m tests.tables.worker VERB PATH [NUMBER]``; it prints when it is ready."""

import asyncio
import itertools
import os
import random
import sqlite3
import sys
import threading
import time
from contextlib import suppress

from tests.tables.engines import KEY
from zae_limiter._async.embedded_table import EmbeddedTable
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.outcome import Applied, Committed, Refused
from zae_limiter.schema.operations import AtLeast, Equals, ItemExists, Key, Query, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite import backup
from zae_limiter.tables.sqlite.backup import CopyProgress
from zae_limiter.tables.sqlite.table import SqliteTable


def say(word: object) -> None:
    """Print a line and flush it."""
    print(word, flush=True)  # noqa: T201 - the test reads it


def add(path: str, number: str) -> None:
    """Add to one item this many times, half of them conditionally, waiting while the file is busy."""

    async def adding() -> None:
        table = EmbeddedTable(SqliteTable(path), SystemClock(), 30.0, random.random)
        say("ready")
        sys.stdin.readline()
        for count in range(int(number)):
            outcome = await table.write(Update(KEY, add={"x": 1, "y": -1}, when=(ItemExists(), AtLeast("x", 0))))
            assert isinstance(outcome, Applied), outcome
            if count % 2:
                await compare_and_add(table, outcome.new["x"])
        await table.close()

    async def compare_and_add(table: EmbeddedTable, seen: int) -> None:
        while isinstance(outcome := await table.write(Update(KEY, add={"x": 1}, when=(Equals("x", seen),))), Refused):
            seen = outcome.old["x"]
        assert isinstance(outcome, Applied), outcome

    asyncio.run(adding())


def acknowledge(path: str) -> None:
    """Add to one item for ever, and print a line after every write."""
    table = SqliteTable(path)
    while True:
        for _ in range(300):
            assert isinstance(table.write(Update(KEY, add={"x": 1})), Applied)
            say("written")
        table.checkpoint(time.monotonic)


def use(path: str) -> None:
    """Take from one bucket for ever in changing hours, and log the usage from time to time."""
    table = SqliteTable(path)
    key = Key("ns/BUCKET#user-1#gpt-4#0", "#STATE")
    for count in itertools.count():
        table.hour = count // 7
        assert isinstance(table.write(Update(key, add={"b_rpm_tc": 1_000, "b_wcu_tc": 1})), Applied)
        if count % 5 == 0:
            table.log_open(0, 10)
        say("written")


def create(path: str) -> None:
    """Open the file at a signal."""
    say("ready")
    sys.stdin.readline()
    table = SqliteTable(path)
    port_add(table, "x")
    table.close()
    say("created")


def hold(path: str) -> None:
    """Keep the file locked for writing until told to release it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("ready")
    sys.stdin.readline()
    connection.close()


def lock(path: str) -> None:
    """Keep the file locked exclusively until told to release it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    say("ready")
    sys.stdin.readline()
    connection.close()


def read(path: str) -> None:
    """Keep a read transaction open until told to end it, as another application may."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM items").fetchone()
    say("ready")
    sys.stdin.readline()
    connection.close()


def write_much(path: str, number: str) -> None:
    """Replace items of 20 KiB this many times as fast as possible, and read all of them from time to time."""

    async def writing() -> None:
        table = EmbeddedTable(SqliteTable(path), SystemClock(), 30.0, random.random)
        say("ready")
        sys.stdin.readline()
        for count in range(int(number)):
            text = f"{count:020}" * 1024
            outcome = await table.write(Update(Key("part", str(count % 50)), set={"text": text}))
            assert isinstance(outcome, Applied), outcome
            if not count % 100:
                await table.query(Query("part"))
        await table.close()

    asyncio.run(writing())


def open_unprivileged(path: str) -> None:
    """Open the file as an unprivileged user, and print the result."""
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        SqliteTable(path).close()
    except ZAELimiterError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        say("opened")


def pair(path: str) -> None:
    """Add to two items in one transaction for ever, and print a line after each."""
    table = SqliteTable(path)
    while True:
        with suppress(Busy):
            table.transact([Update(Key("pair", name), add={"x": 1}) for name in "ab"])
            say("written")


def follow(path: str) -> None:
    """For each line, add to two items in enough transactions to notice a replaced file."""
    table = SqliteTable(path)
    while sys.stdin.readline():
        written = 0
        while written < 100:
            with suppress(Busy):
                outcome = table.transact([Update(Key("pair", name), add={"x": 1}) for name in "ab"])
                assert isinstance(outcome, Committed), outcome
                written += 1
        say("written")


def restore(path: str, copy: str) -> None:
    """Restore a backup, and wait for a line in the middle of it."""

    def pause(progress: CopyProgress) -> None:
        if progress.step == "Restoring" and progress.done_bytes < progress.total_bytes:
            say("restoring")
            sys.stdin.readline()

    backup._BYTES_PER_STEP = 4096
    backup.restore(copy, path, pause)
    say("restored")


def fork(path: str, number: str) -> None:
    """Fork while a thread writes; every child adds too and ends normally."""
    table = SqliteTable(path)
    stop = threading.Event()

    def adding() -> None:
        while not stop.is_set():
            port_add(table, "thread")

    thread = threading.Thread(target=adding)
    thread.start()
    children = []
    for _ in range(int(number)):
        child = os.fork()
        if not child:
            for _ in range(50):
                port_add(table, "x")
            sys.exit()
        children.append(child)
        port_add(table, "x")
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    stop.set()
    thread.join()
    table.close()
    say(codes)


def port_add(table: SqliteTable, name: str) -> None:
    """Add one through the port, with a long deadline."""
    port = EmbeddedTable(table, SystemClock(), 30.0, random.random)
    outcome = asyncio.run(port.write(Update(KEY, add={name: 1})))
    assert isinstance(outcome, Applied), outcome


if __name__ == "__main__":
    VERBS = (
        *(add, acknowledge, use, create, hold, lock, read, write_much),
        *(open_unprivileged, pair, follow, restore, fork),
    )
    {verb.__name__: verb for verb in VERBS}[sys.argv[1]](*sys.argv[2:])
