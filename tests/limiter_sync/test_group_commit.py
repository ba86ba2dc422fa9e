"""Threads whose acquires of one bucket travel as one write: few writes, each lease its own, and no deadlock."""

import subprocess
import sys
import textwrap
import warnings
from random import Random

import pytest

from tests.limiter_sync.far import crowd, rejected, staged, take
from tests.limiter_sync.write_batchers import PATIENCE_S, in_thread, until
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.runtime.threads import Parallel

THREADS = 32
CHILDREN = 16


@pytest.fixture
def stage():
    with staged() as made:
        take(made.far, 0)
        made.table.drain()
        yield made


class TestOneBucket:
    def test_those_who_wait_travel_as_one(self, stage):
        """Eight writes may be under way; whoever comes then waits, and all of them go out when one returns."""
        stage.table.gate.clear()
        results = []
        for number in range(THREADS):
            results.append(in_thread(lambda: take(stage.far, 2)))
            until(lambda number=number: number < len(stage.table.writes) + waiting(stage))
        before = stage.table.drain()
        stage.table.gate.set()

        assert [{"rpm": 2}] * THREADS == [result.result(PATIENCE_S).consumed for result in results]
        assert (8, 1) == (before, stage.table.drain())
        assert (2 * THREADS, 1_000 - 2 * THREADS) == (stage.counted(), stage.left())

    def test_without_group_commit_each_request_is_a_write(self):
        """As many as there are requests."""
        with staged(together=False) as stage:
            take(stage.far, 0)
            stage.table.drain()
            crowd(lambda number: take(stage.far, 1), THREADS)

            assert (THREADS, THREADS) == (stage.table.drain(), stage.counted())

    @pytest.mark.parametrize("each", [1, 7, 400])
    def test_all_there_is_is_given_and_no_more(self, stage, each):
        """To the last request that fits."""

        def work(_):
            return sum(admitted(stage.far, each) for _ in range(1_200 // each // THREADS + 1))

        assert 1_000 // each == sum(crowd(work, THREADS))
        assert 1_000 % each == stage.left()

    def test_each_lease_adjusts_and_fails_for_itself(self, stage):
        """What it kept is what was counted."""

        def work(number):
            random, kept = Random(number), 0
            for _ in range(10):
                try:
                    with stage.far.acquire("user-1", "gpt-4", {"rpm": 4}) as lease:
                        lease.adjust(rpm=random.randint(-4, 0))
                        if random.random() < 0.3:
                            raise KeyError
                    kept += lease.consumed["rpm"]
                except (KeyError, RateLimitExceeded):
                    continue
            return kept

        assert sum(crowd(work, THREADS)) == stage.counted() == 1_000 - stage.left()

    def test_a_write_that_fails_is_told_to_all_of_it(self, stage):
        """To those who block; the others are let through, unlimited."""
        stage.table.away = True
        choices = ["block", "allow"]
        results = crowd(lambda number: take(stage.far, 1, on_unavailable=choices[number % 2]), THREADS)

        assert [RateLimiterUnavailable] * (THREADS // 2) == [type(result) for result in results[::2]]
        assert [True] * (THREADS // 2) == [lease.degraded for lease in results[1::2]]
        assert 0 == stage.counted()

    def test_what_can_never_be_admitted_harms_no_other(self):
        """Though the limits are not known when it comes."""
        with staged() as stage:
            amounts = [1, 1_001, 2, -4, 4, "8"] * 5
            results = crowd(lambda number: take(stage.far, amounts[number]), len(amounts))

            assert [ValidationError] * 15 == [type(result) for result in results[1::2]]
            assert 35 == stage.counted()

    def test_different_entities_do_not_mix(self, stage):
        """Each has its own tokens."""
        crowd(lambda number: take(stage.far, number % 4 + 1, f"user-{number % 4 + 1}"), THREADS)

        assert [8, 16, 24, 32] == [stage.counted(entity_id=f"user-{number + 1}") for number in range(4)]

    def test_an_interrupted_leader_strands_nobody(self, stage):
        """Whoever travelled with it hears that nobody knows; what comes after is served."""
        write, interrupts = stage.table.write, [KeyboardInterrupt()]

        def interrupted(operation, until_s=None):
            if interrupts:
                raise interrupts.pop()
            return write(operation, until_s)

        stage.table.write = interrupted
        results = crowd(lambda _: take(stage.far, 1), THREADS)
        kinds = {type(result).__name__ for result in results}

        assert {"KeyboardInterrupt"} <= kinds <= {"KeyboardInterrupt", "RateLimiterUnavailable", "BatchedLease"}
        assert {"rpm": 1} == take(stage.far, 1).consumed
        until(lambda: all(not batcher.busy for batcher in stage.far._client._takes.values()))


class TestCascade:
    def modes(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [Parallel("threadpool", workers=2), Parallel("serial")]

    @pytest.mark.parametrize("mode", [0, 1])
    def test_pairs_on_a_small_pool_do_not_wait_for_each_other(self, mode):
        """Sixteen threads with two workers between them, or none; child and parent agree."""
        parallel = self.modes()[mode]
        with staged(parallel=parallel) as stage:
            family(stage.repo)

            def work(number):
                random, kept = Random(number), 0
                for _ in range(8):
                    try:
                        with stage.far.acquire(f"child-{number}", "gpt-4", {"rpm": 10}) as lease:
                            lease.adjust(rpm=random.randint(-5, 0))
                        kept += lease.consumed["rpm"]
                    except RateLimitExceeded:
                        continue
                return kept

            kept = crowd(work, CHILDREN)

            assert kept == [stage.counted(entity_id=f"child-{number}") for number in range(CHILDREN)]
            assert sum(kept) == stage.counted(entity_id="org") == 1_000 - stage.left(entity_id="org")
        parallel.close()

    def test_a_parent_that_refuses_gives_the_children_back(self):
        """As many as it has tokens for are admitted."""
        with staged(limits=[Limit.per_minute("rpm", 100)]) as stage:
            family(stage.repo)
            results = crowd(lambda number: take(stage.far, 30, f"child-{number}"), CHILDREN)
            children = [stage.counted(entity_id=f"child-{number}") for number in range(CHILDREN)]

            assert CHILDREN - 3 == rejected(results)
            assert [0] * (CHILDREN - 3) + [30] * 3 == sorted(children)
            assert 90 == stage.counted(entity_id="org")


def waiting(stage):
    """Return how many wait for those that are under way."""
    return sum(len(batcher._queue) for batcher in list(stage.far._client._takes.values()))


def family(repo):
    """Make a parent and its children."""
    repo.create_entity("org")
    for number in range(CHILDREN):
        repo.create_entity(f"child-{number}", parent_id="org", cascade=True)


def admitted(limiter, amount):
    """Take and say whether that was admitted."""
    try:
        take(limiter, amount)
    except RateLimitExceeded:
        return False
    return True


GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import gevent, random
    from tests.limiter_sync.far import staged, take
    from tests.limiter_sync.test_group_commit import family
    from zae_limiter.runtime.threads import Parallel

    chance = random.Random(5)
    with staged(parallel=Parallel("gevent")) as stage:
        family(stage.repo)
        greenlets = [gevent.spawn(take, stage.far, 1, f"child-{number % 16}") for number in range(160)]
        print(len(gevent.joinall(greenlets, timeout=300)))
        children = sum(stage.counted(entity_id=f"child-{number}") for number in range(16))
        print(children, stage.counted(entity_id="org"), stage.table.drain("org") < 160)
        def quiet():
            try:
                take(stage.far, 1, "user-1")
            except Exception:
                pass
        greenlets = []
        for number in range(200):
            greenlets.append(gevent.spawn(quiet))
            if number % 5 == 0:
                gevent.sleep(0.0003)
                chance.choice(greenlets).kill(block=False)
        convoys = stage.far._client._takes
        print(len(gevent.joinall(greenlets, timeout=300)), sum(convoy.busy for convoy in convoys.values()))
        print(take(stage.far, 1, "user-1").consumed, stage.counted() <= 201)
"""


def test_greenlets_travel_together_and_strand_nobody():
    """Nested pairs too, and when some are killed."""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GREENLETS)], capture_output=True, text=True, timeout=600, check=False
    )

    assert "" == finished.stderr
    assert ["160", "160 160 True", "200 0", "{'rpm': 1} True"] == finished.stdout.splitlines()
