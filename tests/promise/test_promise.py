"""The promise for one bucket: however late clients are and whatever they have read, a limit holds.

A world of three clients and one item runs the real decisions and writes, one step at a time. Steps are drawn from a
seed (``random_run.py``) or by Hypothesis. Views may be old, clocks wrong, writes late and answers lost.

In every span that ends in a take, the use is takes + debits - credits. It is at most the largest capacity in force,
plus what the span earns, plus what clock errors and delays earn. A request that fits is never rejected, and no token is
lost.

A failing test prints ``run_random(seed, steps)``, which replays the run in Python, or a Hypothesis example.
``HYPOTHESIS_PROFILE=search`` searches longer.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.one_bucket import NOON, Client, at, stored
from tests.promise.random_run import NAMES, run_random, some_limits
from tests.promise.world import Scenario, World
from zae_limiter.core.limit import Limit

RUNS = 3 * settings().max_examples


@pytest.mark.parametrize("block", range(4))
def test_random_runs_of_one_bucket_keep_the_promise(block: int) -> None:
    """The ledger accepts every write of every seed."""
    admitted = rejected = 0
    for seed in range(block * RUNS, (block + 1) * RUNS):
        try:
            world = run_random(seed, 200)
        except AssertionError as broken:
            raise AssertionError(f"run_random({seed}, 200): {broken}") from broken
        admitted += world.admitted
        rejected += world.rejected

    assert admitted > RUNS
    assert rejected > RUNS


_clients = st.integers(0, 2)
_amounts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0, 1, 2, 3, 5, 100)), min_size=1)
_limit_sets = st.integers(0, 2**32).map(lambda seed: some_limits(Random(seed)))
_clocks = st.tuples(st.sampled_from((0, 0, 1, -3, 40)), st.sampled_from((0, 0, 2, 90))).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


class Promise(RuleBasedStateMachine):
    """One bucket, three clients, and everything that may happen to them in any order."""

    world: World

    @initialize(
        limits=_limit_sets,
        clocks=st.just(((0, 0),) * 3) | st.tuples(_clocks, _clocks, _clocks),
        delay_ms=st.sampled_from((0, 0, 5, 1_000)),
        trust_ms=st.sampled_from((0, 1_000)),
        expires=st.booleans(),
    )
    def begin(
        self,
        limits: tuple[Limit, ...],
        clocks: tuple[tuple[int, int], ...],
        delay_ms: int,
        trust_ms: int,
        expires: bool,
    ) -> None:
        self.world = World(Scenario(limits, clocks, delay_ms, trust_ms=trust_ms, expires=expires))

    @rule(who=_clients, consume=_amounts)
    def request(self, who: int, consume: dict[str, int]) -> None:
        self.world.finish(who)
        self.world.ask(who, consume)
        self.world.finish(who)

    @rule(who=_clients, consume=_amounts, own=st.none() | _limit_sets)
    def ask(self, who: int, consume: dict[str, int], own: tuple[Limit, ...] | None) -> None:
        self.world.ask(who, consume, own)
        self.world.decide(who)

    @precondition(lambda self: any(client.job for client in self.world.clients))
    @rule(who=_clients, fate=st.sampled_from(("answered", "answered", "lost", "crash")))
    def work(self, who: int, fate: str) -> None:
        self.world.deliver(who, fate)
        self.world.decide(who)

    @precondition(lambda self: self.world.leases)
    @rule(who=_clients, which=st.integers(0, 99), part=st.integers(0, 4), finish=st.booleans())
    def give_back(self, who: int, which: int, part: int, finish: bool) -> None:
        lease = self.world.leases[which % len(self.world.leases)]
        self.world.settle(who, lease, {name: -(held * part // 4) for name, held in lease.held.items()})
        self.world.decide(who)
        if finish:
            self.world.finish(who)

    @precondition(lambda self: self.world.leases)
    @rule(who=_clients, which=st.integers(0, 99), debit=st.integers(0, 20_000), other=st.integers(-3_000, 3_000))
    def adjust(self, who: int, which: int, debit: int, other: int) -> None:
        lease = self.world.leases.pop(which % len(self.world.leases))
        first, *rest = lease.held
        self.world.settle(who, lease, {first: debit, **dict.fromkeys(rest, other)})
        self.world.decide(who)

    @rule(step_ms=st.sampled_from((0, 1, 2, 7, 50, 333, 1_000, 5_000, 60_000, 3_600_000)))
    def tick(self, step_ms: int) -> None:
        self.world.tick(step_ms)

    @rule(limits=_limit_sets, expires=st.booleans())
    def configure(self, limits: tuple[Limit, ...], expires: bool) -> None:
        self.world.configure(limits, expires=expires)

    @rule(who=_clients)
    def read_config(self, who: int) -> None:
        self.world.read_config(who)

    @rule()
    def restore(self) -> None:
        self.world.restore()

    @rule(who=_clients)
    def crash(self, who: int) -> None:
        self.world.crash(who)

    @rule()
    def idle_to_expiry(self) -> None:
        self.world.idle_to_expiry()


TestPromise = Promise.TestCase
TestPromise.settings = settings(stateful_step_count=60)


@given(
    cap=st.integers(1, 40),
    rate=st.integers(1, 40),
    period_s=st.integers(1, 100),
    spent=st.integers(0, 40),
    idle_ms=st.integers(0, 10**7),
)
def test_idle_bucket_admits_its_balance_and_earnings_up_to_the_capacity(
    cap: int, rate: int, period_s: int, spent: int, idle_ms: int
) -> None:
    """However long a bucket was idle, its first burst is at most the capacity."""
    client = Client(stored(Limit("rpm", cap, rate, period_s)))
    client.request({"rpm": min(spent, cap)}, at(NOON))
    later = NOON + idle_ms
    earned = (later * rate * 1000 // (period_s * 1000)) - (NOON * rate * 1000 // (period_s * 1000))
    held = min(cap * 1000, (cap - min(spent, cap)) * 1000 + earned)

    admitted = 0
    while not client.request({"rpm": 1}, at(later)):
        admitted += 1

    assert held // 1000 == admitted


@given(first=st.integers(1, 40), rate=st.integers(1, 40), period_s=st.integers(1, 1_000), again=st.integers(1, 40))
def test_retry_is_admitted_after_the_announced_wait_and_not_earlier(
    first: int, rate: int, period_s: int, again: int
) -> None:
    """Retry-after is exact to the millisecond."""
    client = Client(stored(Limit("rpm", 40, rate, period_s)))
    client.request({"rpm": 40}, at(NOON))

    rejected = client.request({"rpm": again}, at(NOON + first))
    if rejected:
        ready_ms = NOON + first + round(rejected[0].retry_after_seconds * 1000)

        assert client.request({"rpm": again}, at(ready_ms - 1))
        assert not client.request({"rpm": again}, at(ready_ms))
