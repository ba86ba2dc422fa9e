"""Tasks that take while operators reset and credit: never more than the capacity, once per reset, plus the credits."""

import asyncio
from random import Random

import pytest

from tests._async.shards import OtherClient
from tests.limiter_async.remote import ended, staged, take, ticks
from zae_limiter import Limit, RateLimitExceeded

CAPACITY = 100
LIMITS = (Limit.per_minute("rpm", CAPACITY), Limit.quota("spend", CAPACITY))
BOTH = ("rpm", "spend")


class Load:
    """Tasks that take from both limits, and what they have kept."""

    def __init__(self, stage, random):
        self.stage, self.random = stage, random
        self.kept = 0

    async def take(self):
        """Take an amount of both limits, and keep all, nothing or half of it; a busy bucket is tried again."""
        amount = self.random.randrange(2, 12, 2)
        await ticks(self.random.randrange(40))
        try:
            async with self.stage.remote.acquire("user-1", "gpt-4", dict.fromkeys(BOTH, amount)) as lease:
                await ticks(self.random.randrange(20))
                returned = self.random.choice((0, 0, amount // 2, amount))
                await lease.release(**dict.fromkeys(BOTH, returned))
        except RateLimitExceeded:
            return
        self.kept += amount - returned


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("seed", range(10))
async def test_takes_beside_resets_and_credits_use_what_was_granted_at_most(seed, shards):
    """The usage counts what was kept, minus what was credited."""
    async with staged(limits=LIMITS) as stage:
        random = Random(seed)
        load, resets, credits = Load(stage, random), random.randrange(4), random.randrange(4)
        await stage.remote.acquire("user-1", "gpt-4", dict.fromkeys(BOTH, 0)).__aenter__()
        if shards > 1:
            await OtherClient(stage.repo).grow(shards)
        given = []

        async def reset():
            await ticks(random.randrange(300))
            await stage.local.reset_buckets("user-1", "gpt-4")

        async def credit(number):
            await ticks(random.randrange(300))
            key = f"ticket-{number % 3}"
            given.append((key, await stage.local.credit("user-1", "gpt-4", dict.fromkeys(BOTH, 20), key)))

        tasks = [load.take() for _ in range(120)] + [reset() for _ in range(resets)]
        outcomes = await ended([asyncio.ensure_future(one) for one in (*tasks, *(credit(n) for n in range(credits)))])
        once = dict(given)

        assert {None} == set(outcomes)
        for name in BOTH:
            granted = sum(amounts[name] for amounts in once.values())
            assert load.kept <= CAPACITY * (1 + resets) + granted
            assert load.kept - granted == stage.counted(name)
        assert len(once) == min(credits, 3)


async def test_two_operators_with_the_same_key_give_once():
    """Both learn what was given."""
    async with staged(limits=LIMITS) as stage:
        async with stage.remote.acquire("user-1", "gpt-4", {"rpm": 50}):
            pass
        found = await asyncio.gather(
            *(one.credit("user-1", "gpt-4", {"rpm": 20}, "ticket-1") for one in (stage.local, stage.remote) * 4)
        )

        assert [{"rpm": 20}] * 8 == found
        assert 70 == await stage.left()


@pytest.mark.parametrize("action", ["reset", "credit"])
async def test_waiting_request_is_admitted_once_an_operator_has_acted(action):
    """It waits for tokens that are there now, so it asks again."""
    async with staged(limits=LIMITS) as stage:
        async with stage.remote.acquire("user-1", "gpt-4", {"rpm": CAPACITY}):
            pass
        waiting = asyncio.create_task(take(stage.remote, 50, max_wait=3_600))
        await ticks(50)
        assert not waiting.done()
        if action == "reset":
            await stage.remote.reset_buckets("user-1")
        else:
            await stage.remote.credit("user-1", "gpt-4", {"rpm": 50}, "ticket-1")
        async with asyncio.timeout(60):
            lease = await waiting

        assert {"rpm": 50} == lease.consumed
