"""The cases whose cost is documented, each as a few calls, of which the last ones are measured.

``test_cost`` checks the costs and ``bench/costs.py`` prints them, so that no figure is written by
hand.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.dynamodb.engines import Engine, fresh_table_name
from tests.dynamodb.spending import OPENINGS, CostLedger, FixedServerClock, MeteredClient, MeteredTable
from zae_limiter import Limit, RateLimitExceeded, usd
from zae_limiter.schema.bucket_item import bucket_key

ENTITY, PARENT = "5f0c6b3e-8a1d-4c57-9e42-d1b7a9036c28", "c9a4e7d2-16f8-4b0e-a35c-7d2e90b1f486"
RESOURCE = "openai/gpt-4o"
LONG_RESOURCE = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-5-haiku-20241022-v1:0"
"""The ARN of an inference profile, of 100 characters."""
LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


class CostScenario:
    """A measured client, other clients of the same table, and their shared clock."""

    def __init__(self, engine: Engine, tree: str) -> None:
        self._table = MeteredTable(engine.url, fresh_table_name(), FixedServerClock())
        self._open = OPENINGS[tree]
        self._opened: list[MeteredClient] = []

    async def begin(self, *, speculative_writes: bool = True) -> None:
        """Store limits, and open the measured client."""
        self.others = await self._client()
        await self.others.limiter.set_system_defaults(LIMITS)
        self.client = await self._client(speculative_writes=speculative_writes)

    async def _client(self, **options: Any) -> MeteredClient:
        opened = await self._open(self._table, **options)
        self._opened.append(opened)
        return opened

    async def end(self) -> None:
        """Close all clients."""
        for opened in self._opened:
            await opened.table.close()

    def measure(self, *meeting: int) -> None:
        """Start measuring; this many of the first writes are made at the same time, then of the next ones."""
        self.client.ledger.begin(*meeting)

    def stop_measuring(self) -> None:
        """Stop measuring."""
        self.client.ledger.end()

    def advance_to_half_a_minute(self) -> int:
        """Advance the time to the middle of a minute, and return the minute of the hour."""
        self.advance((30_000 - self._table.server.time_ms) % 60_000)
        return self._table.server.time_ms // 60_000 % 60

    def advance(self, milliseconds: int) -> None:
        """Advance the time."""
        self._table.server.time_ms += milliseconds

    async def take(self, entity_id: str = ENTITY, **consume: int) -> None:
        """Take and keep tokens with the measured client."""
        await _take(self.client, entity_id, consume)

    async def others_take(self, entity_id: str = ENTITY, **consume: int) -> None:
        """Take and keep tokens with another client."""
        await _take(self.others, entity_id, consume)

    async def rejected(self, **consume: int) -> None:
        """Request more tokens than available with the measured client."""
        try:
            await self.take(**consume)
        except RateLimitExceeded:
            return
        raise AssertionError("it was admitted")

    async def create_family(self) -> None:
        """Create an entity that cascades to its parent."""
        await self.others.limiter.create_entity(PARENT)
        await self.others.limiter.create_entity(ENTITY, parent_id=PARENT, cascade=True)

    async def remove_bucket(self) -> None:
        """Delete the bucket, as its expiry would."""
        namespace = await self.others.limiter.get_namespace("default")
        await self.others.table.batch_delete([bucket_key(namespace.id, ENTITY, RESOURCE)])


async def _take(client: MeteredClient, entity_id: str, consume: dict[str, int], resource: str = RESOURCE) -> None:
    async with client.limiter.acquire(entity_id, resource, consume):
        pass


async def admitted(scenario: CostScenario) -> None:
    await scenario.take(rpm=1)
    await scenario.take(rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def admitted_after_refill(scenario: CostScenario) -> None:
    await scenario.take(rpm=10, tpm=3_000)
    scenario.advance(5_000)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def admitted_from_full(scenario: CostScenario) -> None:
    await scenario.take(rpm=1)
    scenario.advance(40_000)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def admitted_by_a_large_bucket(scenario: CostScenario) -> None:
    many = [Limit.per_minute(f"limit-{letter}", 1_000) for letter in "abcdefghijkl"]
    await scenario.others.limiter.set_limits(ENTITY, many)
    await scenario.take(**{many[0].name: 1})
    scenario.measure()
    await scenario.take(**{many[0].name: 1})


async def admitted_by_a_long_resource(scenario: CostScenario) -> None:
    await _take(scenario.client, ENTITY, {"rpm": 1}, LONG_RESOURCE)
    await _take(scenario.client, ENTITY, {"rpm": 1}, LONG_RESOURCE)
    scenario.measure()
    await _take(scenario.client, ENTITY, {"rpm": 1, "tpm": 500}, LONG_RESOURCE)


async def view_was_off(scenario: CostScenario) -> None:
    await scenario.take(rpm=1, tpm=1)
    scenario.advance(30_000)
    await scenario.others_take(rpm=1, tpm=1_000)
    scenario.measure()
    await scenario.take(rpm=1, tpm=1)


async def first_touch_cached(scenario: CostScenario) -> None:
    await scenario.others_take(rpm=1)
    await scenario.client.limiter.resolve_limits(ENTITY, RESOURCE)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def first_touch_not_cached(scenario: CostScenario) -> None:
    await scenario.others_take(rpm=1)
    await scenario.take("somebody-else", rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def first_call_of_a_client(scenario: CostScenario) -> None:
    await scenario.others_take(rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def limits_read_again(scenario: CostScenario) -> None:
    await scenario.take("somebody-else", rpm=1)
    await scenario.take(rpm=1)
    scenario.advance(60_000)
    await scenario.take("somebody-else", rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def create_cached(scenario: CostScenario) -> None:
    await scenario.client.limiter.resolve_limits(ENTITY, RESOURCE)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def create_for_a_long_resource(scenario: CostScenario) -> None:
    await scenario.client.limiter.resolve_limits(ENTITY, LONG_RESOURCE)
    scenario.measure()
    await _take(scenario.client, ENTITY, {"rpm": 1, "tpm": 500}, LONG_RESOURCE)


async def create_not_cached(scenario: CostScenario) -> None:
    await scenario.take("somebody-else", rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def rejected_fresh(scenario: CostScenario) -> None:
    await scenario.take(tpm=6_000)
    scenario.advance(900)
    scenario.measure()
    await scenario.rejected(tpm=6_000)


async def rejected_stale(scenario: CostScenario) -> None:
    await scenario.take(tpm=6_000)
    scenario.advance(1_000)
    scenario.measure()
    await scenario.rejected(tpm=6_000)


async def rejected_by_the_bucket(scenario: CostScenario) -> None:
    await scenario.take(tpm=1)
    await scenario.others_take(tpm=5_000)
    scenario.measure()
    await scenario.rejected(tpm=1_000)


async def view_says_too_little(scenario: CostScenario) -> None:
    async with scenario.others.limiter.acquire(ENTITY, RESOURCE, {"tpm": 6_000}) as lease:
        await scenario.rejected(tpm=1_000)
        await lease.release(tpm=5_000)
    scenario.advance(1_000)
    scenario.measure()
    await scenario.take(tpm=1_000)


async def looking_first(scenario: CostScenario) -> None:
    await scenario.take(rpm=1)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500)


async def adjust(scenario: CostScenario) -> None:
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        scenario.measure()


async def adjust_down(scenario: CostScenario) -> None:
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=-230)
        scenario.measure()


async def release(scenario: CostScenario) -> None:
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        scenario.measure()
        await lease.release(tpm=200)


async def roll_back(scenario: CostScenario) -> None:
    with suppress(KeyError):
        async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}):
            scenario.measure()
            raise KeyError


async def debit_to_a_missing_bucket(scenario: CostScenario) -> None:
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        await scenario.remove_bucket()
        scenario.measure()


async def cascade(scenario: CostScenario) -> None:
    await scenario.create_family()
    await scenario.take(rpm=1)
    scenario.measure(2)
    await scenario.take(rpm=1, tpm=500)


async def cascade_adjusted(scenario: CostScenario) -> None:
    await scenario.create_family()
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        scenario.measure(2)


async def cascade_refused_by_the_parent(scenario: CostScenario) -> None:
    await scenario.create_family()
    await scenario.take(rpm=1)
    await scenario.others_take(PARENT, tpm=6_000)
    scenario.measure(2)
    await scenario.rejected(tpm=500)


async def cascade_rejected_by_the_view_of_the_parent(scenario: CostScenario) -> None:
    await scenario.create_family()
    await scenario.take(rpm=1)
    await scenario.others_take(PARENT, tpm=6_000)
    await scenario.rejected(tpm=500)
    scenario.measure()
    await scenario.rejected(tpm=500)


async def looked_at(scenario: CostScenario) -> None:
    await scenario.take(rpm=1)
    scenario.measure()
    await scenario.client.limiter.available(ENTITY, RESOURCE)


async def _take_slots(scenario: CostScenario) -> None:
    """Limit concurrent use too, and create the bucket."""
    await scenario.others.limiter.set_limits(ENTITY, [*LIMITS, Limit.concurrent("slots", 20)])
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "slots": 1}):
        pass


async def slot_taken(scenario: CostScenario) -> None:
    await _take_slots(scenario)
    scenario.measure()
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500, "slots": 1}):
        scenario.stop_measuring()


async def slot_returned(scenario: CostScenario) -> None:
    await _take_slots(scenario)
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500, "slots": 1}):
        scenario.measure()


async def slot_returned_with_an_adjustment(scenario: CostScenario) -> None:
    await _take_slots(scenario)
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500, "slots": 1}) as lease:
        await lease.adjust(tpm=230)
        scenario.measure()


async def slots_rejected_fresh(scenario: CostScenario) -> None:
    await _take_slots(scenario)
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "slots": 20}):
        scenario.measure()
        await scenario.rejected(rpm=1, slots=1)
        scenario.stop_measuring()


async def slots_rejected_stale(scenario: CostScenario) -> None:
    await _take_slots(scenario)
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "slots": 20}):
        scenario.advance(200)
        scenario.measure()
        await scenario.rejected(rpm=1, slots=1)
        scenario.stop_measuring()


async def _take_from_a_quota(scenario: CostScenario) -> None:
    """Store a quota whose next period begins in half a minute, and create the bucket."""
    minute = scenario.advance_to_half_a_minute()
    spend = Limit.quota("spend", usd("500"), every="hour", starts=(minute + 1) % 60, unit="USD")
    await scenario.others.limiter.set_limits(ENTITY, [*LIMITS, spend])
    await scenario.take(rpm=1, spend=usd("1"))


async def quota_taken(scenario: CostScenario) -> None:
    await _take_from_a_quota(scenario)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500, spend=usd("0.02"))


async def quota_taken_in_a_new_period(scenario: CostScenario) -> None:
    await _take_from_a_quota(scenario)
    scenario.advance(35_000)
    scenario.measure()
    await scenario.take(rpm=1, tpm=500, spend=usd("500"))


async def quota_adjusted(scenario: CostScenario) -> None:
    await _take_from_a_quota(scenario)
    async with scenario.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "spend": usd("0.02")}) as lease:
        await lease.adjust(spend=usd("0.01"), tpm=230)
        scenario.measure()


async def quota_rejected_fresh(scenario: CostScenario) -> None:
    await _take_from_a_quota(scenario)
    await scenario.take(rpm=1, spend=usd("499"))
    scenario.measure()
    await scenario.rejected(rpm=1, spend=1)


@dataclass(frozen=True, slots=True)
class Case:
    """The description of a case, and the function that runs it."""

    title: str
    run: Callable[[CostScenario], Awaitable[None]]
    speculative_writes: bool = True


CASES = (
    Case("admitted", admitted),
    Case("admitted, tokens were refilled", admitted_after_refill),
    Case("admitted, the bucket was full again", admitted_from_full),
    Case("admitted, a bucket above 1 KB (12 limits)", admitted_by_a_large_bucket),
    Case("admitted, a resource of 100 characters", admitted_by_a_long_resource),
    Case("admitted, the view was off", view_was_off),
    Case("admitted, but the view says too little", view_says_too_little),
    Case("admitted, speculative_writes=False", looking_first, speculative_writes=False),
    Case("first touch, limits cached", first_touch_cached),
    Case("first touch, limits not cached", first_touch_not_cached),
    Case("first call of a client", first_call_of_a_client),
    Case("limits read again after the cache TTL", limits_read_again),
    Case("bucket created, limits cached", create_cached),
    Case("bucket created, limits not cached", create_not_cached),
    Case("bucket created, a resource of 100 characters", create_for_a_long_resource),
    Case("rejected, view fresh", rejected_fresh),
    Case("rejected, view stale", rejected_stale),
    Case("rejected by the bucket", rejected_by_the_bucket),
    Case("adjust up", adjust),
    Case("adjust down", adjust_down),
    Case("adjust up, the bucket is gone", debit_to_a_missing_bucket),
    Case("release", release),
    Case("rolled back by an exception", roll_back),
    Case("slots: taken with rpm and tpm", slot_taken),
    Case("slots: returned with an adjustment", slot_returned_with_an_adjustment),
    Case("slots: returned alone", slot_returned),
    Case("slots: rejected, view fresh", slots_rejected_fresh),
    Case("slots: rejected, view older than 0.15 s", slots_rejected_stale),
    Case("quota: taken with rpm and tpm", quota_taken),
    Case("quota: taken when a period begins", quota_taken_in_a_new_period),
    Case("quota: adjusted", quota_adjusted),
    Case("quota: rejected, view fresh", quota_rejected_fresh),
    Case("cascade, both admitted", cascade),
    Case("cascade, adjust", cascade_adjusted),
    Case("cascade, refused by the parent", cascade_refused_by_the_parent),
    Case("cascade, rejected by the parent's view", cascade_rejected_by_the_view_of_the_parent),
    Case("available()", looked_at),
)


async def run_case(case: Case, engine: Engine, tree: str = "async") -> CostLedger:
    """Run a case on a table of its own, and return its cost."""
    scenario = CostScenario(engine, tree)
    try:
        await scenario.begin(speculative_writes=case.speculative_writes)
        await case.run(scenario)
    finally:
        await scenario.end()
    return scenario.client.ledger
