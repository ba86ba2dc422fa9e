"""The promise over all shards of a bucket, while any client splits and merges them at any time.

The use of a span is bounded as in ``test_promise.py``. The debts of shards are added to the bound. A split or a merge
creates and loses no token.
``test_promise.py`` says how to replay a failure.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.promise.random_run import NAMES
from tests.promise.shard_random_run import run_random
from tests.promise.shard_world import ShardWorld
from tests.promise.world import Scenario
from zae_limiter.core.limit import Limit

RUNS = settings().max_examples


@pytest.mark.parametrize("block", range(2))
def test_random_runs_of_a_sharded_bucket_keep_the_promise(block: int) -> None:
    """The ledger accepts every write of every seed."""
    applied: dict[str, int] = {}
    most = 0
    for seed in range(block * RUNS, (block + 1) * RUNS):
        try:
            world = run_random(seed, 250)
        except AssertionError as broken:
            raise AssertionError(f"run_random({seed}, 250): {broken}") from broken
        most = max(most, world.most_shards)
        applied = {kind: applied.get(kind, 0) + world.applied.get(kind, 0) for kind in {*applied, *world.applied}}

    assert most == 8
    assert min(applied[kind] for kind in ("take", "across", "debit", "credit", "split", "merge", "rebase")) > RUNS // 2


_clients = st.integers(0, 2)
_shards = st.integers(0, 7)
_amounts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0, 1, 2, 3, 5, 100)), min_size=1)
_limits = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 90)).map(
    lambda one: (Limit("fast", one[0], one[1], 1), Limit("odd", one[2], 3, 7))
)
_clocks = st.tuples(st.sampled_from((0, 0, 1, -3, 40)), st.sampled_from((0, 0, 2, 90))).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


class ShardPromise(RuleBasedStateMachine):
    """One bucket, three clients, and everything that may happen to its shards in any order."""

    world: ShardWorld

    @initialize(
        limits=_limits,
        clocks=st.just(((0, 0),) * 3) | st.tuples(_clocks, _clocks, _clocks),
        delay_ms=st.sampled_from((0, 0, 5, 1_000)),
    )
    def begin(self, limits: tuple[Limit, ...], clocks: tuple[tuple[int, int], ...], delay_ms: int) -> None:
        self.world = ShardWorld(Scenario(limits, clocks, delay_ms))
        for who in range(3):
            self.world.look(who, [0])

    @rule(who=_clients, shard=_shards, consume=_amounts)
    def take(self, who: int, shard: int, consume: dict[str, int]) -> None:
        self.world.take(who, shard, consume)

    @rule(who=_clients, consume=_amounts)
    def take_across(self, who: int, consume: dict[str, int]) -> None:
        self.world.take_across(who, consume)

    @rule(who=_clients, name=st.sampled_from(NAMES), milli=st.integers(0, 30_000))
    def debit(self, who: int, name: str, milli: int) -> None:
        self.world.debit(who, name, milli)

    @rule(who=_clients, shard=_shards, name=st.sampled_from(NAMES))
    def credit(self, who: int, shard: int, name: str) -> None:
        self.world.credit(who, shard, name)

    @rule(who=_clients, shard=_shards)
    def split(self, who: int, shard: int) -> None:
        self.world.split(who, shard)

    @rule(who=_clients, shard=_shards)
    def merge(self, who: int, shard: int) -> None:
        self.world.merge(who, shard)

    @rule(who=_clients, fate=st.sampled_from(("answered", "answered", "lost")))
    def deliver(self, who: int, fate: str) -> None:
        self.world.deliver(who, fate)

    @rule(who=_clients)
    def look(self, who: int) -> None:
        self.world.look(who, range(8))

    @rule(step_ms=st.sampled_from((0, 1, 7, 50, 1_000, 60_000)))
    def tick(self, step_ms: int) -> None:
        self.world.tick(step_ms)

    @rule(limits=_limits, who=_clients)
    def configure(self, limits: tuple[Limit, ...], who: int) -> None:
        self.world.configure(limits)
        self.world.read_config(who)

    @rule(who=_clients)
    def crash(self, who: int) -> None:
        self.world.crash(who)

    @rule()
    def idle_to_expiry(self) -> None:
        self.world.idle_to_expiry()


TestShardPromise = ShardPromise.TestCase
TestShardPromise.settings = settings(stateful_step_count=60)
