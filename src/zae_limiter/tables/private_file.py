"""Files and directories that other users of the machine cannot read: created as such, or tightened later.

Windows has no modes: there a user's own directory is private already, and nothing here changes anything.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress

_PRIVATE_FILE = 0o600
_GROUP_FILE = 0o660
_PRIVATE_DIRECTORY = 0o700
_SHARED_BY_GROUP = stat.S_ISGID | stat.S_IWGRP
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_HAS_MODES = os.name != "nt"
BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite appends to the name of a file for the files it creates beside it, with the mode of that file."""


def file_mode(directory_mode: int) -> int:
    """Return the mode of a new file in a directory.

    It is private. In a directory that an administrator shares with a group (setgid and writable by the group, as
    ``chmod 2770`` makes it), the group may write the file too.
    """
    return _GROUP_FILE if directory_mode & _SHARED_BY_GROUP == _SHARED_BY_GROUP else _PRIVATE_FILE


def create_directory(path: str) -> None:
    """Create a directory and its missing parents, each of them private. Existing ones keep their modes.

    Raises:
        OSError: A directory cannot be created.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent != path:
        create_directory(parent)
    with suppress(FileExistsError):
        os.mkdir(path, _PRIVATE_DIRECTORY)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def create_file(path: str) -> None:
    """Create an empty file unless it exists. Its mode is set from the first moment, whatever the umask.

    Raises:
        OSError: The file cannot be created.
    """
    # SQLite would create the target of a dangling link itself, readable by others.
    path = os.path.realpath(path)
    mode = file_mode(os.stat(os.path.dirname(path)).st_mode)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    except FileExistsError:
        return
    try:
        if _HAS_MODES and mode != _PRIVATE_FILE:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def tighten(path: str) -> None:
    """Make an existing file, the files beside it and its directory private, as far as this user owns them.

    A symbolic link is left alone: its target was chosen by the user.
    """
    if not _HAS_MODES or os.path.islink(path):
        return
    _remove_others(os.path.dirname(path), stat.S_ISDIR)
    for name in (path, *(path + ending for ending in BESIDE)):
        _remove_others(name, stat.S_ISREG)


def _remove_others(path: str, is_kind: Callable[[int], bool]) -> None:
    """Take every right of group and others from a file or directory of this user, unless there is none to take."""
    with suppress(OSError):
        found = os.lstat(path)
        if is_kind(found.st_mode) and found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            os.chmod(path, stat.S_IMODE(found.st_mode) & ~_OTHERS)
