"""The recorder, fed with real leases and rejections."""

import pytest

from tests.loadtest.simulated_clock import SimulatedClock
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.loadtest.measurements import LimitKey, LimitTally, Measurements
from zae_limiter.loadtest.recorder import ACQUIRE, Recorder

PER_SECOND = Limit.per_second("rps", 10)
TOKENS = Limit.per_second("tps", 1000)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def limiter(clock: SimulatedClock) -> SyncRateLimiter:
    repository = SyncRepository.open("memory://", clock=clock)
    repository.set_system_defaults([PER_SECOND, TOKENS])
    repository.create_entity("project")
    repository.create_entity("key", parent_id="project", cascade=True)
    return SyncRateLimiter(repository)


def tally_of(measured: Measurements, entity_id: str, name: str = "rps") -> LimitTally:
    return measured.limits[LimitKey(entity_id, "api", name)]


def test_recorder_of_an_admitted_call_counts_it_in_every_bucket(
    clock: SimulatedClock, limiter: SyncRateLimiter
) -> None:
    """A cascade takes from the parent too."""
    recorder = Recorder(clock.now_s)

    with limiter.acquire("key", "api", {"rps": 2}) as lease:
        recorder.admitted(lease, {"rps": 2}, 100.0, 100.25)
    measured = recorder.take_measurements()

    assert 1 == measured.admitted
    assert (100.0, 100.25) == (measured.started_s, measured.ended_s)
    assert [2, 2] == [tally_of(measured, entity).taken for entity in ("key", "project")]
    assert [False, True] == [tally_of(measured, entity).is_ancestor for entity in ("key", "project")]
    assert {PER_SECOND} == tally_of(measured, "project").limits
    assert 0.25 == tally_of(measured, "key").longest_s
    assert 250.0 == measured.latencies[ACQUIRE].longest_ms


def test_recorder_of_a_scheduled_call_counts_the_latency_from_the_schedule(
    clock: SimulatedClock, limiter: SyncRateLimiter
) -> None:
    """The promise is checked by the time at which it was sent."""
    recorder = Recorder(clock.now_s)

    with limiter.acquire("user", "api", {"rps": 1}) as lease:
        recorder.admitted(lease, {"rps": 1}, 100.0, 102.5, sent_s=102.25)
    measured = recorder.take_measurements()

    assert 1 == measured.scheduled
    assert 2500.0 == measured.latencies[ACQUIRE].longest_ms
    assert 0.25 == tally_of(measured, "user").longest_s


def test_recorder_of_a_rejection_counts_the_limit_that_rejected(
    clock: SimulatedClock, limiter: SyncRateLimiter
) -> None:
    """Limits that had enough are not under demand by it."""
    recorder = Recorder(clock.now_s)
    with limiter.acquire("user", "api", {"rps": 8, "tps": 10}):
        pass

    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("user", "api", {"rps": 3, "tps": 10}):
        pass
    recorder.rejected(caught.value, 100.0, 100.0)
    measured = recorder.take_measurements()

    assert 1 == measured.rejected
    assert [1, 0] == [tally_of(measured, "user", name).rejections for name in ("rps", "tps")]
    assert 2 == tally_of(measured, "user").bin_at(100.0).lowest_level
    assert 0 == tally_of(measured, "user").bin_at(100.0).quickest_rejection_ms
    assert 3 == tally_of(measured, "user").largest_request


def test_recorder_leaves_out_limits_of_which_calls_take_nothing(
    clock: SimulatedClock, limiter: SyncRateLimiter
) -> None:
    """There is nothing to check about them, and a report has room for few limits."""
    recorder = Recorder(clock.now_s)

    with limiter.acquire("key", "api", {"rps": 10}) as lease:
        recorder.admitted(lease, {"rps": 10}, 100.0, 100.25)
    with pytest.raises(RateLimitExceeded) as rejected:
        limiter.acquire("key", "api", {"rps": 1}).__enter__()
    recorder.rejected(rejected.value, 100.25, 100.5)

    assert {"rps"} == {key.limit_name for key in recorder.take_measurements().limits}


def test_recorder_of_a_settlement_counts_charges_and_credits(clock: SimulatedClock, limiter: SyncRateLimiter) -> None:
    """A limit may be charged that the acquire did not name."""
    recorder = Recorder(clock.now_s)
    change = {"rps": -1, "tps": 30}

    with limiter.acquire("key", "api", {"rps": 2}) as lease:
        lease.adjust(**change)
    recorder.settled(lease, change, 100.0, 100.5)
    measured = recorder.take_measurements()

    assert [1, 1] == [tally_of(measured, entity).given_back for entity in ("key", "project")]
    assert 30 == tally_of(measured, "key", "tps").charged


def test_recorder_of_a_request_above_the_capacity_counts_no_demand(
    clock: SimulatedClock, limiter: SyncRateLimiter
) -> None:
    """Such a request says nothing about the level of the bucket."""
    recorder = Recorder(clock.now_s)

    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("user", "api", {"rps": 11}):
        pass
    recorder.rejected(caught.value, 100.0, 100.0)
    measured = recorder.take_measurements()

    assert (1, 1) == (measured.rejected, measured.never)
    assert 0 == sum(tally.rejections for tally in measured.limits.values())


def test_recorder_of_an_error_keeps_one_example(clock: SimulatedClock) -> None:
    """The texts of errors differ by their ids, so they are counted by class."""
    recorder = Recorder(clock.now_s)

    for number in range(3):
        recorder.failed(ACQUIRE, RateLimiterUnavailable(TimeoutError(f"number {number}")), 100.0, 101.0)
    measured = recorder.take_measurements()

    assert {"ACQUIRE RateLimiterUnavailable": 3} == measured.errors
    assert "number 0" in measured.error_examples["ACQUIRE RateLimiterUnavailable"]
    assert 3 == measured.attempts


def test_take_measurements_begins_again(clock: SimulatedClock, limiter: SyncRateLimiter) -> None:
    """A worker sends each part once."""
    recorder = Recorder(clock.now_s)
    recorder.timed("AVAILABLE", 100.0, 100.5)
    first = recorder.take_measurements()

    assert 1 == first.latencies["AVAILABLE"].count
    assert Measurements() == recorder.take_measurements()
