"""Random tasks on one bucket, and on children of one parent: never more than the capacity, all accounted for."""

import asyncio
import contextlib
from random import Random

import pytest

from tests.limiter_async.remote import ended, staged, take, ticks
from zae_limiter import Limit, RateLimiter, RateLimitExceeded

CAPACITY = 300
RPM = Limit.per_minute("rpm", CAPACITY)
CHILDREN = 64


class RandomLoad:
    """Tasks that take, adjust, release, fail and are cancelled, and what each has kept."""

    def __init__(self, stage, random):
        self.stage, self.random = stage, random
        self.kept = {}
        self.rejections = []
        self.least_left = CAPACITY

    async def work(self, number):
        random, amount = self.random, self.random.randint(0, 20)
        entity_id = f"user-{random.randrange(3) + 1}" if random.random() < 0.2 else "user-1"
        try:
            async with self.stage.remote.acquire(entity_id, "gpt-4", {"rpm": amount}) as lease:
                await ticks(random.randrange(6))
                await self._change(lease, amount)
            self.kept[number] = entity_id, lease.consumed["rpm"]
        except RateLimitExceeded as error:
            self.rejections.append(error)
        except KeyError:
            pass

    async def _change(self, lease, amount):
        match self.random.randrange(5):
            case 0:
                await lease.adjust(rpm=-self.random.randint(0, amount))
            case 1:
                await lease.release(rpm=self.random.randint(0, amount))
            case 2:
                raise KeyError
            case _:
                await ticks(1)

    async def run(self, count):
        """Start tasks, cancel some, advance the clock, and wait for all; return the milliseconds that passed."""
        random, tasks, passed_ms = self.random, [], 0
        for number in range(count):
            tasks.append(asyncio.create_task(self.work(number)))
            if random.random() < 0.3:
                await ticks(random.randrange(5))
            if random.random() < 0.3:
                random.choice(tasks[-15:]).cancel()
            if random.random() < 0.02:
                self.stage.clock.advance(400)
                passed_ms += 400
            self.least_left = min(self.least_left, await self.stage.left())
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks, return_exceptions=True)
        return passed_ms


@pytest.mark.parametrize("seed", range(20))
async def test_random_tasks_never_take_more_than_capacity_and_refill(seed):
    """What they kept is what the buckets have counted."""
    async with staged(limits=[RPM]) as stage:
        load = RandomLoad(stage, Random(seed))
        passed_ms = await load.run(250)
        earned = CAPACITY * passed_ms // 60_000
        kept = dict.fromkeys(("user-1", "user-2", "user-3"), 0)
        for user, amount in load.kept.values():
            kept[user] += amount

        assert load.least_left >= 0
        # A lease that was cancelled at its exit is settled, but not reported as kept.
        assert all(kept[user] <= stage.counted(entity_id=user) <= CAPACITY + earned for user in kept)
        for user in kept:
            assert CAPACITY + earned - stage.counted(entity_id=user) >= await stage.left(entity_id=user) >= 0


@pytest.mark.parametrize("seed", range(20))
async def test_random_tasks_without_cancellation_are_accounted_for_to_the_token(seed):
    """What was kept was counted, the rest is left, and every rejected request lacked tokens."""
    async with staged(limits=[RPM]) as stage:
        random = Random(seed)
        load = RandomLoad(stage, random)
        tasks = []
        for number in range(200):
            tasks.append(asyncio.create_task(load.work(number)))
            await ticks(random.choice((0, 0, 0, 1, 4)))
        await asyncio.gather(*tasks)
        kept = sum(amount for user, amount in load.kept.values() if user == "user-1")

        assert kept == stage.counted() == CAPACITY - await stage.left()
        assert all(status.available < status.requested for error in load.rejections for status in error.violations)


@pytest.mark.parametrize("seed", range(15))
async def test_cancelling_all_tasks_credits_everything(seed):
    """Whether they waited, were in flight, or held their lease."""
    async with staged(limits=[RPM]) as stage:
        random = Random(seed)

        async def hold():
            async with stage.remote.acquire("user-1", "gpt-4", {"rpm": 2}):
                await asyncio.Event().wait()

        tasks = []
        for _ in range(100):
            tasks.append(asyncio.create_task(hold()))
            await ticks(random.choice((0, 0, 1, 3, 7)))
            if random.random() < 0.5:
                random.choice(tasks).cancel()
        for task in tasks:
            task.cancel()
        async with asyncio.timeout(300):
            await ended(tasks)

        assert (0, CAPACITY) == (stage.counted(), await stage.left())


class TestCascade:
    @pytest.fixture
    async def stage(self):
        async with staged(limits=[Limit.per_minute("rpm", 1_000)]) as made:
            await made.repo.create_entity("org")
            for number in range(CHILDREN):
                await made.repo.create_entity(f"child-{number}", parent_id="org", cascade=True)
            yield made

    async def all_take(self, stage, amount):
        tasks = [asyncio.create_task(take(stage.remote, amount, f"child-{number}")) for number in range(CHILDREN)]
        return await ended(tasks)

    def children(self, stage):
        return sum(stage.counted(entity_id=f"child-{number}") for number in range(CHILDREN))

    async def test_concurrent_children_share_few_writes_of_their_parent(self, stage):
        """Each child has its own write; the parent has one for many."""
        await self.all_take(stage, 1)
        stage.table.drain()
        await self.all_take(stage, 2)
        writes = stage.table.writes

        assert CHILDREN == sum("child-" in pk for pk in writes)
        assert sum("org#" in pk for pk in writes) <= 8
        assert 3 * CHILDREN == stage.counted(entity_id="org") == self.children(stage)

    async def test_children_rejected_by_their_parent_keep_no_tokens(self, stage):
        """As many are admitted as the parent has tokens for."""
        await self.all_take(stage, 1)
        ends = await self.all_take(stage, 100)
        admitted = (1_000 - CHILDREN) // 100

        assert admitted == ends.count(None)
        assert {None, RateLimitExceeded} == set(ends)
        assert CHILDREN + 100 * admitted == stage.counted(entity_id="org") == self.children(stage)

    async def test_requests_of_children_and_of_the_parent_share_the_parents_tokens(self, stage):
        """The parent's bucket counts both."""
        await self.all_take(stage, 1)
        tasks = [asyncio.create_task(take(stage.remote, 30, f"child-{n}")) for n in range(20)]
        tasks += [asyncio.create_task(take(stage.remote, 30, "org")) for _ in range(20)]
        ends = await ended(tasks)

        assert (1_000 - CHILDREN) // 30 == ends.count(None)
        assert CHILDREN + 30 * ends.count(None) == stage.counted(entity_id="org")
        assert CHILDREN + 30 * ends[:20].count(None) == self.children(stage)

    async def test_parent_with_fewer_limits_is_debited_for_the_common_limits(self, stage):
        """Other limits of the children are not sent to it."""
        limits = [Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 1_000)]
        for number in range(8):
            await stage.repo.set_limits(f"child-{number}", limits, resource="gpt-4")

        async def work(number):
            consume = {"rpm": 1, "tpm": 10}
            async with stage.remote.acquire(f"child-{number}", "gpt-4", consume) as lease:
                await lease.adjust(tpm=5, rpm=1)

        for _ in range(2):
            assert [None] * 8 == await ended([asyncio.create_task(work(number)) for number in range(8)])
        assert 2 * 8 * 2 == stage.counted(entity_id="org")
        assert [30] * 8 == [stage.counted("tpm", f"child-{number}") for number in range(8)]

    @pytest.mark.parametrize("seed", range(12))
    @pytest.mark.parametrize("warm", [True, False])
    async def test_child_and_parent_agree_after_random_cancellations(self, stage, seed, warm):
        """Whatever was taken is credited to both."""
        random = Random(seed)
        if warm:
            await self.all_take(stage, 1)
        tasks = []
        for number in range(CHILDREN):
            entity_id = f"child-{random.randrange(12)}" if random.random() < 0.3 else f"child-{number}"
            tasks.append(asyncio.create_task(take(stage.remote, random.randint(1, 40), entity_id)))
            await ticks(random.choice((0, 0, 1, 4)))
            for _ in range(2):
                random.choice(tasks[-8:]).cancel()
        async with asyncio.timeout(300):
            await ended(tasks)

        assert self.children(stage) == stage.counted(entity_id="org") <= 1_000

    async def test_cold_and_warm_children_agree_with_their_parent(self, stage):
        """Whether both were taken in one transaction or each by itself."""
        limiter = RateLimiter(stage.remote_repo)
        await take(limiter, 1, "child-0")
        with contextlib.suppress(RateLimitExceeded):
            await asyncio.gather(*(take(limiter, 1, f"child-{number % 8}") for number in range(64)))

        assert 65 == self.children(stage) == stage.counted(entity_id="org")
