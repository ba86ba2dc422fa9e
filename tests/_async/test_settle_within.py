"""Settlements that wait: what they cost, and that none is lost."""

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

from .clients import SettableClock, another, counted, own_level

RPM = Limit.per_minute("rpm", 1_000)
TPM = Limit.per_minute("tpm", 100_000)
LATER_S = 60.0
"""The longest interval: within a test, only what the test does ends it."""


@pytest.fixture
async def stored(repo):
    """A repository with limits, whose client writes settlements at once."""
    await RateLimiter(repo).set_system_defaults([RPM, TPM])
    return repo


async def call(limiter, estimate, actual, entity_id="user-1", **options):
    """Make a call that is adjusted from its estimate to its actual cost."""
    async with limiter.acquire(entity_id, "gpt-4", {"rpm": 1, "tpm": estimate}, **options) as lease:
        await lease.adjust(tpm=actual - estimate)


async def left_in(repo, entity_id="user-1"):
    """Return the levels that another client reads from the table."""
    return await own_level(RateLimiter(another(repo)), entity_id)


@pytest.mark.parametrize("actual", [700, 300], ids=["charged", "credited"])
async def test_settled_call_on_a_known_bucket_makes_one_write(stored, actual):
    """The settlement is part of the next take."""
    limiter, table = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 500, actual)
    table.drain()

    costs = []
    for _ in range(5):
        await call(limiter, 500, actual)
        costs.append(table.drain())
    await limiter._client.flush()

    assert [["write"]] * 5 == costs
    assert {"rpm": 1_000 - 6, "tpm": 100_000 - 6 * actual} == await left_in(stored)


async def test_settlement_that_waits_is_written_by_available(stored):
    """A report has everything that ended before it."""
    limiter, _ = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 500, 700)

    assert 100_000 - 700 == (await limiter.available("user-1", "gpt-4"))["tpm"]
    assert 100_000 - 700 == (await left_in(stored))["tpm"]


async def test_durable_call_settles_when_it_ends(stored):
    """Nothing of it waits."""
    limiter, table = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 500, 500)
    table.drain()

    await call(limiter, 500, 700, durable=True)

    assert ["write", "write"] == table.drain()
    assert 100_000 - 1_200 == (await left_in(stored))["tpm"]


async def test_closing_the_repository_writes_what_waits(tmp_path):
    """The next process finds it in the file."""
    url, clock = f"sqlite:///{tmp_path / 'kept.db'}", SettableClock()
    async with await Repository.open(url, clock=clock, settle_within=60) as repo:
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults([RPM, TPM])
        for entity_id in ("user-1", "user-2"):
            for actual in (700, 800):
                await call(limiter, 500, actual, entity_id)

    async with await Repository.open(url, clock=clock) as later:
        levels = [await own_level(RateLimiter(later), one) for one in ("user-1", "user-2")]
    assert [{"rpm": 998, "tpm": 100_000 - 1_500}] * 2 == levels


async def test_end_of_an_interval_writes_only_what_has_waited_for_it(stored, clock):
    """What was added later waits for its own interval, so that a take may still carry it."""
    limiter, table = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 500, 700, "user-1")
    clock.advance(40_000)
    await call(limiter, 500, 700, "user-2")
    clock.advance(20_000)
    table.drain()

    left_s = await limiter._client._write_due()

    assert 40.0 == left_s
    assert ["write"] == table.drain()
    clock.advance(40_000)
    assert await limiter._client._write_due() is None
    assert ["write"] == table.drain()
    assert await limiter._client._write_due() is None


async def test_timer_continues_after_a_flush(stored, clock):
    """A program that often asks what is available has one timer, not one for each time."""
    limiter, table = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 500, 700)
    clock.advance(30_000)
    await limiter.available("user-1", "gpt-4")
    await call(limiter, 500, 700)
    clock.advance(30_000)
    table.drain()

    assert 30.0 == await limiter._client._write_due()
    assert [] == table.drain()
    clock.advance(30_000)
    assert await limiter._client._write_due() is None
    assert ["write"] == table.drain()


async def test_call_that_fails_returns_its_tokens_with_the_next_take(stored):
    """A failed call makes no second write either."""
    limiter, table = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 500, 500)
    table.drain()

    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}):
            raise ZeroDivisionError
    await call(limiter, 500, 500)

    assert ["write"] * 2 == table.drain()
    assert {"rpm": 998, "tpm": 99_000} == await left_in(stored)


async def test_release_returns_tokens_at_once(stored):
    """Others get them without waiting for this client."""
    limiter, _ = counted(stored, settle_within_s=LATER_S)

    async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        await lease.release(tpm=400)

        assert {"rpm": 999, "tpm": 99_900} == await left_in(stored)


async def test_credit_that_waits_admits_a_request_that_the_view_would_reject(stored):
    """The view of the bucket does not have the credit yet."""
    limiter, _ = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 100_000, 10_000)

    await call(limiter, 90_000, 90_000)

    assert 0 == (await left_in(stored))["tpm"]


async def test_charge_that_waits_rejects_a_request_that_the_view_would_admit(stored):
    """The charge is written, and then the request is decided."""
    limiter, _ = counted(stored, settle_within_s=LATER_S)
    await call(limiter, 50_000, 90_000)

    with pytest.raises(RateLimitExceeded) as caught:
        await call(limiter, 20_000, 20_000)

    assert [10_000] == [status.available for status in caught.value.violations]
    assert 10_000 == (await left_in(stored))["tpm"]


async def test_cascade_settles_parent_and_child_with_their_next_takes(stored):
    """A settled call on a hierarchy costs as much as one without adjustments."""
    limiter, table = counted(stored, settle_within_s=LATER_S)
    await limiter.create_entity("team")
    await limiter.create_entity("key", parent_id="team", cascade=True)
    for _ in range(2):
        await call(limiter, 500, 700, "key")
    table.drain()

    await call(limiter, 500, 700, "key")
    cost = table.drain()
    await limiter._client.flush()

    assert 2 >= len(cost)
    assert [100_000 - 2_100] * 2 == [(await left_in(stored, one))["tpm"] for one in ("key", "team")]


async def test_interval_outside_its_range_raises(repo):
    """The error names the range."""
    with pytest.raises(ValueError, match="settle_within"):
        await type(repo).open("memory://", settle_within=61)
