"""What ended leases owe and was not written yet, summed per bucket. Nothing here waits."""

import threading
from collections.abc import Sequence

from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import Owed
from zae_limiter.core.bucket_changes import summed

_EARLY_S = 0.001
"""A timer may fire this many seconds early. What is due so soon is written then."""

_OVERDUE_S = 1.0
"""If the timer has not fired this many seconds after it was due, its loop or thread is gone: another one is started."""


class DeferredSettlements:
    """Settlements that wait to be written, one sum for each bucket, birth number and digest of own limits."""

    def __init__(self) -> None:
        self._owed: dict[BucketId, dict[tuple[str, int | None], Owed]] = {}
        # Since when the oldest settlement of each bucket waits.
        self._since_s: dict[BucketId, float] = {}
        # Reentrant: a thread that is interrupted while it holds the lock can still enter again.
        self._mutex = threading.RLock()
        self._due_s: float | None = None

    def __bool__(self) -> bool:
        """Return whether any settlement waits."""
        return bool(self._owed)

    def owes(self, bucket: BucketId) -> bool:
        """Return whether settlements of a bucket wait."""
        return bucket in self._owed

    def add(self, owed: Sequence[Owed], now_s: float, within_s: float) -> bool:
        """Add settlements; return whether a timer has to be started, which fires after ``within_s`` seconds.

        ``now_s`` is the time on the monotonic clock. A timer that is running fires early enough.
        """
        with self._mutex:
            for one in owed:
                kinds = self._owed.setdefault(one.bucket, {})
                self._since_s.setdefault(one.bucket, now_s)
                kind = (one.terms.digest, one.settlement.birth)
                before = kinds.get(kind)
                settlements = [one.settlement] if before is None else [before.settlement, one.settlement]
                kinds[kind] = one._replace(settlement=summed(settlements))
            if self._due_s is not None and now_s < self._due_s + _OVERDUE_S:
                return False
            self._due_s = now_s + within_s
            return True

    def take_out(self, bucket: BucketId) -> list[Owed]:
        """Remove and return the settlements of a bucket. The caller writes them, or adds them again."""
        with self._mutex:
            self._since_s.pop(bucket, None)
            return list(self._owed.pop(bucket, {}).values())

    def take_due(self, now_s: float, within_s: float) -> tuple[list[Owed], float | None]:
        """Remove and return the settlements that have waited for ``within_s`` seconds.

        Also return in how many seconds the next one is due. The timer ends if that is None: none is left, or another
        timer has replaced this one, because it was overdue.
        """
        latest_s = now_s - within_s + _EARLY_S
        with self._mutex:
            if self._due_s is not None and now_s < self._due_s - _EARLY_S:
                return [], None
            due = [bucket for bucket, since_s in self._since_s.items() if since_s <= latest_s]
            found = [one for bucket in due for one in self.take_out(bucket)]
            self._due_s = min(self._since_s.values()) + within_s if self._since_s else None
            return found, None if self._due_s is None else max(0.0, self._due_s - now_s)

    def take_all(self) -> list[Owed]:
        """Remove and return all settlements. A timer that is running continues to run."""
        with self._mutex:
            found = [one for kinds in self._owed.values() for one in kinds.values()]
            self._owed, self._since_s = {}, {}
            return found

    def end_timer(self) -> None:
        """Note that the timer has ended early: the next settlement that is added starts a new one."""
        self._due_s = None

    def renew(self) -> None:
        """Drop everything in a copy of the process, because the original writes it."""
        # A thread of the original may hold the lock, and that thread is not in this process.
        self._mutex = threading.RLock()
        self._owed, self._since_s, self._due_s = {}, {}, None
