"""Identifies the file at a path, and whether the write-ahead log beside it belongs to that file.

SQLite finds a log by its name. If a file is replaced while processes use it, the log of the old file still has the name
of the new file's log. A process that opens the new file would apply the old log to it. So the old log is removed first.
Processes that still use the old file keep its log open, without a name.
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
    """Device and inode, which differ between a file and the one that replaced it at the same path."""

    device: int
    inode: int


class LogIdentity(NamedTuple):
    """The identities of the log and of its index (``-shm``) beside a file, None for each that does not exist."""

    log: FileIdentity | None
    log_index: FileIdentity | None


def identity_of(path: str) -> FileIdentity | None:
    """Return the identity of the file at a path, None if it does not exist."""
    # The file is not opened: closing it would drop all POSIX locks that this process has on it.
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def log_of(path: str) -> str:
    """Return the path of a file's log; if the path is a symbolic link, the log is beside the target."""
    return f"{os.path.realpath(path)}-wal"


def log_identity(path: str) -> LogIdentity:
    """Return the identities of the log and the index beside a file."""
    return LogIdentity(identity_of(log_of(path)), identity_of(_index_of(path)))


def discard_old_log(path: str, old_file: FileIdentity | None, old: LogIdentity) -> None:
    """Remove the log of a replaced file, which this process has open, from beside the new file.

    Several processes may do this at the same time. A log of the new file has another identity and is kept.

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
    """Remove a log that other processes use for a replaced file, before this process opens the new file.

    Only Linux shows which processes use a log, and only those of the same user. Elsewhere nothing is removed.

    Raises:
        Busy: Another process keeps the directory locked.
    """
    if _has_foreign_log(path):
        with _directory_locked(path):
            if _has_foreign_log(path):
                # The index is removed last: other processes recognise a foreign log by its index.
                _remove(log_of(path))
                _remove(_index_of(path))


def lock_holders(locks: str, identity: FileIdentity) -> list[int]:
    """Return the ids of the processes that have locked a file, from the text of ``/proc/locks``."""
    device = f"{os.major(identity.device):02x}:{os.minor(identity.device):02x}:{identity.inode}"
    fields = [line.split() for line in locks.splitlines()]
    return [int(one[4]) for one in fields if len(one) > 5 and one[5] == device and one[4].isdecimal()]


def _has_foreign_log(path: str) -> bool:
    """Return whether a process uses the index beside the file, but not the file."""
    # A process opens the file before the index, and closes it after the index. A reading that is not atomic may still
    # be wrong, so it is repeated.
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
    """Return the identities of a process's open files; none if they are not visible, or the process has ended."""
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
    """Lock the directory, because another process that removes logs meanwhile could remove that of the new file.

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
                # Any program that can read the directory may keep it locked, so this wait is bounded.
                if tried == _LOCK_TRIES - 1:
                    raise Busy from None
                threading.Event().wait(_LOCK_WAIT_S)
                continue
            except OSError:
                # The file system does not support locks.
                pass
            break
        yield
    finally:
        os.close(descriptor)
