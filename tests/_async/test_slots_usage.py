"""The highest number of slots in use per window, on the embedded tables."""

import pytest

from zae_limiter import Limit, RateLimiter
from zae_limiter.core.timestamp import ms_from_iso

from .clients import another

LIMITS = [Limit.per_minute("rpm", 100_000), Limit.concurrent("slots", 20)]
NEW_YEAR_MS = ms_from_iso("2024-01-01T00:00:00Z")
HOUR_MS = 3_600_000


@pytest.fixture
async def limiter(repo, clock):
    clock.time_ms = NEW_YEAR_MS
    repo.scope.table.now()
    made = RateLimiter(repo)
    await made.set_system_defaults(LIMITS)
    return made


async def highest(repo, window_type="hourly"):
    """Return the highest number in use by the start of its window."""
    found, _ = await repo.get_usage_snapshots("user-1", window_type=window_type)
    return {one.window_start: one.highest_in_use for one in found}


def lease_of(limiter, slots):
    return limiter.acquire("user-1", "gpt-4", {"rpm": 1, "slots": slots})


async def test_usage_has_the_highest_number_of_slots_in_use_at_a_time(repo, limiter):
    """Takes are counted as usage; those that follow each other raise no number in use."""
    for _ in range(3):
        async with lease_of(limiter, 2), lease_of(limiter, 3):
            pass

    (hour,), _ = await repo.get_usage_snapshots("user-1", window_type="hourly")
    assert (5, 15) == (hour.highest_in_use["slots"], hour.counters["slots"])
    assert {"slots": 5} == (await repo.get_usage_summary("user-1", window_type="hourly")).highest_in_use


async def test_highest_number_in_use_stays_after_it_was_read(repo, limiter):
    """A later count sees fewer slots in use, and keeps the highest number."""
    async with lease_of(limiter, 7):
        assert {"2024-01-01T00:00:00Z": {"slots": 7}} == await highest(repo)
    async with lease_of(limiter, 2):
        assert {"2024-01-01T00:00:00Z": {"slots": 7}} == await highest(repo)
    async with lease_of(limiter, 9):
        pass

    for window_type, start in (("hourly", "2024-01-01T00:00:00Z"), ("monthly", "2024-01-01T00:00:00Z")):
        assert {start: {"slots": 9}} == await highest(repo, window_type)


async def test_each_window_has_its_own_highest_number(repo, limiter, clock):
    """A window begins with the slots that are in use at its start."""
    async with lease_of(limiter, 8):
        clock.time_ms = NEW_YEAR_MS + HOUR_MS - 20_000
        async with lease_of(limiter, 4):
            clock.time_ms = NEW_YEAR_MS + HOUR_MS + 5_000
            repo.scope.table.now()
            async with lease_of(limiter, 1):
                pass

    assert {"2024-01-01T00:00:00Z": {"slots": 8}, "2024-01-01T01:00:00Z": {"slots": 5}} == await highest(repo)


async def test_slots_of_several_clients_are_added_up(repo, limiter):
    """The table counts what is in use, not what one client holds."""
    other = RateLimiter(another(repo))
    async with lease_of(limiter, 6), lease_of(other, 5):
        pass

    assert {"2024-01-01T00:00:00Z": {"slots": 11}} == await highest(repo)


async def test_usage_without_slots_has_no_highest_number(repo, limiter):
    """A limit of tokens has nothing in use."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 5}, [Limit.per_minute("rpm", 100)]):
        pass

    assert {"2024-01-01T00:00:00Z": {}} == await highest(repo)
