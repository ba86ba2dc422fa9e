"""Pauses between tries: how long they are, and what becomes of them at a deadline."""

import pytest

from zae_limiter import RateLimiterUnavailable
from zae_limiter._async import backoff
from zae_limiter._async.backoff import Backoff, Pauses

from .clients import SettableClock


@pytest.fixture
def clock():
    return SettableClock(0)


@pytest.fixture
def slept_s(monkeypatch, clock):
    """Return how long each pause was; a pause moves the clock instead of waiting."""
    pauses_s = []

    async def sleep(seconds):
        pauses_s.append(round(seconds, 6))
        clock.advance(round(seconds * 1000))

    monkeypatch.setattr(backoff.runtime, "sleep", sleep)
    return pauses_s


@pytest.mark.parametrize(
    ("pauses", "expected_s"),
    [
        (Pauses(0.1, 0.3), [0.08, 0.16, 0.24, 0.24]),
        (Pauses(0.1, 0.3, full_jitter=True), [0.06, 0.12, 0.18, 0.18]),
        (Pauses(0.1, 0.3, immediate=True), [0, 0.08, 0.16, 0.24]),
    ],
)
async def test_pauses_double_up_to_the_longest(clock, slept_s, pauses, expected_s):
    """Without a deadline there is always time for another pause."""
    tries = Backoff(clock, lambda: 0.6, pauses)
    waited = [await tries.wait() for _ in range(4)]

    assert [True] * 4 == waited
    assert expected_s == slept_s


@pytest.mark.parametrize(("until_s", "waits"), [(0.06, False), (0.061, True)])
async def test_a_pause_that_does_not_end_before_the_deadline_is_refused(clock, slept_s, until_s, waits):
    """The caller gives up at once, with what went wrong, instead of waiting for nothing."""
    assert waits is await Backoff(clock, lambda: 0.2, Pauses(0.1, 0.3), until_s).wait()
    assert len(slept_s) == waits


@pytest.mark.parametrize(("until_s", "waits"), [(0.1, False), (0.101, True)])
async def test_a_pause_close_to_zero_leaves_time_for_a_try(clock, slept_s, until_s, waits):
    """A pause of any length is refused where the longest that it might have been does not fit."""
    assert waits is await Backoff(clock, lambda: 0.0, Pauses(0.1, 0.3, full_jitter=True), until_s).wait()
    assert len(slept_s) == waits


async def test_a_pause_up_to_the_deadline_is_cut_short(clock, slept_s):
    """The last try comes at the deadline, and none after it."""
    tries = Backoff(clock, lambda: 1.0, Pauses(0.1, 0.3), 0.25)
    waited = [await tries.wait_to_deadline() for _ in range(3)]

    assert [True, True, False] == waited
    assert [0.1, 0.15] == slept_s


async def test_giving_up_is_an_error(clock, slept_s):
    """The error says that the store was not available in time."""
    with pytest.raises(RateLimiterUnavailable):
        await Backoff(clock, lambda: 0.5, Pauses(0.1, 0.3), 0.01).wait_or_give_up()

    assert [] == slept_s
