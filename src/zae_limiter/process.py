"""What a process must not share with a copy of itself: numbers drawn at random, locks, connections, work in progress.

A copy is a forked child, or a VM image that is restored, maybe many times. Objects with such state
call `renew_in_copies`, and are renewed before a copy makes its first call.
"""

import importlib
import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Renewable", "renew_clients", "renew_in_copies"]


class Renewable(Protocol):
    """Something that has state of one process."""

    def renew(self, *, restored: bool) -> None:
        """Become that of a copy of the process.

        ``restored``: the copy is a restored image. Its threads go on, but its clocks have jumped, and the other ends
        of its connections are gone. In a forked child, only the thread that forked goes on.
        """
        ...


_members: "WeakSet[Renewable]" = WeakSet()
_hooks = {"restore": False}


def renew_in_copies(member: Renewable) -> None:
    """Renew an object in every copy of this process, for as long as it lives."""
    _members.add(member)
    if not _hooks["restore"]:
        _hooks["restore"] = True
        _register_restore_hook()


def renew_clients() -> None:
    """Renew every open repository and limiter of this process, after a snapshot of it was restored.

    Each restored copy then has its own write numbers, transaction tokens and jitter. It opens new connections and
    learns the server's time again. Call it from the restore hook of your platform, before the first request. Fork is
    detected without it, and so is a restore by Lambda SnapStart.
    """
    _renew(restored=True)


def _renew(*, restored: bool) -> None:
    for member in list(_members):
        member.renew(restored=restored)


def _register_restore_hook() -> None:
    """Be called after a restore by Lambda SnapStart, whose runtime brings this module."""
    try:
        hooks = importlib.import_module("snapshot_restore_py")
    except ImportError:
        return
    hooks.register_after_restore(renew_clients)


def _after_fork() -> None:
    _renew(restored=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
