"""Storms of tasks on one bucket, and of children under one parent: never more than there is, all accounted for."""

import asyncio
import contextlib
from random import Random

import pytest

from tests.limiter_async.far import ended, staged, take, ticks
from zae_limiter import Limit, RateLimiter, RateLimitExceeded

CAPACITY = 300
RPM = Limit.per_minute("rpm", CAPACITY)
CHILDREN = 64


class Storm:
    """Tasks that take, adjust, give back, fail and are cancelled, and what they were left with."""

    def __init__(self, stage, random):
        self.stage, self.random = stage, random
        self.kept = {}
        self.rejections = []
        self.least_left = CAPACITY

    async def work(self, number):
        random, amount = self.random, self.random.randint(0, 20)
        entity_id = f"user-{random.randrange(3) + 1}" if random.random() < 0.2 else "user-1"
        try:
            async with self.stage.far.acquire(entity_id, "gpt-4", {"rpm": amount}) as lease:
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
        """Start tasks, cancel some of them, let time pass, and wait for all; return how much has passed."""
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
async def test_in_a_storm_nothing_is_admitted_that_is_not_there(seed):
    """What was kept is what the buckets have counted, and never more than the capacity and what was earned since."""
    async with staged(limits=[RPM]) as stage:
        storm = Storm(stage, Random(seed))
        passed_ms = await storm.run(250)
        earned = CAPACITY * passed_ms // 60_000
        kept = dict.fromkeys(("user-1", "user-2", "user-3"), 0)
        for user, amount in storm.kept.values():
            kept[user] += amount

        assert storm.least_left >= 0
        # A lease that was cancelled while it settled is settled, and no longer told of.
        assert all(kept[user] <= stage.counted(entity_id=user) <= CAPACITY + earned for user in kept)
        for user in kept:
            assert CAPACITY + earned - stage.counted(entity_id=user) >= await stage.left(entity_id=user) >= 0


@pytest.mark.parametrize("seed", range(20))
async def test_in_a_storm_without_cancellations_all_is_accounted_for(seed):
    """What was kept is what was counted, to the token; what is left is the rest; who was rejected truly lacked it."""
    async with staged(limits=[RPM]) as stage:
        random = Random(seed)
        storm = Storm(stage, random)
        tasks = []
        for number in range(200):
            tasks.append(asyncio.create_task(storm.work(number)))
            await ticks(random.choice((0, 0, 0, 1, 4)))
        await asyncio.gather(*tasks)
        kept = sum(amount for user, amount in storm.kept.values() if user == "user-1")

        assert kept == stage.counted() == CAPACITY - await stage.left()
        assert all(status.available < status.requested for error in storm.rejections for status in error.violations)


@pytest.mark.parametrize("seed", range(15))
async def test_after_all_are_cancelled_everything_is_back(seed):
    """Whether they waited, led, were led or held their lease."""
    async with staged(limits=[RPM]) as stage:
        random = Random(seed)

        async def hold():
            async with stage.far.acquire("user-1", "gpt-4", {"rpm": 2}):
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
        tasks = [asyncio.create_task(take(stage.far, amount, f"child-{number}")) for number in range(CHILDREN)]
        return await ended(tasks)

    def children(self, stage):
        return sum(stage.counted(entity_id=f"child-{number}") for number in range(CHILDREN))

    async def test_children_at_once_need_few_writes_of_their_parent(self, stage):
        """One for many, once it is known; each child has its own."""
        await self.all_take(stage, 1)
        stage.table.drain()
        await self.all_take(stage, 2)
        writes = stage.table.writes

        assert CHILDREN == sum("child-" in pk for pk in writes)
        assert sum("org#" in pk for pk in writes) <= 8
        assert 3 * CHILDREN == stage.counted(entity_id="org") == self.children(stage)

    async def test_a_parent_that_refuses_gives_the_children_back(self, stage):
        """As many as it has tokens for are admitted, and the others hold nothing."""
        await self.all_take(stage, 1)
        ends = await self.all_take(stage, 100)
        admitted = (1_000 - CHILDREN) // 100

        assert admitted == ends.count(None)
        assert {None, RateLimitExceeded} == set(ends)
        assert CHILDREN + 100 * admitted == stage.counted(entity_id="org") == self.children(stage)

    async def test_those_who_ask_the_parent_itself_share_it(self, stage):
        """What children and others take of it is one sum."""
        await self.all_take(stage, 1)
        tasks = [asyncio.create_task(take(stage.far, 30, f"child-{n}")) for n in range(20)]
        tasks += [asyncio.create_task(take(stage.far, 30, "org")) for _ in range(20)]
        ends = await ended(tasks)

        assert (1_000 - CHILDREN) // 30 == ends.count(None)
        assert CHILDREN + 30 * ends.count(None) == stage.counted(entity_id="org")
        assert CHILDREN + 30 * ends[:20].count(None) == self.children(stage)

    async def test_a_parent_that_limits_only_part_is_asked_for_that(self, stage):
        """Groups of children ask for what they have in common with it."""
        limits = [Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 1_000)]
        for number in range(8):
            await stage.repo.set_limits(f"child-{number}", limits, resource="gpt-4")

        async def work(number):
            consume = {"rpm": 1, "tpm": 10}
            async with stage.far.acquire(f"child-{number}", "gpt-4", consume) as lease:
                await lease.adjust(tpm=5, rpm=1)

        for _ in range(2):
            assert [None] * 8 == await ended([asyncio.create_task(work(number)) for number in range(8)])
        assert 2 * 8 * 2 == stage.counted(entity_id="org")
        assert [30] * 8 == [stage.counted("tpm", f"child-{number}") for number in range(8)]

    @pytest.mark.parametrize("seed", range(12))
    @pytest.mark.parametrize("warm", [True, False])
    async def test_cancelled_at_any_moment_child_and_parent_agree(self, stage, seed, warm):
        """Whatever of them was taken is given back by both."""
        random = Random(seed)
        if warm:
            await self.all_take(stage, 1)
        tasks = []
        for number in range(CHILDREN):
            entity_id = f"child-{random.randrange(12)}" if random.random() < 0.3 else f"child-{number}"
            tasks.append(asyncio.create_task(take(stage.far, random.randint(1, 40), entity_id)))
            await ticks(random.choice((0, 0, 1, 4)))
            for _ in range(2):
                random.choice(tasks[-8:]).cancel()
        async with asyncio.timeout(300):
            await ended(tasks)

        assert self.children(stage) == stage.counted(entity_id="org") <= 1_000

    async def test_children_never_seen_and_others_that_are_agree_with_their_parent(self, stage):
        """Whether both were taken in one transaction or each by itself."""
        limiter = RateLimiter(stage.far_repo)
        await take(limiter, 1, "child-0")
        with contextlib.suppress(RateLimitExceeded):
            await asyncio.gather(*(take(limiter, 1, f"child-{number % 8}") for number in range(64)))

        assert 65 == self.children(stage) == stage.counted(entity_id="org")
