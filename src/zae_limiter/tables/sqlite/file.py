"""Creates, recognises and opens the SQLite files of this package, and translates SQLite's errors."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from zae_limiter.core.errors import StorageError
from zae_limiter.core.version_errors import IncompatibleSchemaError
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.private_file import create_directory, create_file
from zae_limiter.tables.sqlite.identity import FileIdentity, discard_foreign_log, identity_of
from zae_limiter.tables.sqlite.snapshot import KeepingCursor

APPLICATION_ID = 0x5A41454C
"""The letters ZAEL, which mark the files of this package."""

SCHEMA_VERSION = 2

# `items` has row ids, so that an update rewrites one page. Without them, a body of about one kilobyte would be stored
# in overflow pages. Pages are small, because a write logs every changed page as a whole. Of a body with overflow
# pages, a write changes only the last page, which has the numbers.
# `entries` are the index entries of items. Only buckets have `hour` and `totals`: the hour in which they were opened,
# and their totals at that time. `changes` is the log of what they have used.
_ITEMS = """
CREATE TABLE items(
    id INTEGER PRIMARY KEY, pk TEXT NOT NULL, sk TEXT NOT NULL, ttl INTEGER, body TEXT NOT NULL,
    hour INTEGER, totals TEXT, UNIQUE(pk, sk)
)"""
_ENTRIES = """
CREATE TABLE entries(
    place TEXT NOT NULL, part TEXT NOT NULL, sort TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL,
    PRIMARY KEY(place, part, sort, pk, sk)
) WITHOUT ROWID"""
_CHANGES = """
CREATE TABLE changes(
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, pk TEXT NOT NULL, sk TEXT NOT NULL, hour INTEGER NOT NULL,
    added TEXT NOT NULL
)"""
_MARKS = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {SCHEMA_VERSION}")
_MAKING = (_ITEMS, _ENTRIES, _CHANGES, *_MARKS)
# The upgrade of a file from each older version to the next. The next write to a bucket opens it.
_STEPS = {1: ("ALTER TABLE items ADD COLUMN hour INTEGER", "ALTER TABLE items ADD COLUMN totals TEXT", _CHANGES)}
_PAGE_BYTES = 1024
OPENING_WAIT_S = 10.0
_WAL_WAIT_S = 0.01
_OPENING_TRIES = 5

_BUSY = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))
_REASONS = {
    sqlite3.SQLITE_NOTADB: "it is not a SQLite file, or its first page is damaged. "
    "Name another file, or move this one to another place. A new one is then created.",
    sqlite3.SQLITE_CORRUPT: "the file is damaged. Restore it from a backup, or move it to another place. "
    "A new one is then created.",
    sqlite3.SQLITE_READONLY: "it is read-only. Make the file and its directory writable, or name another file.",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Check that its directory is writable, or name another file.",
    sqlite3.SQLITE_PERM: "access is denied. Make the file and its directory writable, or name another file.",
    sqlite3.SQLITE_FULL: "the disk is full. Free some space, or name a file on another disk.",
    sqlite3.SQLITE_BUSY: "another program keeps it locked. Close that program, or name another file.",
}


def prepare(path: str, wait_s: float = OPENING_WAIT_S) -> FileIdentity | None:
    """Create the file and its directories unless they exist, and return its identity.

    Several processes may do this at the same time. New files and directories are private to this user. SQLite waits up
    to ``wait_s`` seconds for each lock of another process.

    Raises:
        Busy: Another process keeps the file or its directory locked, and ``wait_s`` is 0.
        StorageError: The file is damaged, not writable, from another program, or was locked for ``wait_s`` seconds.
        IncompatibleSchemaError: A newer version of this package made it.
    """
    try:
        create_directory(os.path.dirname(path))
    except OSError as error:
        reason = f"its directory cannot be created ({error.strerror}). Name a file in a directory that is writable."
        raise StorageError(path, reason) from error
    if os.path.isdir(path):
        raise StorageError(path, f"it is a directory. Name a file in it, such as {os.path.join(path, 'limiter.db')}.")
    for place in (path, os.path.dirname(path)):
        if os.path.exists(place) and not os.access(place, os.W_OK):
            raise StorageError(path, _REASONS[sqlite3.SQLITE_READONLY])
    try:
        connection, identity = open_current(path, wait_s, create_file)
        try:
            cursor = connection.cursor()
            make_tables(cursor, path)
            _use_log(cursor, wait_s)
        finally:
            connection.close()
    except OSError as error:
        raise StorageError(path, _REASONS[sqlite3.SQLITE_CANTOPEN]) from error
    except sqlite3.Error as error:
        if is_busy(error) and not wait_s:
            raise Busy from error
        raise storage_error(path, error) from error
    except Busy as busy:
        if not wait_s:
            raise
        raise StorageError(path, _REASONS[sqlite3.SQLITE_BUSY]) from busy
    return identity


def open_current(
    path: str, wait_s: float, before: Callable[[str], None] = lambda _: None
) -> tuple[sqlite3.Connection, FileIdentity | None]:
    """Open the file at a path, without the log of an older file of that name, and return its identity.

    ``before`` is called with the path before each attempt.

    Raises:
        Busy: The file was replaced during each of five attempts, or another process keeps its directory locked.
        OSError: A foreign log cannot be removed.
        sqlite3.Error: The file cannot be opened.
    """
    for _ in range(_OPENING_TRIES):
        before(path)
        identity = identity_of(path)
        discard_foreign_log(path)
        with suppress(Busy):
            return open_file(path, wait_s, identity), identity
    raise Busy


def open_file(path: str, wait_s: float, identity: FileIdentity | None) -> sqlite3.Connection:
    """Open a file; SQLite opens its log with the first statement.

    If the file was replaced meanwhile, the log beside it may belong to the old file. It would damage the new one.

    Raises:
        Busy: The file at the path has another identity.
        sqlite3.Error: The file cannot be opened.
    """
    try:
        # mode=rw: SQLite must not create the file, because other users could read it.
        name = f"file:{quote(os.fsencode(path))}?mode=rw"
        connection = sqlite3.connect(name, wait_s, isolation_level=None, check_same_thread=False, uri=True)
    except sqlite3.OperationalError as error:
        if identity_of(path) != identity:
            raise Busy from error
        raise
    if identity_of(path) != identity:
        connection.close()
        raise Busy
    return connection


def require_ours(cursor: sqlite3.Cursor, path: str) -> None:
    """Reject a file that this version of the package can neither use nor upgrade.

    Raises:
        StorageError: It is empty, or another program made it.
        IncompatibleSchemaError: A newer version of this package made it.
    """
    if _missing(cursor, path) is _MAKING:
        raise StorageError(path, "it is empty. Name another file.")


def make_tables(cursor: sqlite3.Cursor, path: str) -> None:
    """Create the tables of an empty file, or upgrade those of an older version.

    Raises:
        StorageError: Another program made it.
        IncompatibleSchemaError: A newer version of this package made it.
    """
    with transaction(cursor, "BEGIN"):
        missing = _missing(cursor, path)
    if missing is _MAKING:
        cursor.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    if missing:
        # Asked again inside the write transaction, because another process may have created the tables meanwhile.
        with transaction(cursor, "BEGIN IMMEDIATE"):
            for statement in _missing(cursor, path):
                cursor.execute(statement)


def storage_error(path: str, error: sqlite3.Error) -> StorageError:
    """Translate an error of SQLite into one that says what to do."""
    return StorageError(path, _REASONS.get(primary_code(error), f"{error}. Check the disk, or name another file."))


def connect(path: str, identity: FileIdentity | None) -> KeepingCursor:
    """Open a connection that never waits for locks, and return its only cursor.

    Raises:
        Busy: The file at the path has another identity.
        sqlite3.Error: The file cannot be opened.
    """
    connection = open_file(path, 0, identity)
    try:
        cursor = connection.cursor(KeepingCursor)
        # Commits do not sync. They survive a crash of the process, but a crash of the machine may lose the last ones.
        # Checkpoints sync before the log is overwritten, so the file is never damaged.
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA wal_autocheckpoint = 0")
        if identity_of(path) != identity:
            # The file was replaced: the statement may have opened the log of the new file.
            raise Busy
    except BaseException:
        connection.close()
        raise
    return cursor


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code, 0 if the error does not come from SQLite itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether an error means that another connection has locked the file and nothing was done."""
    return primary_code(error) in _BUSY


@contextmanager
def transaction(cursor: sqlite3.Cursor, begin: str) -> Iterator[None]:
    """Commit a transaction at the end, or roll it back if there is an error."""
    cursor.execute(begin)
    try:
        yield
        cursor.execute("COMMIT")
    except BaseException:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise


def _missing(cursor: sqlite3.Cursor, path: str) -> tuple[str, ...]:
    """Return the statements that create or upgrade the tables, none if the file has this version."""
    application_id = _number(cursor, "PRAGMA application_id")
    version = _number(cursor, "PRAGMA user_version")
    if application_id == APPLICATION_ID:
        if not 1 <= version <= SCHEMA_VERSION:
            raise IncompatibleSchemaError(str(SCHEMA_VERSION), f"{version} in {path}", version > SCHEMA_VERSION)
        steps = [statement for older in range(version, SCHEMA_VERSION) for statement in _STEPS[older]]
        return (*steps, *_MARKS) if steps else ()
    if application_id or version or _number(cursor, "SELECT count(*) FROM sqlite_master"):
        raise StorageError(path, "it is a SQLite file of another program. Name another file.")
    return _MAKING


def _use_log(cursor: sqlite3.Cursor, wait_s: float) -> None:
    """Switch the file to a write-ahead log."""
    # SQLite's own timeout does not apply if several connections switch at the same time, so this loop waits.
    for _ in range(int(wait_s / _WAL_WAIT_S)):
        try:
            cursor.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        threading.Event().wait(_WAL_WAIT_S)
    cursor.execute("PRAGMA journal_mode = WAL").fetchone()


def _number(cursor: sqlite3.Cursor, statement: str) -> int:
    """Return the single number that a statement reads."""
    found: int = cursor.execute(statement).fetchone()[0]
    return found
