"""When a write-ahead log is copied into its file, and when it is restarted."""

import pytest

from zae_limiter.core.checkpoint import (
    COPIES,
    LIMIT_BYTES,
    WRITES_PER_COPY,
    CloseOff,
    CopyAgain,
    Leave,
    LogCopy,
    is_crowded,
    is_due,
    is_held_back,
    next_step,
)

MIB = 2**20


def seen(copied: int, pages: int = 1000, mib: int = 1, blocked: bool = False, quiet: bool = False) -> LogCopy:
    return LogCopy(blocked, pages, copied, 1024, mib * MIB, quiet)


def step(copy: LogCopy, copies: int = COPIES, held_back: bool = False) -> object:
    return next_step(copy, copies, held_back, LIMIT_BYTES)


@pytest.mark.parametrize(
    ("writes", "mib", "tried_mib", "expected"),
    [
        (0, 0, 0, False),
        (WRITES_PER_COPY - 1, 7, 0, False),
        (WRITES_PER_COPY, 0, 0, True),
        (0, 8, 0, True),
        (0, 49, 40, False),
        (0, 50, 40, True),
        (WRITES_PER_COPY, 40, 40, True),
    ],
)
def test_a_copy_is_due_after_writes_or_when_the_log_is_long(
    writes: int, mib: int, tried_mib: int, expected: bool
) -> None:
    """After an attempt that was held back, the log must grow by a quarter before its size counts again."""
    assert expected == is_due(writes, mib * MIB, tried_mib * MIB, LIMIT_BYTES)


@pytest.mark.parametrize(("mib", "expected"), [(23, False), (24, True)])
def test_writers_pause_close_to_the_limit(mib: int, expected: bool) -> None:
    """The log is crowded from three quarters of the limit on."""
    assert expected == is_crowded(mib * MIB, LIMIT_BYTES)


def test_short_log_that_was_copied_is_not_restarted() -> None:
    """The next writer that finds no reader in it restarts it by itself."""
    assert Leave(held_back=False) == step(seen(1000))


@pytest.mark.parametrize("copies", [1, COPIES])
def test_long_log_without_writers_is_restarted(copies: int) -> None:
    """Its file keeps its size up to a quarter of the limit, and is truncated beyond."""
    assert CloseOff(False, 10) == step(seen(2002, pages=2002, mib=2, quiet=True), copies)
    assert CloseOff(True, 10) == step(seen(10, pages=10, mib=8, quiet=True), copies)


def test_log_that_grows_during_its_copy_is_copied_again_without_a_wait() -> None:
    """Writers would wait for the sync of everything copied; the next copy is short."""
    longer = seen(2002, pages=2002, mib=11)

    assert [CopyAgain(0.0)] * (COPIES - 1) == [step(longer, copies) for copies in range(1, COPIES)]
    assert Leave(held_back=False) == step(longer)


def test_urgent_log_with_constant_writers_is_restarted() -> None:
    """A bounded log matters more than one write that waits for a sync."""
    assert CopyAgain(0.0) == step(seen(1000, mib=12), COPIES - 1)
    assert CloseOff(True, 85) == step(seen(1000, mib=12))


def test_copy_that_readers_cut_short_is_repeated_with_growing_waits() -> None:
    """The last copy of an attempt is followed by none."""
    waits = [step(seen(999), copies) for copies in range(1, COPIES)]

    assert [CopyAgain(0.002 * 2**number) for number in range(COPIES - 1)] == waits
    assert Leave(held_back=False) == step(seen(999))


def test_urgent_log_is_closed_to_readers_only_once_per_complete_copy() -> None:
    """If the last attempt was held back, writers are not delayed again before a copy is complete."""
    assert CloseOff(True, 85) == step(seen(999, mib=12))
    assert Leave(held_back=True) == step(seen(999, mib=12), held_back=True)
    assert CloseOff(True, 85) == step(seen(1000, mib=12), held_back=True)


def test_wait_for_readers_is_bounded() -> None:
    """Writers wait during that time, and have deadlines."""
    assert CloseOff(True, 200) == step(seen(1000, mib=3000))


def test_copy_by_another_process_is_not_disturbed() -> None:
    """A long log is retried; one beyond the limit is held back by a process that hangs."""
    assert Leave(held_back=False) == step(seen(-1, -1, 8, blocked=True), 1)
    assert CopyAgain(0.002) == step(seen(-1, -1, 12, blocked=True), 1)
    assert Leave(held_back=False) == step(seen(-1, -1, 31, blocked=True))
    assert Leave(held_back=True) == step(seen(-1, -1, 32, blocked=True))


@pytest.mark.parametrize(
    ("copy", "expected"),
    [(seen(1000, mib=40), False), (seen(999, mib=11), False), (seen(999, mib=12), True)],
)
def test_a_log_is_held_back_if_it_is_long_and_not_copied(copy: LogCopy, expected: bool) -> None:
    """A complete copy is followed by another attempt soon."""
    assert expected == is_held_back(copy, LIMIT_BYTES)
