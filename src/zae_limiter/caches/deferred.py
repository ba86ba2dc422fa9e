"""What ended leases owe and was not written yet, summed per bucket. Nothing here waits."""

import threading
from collections.abc import Sequence

from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import Owed
from zae_limiter.core.bucket_changes import summed

_OVERDUE_S = 1.0
"""If the timer has not fired this many seconds after it was due, its loop or thread is gone: another one is started."""


class DeferredSettlements:
    """Settlements that wait to be written, one sum for each bucket, birth number and digest of own limits."""

    def __init__(self) -> None:
        self._owed: dict[BucketId, dict[tuple[str, int | None], Owed]] = {}
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
            return list(self._owed.pop(bucket, {}).values())

    def take_all(self) -> list[Owed]:
        """Remove and return all settlements; the next one that is added starts a new timer."""
        with self._mutex:
            found = [one for kinds in self._owed.values() for one in kinds.values()]
            self._owed, self._due_s = {}, None
            return found

    def renew(self) -> None:
        """Drop everything in a copy of the process, because the original writes it."""
        # A thread of the original may hold the lock, and that thread is not in this process.
        self._mutex = threading.RLock()
        self._owed, self._due_s = {}, None
