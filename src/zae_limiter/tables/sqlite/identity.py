"""Which file a path leads to, and whether the write-ahead log beside it belongs to that file.

SQLite finds a log by its name. If a file is replaced while processes use it, the log of the old file still has the name
that the new file's log would have. A process that opens the new file would apply the old log to it. So the old log is
removed first. Processes that still use the old file keep its log open, without a name.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from zae_limiter.tables.blocking import Busy

_LOCKS = "/proc/locks"
_READINGS = 3
_LOCK_TRIES = 20
_LOCK_WAIT_S = 0.001


class FileIdentity(NamedTuple):
    """What tells two files apart that had the same path one after the other."""

    device: int
    inode: int


class LogIdentity(NamedTuple):
    """Which log and which index of it are beside a file, None for each that does not exist."""

    log: FileIdentity | None
    log_index: FileIdentity | None


def identity_of(path: str) -> FileIdentity | None:
    """Return which file a path leads to, None if there is none. The file is not opened.

    Opening and closing a file of SQLite would drop the locks that this process has on it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def log_of(path: str) -> str:
    """Return the path of a file's log. Where the path is a link, SQLite keeps the log beside the link's target."""
    return f"{os.path.realpath(path)}-wal"


def log_identity(path: str) -> LogIdentity:
    """Return which log and index are beside a file."""
    return LogIdentity(identity_of(log_of(path)), identity_of(_index_of(path)))


def discard_old_log(path: str, old_file: FileIdentity | None, old: LogIdentity) -> None:
    """Remove the log of a replaced file, which this process has open, from beside the new file.

    Several processes may do so at the same time. A log of the new file is another file, and stays.

    Raises:
        Busy: Another process keeps the directory locked.
    """
    with _directory_locked(path):
        if identity_of(path) == old_file:
            return
        found = log_identity(path)
        if found.log is not None and found.log == old.log:
            _remove(log_of(path))
        if found.log_index is not None and found.log_index == old.log_index:
            _remove(_index_of(path))


def discard_foreign_log(path: str) -> None:
    """Remove a log that other processes use for a file that was replaced since, before this process opens the new one.

    Only Linux says which processes use a log, and only of the same user. Elsewhere nothing is removed.

    Raises:
        Busy: Another process keeps the directory locked.
    """
    if _has_foreign_log(path):
        with _directory_locked(path):
            if _has_foreign_log(path):
                # The index last: until it is gone, others see that the log is a foreign one.
                _remove(log_of(path))
                _remove(_index_of(path))


def lock_holders(locks: str, identity: FileIdentity) -> list[int]:
    """Return the ids of the processes that have a lock on a file, from the text of ``/proc/locks``."""
    device = f"{os.major(identity.device):02x}:{os.minor(identity.device):02x}:{identity.inode}"
    fields = [line.split() for line in locks.splitlines()]
    return [int(one[4]) for one in fields if len(one) > 5 and one[5] == device and one[4].isdecimal()]


def _has_foreign_log(path: str) -> bool:
    """Say whether a process uses the index of this name, and not the file of this name.

    A process opens the file before the index, and closes it after the index. Only a reading in the middle of that could
    be wrong, so it is repeated.
    """
    return all(_reads_foreign(path) for _ in range(_READINGS))


def _reads_foreign(path: str) -> bool:
    file, index = identity_of(path), identity_of(_index_of(path))
    if file is None or index is None:
        return False
    try:
        with open(_LOCKS, encoding="ascii", errors="replace") as locks:
            holders = lock_holders(locks.read(), index)
    except OSError:
        return False
    return any(index in opened and file not in opened for opened in map(_opened_by, holders))


def _opened_by(process_id: int) -> set[FileIdentity | None]:
    """Return the files that a process has open; none if they are not visible, or the process is ending."""
    directory = f"/proc/{process_id}/fd"
    with suppress(OSError):
        return {identity_of(f"{directory}/{name}") for name in os.listdir(directory)}
    return set()


def _remove(name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name)


def _index_of(path: str) -> str:
    return f"{os.path.realpath(path)}-shm"


@contextmanager
def _directory_locked(path: str) -> Iterator[None]:
    """Keep other processes from removing a log at the same time, as they could remove that of the new file.

    Raises:
        Busy: Another process keeps the directory locked.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:
        # Windows, where a file that is in use cannot be replaced.
        yield
        return
    descriptor = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)
    try:
        for tried in range(_LOCK_TRIES):
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                # Every program may lock a directory that it can read, for as long as it likes.
                if tried == _LOCK_TRIES - 1:
                    raise Busy from None
                threading.Event().wait(_LOCK_WAIT_S)
                continue
            except OSError:
                # The file system has no such locks.
                pass
            break
        yield
    finally:
        os.close(descriptor)
