"""Amounts and resets in the messages of the library."""

import pytest

from zae_limiter import AmountExceedsCapacityError, Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, usd
from zae_limiter.core.limit_text import left_text, reset_text
from zae_limiter.core.status import LimitStatus

SPEND = Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD")
DECEMBER_S = 1_796_079_600


def status(limit, available, requested, resets_at=None):
    return LimitStatus("user-1", "gpt-4", limit.name, limit, available, requested, True, 60.0, resets_at=resets_at)


@pytest.mark.parametrize(
    ("limit", "available", "resets_at", "text"),
    [
        (SPEND, usd("12.50"), DECEMBER_S, "12.50 of 500.00 USD, resets 2026-12-01 00:00 Europe/Berlin"),
        (
            Limit.quota("t", 10, "hour", unit="tokens"),
            -5,
            1_796_079_600,
            "-5 of 10 tokens, resets 2026-11-30 23:00 UTC",
        ),
        (Limit.per_minute("rpm", 100), 40, None, "40 of 100"),
    ],
)
def test_what_is_left_has_the_unit_and_the_local_time_of_the_reset(limit, available, resets_at, text):
    """A rate has no reset."""
    assert text == left_text(limit, available, resets_at)


def test_reset_is_shown_in_local_time_on_both_sides_of_a_shift():
    """The same quota resets at local midnight in summer and in winter."""
    shown = [reset_text(SPEND.schedule, at_s) for at_s in (1_782_856_800, DECEMBER_S)]

    assert ["2026-07-01 00:00 Europe/Berlin", "2026-12-01 00:00 Europe/Berlin"] == shown


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            status(SPEND, usd("12.50"), usd("20"), DECEMBER_S),
            "12.50 of 500.00 USD available, 20.00 USD requested, resets 2026-12-01 00:00 Europe/Berlin. Retry",
        ),
        (
            status(Limit("egress", 10, 10, 60, unit="GB"), 1, 2),
            "1 GB available, 2 GB requested. Retry",
        ),
        (status(Limit.per_minute("rpm", 10), 1, 2), "1 available, 2 requested. Retry"),
    ],
)
def test_message_of_a_rejection_has_units_and_the_reset(found, text):
    """Messages of limits without a unit are as before."""
    assert text in str(RateLimitExceeded((found,)))


def test_status_as_dict_has_plain_numbers_with_the_unit_and_schedule():
    """Programs compute with micro-units."""
    quota, plain = (
        status(limit, 1, 2, at_s).as_dict() for limit, at_s in ((SPEND, DECEMBER_S), (Limit.per_minute("rpm", 9), None))
    )

    assert (1, 2, "USD") == (quota["available"], quota["requested"], quota["unit"])
    assert ("m1 0000 Europe/Berlin", DECEMBER_S) == (quota["schedule"], quota["resets_at"])
    assert not {"unit", "schedule", "resets_at"} & plain.keys()


def test_amount_above_a_capacity_is_named_in_the_unit():
    """The value of the error stays the number that the caller passed."""
    with SyncRepository.open("memory://") as repo:
        limiter = SyncRateLimiter(repo)
        with (
            pytest.raises(AmountExceedsCapacityError) as caught,
            limiter.acquire("user-1", "gpt-4", {"spend": usd("600")}, [SPEND]),
        ):
            pass

    assert "600.00 USD is more than the capacity of limit 'spend' (500.00 USD)" in str(caught.value)
    assert usd("600") == caught.value.value
