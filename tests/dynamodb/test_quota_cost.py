"""Quotas on a real engine: their cost, the size of an item, and the same results as in memory for the largest amounts.

The cost is measured in round trips, calls and capacity, as in ``test_cost``.
"""

from random import Random
from typing import Any

import pytest

from tests.dynamodb.billing import item_bytes
from tests.dynamodb.cost_cases import ENTITY, RESOURCE, CostScenario
from tests.dynamodb.engines import ENGINES, EngineAbsentError
from tests.dynamodb.spending import Cost
from tests.dynamodb.test_bucket_size import NAMESPACE, UUID
from tests.one_bucket import Item, stored
from tests.tables.engines import dynamo
from zae_limiter import Limit, RateLimitExceeded, usd
from zae_limiter.core import splitting
from zae_limiter.core.acquire import Progress, Rebase, Take, next_step
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.outcome import Applied
from zae_limiter.core.tracked import Refund
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_of
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.schema.operations import Key
from zae_limiter.tables.dynamodb.codec import encode_item
from zae_limiter.tables.memory import MemoryTable

UPDATE = "UpdateItem"
LONGEST_ZONE = "America/Argentina/ComodRivadavia"
SPEND = Limit.quota("spend", usd("500"), every="month", tz="Europe/Berlin", unit="USD")
LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000), SPEND]
CONSUME = {"rpm": 1, "tpm": 500, "spend": usd("0.02")}
CREATED_MS = 1_790_000_000_123
MOST = 10**15
BAND, BIRTH = 10**18, 7
OWNER = Owner(NAMESPACE, "user-1", "gpt-4")


def written(units: int) -> Cost:
    """Return the cost of writes of one unit, one after the other."""
    return Cost(units, (UPDATE,) * units, rcu=0, wcu=units, index_wcu=0)


def lease(scenario: CostScenario, consume: dict[str, int] | None = None) -> Any:
    return scenario.client.limiter.acquire(ENTITY, RESOURCE, consume or CONSUME)


async def prepared(scenario: CostScenario) -> None:
    """Store a quota, and let the client know its bucket."""
    await scenario.others.limiter.set_system_defaults(LIMITS)
    async with lease(scenario):
        pass


async def whole_lease(scenario: CostScenario) -> None:
    await prepared(scenario)
    scenario.measure()
    async with lease(scenario):
        pass


async def adjusted(scenario: CostScenario) -> None:
    await prepared(scenario)
    scenario.measure()
    async with lease(scenario) as held:
        await held.adjust(tpm=230, spend=-1_000)


async def rejected(scenario: CostScenario) -> None:
    await prepared(scenario)
    async with lease(scenario, {"spend": usd("499")}):
        pass
    scenario.measure()
    with pytest.raises(RateLimitExceeded):
        await lease(scenario, {"spend": usd("2")}).__aenter__()


class TestCost:
    async def test_take_of_requests_tokens_and_money_costs_one_write_unit(self, cost_of):
        """One round trip, no reads, and no index writes."""
        assert written(1) == await cost_of(whole_lease)

    async def test_lease_with_adjustments_costs_two_write_units(self, cost_of):
        """All adjustments are one write, whatever their kind and direction."""
        assert written(2) == await cost_of(adjusted)

    async def test_rejection_by_a_fresh_view_costs_nothing(self, cost_of):
        """Nothing is refilled before the edge."""
        assert Cost(0, (), rcu=0, wcu=0, index_wcu=0) == await cost_of(rejected)


def test_item_with_a_quota_uuids_and_the_longest_zone_is_below_one_kilobyte() -> None:
    """A take of a larger item would cost two write units."""
    limit = Limit.quota(
        "spend", MOST, every="week", tz=LONGEST_ZONE, unit="USD", enforce=False, warn_at=(0.5, 0.8, 1.0)
    )
    terms = stored(*(Limit.per_minute(name, 987_654) for name in ("rpm", "tpm")), limit, ttl=7, stamp=12_345)
    item = dict(
        bucket_writes.create(Owner(NAMESPACE, UUID, UUID), terms, {}, CREATED_MS, Signature(2**60 - 1, 2**32 - 1)).item
    )
    for name in ("rpm", "tpm"):
        item |= {f"b_{name}_tk": -987_654_321_987, f"b_{name}_tc": 987_654_321_987_654_321}
    item |= {"b_spend_qk": item["b_spend_qk"] - 987_654_321_987_654, "b_spend_tc": 987_654_321_987_654_321}
    item |= {"b_wcu_tc": 987_654_321_987, "parent_id": UUID}

    assert 0 < item_bytes(encode_item(item)) <= 1024


class Twin:
    """One bucket in memory and on an engine: each write goes to both."""

    def __init__(self, engine: Any, random: Random) -> None:
        self.memory, self.engine, self.random = MemoryTable(), engine, random
        self.keys: list[Key] = []
        self.nonce, self.applied = 0, 0

    async def write(self, *operations: Any) -> None:
        """Write to both, and compare the outcomes and all items."""
        if len(operations) == 1:
            outcome, other = self.memory.write(operations[0]), await self.engine.write(operations[0])
        else:
            self.nonce += 1
            token = f"twin-{self.random.getrandbits(60)}"
            outcome, other = self.memory.transact(list(operations)), await self.engine.transact(list(operations), token)
        assert type(outcome) is type(other)
        self.applied += isinstance(outcome, Applied)
        assert [self.memory.get(key) for key in self.keys] == await self.engine.batch_get(self.keys, consistent=True)

    def item(self, key: Key) -> Item | None:
        return self.memory.get(key)  # type: ignore[return-value] # an item in memory is a dictionary


def terms_of(random: Random, stamp: int) -> EffectiveLimits:
    every = random.choice(["hour", "day", "month"])
    limit = Limit.quota("spend", random.choice([1, 7, MOST]), every=every, enforce=random.random() < 0.8)
    return stored(Limit.per_minute("rpm", 1_000), limit, stamp=stamp)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(6))
async def test_every_row_of_a_quota_has_the_same_result_as_in_memory(engine: str, seed: int) -> None:
    """Takes, settlements, changed limits, splits and merges, up to the largest amounts."""
    try:
        table = await dynamo(engine)
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    random = Random(seed)
    twin = Twin(table, random)
    play = Play(twin, random)
    try:
        await play.begin()
        for _ in range(60):
            await play.step()
    finally:
        await table.close()

    assert 15 < twin.applied


class Play:
    """Random rows on one bucket, decided by views that may be old."""

    def __init__(self, twin: Twin, random: Random) -> None:
        self.twin, self.random = twin, random
        self.terms, self.now_ms, self.number = terms_of(random, 1), CREATED_MS, 1
        self.views: dict[int, Any] = {}

    async def begin(self) -> None:
        made = bucket_writes.create(OWNER, self.terms, {"spend": 1_000}, self.now_ms, Signature(1, BIRTH))
        self.twin.keys = [Key(made.item["PK"], made.item["SK"])]
        await self.twin.write(made)

    async def step(self) -> None:
        """Carry out one row."""
        random = self.random
        self.number += 1
        self.now_ms += random.choice([1, 1_000, 900_000, 3_600_000])
        for shard, key in enumerate(self.twin.keys):
            item = self.twin.item(key)
            if item is None:
                self.views.pop(shard, None)
            elif shard not in self.views or random.random() < 0.7:
                self.views[shard] = view_of(item, self.now_ms, None, self.terms)
        row = random.choice([self.take, self.take, self.take, self.debit, self.credit, self.change, self.reshape])
        await row(self.views[random.choice(sorted(self.views))], random.choice([1, 2, 10**6, MOST // 2, MOST]))

    @property
    def now(self) -> tuple[int, int]:
        return self.now_ms, self.now_ms

    async def take(self, view: Any, amount: int) -> None:
        """Take, or move the bucket to other limits and take."""
        asked = [(self.terms.positions["rpm"], 1_000), (self.terms.positions["spend"], amount * 1_000)]
        step = next_step(view, self.terms, asked, self.now, Progress(trust_ms=0, looked=True))
        if isinstance(step, Take):
            await self.twin.write(bucket_writes.take(view, step, self.number))
        elif isinstance(step, Rebase):
            await self.twin.write(bucket_writes.rebase(view, step.rebasing, self.number))

    async def debit(self, view: Any, amount: int) -> None:
        await self.settle(view, Settlement((("spend", amount * 1_000),), (), BIRTH))

    async def credit(self, view: Any, amount: int) -> None:
        epoch = (BAND // 2 - view.numbers[view.layout.position("spend")]) // BAND
        refund = Refund("spend", epoch, amount * 1_000, amount * 1_000)
        await self.settle(view, Settlement((), (), BIRTH, (), 0, (refund,)))

    async def settle(self, view: Any, settlement: Settlement) -> None:
        await self.twin.write(bucket_writes.settle(view, settle(view, settlement, self.now, 0), self.number))

    async def change(self, view: Any, amount: int) -> None:
        self.terms = terms_of(self.random, self.number)

    async def reshape(self, view: Any, amount: int) -> None:
        """Split the bucket, or merge its shards."""
        if len(self.twin.keys) == 1:
            halves = splitting.split(view, self.now)
            if halves is not None:
                old, new = bucket_writes.split(view, halves, self.number)
                self.twin.keys.append(Key(new.item["PK"], new.item["SK"]))
                await self.twin.write(old, new)
        elif len(self.views) == 2:
            merging = splitting.merge(self.views[0], self.views[1], self.now)
            if merging is not None:
                await self.twin.write(*bucket_writes.merge(self.views[0], self.views[1], merging, self.number))
