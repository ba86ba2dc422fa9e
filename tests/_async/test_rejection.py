"""A rejection: its content, and the exactness of its retry_after."""

import json

import pytest

from zae_limiter import Limit, RateLimitExceeded

from .clients import take

RPS = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
DAILY = Limit.per_day("daily", 20)


async def rejection(limiter, consume):
    with pytest.raises(RateLimitExceeded) as caught:
        await take(limiter, consume)
    return caught.value


@pytest.mark.parametrize(
    ("limit", "amount"),
    [
        (Limit.per_second("one", 10), 1),
        (Limit.per_second("one", 10), 10),
        (Limit.per_second("one", 3), 1),
        (Limit.per_second("one", 300), 7),
        (Limit.per_minute("one", 100), 1),
        (Limit.per_minute("one", 7, burst=11), 11),
        (Limit.per_hour("one", 13), 1),
        (Limit.per_day("one", 1), 1),
        (Limit.custom("one", 5, 1, 7), 2),
        (Limit.custom("one", 10**6, 999_983, 86_399), 123_457),
        (Limit.custom("one", 10**18, 10**18, 1), 10**17 + 1),
    ],
    ids=str,
)
async def test_retry_is_admitted_at_retry_after_and_rejected_a_millisecond_earlier(limiter, clock, limit, amount):
    """``retry_after`` is the first millisecond at which the request is admitted."""
    await limiter.set_system_defaults([limit])
    await take(limiter, {"one": limit.capacity})
    clock.advance(17)
    error = await rejection(limiter, {"one": amount})
    wait_ms = round(error.retry_after_seconds * 1000)

    clock.advance(wait_ms - 1)
    early = await rejection(limiter, {"one": amount})
    clock.advance(1)
    await take(limiter, {"one": amount})

    assert 0.001 == early.retry_after_seconds


async def test_time_until_available_equals_retry_after(limiter, clock):
    """Both calls return the same wait."""
    await limiter.set_system_defaults([DAILY])
    await take(limiter, {"daily": 19})
    clock.advance(12_345)

    waiting = await limiter.time_until_available("user-1", "gpt-4", {"daily": 3})

    assert (await rejection(limiter, {"daily": 3})).retry_after_seconds == waiting


async def test_retry_after_is_the_wait_of_the_slowest_violation(limiter, clock):
    """A retry needs all limits; limits that passed do not count."""
    await limiter.set_system_defaults([RPS, TPM, DAILY])
    await take(limiter, {"rps": 10, "tpm": 6_000})

    error = await rejection(limiter, {"rps": 1, "tpm": 100, "daily": 1})
    clock.advance(1_000)
    await take(limiter, {"rps": 1, "tpm": 100, "daily": 1})

    assert 1.0 == error.retry_after_seconds
    assert "tpm" == error.primary_violation.limit_name


async def test_rejection_reports_the_status_of_every_limit(limiter):
    """Limits that passed and limits that were not named are included."""
    await limiter.set_system_defaults([RPS, TPM, DAILY])
    await take(limiter, {"rps": 8, "tpm": 1_000})

    error = await rejection(limiter, {"rps": 3, "tpm": 500})

    assert [
        ("daily", 20, 0, False, 0.0),
        ("rps", 2, 3, True, 0.1),
        ("tpm", 5_000, 500, False, 0.0),
    ] == [(s.limit_name, s.available, s.requested, s.exceeded, s.retry_after_seconds) for s in error.statuses]
    assert {("user-1", "gpt-4")} == {(status.entity_id, status.resource) for status in error.statuses}


async def test_every_status_of_a_rejection_is_either_violation_or_passed(limiter):
    """The two lists partition the statuses."""
    await limiter.set_system_defaults([RPS, TPM])
    await take(limiter, {"rps": 10})

    error = await rejection(limiter, {"rps": 4, "tpm": 1})

    assert (["rps"], ["tpm"]) == (
        [status.limit_name for status in error.violations],
        [status.limit_name for status in error.passed],
    )
    assert 4 == error.violations[0].deficit


async def test_status_of_a_rejection_contains_the_limit_in_force(limiter):
    """The caller does not have to look it up."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    assert RPS == (await rejection(limiter, {"rps": 1})).primary_violation.limit


async def test_rejection_as_dict_is_json_serializable(limiter):
    """``as_dict`` contains everything that a caller may pass on."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})
    error = await rejection(limiter, {"rps": 2})

    decoded = json.loads(json.dumps(error.as_dict()))

    assert ("rate_limit_exceeded", str(error), 0.2) == (
        decoded["error"],
        decoded["message"],
        decoded["retry_after_seconds"],
    )
    assert [
        {
            "entity_id": "user-1",
            "resource": "gpt-4",
            "limit_name": "rps",
            "capacity": 10,
            "refill_amount": 10,
            "refill_period_seconds": 1,
            "available": 0,
            "requested": 2,
            "deficit": 2,
            "exceeded": True,
            "retry_after_seconds": 0.2,
        }
    ] == decoded["limits"]


async def test_rejection_message_names_entity_resource_limit_and_wait(limiter):
    """A log line alone explains the rejection."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    message = str(await rejection(limiter, {"rps": 2}))

    assert (
        "Rate limit exceeded for entity 'user-1', resource 'gpt-4', limit 'rps': 0 available, 2 requested. "
        "Retry after 0.200 s." == message
    )


@pytest.mark.parametrize(("amount", "header"), [(1, "1"), (10, "1"), (11, "2"), (20, "2")])
async def test_retry_after_header_is_in_whole_seconds_rounded_up(limiter, amount, header):
    """HTTP allows no fractions, and a client that waits this long is admitted."""
    await limiter.set_system_defaults([Limit.per_second("rps", 10, burst=20)])
    await take(limiter, {"rps": 20})

    assert header == (await rejection(limiter, {"rps": amount})).retry_after_header


async def test_rejection_by_a_bucket_in_debt_reports_negative_available(limiter):
    """The debt is included in the wait."""
    await limiter.set_system_defaults([RPS])
    async with limiter.acquire("user-1", "gpt-4", {"rps": 10}) as lease:
        await lease.adjust(rps=20)

    error = await rejection(limiter, {"rps": 1})

    assert (-20, 2.1) == (error.primary_violation.available, error.retry_after_seconds)


async def test_repeated_rejections_take_no_tokens(limiter, clock):
    """A request is admitted at its time, however often it was rejected before."""
    await limiter.set_system_defaults([RPS])
    await take(limiter, {"rps": 10})

    for _ in range(10):
        clock.advance(10)
        last = await rejection(limiter, {"rps": 2})
    clock.advance(100)
    await take(limiter, {"rps": 2})

    assert 0.1 == last.retry_after_seconds
