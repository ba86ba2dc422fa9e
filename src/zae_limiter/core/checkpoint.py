"""Decide when and how SQLite's write-ahead log is copied into its file, so that the log stays short.

Writers append pages to the log. A *copy* brings pages into the file while writers continue. It
stops at the oldest page that a reader still needs. After a complete copy the log may *restart* at
its beginning, which blocks writers for a moment. *Truncating* also shrinks the log's file. All
bounds are fractions of one limit, in bytes.

A copy syncs the file only if no page was appended meanwhile. Otherwise the restart does it, and
writers wait for the disk. So the log restarts when it is *quiet*: a copy found no page that the
copy before had not.
"""

from typing import NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass

LIMIT_BYTES = 32 * 2**20
"""The log's file stays below this size, unless a reader needs old pages for a long time."""

WRITES_PER_COPY = 4000
"""A process copies the log after it has made this many writes."""

COPIES = 6
WRITE_PAUSE_S = 0.008
"""Writers of this process wait at most this many seconds while a copy tries to find the log quiet."""

_FIRST_WAIT_S = 0.002
_FRAME_HEADER_BYTES = 24
_SHORTEST_HOLD_UP_MS = 10
_LONGEST_HOLD_UP_MS = 200


class LogCopy(NamedTuple):
    """The result of a copy: pages in the log, pages copied so far, and the size of the log's file.

    ``is_blocked`` is True if another connection is copying; the page counts are then unknown.
    ``is_quiet`` is True if the copy before found the same pages.
    """

    is_blocked: bool
    pages: int
    copied: int
    page_bytes: int
    file_bytes: int
    is_quiet: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every page of the log is in the file."""
        return not self.is_blocked and self.copied >= self.pages


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the log as it is; ``held_back`` is True if it is long because others prevent the copy."""

    held_back: bool


@dataclass(frozen=True, slots=True)
class CopyAgain:
    """Copy again after this many seconds, because a short read may have ended by then."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class CloseOff:
    """Copy the rest while writers wait, then restart the log. Wait at most ``wait_ms`` for readers."""

    truncates: bool
    wait_ms: int


CheckpointStep = Leave | CopyAgain | CloseOff


def is_due(writes: int, file_bytes: int, tried_bytes: int, limit_bytes: int) -> bool:
    """Return whether to copy the log, after this many writes by this process.

    ``tried_bytes`` is the size at which the last attempt was held back, 0 if it was not. A further
    attempt then waits for more writes or for growth.
    """
    long_bytes = max(limit_bytes // 4, tried_bytes + tried_bytes // 4)
    return writes >= WRITES_PER_COPY or file_bytes >= long_bytes


def is_crowded(file_bytes: int, limit_bytes: int) -> bool:
    """Return whether the log is so close to its limit that writers must pause for it."""
    return file_bytes >= limit_bytes * 3 // 4


def next_step(seen: LogCopy, copies: int, held_back: bool, limit_bytes: int) -> CheckpointStep:
    """Decide what follows the ``copies``-th copy of this attempt.

    ``held_back`` is the result of the last attempt. While it is True, writers are not blocked again
    in vain.
    """
    is_urgent = _is_urgent(seen, limit_bytes)
    if seen.is_complete:
        truncates = seen.file_bytes >= limit_bytes // 4
        # A short log is not worth blocking the writers.
        if not truncates and seen.pages * (seen.page_bytes + _FRAME_HEADER_BYTES) < limit_bytes // 16:
            return Leave(held_back=False)
        # Restart only a quiet log: otherwise the restart syncs the file while writers wait. An
        # urgent log cannot wait until it is quiet.
        if seen.is_quiet or (is_urgent and copies >= COPIES):
            return CloseOff(truncates, _hold_up_ms(seen, limit_bytes))
        return CopyAgain(0.0) if copies < COPIES else Leave(held_back=False)
    if copies < COPIES and (is_urgent or not seen.is_blocked):
        # A reader still needs old pages. Wait longer before each further copy.
        return CopyAgain(_FIRST_WAIT_S * 2 ** (copies - 1))
    if is_urgent and not held_back and not seen.is_blocked:
        return CloseOff(truncates=True, wait_ms=_hold_up_ms(seen, limit_bytes))
    return Leave(is_held_back(seen, limit_bytes))


def is_held_back(seen: LogCopy, limit_bytes: int) -> bool:
    """Return whether others prevent a copy of the log, given its state after all attempts.

    A copy by another process is normal. Only beyond the limit does it mean that the other process
    hangs.
    """
    if seen.is_blocked:
        return seen.file_bytes >= limit_bytes
    return not seen.is_complete and _is_urgent(seen, limit_bytes)


def _is_urgent(seen: LogCopy, limit_bytes: int) -> bool:
    return seen.file_bytes >= limit_bytes * 3 // 8


def _hold_up_ms(seen: LogCopy, limit_bytes: int) -> int:
    """Return the milliseconds to wait for readers; a longer log waits longer."""
    if not _is_urgent(seen, limit_bytes):
        return _SHORTEST_HOLD_UP_MS
    return min(_LONGEST_HOLD_UP_MS, _SHORTEST_HOLD_UP_MS + _LONGEST_HOLD_UP_MS * seen.file_bytes // limit_bytes)
