"""Creates files and directories that other users of the machine cannot read, and makes existing ones private.

Windows has no file modes. A user's directory is private there, so this module changes nothing.
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
"""The suffixes of the files that SQLite creates beside a database; they get the mode of the database."""


def file_mode(directory_mode: int) -> int:
    """Return the mode of a new file in a directory with this mode.

    The file is private to its user. If the directory is shared with a group (``chmod 2770``: setgid and writable by the
    group), the group may read and write the file too.
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
    # Another process may create the directory at the same time.
    with suppress(FileExistsError):
        os.mkdir(path, _PRIVATE_DIRECTORY)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def create_file(path: str) -> None:
    """Create an empty file with the mode of `file_mode`, unless it exists.

    Raises:
        OSError: The file cannot be created.
    """
    # A dangling symbolic link: SQLite would create its target itself, and others could read that file.
    path = os.path.realpath(path)
    mode = file_mode(os.stat(os.path.dirname(path)).st_mode)
    try:
        # Private first: another user could open the file before its mode is changed.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    except FileExistsError:
        return
    try:
        if _HAS_MODES and mode != _PRIVATE_FILE:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def tighten(path: str) -> None:
    """Make an existing file, the files beside it and its directory private, if this user owns them.

    A symbolic link is not followed, because the user has chosen its target.
    """
    if not _HAS_MODES or os.path.islink(path):
        return
    _remove_others(os.path.dirname(path), stat.S_ISDIR)
    for name in (path, *(path + ending for ending in BESIDE)):
        _remove_others(name, stat.S_ISREG)


def _remove_others(path: str, is_kind: Callable[[int], bool]) -> None:
    """Remove all permissions of group and others from a file or directory that this user owns."""
    with suppress(OSError):
        found = os.lstat(path)
        if is_kind(found.st_mode) and found.st_mode & _OTHERS and found.st_uid == os.geteuid():
            os.chmod(path, stat.S_IMODE(found.st_mode) & ~_OTHERS)
