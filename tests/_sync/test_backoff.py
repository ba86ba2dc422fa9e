"""Backoff: how long the waits between retries are, and what happens to them at a deadline."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import RateLimiterUnavailable
from zae_limiter._sync import backoff
from zae_limiter._sync.backoff import Backoff, Pauses

from .clients import SettableClock


@pytest.fixture
def clock():
    return SettableClock(0)


@pytest.fixture
def slept_s(monkeypatch, clock):
    """Return the length of each wait in seconds; a wait moves the clock instead of sleeping."""
    pauses_s = []

    def sleep(seconds):
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
def test_backoff_doubles_its_waits_up_to_the_maximum(clock, slept_s, pauses, expected_s):
    """Without a deadline there is always time for another wait."""
    tries = Backoff(clock, lambda: 0.6, pauses)
    waited = [tries.wait() for _ in range(4)]

    assert [True] * 4 == waited
    assert expected_s == slept_s


@pytest.mark.parametrize(("until_s", "waits"), [(0.06, False), (0.061, True)])
def test_backoff_wait_that_would_pass_the_deadline_returns_false(clock, slept_s, until_s, waits):
    """The caller gives up at that point, instead of waiting without a chance to retry."""
    assert waits is Backoff(clock, lambda: 0.2, Pauses(0.1, 0.3), until_s).wait()
    assert len(slept_s) == waits


@pytest.mark.parametrize(("until_s", "waits"), [(0.1, False), (0.101, True)])
def test_backoff_with_full_jitter_checks_the_longest_wait_against_the_deadline(clock, slept_s, until_s, waits):
    """A jittered wait is refused if its upper bound does not fit, so that time for a retry remains."""
    assert waits is Backoff(clock, lambda: 0.0, Pauses(0.1, 0.3, full_jitter=True), until_s).wait()
    assert len(slept_s) == waits


def test_wait_to_deadline_shortens_the_last_wait_to_the_deadline(clock, slept_s):
    """The last retry is made at the deadline, and none after it."""
    tries = Backoff(clock, lambda: 1.0, Pauses(0.1, 0.3), 0.25)
    waited = [tries.wait_to_deadline() for _ in range(3)]

    assert [True, True, False] == waited
    assert [0.1, 0.15] == slept_s


def test_wait_or_give_up_past_the_deadline_raises_unavailable(clock, slept_s):
    """The error says that the store was not available in time."""
    with pytest.raises(RateLimiterUnavailable):
        Backoff(clock, lambda: 0.5, Pauses(0.1, 0.3), 0.01).wait_or_give_up()

    assert [] == slept_s
