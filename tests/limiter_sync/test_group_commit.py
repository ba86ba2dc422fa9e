"""Threads whose acquires of one bucket share a write: few writes, separate leases, and no deadlock."""

import subprocess
import sys
import textwrap
import warnings
from random import Random

import pytest

from tests.limiter_sync.remote import in_many_threads, rejected, staged, take
from tests.limiter_sync.write_batchers import PATIENCE_S, in_thread, until
from zae_limiter import AmountExceedsCapacityError, Limit, RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.runtime.threads import Parallel

THREADS = 32
CHILDREN = 16


@pytest.fixture
def stage():
    with staged() as made:
        take(made.remote, 0)
        made.table.drain()
        yield made


class TestOneBucket:
    def test_waiting_threads_are_sent_as_one_write(self, stage):
        """Eight writes may be in flight; later requests queue and are sent together when one returns."""
        stage.table.gate.clear()
        results = []
        for number in range(THREADS):
            results.append(in_thread(lambda: take(stage.remote, 2)))
            until(lambda number=number: number < len(stage.table.writes) + waiting(stage))
        before = stage.table.drain()
        stage.table.gate.set()

        assert [{"rpm": 2}] * THREADS == [result.result(PATIENCE_S).consumed for result in results]
        assert (8, 1) == (before, stage.table.drain())
        assert (2 * THREADS, 1_000 - 2 * THREADS) == (stage.counted(), stage.left())

    def test_threads_without_group_commit_make_one_write_each(self):
        """There are as many writes as requests."""
        with staged(together=False) as stage:
            take(stage.remote, 0)
            stage.table.drain()
            in_many_threads(lambda number: take(stage.remote, 1), THREADS)

            assert (THREADS, THREADS) == (stage.table.drain(), stage.counted())

    @pytest.mark.parametrize("each", [1, 7, 400])
    def test_threads_with_group_commit_take_exactly_the_capacity(self, stage, each):
        """All is admitted to the last request that fits."""

        def work(_):
            return sum(admitted(stage.remote, each) for _ in range(1_200 // each // THREADS + 1))

        assert 1_000 // each == sum(in_many_threads(work, THREADS))
        assert 1_000 % each == stage.left()

    def test_leases_of_threads_in_one_write_adjust_and_fail_separately(self, stage):
        """What the leases kept is what was counted."""

        def work(number):
            random, kept = Random(number), 0
            for _ in range(10):
                try:
                    with stage.remote.acquire("user-1", "gpt-4", {"rpm": 4}) as lease:
                        lease.adjust(rpm=random.randint(-4, 0))
                        if random.random() < 0.3:
                            raise KeyError
                    kept += lease.consumed["rpm"]
                except (KeyError, RateLimitExceeded):
                    continue
            return kept

        assert sum(in_many_threads(work, THREADS)) == stage.counted() == 1_000 - stage.left()

    def test_failed_group_write_raises_or_is_degraded_for_every_thread(self, stage):
        """``on_unavailable`` of each request decides."""
        stage.table.unavailable = True
        choices = ["block", "allow"]
        results = in_many_threads(lambda number: take(stage.remote, 1, on_unavailable=choices[number % 2]), THREADS)

        assert [RateLimiterUnavailable] * (THREADS // 2) == [type(result) for result in results[::2]]
        assert [True] * (THREADS // 2) == [lease.degraded for lease in results[1::2]]
        assert 0 == stage.counted()

    def test_invalid_amounts_in_a_group_do_not_affect_other_threads(self):
        """The limits are not cached when the requests start."""
        with staged() as stage:
            amounts = [1, 1_001, 2, -4, 4, "8"] * 5
            results = in_many_threads(lambda number: take(stage.remote, amounts[number]), len(amounts))

            kinds = [AmountExceedsCapacityError, ValidationError, ValidationError]
            assert kinds * 5 == [type(result) for result in results[1::2]]
            assert 35 == stage.counted()

    def test_threads_of_different_entities_are_counted_separately(self, stage):
        """Each entity has its own tokens."""
        in_many_threads(lambda number: take(stage.remote, number % 4 + 1, f"user-{number % 4 + 1}"), THREADS)

        assert [8, 16, 24, 32] == [stage.counted(entity_id=f"user-{number + 1}") for number in range(4)]

    def test_interrupted_leader_leaves_no_thread_waiting(self, stage):
        """The other requests of its batch raise unavailable, and later requests are admitted."""
        write, interrupts = stage.table.write, [KeyboardInterrupt()]

        def interrupted(operation, until_s=None):
            if interrupts:
                raise interrupts.pop()
            return write(operation, until_s)

        stage.table.write = interrupted
        results = in_many_threads(lambda _: take(stage.remote, 1), THREADS)
        kinds = {type(result).__name__ for result in results}

        assert {"KeyboardInterrupt"} <= kinds <= {"KeyboardInterrupt", "RateLimiterUnavailable", "BatchedLease"}
        assert {"rpm": 1} == take(stage.remote, 1).consumed
        until(lambda: all(not batcher.busy for batcher in stage.remote._client._takes.values()))


class TestCascade:
    def modes(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [Parallel("threadpool", workers=2), Parallel("serial")]

    @pytest.mark.parametrize("mode", [0, 1])
    def test_cascades_on_a_small_thread_pool_do_not_deadlock(self, mode):
        """Sixteen threads share two workers, or none; child and parent agree."""
        parallel = self.modes()[mode]
        with staged(parallel=parallel) as stage:
            create_children(stage.repo)

            def work(number):
                random, kept = Random(number), 0
                for _ in range(8):
                    try:
                        with stage.remote.acquire(f"child-{number}", "gpt-4", {"rpm": 10}) as lease:
                            lease.adjust(rpm=random.randint(-5, 0))
                        kept += lease.consumed["rpm"]
                    except RateLimitExceeded:
                        continue
                return kept

            kept = in_many_threads(work, CHILDREN)

            assert kept == [stage.counted(entity_id=f"child-{number}") for number in range(CHILDREN)]
            assert sum(kept) == stage.counted(entity_id="org") == 1_000 - stage.left(entity_id="org")
        parallel.close()

    def test_children_in_threads_rejected_by_their_parent_keep_no_tokens(self):
        """As many are admitted as the parent has tokens for."""
        with staged(limits=[Limit.per_minute("rpm", 100)]) as stage:
            create_children(stage.repo)
            results = in_many_threads(lambda number: take(stage.remote, 30, f"child-{number}"), CHILDREN)
            children = [stage.counted(entity_id=f"child-{number}") for number in range(CHILDREN)]

            assert CHILDREN - 3 == rejected(results)
            assert [0] * (CHILDREN - 3) + [30] * 3 == sorted(children)
            assert 90 == stage.counted(entity_id="org")


def waiting(stage):
    """Return how many requests wait for the writes in flight."""
    return sum(len(batcher._queue) for batcher in list(stage.remote._client._takes.values()))


def create_children(repo):
    """Create a parent and its children."""
    repo.create_entity("org")
    for number in range(CHILDREN):
        repo.create_entity(f"child-{number}", parent_id="org", cascade=True)


def admitted(limiter, amount):
    """Take, and return whether that was admitted."""
    try:
        take(limiter, amount)
    except RateLimitExceeded:
        return False
    return True


GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import gevent, random
    from tests.limiter_sync.remote import staged, take
    from tests.limiter_sync.test_group_commit import create_children
    from zae_limiter.runtime.threads import Parallel

    chance = random.Random(5)
    with staged(parallel=Parallel("gevent")) as stage:
        create_children(stage.repo)
        greenlets = [gevent.spawn(take, stage.remote, 1, f"child-{number % 16}") for number in range(160)]
        print(len(gevent.joinall(greenlets, timeout=300)))
        children = sum(stage.counted(entity_id=f"child-{number}") for number in range(16))
        print(children, stage.counted(entity_id="org"), stage.table.drain("org") < 160)
        def quiet():
            try:
                take(stage.remote, 1, "user-1")
            except Exception:
                pass
        greenlets = []
        for number in range(200):
            greenlets.append(gevent.spawn(quiet))
            if number % 5 == 0:
                gevent.sleep(0.0003)
                chance.choice(greenlets).kill(block=False)
        batchers = stage.remote._client._takes
        print(len(gevent.joinall(greenlets, timeout=300)), sum(batcher.busy for batcher in batchers.values()))
        print(take(stage.remote, 1, "user-1").consumed, stage.counted() <= 201)
"""


def test_greenlets_share_writes_and_none_is_left_waiting():
    """Nested cascades are included, and some greenlets are killed."""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GREENLETS)], capture_output=True, text=True, timeout=600, check=False
    )

    assert "" == finished.stderr
    assert ["160", "160 160 True", "200 0", "{'rpm': 1} True"] == finished.stdout.splitlines()
