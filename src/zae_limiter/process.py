"""Renews the objects that a process must not share with a copy of itself.

A copy is a forked child, or a VM snapshot that was restored, possibly many times. Random numbers, locks, connections
and calls in flight belong to one process. An object with such state calls `renew_in_copies`. A forked child renews it
before its first call, and a restored copy when its restore hook runs.
"""

import importlib
import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Renewable", "renew_clients", "renew_in_copies"]


class Renewable(Protocol):
    """An object with state that belongs to one process."""

    def renew(self, *, restored: bool) -> None:
        """Replace the state that was copied from another process.

        ``restored`` is True in a restored snapshot, False in a forked child. A restored process keeps its threads.
        Its clocks have jumped, and its connections have no peer. A forked child keeps only the thread that forked.
        """
        ...


_members: "WeakSet[Renewable]" = WeakSet()
_hooks = {"restore": False}


def renew_in_copies(member: Renewable) -> None:
    """Register an object to be renewed in every copy of this process; the registration does not keep it alive."""
    _members.add(member)
    if not _hooks["restore"]:
        _hooks["restore"] = True
        _register_restore_hook()


def renew_clients() -> None:
    """Renew every open repository and limiter of this process after a snapshot was restored.

    Call it from the restore hook of your platform, before the first request. Forks and restores by AWS Lambda SnapStart
    are detected without it. Each restored copy then has its own write numbers, transaction tokens and jitter. It opens
    new connections and learns the server's time again.
    """
    _renew(restored=True)


def _renew(*, restored: bool) -> None:
    # Renewing an object may register another one, and a set must not change while it is iterated.
    for member in list(_members):
        member.renew(restored=restored)


def _register_restore_hook() -> None:
    """Register `renew_clients` with AWS Lambda SnapStart, whose runtime provides the hook module."""
    try:
        hooks = importlib.import_module("snapshot_restore_py")
    except ImportError:
        return
    hooks.register_after_restore(renew_clients)


def _after_fork() -> None:
    _renew(restored=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
