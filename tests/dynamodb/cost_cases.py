"""The cases whose cost is promised, each as a few calls of which the last are measured.

``test_cost`` checks what they cost and ``bench/costs.py`` prints it, so nobody types a figure in.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.dynamodb.engines import Engine, fresh_table_name
from tests.dynamodb.spending import OPENINGS, Ledger, Site, Spender, StandingClock
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.schema.bucket_item import bucket_key

ENTITY, PARENT = "5f0c6b3e-8a1d-4c57-9e42-d1b7a9036c28", "c9a4e7d2-16f8-4b0e-a35c-7d2e90b1f486"
RESOURCE = "openai/gpt-4o"
LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


class Scene:
    """One client whose calls are measured, others on the same table, and a clock that they share."""

    def __init__(self, engine: Engine, tree: str) -> None:
        self._site = Site(engine.url, fresh_table_name(), StandingClock())
        self._open = OPENINGS[tree]
        self._opened: list[Spender] = []

    async def begin(self, *, speculative_writes: bool = True) -> None:
        """Store limits, and open the client that is measured."""
        self.others = await self._client()
        await self.others.limiter.set_system_defaults(LIMITS)
        self.client = await self._client(speculative_writes=speculative_writes)

    async def _client(self, **options: Any) -> Spender:
        opened = await self._open(self._site, **options)
        self._opened.append(opened)
        return opened

    async def end(self) -> None:
        """Close all clients."""
        for opened in self._opened:
            await opened.table.close()

    def measure(self, *, meeting: bool = False) -> None:
        """What the client does from here on is what the case costs; ``meeting``: it begins with two calls at once."""
        self.client.ledger.begin(meeting=meeting)

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self._site.server.time_ms += milliseconds

    async def take(self, entity_id: str = ENTITY, **consume: int) -> None:
        """Take and keep, as the client that is measured."""
        await _take(self.client, entity_id, consume)

    async def others_take(self, entity_id: str = ENTITY, **consume: int) -> None:
        """Take and keep, as another client."""
        await _take(self.others, entity_id, consume)

    async def rejected(self, **consume: int) -> None:
        """Ask for what there is not, as the client that is measured."""
        try:
            await self.take(**consume)
        except RateLimitExceeded:
            return
        raise AssertionError("it was admitted")

    async def create_family(self) -> None:
        """Make an entity that cascades to its parent."""
        await self.others.limiter.create_entity(PARENT)
        await self.others.limiter.create_entity(ENTITY, parent_id=PARENT, cascade=True)

    async def remove_bucket(self) -> None:
        """Have the bucket go, as by its expiry."""
        namespace = await self.others.limiter.get_namespace("default")
        await self.others.table.batch_delete([bucket_key(namespace.id, ENTITY, RESOURCE)])


async def _take(client: Spender, entity_id: str, consume: dict[str, int]) -> None:
    async with client.limiter.acquire(entity_id, RESOURCE, consume):
        pass


async def admitted(scene: Scene) -> None:
    await scene.take(rpm=1)
    await scene.take(rpm=1)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def admitted_after_refill(scene: Scene) -> None:
    await scene.take(rpm=10, tpm=3_000)
    scene.advance(5_000)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def admitted_from_full(scene: Scene) -> None:
    await scene.take(rpm=1)
    scene.advance(40_000)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def admitted_by_a_large_bucket(scene: Scene) -> None:
    many = [Limit.per_minute(f"limit-{letter}", 1_000) for letter in "abcdefghijkl"]
    await scene.others.limiter.set_limits(ENTITY, many)
    await scene.take(**{many[0].name: 1})
    scene.measure()
    await scene.take(**{many[0].name: 1})


async def view_was_off(scene: Scene) -> None:
    await scene.take(rpm=1, tpm=1)
    scene.advance(30_000)
    await scene.others_take(rpm=1, tpm=1_000)
    scene.measure()
    await scene.take(rpm=1, tpm=1)


async def first_touch_cached(scene: Scene) -> None:
    await scene.others_take(rpm=1)
    await scene.client.limiter.resolve_limits(ENTITY, RESOURCE)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def first_touch_not_cached(scene: Scene) -> None:
    await scene.others_take(rpm=1)
    await scene.take("somebody-else", rpm=1)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def first_call_of_a_client(scene: Scene) -> None:
    await scene.others_take(rpm=1)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def limits_read_again(scene: Scene) -> None:
    await scene.take("somebody-else", rpm=1)
    await scene.take(rpm=1)
    scene.advance(60_000)
    await scene.take("somebody-else", rpm=1)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def create_cached(scene: Scene) -> None:
    await scene.client.limiter.resolve_limits(ENTITY, RESOURCE)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def create_not_cached(scene: Scene) -> None:
    await scene.take("somebody-else", rpm=1)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def rejected_fresh(scene: Scene) -> None:
    await scene.take(tpm=6_000)
    scene.advance(900)
    scene.measure()
    await scene.rejected(tpm=6_000)


async def rejected_stale(scene: Scene) -> None:
    await scene.take(tpm=6_000)
    scene.advance(1_000)
    scene.measure()
    await scene.rejected(tpm=6_000)


async def rejected_by_the_bucket(scene: Scene) -> None:
    await scene.take(tpm=1)
    await scene.others_take(tpm=5_000)
    scene.measure()
    await scene.rejected(tpm=1_000)


async def view_says_too_little(scene: Scene) -> None:
    async with scene.others.limiter.acquire(ENTITY, RESOURCE, {"tpm": 6_000}) as lease:
        await scene.rejected(tpm=1_000)
        await lease.release(tpm=5_000)
    scene.advance(1_000)
    scene.measure()
    await scene.take(tpm=1_000)


async def looking_first(scene: Scene) -> None:
    await scene.take(rpm=1)
    scene.measure()
    await scene.take(rpm=1, tpm=500)


async def adjust(scene: Scene) -> None:
    async with scene.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        scene.measure()


async def adjust_down(scene: Scene) -> None:
    async with scene.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=-230)
        scene.measure()


async def release(scene: Scene) -> None:
    async with scene.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        scene.measure()
        await lease.release(tpm=200)


async def roll_back(scene: Scene) -> None:
    with suppress(KeyError):
        async with scene.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}):
            scene.measure()
            raise KeyError


async def debit_to_a_missing_bucket(scene: Scene) -> None:
    async with scene.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        await scene.remove_bucket()
        scene.measure()


async def cascade(scene: Scene) -> None:
    await scene.create_family()
    await scene.take(rpm=1)
    scene.measure(meeting=True)
    await scene.take(rpm=1, tpm=500)


async def cascade_adjusted(scene: Scene) -> None:
    await scene.create_family()
    async with scene.client.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=230)
        scene.measure(meeting=True)


async def cascade_refused_by_the_parent(scene: Scene) -> None:
    await scene.create_family()
    await scene.take(rpm=1)
    await scene.others_take(PARENT, tpm=6_000)
    scene.measure(meeting=True)
    await scene.rejected(tpm=500)


async def cascade_rejected_by_the_view_of_the_parent(scene: Scene) -> None:
    await scene.create_family()
    await scene.take(rpm=1)
    await scene.others_take(PARENT, tpm=6_000)
    await scene.rejected(tpm=500)
    scene.measure()
    await scene.rejected(tpm=500)


async def looked_at(scene: Scene) -> None:
    await scene.take(rpm=1)
    scene.measure()
    await scene.client.limiter.available(ENTITY, RESOURCE)


@dataclass(frozen=True, slots=True)
class Case:
    """What happens, as a reader of the figures knows it, and how it is brought about."""

    title: str
    play: Callable[[Scene], Awaitable[None]]
    speculative_writes: bool = True


CASES = (
    Case("admitted", admitted),
    Case("admitted, tokens were refilled", admitted_after_refill),
    Case("admitted, the bucket was full again", admitted_from_full),
    Case("admitted, a bucket above 1 KB (12 limits)", admitted_by_a_large_bucket),
    Case("admitted, the view was off", view_was_off),
    Case("admitted, but the view says too little", view_says_too_little),
    Case("admitted, speculative_writes=False", looking_first, speculative_writes=False),
    Case("first touch, limits cached", first_touch_cached),
    Case("first touch, limits not cached", first_touch_not_cached),
    Case("first call of a client", first_call_of_a_client),
    Case("limits read again after the cache TTL", limits_read_again),
    Case("bucket created, limits cached", create_cached),
    Case("bucket created, limits not cached", create_not_cached),
    Case("rejected, view fresh", rejected_fresh),
    Case("rejected, view stale", rejected_stale),
    Case("rejected by the bucket", rejected_by_the_bucket),
    Case("adjust up", adjust),
    Case("adjust down", adjust_down),
    Case("adjust up, the bucket is gone", debit_to_a_missing_bucket),
    Case("release", release),
    Case("rolled back by an exception", roll_back),
    Case("cascade, both admitted", cascade),
    Case("cascade, adjust", cascade_adjusted),
    Case("cascade, refused by the parent", cascade_refused_by_the_parent),
    Case("cascade, rejected by the parent's view", cascade_rejected_by_the_view_of_the_parent),
    Case("available()", looked_at),
)


async def play(case: Case, engine: Engine, tree: str = "async") -> Ledger:
    """Bring a case about on a table of its own, and return what it cost."""
    scene = Scene(engine, tree)
    try:
        await scene.begin(speculative_writes=case.speculative_writes)
        await case.play(scene)
    finally:
        await scene.end()
    return scene.client.ledger
