"""A threshold of a limit is reported once per period, by the process that marks it."""  # generated from _async by tools/mirror.py; do not edit

import logging

import pytest

from zae_limiter import (
    Limit,
    SyncRateLimiter,
    RateLimitExceeded,
    SyncRepository,
    UnsupportedByBackendError,
    ValidationError,
    usd,
)
from zae_limiter.core.outcome import Unavailable
from zae_limiter.core.timestamp import ms_from_iso

from .clients import Wrapped, another

SPEND = Limit.quota("spend", usd("100"), every="month", unit="USD", warn_at=(0.8, 1.0))
RPM = Limit.per_minute("rpm", 100, warn_at=(0.8,))
NEW_YEAR_MS = ms_from_iso("2024-01-01T00:00:00Z")
DAY_MS = 86_400_000


class Told:
    """What a program was called with."""

    def __init__(self):
        self.warnings = []

    def __call__(self, warning):
        self.warnings.append(warning)

    @property
    def thresholds(self):
        """The limits and thresholds of the warnings."""
        return [(one.limit.name, one.threshold) for one in self.warnings]


class Unmarkable(Wrapped):
    """A table that takes requests, but no marks."""

    def transact(self, operations, token, *, until_s=None):
        if any("#WARNED#" in str(one) for one in operations):
            return Unavailable(TimeoutError("busy"), ambiguous=False)
        return super().transact(operations, token, until_s=until_s)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def repo(url, clock, random, told):
    clock.time_ms = NEW_YEAR_MS
    opened = SyncRepository.open(url, clock=clock, random=random, on_warning=told)
    yield opened
    opened.close()


@pytest.fixture
def limiter(repo):
    return SyncRateLimiter(repo)


def use(limiter, **consume):
    """Take from the bucket, and wait until warnings were sent."""
    with limiter.acquire("user-1", "gpt-4", consume):
        pass
    sent(limiter.repository)


def sent(repo):
    repo.scope.client.warner.finish()


def test_a_warning_is_logged_and_passed_to_the_function(limiter, told, caplog):
    """The sentence has amounts with their unit, and the end of the period."""
    limiter.set_system_defaults([SPEND])
    with caplog.at_level(logging.WARNING, "zae_limiter"):
        use(limiter, spend=usd("79"))
        before = list(told.thresholds)
        use(limiter, spend=usd("6.50"))
    text = (
        "user-1 has used 85.50 of 100.00 USD of limit spend for gpt-4. The warning is set at 80 %. "
        "The limit resets at 2024-02-01 00:00 UTC."
    )

    assert ([], [("spend", 0.8)]) == (before, told.thresholds)
    assert [f"Limit warning: {text}"] == [record.getMessage() for record in caplog.records]
    assert (text, "default", 85_500_000) == (
        told.warnings[0].text,
        told.warnings[0].namespace,
        told.warnings[0].as_dict()["used"],
    )


def test_the_write_that_creates_a_bucket_may_reach_a_threshold(limiter, told):
    """The first request of an entity may use up everything."""
    limiter.set_system_defaults([SPEND])
    use(limiter, spend=usd("100"))

    assert [("spend", 0.8), ("spend", 1.0)] == told.thresholds


def test_a_settlement_may_reach_a_threshold(limiter, told):
    """A call that costs more than expected is charged when its lease ends."""
    limiter.set_system_defaults([SPEND])
    with limiter.acquire("user-1", "gpt-4", {"spend": usd("10")}) as lease:
        lease.adjust(spend=usd("75"))
    sent(limiter.repository)

    assert [("spend", 0.8)] == told.thresholds


def test_a_chain_of_buckets_warns_for_each_of_them(limiter, told):
    """The parent has its own level."""
    limiter.set_system_defaults([RPM])
    limiter.create_entity("team")
    limiter.create_entity("user-1", parent_id="team", cascade=True)
    for _ in range(3):
        use(limiter, rpm=30)

    assert {("team", "rpm"), ("user-1", "rpm")} == {(one.entity_id, one.limit.name) for one in told.warnings}


def test_a_level_that_oscillates_warns_once(limiter, told):
    """Credits and debits cross the threshold several times in a month."""
    limiter.set_system_defaults([SPEND])
    use(limiter, spend=usd("75"))
    for _ in range(3):
        with pytest.raises(KeyError):
            with limiter.acquire("user-1", "gpt-4", {"spend": usd("10")}):
                raise KeyError
        sent(limiter.repository)

    assert [("spend", 0.8)] == told.thresholds


def test_a_new_month_warns_again(limiter, told, clock):
    """Its warning names the next end."""
    limiter.set_system_defaults([SPEND])
    use(limiter, spend=usd("90"))
    clock.advance(31 * DAY_MS)
    use(limiter, spend=usd("10"))
    nothing = list(told.thresholds)
    use(limiter, spend=usd("80"))

    assert ([("spend", 0.8)], [("spend", 0.8)] * 2) == (nothing, told.thresholds)
    assert ["2024-02-01", "2024-03-01"] == [one.as_dict()["period_end"][:10] for one in told.warnings]


def test_another_process_does_not_repeat_a_warning(url, clock, limiter, told):
    """The mark is in the table, which all processes share."""
    limiter.set_system_defaults([SPEND])
    use(limiter, spend=usd("90"))
    if url == "memory://":
        return
    also = Told()
    with SyncRepository.open(url, clock=clock, on_warning=also) as other:
        use(SyncRateLimiter(other), spend=usd("1"))
        use(SyncRateLimiter(other), spend=usd("9"))
    use(limiter, spend=0)

    assert ([("spend", 0.8)], [("spend", 1.0)]) == (told.thresholds, also.thresholds)


def test_a_rate_limit_warns_once_per_fill_time(limiter, told, clock):
    """A limit that stays used up warns once a minute."""
    limiter.set_system_defaults([RPM])
    for seconds in range(0, 150, 10):
        clock.time_ms = NEW_YEAR_MS + seconds * 1000
        use(limiter, rpm=100 if seconds == 0 else 16)

    assert [0, 60, 120] == [(one.at_ms - NEW_YEAR_MS) // 1000 for one in told.warnings]


def test_a_fast_limit_warns_at_most_once_a_minute(limiter, told, clock):
    """A limit per second would otherwise warn every second."""
    limiter.set_system_defaults([Limit.per_second("rps", 10, warn_at=(1.0,))])
    for _ in range(90):
        use(limiter, rps=10)
        clock.advance(1000)

    assert 2 == len(told.warnings)


def test_slots_in_use_warn(limiter, told):
    """A limit of concurrent use warns while leases hold its slots."""
    limiter.set_system_defaults([Limit.concurrent("slots", 10, warn_at=(0.5,))])
    with limiter.acquire("user-1", "gpt-4", {"slots": 4}):
        use(limiter, slots=1)

    assert ["user-1 is using 5 of 10 slots of limit slots for gpt-4. The warning is set at 50 %."] == [
        one.text for one in told.warnings
    ]


def test_a_soft_quota_warns_above_its_amount(limiter, told):
    """It is not refused, so its use may exceed the amount."""
    limit = Limit.quota("spend", usd("100"), unit="USD", enforce=False, warn_at=(1.0, 1.5))
    limiter.set_system_defaults([limit])
    use(limiter, spend=usd("100"))
    use(limiter, spend=usd("60"))

    assert [("spend", 1.0), ("spend", 1.5)] == told.thresholds


def test_a_request_that_is_refused_does_not_warn(limiter, told):
    """Nothing was used."""
    limiter.set_system_defaults([SPEND])
    use(limiter, spend=usd("70"))
    with pytest.raises(RateLimitExceeded):
        use(limiter, spend=usd("40"))

    assert [] == told.thresholds


def test_a_function_that_raises_stops_nothing(url, clock, random, caplog):
    """Its error is logged, and the other warnings are still sent."""
    seen = []

    def fail(warning):
        seen.append(warning.threshold)
        raise KeyError(warning.threshold)

    with SyncRepository.open(url, clock=clock, random=random, on_warning=fail) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults([SPEND])
        with caplog.at_level(logging.WARNING, "zae_limiter"):
            use(limiter, spend=usd("100"))

    assert [0.8, 1.0] == seen
    assert 2 == sum("on_warning failed" in record.getMessage() for record in caplog.records)


def test_close_waits_for_warnings(url, clock, random):
    """A program that ends after its last request has sent what it marked."""
    seen = []
    with SyncRepository.open(url, clock=clock, random=random, on_warning=seen.append) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults([SPEND])
        with limiter.acquire("user-1", "gpt-4", {"spend": usd("90")}):
            pass

    assert [0.8] == [one.threshold for one in seen]


def test_usage_shows_the_highest_threshold_of_its_window(repo, limiter):
    """The usage of the window is counted as before."""
    limiter.set_system_defaults([SPEND, Limit.per_minute("rpm", 100)])
    use(limiter, spend=usd("80"), rpm=1)
    use(limiter, spend=usd("20"), rpm=1)
    snapshots, _ = repo.get_usage_snapshots("user-1")

    assert [{"spend": 1.0}] * 3 == [one.warnings for one in snapshots]
    assert [{"spend": usd("100"), "rpm": 2}] * 3 == [one.counters for one in snapshots]


def test_a_table_that_fails_to_mark_is_tried_again(repo, limiter, told):
    """The next request that is above the threshold sends the warning."""
    limiter.set_system_defaults([SPEND])
    use(limiter, spend=usd("50"))
    broken = SyncRateLimiter(another(repo, Unmarkable))
    use(broken, spend=usd("40"))
    nothing = list(told.thresholds)
    use(limiter, spend=usd("1"))

    assert ([], [("spend", 0.8)]) == (nothing, told.thresholds)


def test_a_function_that_cannot_be_called_is_refused():
    """The mistake shows when the table is opened, and not with the first warning."""
    with pytest.raises(ValidationError, match="on_warning"):
        SyncRepository.open("memory://", on_warning="mail")


def test_warnings_of_dynamodb_need_its_aggregator():
    """A function that would never be called is refused, with what to use instead."""
    with pytest.raises(UnsupportedByBackendError, match="EventBridge"):
        SyncRepository.open("dynamodb://my-app?region=us-east-1", on_warning=print)
