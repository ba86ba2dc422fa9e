"""Backs up and restores a SQLite file while other processes use it.

Both copy pages with SQLite's online backup. A backup reads one snapshot, so writers do not make it start again. A
restore writes into the existing file in one transaction. File and log stay the same, so other processes continue with
the new content. An interrupted restore changes nothing.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote

from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.private_file import BESIDE
from zae_limiter.tables.sqlite.file import (
    make_tables,
    open_current,
    prepare,
    primary_code,
    require_ours,
    storage_error,
    transaction,
)

SAVED = ".before-restore"
"""Appended to the name of a file for the copy of its content from before a restore."""

_BYTES_PER_STEP = 4 * 2**20
_OPENING_WAIT_S = 10.0
# While the file is locked, a step waits 0.1 s for the lock and then 0.01 s: about 30 s in all.
_LOCK_WAIT_S = 0.1
_LOCKED_SLEEP_S = 0.01
_LOCKED_STEPS = 270
_LOG_TRIES = 50
_WAITING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_BACKUP = "it is not a SQLite file, or it is damaged. Name a file that zae-limiter backup wrote."
_LOCKED = "another program kept it locked for 30 s. Close that program, and try again. Nothing was changed."


class CopyProgress(NamedTuple):
    """The progress of a step; ``total_bytes`` is 0 if the step does not count bytes."""

    step: str
    done_bytes: int
    total_bytes: int


class Copied(NamedTuple):
    """The number of items copied, and the size of the file that contains them."""

    items: int
    size_bytes: int


class Restored(NamedTuple):
    """The items restored, and their size; ``saved_as`` is a file with the old content, None if there was none."""

    items: int
    size_bytes: int
    saved_as: str | None


CopyListener = Callable[[CopyProgress], None]


def back_up(path: str, target: str, listener: CopyListener) -> Copied:
    """Copy the current content of a file to another file, and check the copy. An existing target is replaced.

    The target gets its name when the copy is complete. It is private to this user.

    Raises:
        ValidationError: Both are the same file.
        StorageError: The file does not exist, is damaged or from another program, or the target cannot be written.
        IncompatibleSchemaError: A newer version of this package made the file.
    """
    path, target = os.path.abspath(path), os.path.abspath(target)
    _require_different(path, target)
    _require_no_log(target)
    with _new_file(target) as unfinished:
        with _translated(path, target), closing(_open_store(path)) as source:
            require_ours(source.cursor(), path)
            _copy(source, unfinished, "Copying", listener)
        with _translated(target, target), closing(_open_copy(unfinished)) as copy:
            copied = _checked(copy, path, listener)
        # Asked again: a program may have opened the target while the copy was made.
        _require_no_log(target)
        os.replace(unfinished, target)
    _sync(os.path.dirname(target))
    return copied


def check_backup(backup: str, path: str) -> None:
    """Reject a file that is no backup, without reading all of it.

    Raises:
        ValidationError: Both are the same file.
        StorageError: The backup does not exist, or is no file of this package.
        IncompatibleSchemaError: A newer version of this package made it.
    """
    _require_different(path, backup)
    with _translated(backup, backup, _NO_BACKUP), closing(_open_backup(backup)) as source:
        require_ours(source.cursor(), backup)


def restore(backup: str, path: str, listener: CopyListener) -> Restored:
    """Replace the content of a file by that of a backup; the file is created if it does not exist.

    The backup is first copied beside the file, checked and upgraded. The old content is saved in another file. Writers
    of other processes wait while the content is replaced. They see either the old content or the new one.

    Raises:
        ValidationError: Both are the same file.
        StorageError: The backup is damaged or no file of this package, or the file cannot be used or stays locked.
        IncompatibleSchemaError: A newer version of this package made one of them.
    """
    backup, path = os.path.abspath(backup), os.path.abspath(path)
    check_backup(backup, path)
    is_new = not os.path.exists(path) or not os.path.getsize(path)
    prepare(path)
    # The backup is checked before the old content is saved: a damaged one must not leave another file behind.
    with _new_file(path) as staged:
        copied = _stage(backup, path, staged, listener)
        saved_as = None if is_new else _save(path, listener)
        with _translated(path, path):
            _replace_content(staged, path, listener)
    return Restored(*copied, saved_as)


def _require_different(path: str, other: str) -> None:
    with suppress(FileNotFoundError):
        if os.path.samefile(path, other):
            raise ValidationError("FILE", other, "is the store itself. Name another file.")
    if os.path.abspath(other) in [os.path.abspath(path) + ending for ending in BESIDE]:
        raise ValidationError("FILE", other, "is a part of the store. Name another file.")


def _require_no_log(target: str) -> None:
    """Reject a target that has a log beside it: SQLite would apply that log to the backup."""
    for name in (target + ending for ending in BESIDE if ending != "-shm"):
        if os.path.exists(name):
            reason = f"a log is beside it ({name}), so a program uses that file or has crashed. Name another file."
            raise StorageError(target, reason)


def _stage(backup: str, path: str, staged: str, listener: CopyListener) -> Copied:
    """Copy a backup to ``staged``, upgrade its layout, and give it the page size of the file to restore."""
    with _translated(backup, path, _NO_BACKUP), closing(_open_backup(backup)) as source:
        _copy(source, staged, "Reading the backup", listener)
    with _translated(path, path), closing(_open_store(path)) as live:
        page_bytes = _number(live, "PRAGMA page_size")
    with _translated(backup, path, _NO_BACKUP), closing(_open_copy(staged)) as copy:
        make_tables(copy.cursor(), backup)
        if _number(copy, "PRAGMA page_size") != page_bytes:
            # SQLite does not copy between pages of different sizes into a file that has a write-ahead log.
            copy.execute(f"PRAGMA page_size = {page_bytes}")
            copy.execute("VACUUM")
        return _checked(copy, backup, listener)


def _save(path: str, listener: CopyListener) -> str:
    """Copy the content of a file beside it, and return the name of the copy.

    The copy is not checked, because damage may be the reason for the restore.
    """
    saved_as = _unused_name(path + SAVED)
    try:
        with _new_file(saved_as) as unfinished:
            with _translated(path, saved_as), closing(_open_store(path)) as source:
                _copy(source, unfinished, "Saving the old content", listener)
            _sync(unfinished)
            os.replace(unfinished, saved_as)
    except BaseException:
        os.unlink(saved_as)
        raise
    _sync(os.path.dirname(saved_as))
    return saved_as


def _replace_content(staged: str, path: str, listener: CopyListener) -> None:
    """Copy all pages into a file in one transaction, then copy its log into it."""
    with closing(_connect(staged)) as source, closing(_open_store(path, _LOCK_WAIT_S)) as live:
        live.execute("PRAGMA wal_autocheckpoint = 0")
        # The transaction does not sync, so writers do not wait for the disk. The checkpoint syncs the log after it.
        live.execute("PRAGMA synchronous = NORMAL")
        _copy_pages(source, live, _Report("Restoring", source, listener, path))
        listener(CopyProgress("Finishing", 0, 0))
        _empty_log(live)


def _copy(source: sqlite3.Connection, target: str, step: str, listener: CopyListener) -> None:
    """Copy one snapshot to an empty file."""
    with transaction(source.cursor(), "BEGIN"), closing(_connect(target)) as copy:
        # The snapshot begins with the first read. Without one, each commit of another process restarts the copy.
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        copy.execute("PRAGMA journal_mode = OFF").fetchone()
        copy.execute("PRAGMA synchronous = OFF")
        _copy_pages(source, copy, _Report(step, source, listener, target))
    with closing(_connect(target)) as copy:
        # The copied header says that there is a write-ahead log. Without one, the copy is a single file that can be
        # moved, and read in a read-only directory.
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()
    _sync(target)


def _copy_pages(source: sqlite3.Connection, target: sqlite3.Connection, report: "_Report") -> None:
    pages = max(1, _BYTES_PER_STEP // report.page_bytes)
    source.backup(target, pages=pages, progress=report, sleep=_LOCKED_SLEEP_S)


class _Report:
    """Reports SQLite's progress to a listener, and ends a copy that waits too long for a lock."""

    def __init__(self, step: str, source: sqlite3.Connection, listener: CopyListener, target: str) -> None:
        self.page_bytes = _number(source, "PRAGMA page_size")
        self._step = step
        self._listener = listener
        self._target = target
        self._locked_steps = 0

    def __call__(self, status: int, remaining: int, total: int) -> None:
        """Report one step.

        Raises:
            StorageError: The file was locked for too long.
        """
        if status in _WAITING:
            self._locked_steps += 1
            if self._locked_steps > _LOCKED_STEPS:
                raise StorageError(self._target, _LOCKED)
            self._listener(CopyProgress("Waiting for other writers", 0, 0))
            return
        self._listener(CopyProgress(self._step, (total - remaining) * self.page_bytes, total * self.page_bytes))


def _checked(copy: sqlite3.Connection, origin: str, listener: CopyListener) -> Copied:
    """Check the whole content of a copy, and return its size.

    Raises:
        StorageError: The content is damaged.
    """
    listener(CopyProgress("Checking", 0, 0))
    require_ours(copy.cursor(), origin)
    (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StorageError(origin, f"its content is damaged ({found}). Nothing was changed.")
    pages, page_bytes = _number(copy, "PRAGMA page_count"), _number(copy, "PRAGMA page_size")
    return Copied(_number(copy, "SELECT count(*) FROM items"), pages * page_bytes)


def _empty_log(live: sqlite3.Connection) -> None:
    """Copy the log, which contains every page, into the file, and shorten it, unless readers prevent that."""
    with suppress(sqlite3.OperationalError):
        live.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        for _ in range(_LOG_TRIES):
            if not live.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return


def _open_store(path: str, wait_s: float = _OPENING_WAIT_S) -> sqlite3.Connection:
    if not os.path.exists(path):
        raise StorageError(path, "it does not exist. Name the file of a store with --url.")
    connection, _ = open_current(path, wait_s)
    return connection


def _open_backup(path: str) -> sqlite3.Connection:
    """Open a backup for reading."""
    if not os.path.isfile(path):
        raise StorageError(path, "it does not exist. Name a file that zae-limiter backup wrote.")
    # `immutable` creates no files, so the directory may be read-only. It ignores a log, so there must be none.
    in_use = any(os.path.exists(path + ending) for ending in BESIDE)
    return _connect(f"file:{quote(os.path.abspath(path))}?mode=ro{'' if in_use else '&immutable=1'}")


def _open_copy(path: str) -> sqlite3.Connection:
    """Open an unfinished copy without syncs: after a crash it is made again."""
    connection = _connect(path)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _connect(name: str, wait_s: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=wait_s, isolation_level=None, uri=name.startswith("file:"))


@contextmanager
def _translated(path: str, target: str, no_database: str | None = None) -> Iterator[None]:
    """Translate errors of SQLite: that of a full disk names the target, others name the path."""
    try:
        yield
    except sqlite3.Error as error:
        code = primary_code(error)
        if no_database is not None and code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StorageError(path, no_database) from error
        raise storage_error(target if code == sqlite3.SQLITE_FULL else path, error) from error
    except Busy as busy:
        raise StorageError(path, "other programs replace it, or lock its directory. Try again.") from busy


@contextmanager
def _new_file(target: str) -> Iterator[str]:
    """Create an empty private file beside another, and remove it at the end unless it was renamed.

    Raises:
        StorageError: No file can be created there.
    """
    directory, name = os.path.split(target)
    try:
        descriptor, path = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
    except OSError as error:
        raise StorageError(target, f"no file can be created in its directory ({error.strerror}).") from error
    os.close(descriptor)
    try:
        yield path
    except OSError as error:
        raise StorageError(target, f"it cannot be written ({error.strerror}).") from error
    finally:
        for name in (path, *(path + ending for ending in BESIDE)):
            with suppress(FileNotFoundError):
                os.unlink(name)


def _unused_name(path: str) -> str:
    """Reserve a name by creating an empty file: the path itself, or the first free of path-2, path-3 and so on."""
    number = 1
    while True:
        name = path if number == 1 else f"{path}-{number}"
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            number += 1
        except OSError as error:
            raise StorageError(name, f"it cannot be created ({error.strerror}).") from error
        else:
            return name


def _sync(path: str) -> None:
    """Sync a file or directory to the disk, so that it survives a power failure."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _number(connection: sqlite3.Connection, statement: str) -> int:
    found: int = connection.execute(statement).fetchone()[0]
    return found
