"""One acquire from three buckets, with every fault at every call and every await, one or two of them per run.

The three buckets are those of a key, of its user, and the one across resources of the user. The real clients take from
them, on a table in memory. Each call of the client may be answered in one of these ways:

- applied, as usual, or after other calls that were made at the same time
- after another client has taken one token, or everything
- its answer is lost, and it was applied or not
- the table is unavailable, and it was not applied

At every await, and between a write and its answer, the caller may be cancelled or the process may die. ``every_run``
tries all of that in turn; there is no randomness. Time is simulated, and so slow that nothing is earned.

What must hold afterwards, for every bucket: it never has more than at first, less what others took. If no answer was
lost and the table was always available, then an admitted request was charged to each bucket once. A bucket that occurs
twice was charged the sum. A request that failed, was cancelled or was given back was charged to none. After a crash it
may have been charged to some. A lost answer may leave a bucket with fewer tokens, but an admitted request is always
charged to each.
"""

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests._async.clients import Wrapped, buckets_in
from tests.model.choices import Choices, every_run
from tests.simulation.loop import ProcessLoop, Timeline
from tests.simulation.port import LocalClock
from zae_limiter import ALL_RESOURCES, Also, Limit, RateLimiter, RateLimiterUnavailable, Repository, ZAELimiterError
from zae_limiter._async.store.scope import PutOff
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import AcquireRequest
from zae_limiter.core.outcome import Unavailable
from zae_limiter.schema.keys import parse_bucket_pk
from zae_limiter.schema.operations import Put, Update

BUCKETS: tuple[BucketId, ...] = (("key", "api"), ("user", "api"), ("user", ALL_RESOURCES))
CAPACITY = 4
_COLLECTED_EVERY = 50
_YEAR_S = 365 * 86_400
_LIMIT = Limit.custom("rpy", CAPACITY, 1, _YEAR_S)
_SLOTS = Limit.concurrent("rpy", CAPACITY, hold_seconds=600)

USUAL, LATE, CONTENDED, REFUSED, LOST_APPLIED, LOST, UNAVAILABLE = (
    "applied",
    "applied late",
    "after another client has taken a token",
    "after another client has taken everything",
    "applied, answer lost",
    "not applied, answer lost",
    "unavailable",
)
CANCELLED, DIED = "caller cancelled", "process died"
_AFTER = (f"{CANCELLED} after the write", f"{DIED} after the write")
ADMITTED, GIVEN_BACK, FAILED = "admitted", "given back", "failed"


@dataclass(frozen=True)
class Case:
    """What is explored: the kind of client, whether it has seen the buckets, and whether the work then fails.

    ``faults`` is the largest number of faults of a run. ``settle_within_s``: settlements wait this long. ``also``: the
    acquire takes for the user too, so that two buckets occur twice. ``bypass``: nothing rejects the key. ``slots``: the
    limit is one of concurrent use, and no run is long enough to renew its slots.
    """

    name: str
    direct: bool = False
    warm: bool = True
    gives_back: bool = False
    settle_within_s: float = 0.0
    faults: int = 2
    also: bool = False
    bypass: bool = False
    slots: bool = False

    @property
    def limit(self) -> Limit:
        """The limit of every bucket."""
        return _SLOTS if self.slots else _LIMIT

    @property
    def amounts(self) -> dict[BucketId, int]:
        """What an admitted request takes from each bucket."""
        return {bucket: 2 if self.also and bucket[0] == "user" else 1 for bucket in BUCKETS}

    def __str__(self) -> str:
        return self.name


CASES = (
    Case("networked, warm"),
    Case("networked, cold", warm=False),
    Case("networked, given back", gives_back=True),
    Case("networked, given back later", gives_back=True, settle_within_s=0.25, faults=1),
    Case("networked, also", also=True),
    Case("networked, also given back", also=True, gives_back=True, faults=1),
    Case("networked, bypass", bypass=True, faults=1),
    Case("direct, warm", direct=True),
    Case("direct, cold", direct=True, warm=False),
    Case("direct, given back", direct=True, gives_back=True),
    Case("direct, also", direct=True, also=True),
    Case("direct, bypass", direct=True, bypass=True),
    Case("networked, slots", slots=True),
    Case("networked, slots given back", slots=True, gives_back=True, faults=1),
    Case("networked, slots also given back", slots=True, also=True, gives_back=True, faults=1),
    Case("direct, slots given back", direct=True, slots=True, gives_back=True),
)


@dataclass
class Result:
    """What the caller was told, and what the table counted for it of each bucket. ``lossy`` buckets had a fault."""

    case: Case
    told: str = FAILED
    died: bool = False
    charged: dict[BucketId, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    lossy: set[BucketId] = field(default_factory=set)
    left_over: int = 0
    made: bool = False

    def violation(self) -> str | None:
        """Return what must not be, None if everything is as it must be."""
        # With a bypass, use that a bucket lacks is counted without being charged.
        if self.made and not self.case.bypass:
            return "a balance and its total do not add up to the capacity"
        for bucket, charged in self.charged.items():
            if charged < 0:
                return f"{bucket} has {-charged} more than at first"
            due = self.case.amounts[bucket] if self.told == ADMITTED else 0
            if self.died or bucket in self.lossy:
                due = min(due, charged) if self.case.bypass or self.told != ADMITTED else due
                if charged < due:
                    return f"{bucket} was charged {charged} for an admitted request"
            elif charged != due:
                return f"{bucket} was charged {charged} for a request that was {self.told}"
        return f"{self.left_over} tasks never ended" if self.left_over else None


class FaultyTable(Wrapped):
    """A table whose calls are answered as chosen."""

    def __init__(self, world: "World", table: Any) -> None:
        super().__init__(table)  # type: ignore[no-untyped-call] # the base class has no annotations
        self._world = world
        self.inline = world.case.direct
        if world.case.direct:
            self.together = self

    async def get(self, key: Any, *, consistent: bool = False, until_s: float | None = None) -> Any:
        return await self._read(lambda: self.table.get(key, consistent=consistent))

    async def batch_get(self, keys: Any, *, consistent: bool = False, until_s: float | None = None) -> Any:
        return await self._read(lambda: self.table.batch_get(keys, consistent=consistent))

    async def write(self, operation: Any, until_s: float | None = None) -> Any:
        return await self._world.write(operation, lambda: self.table.write(operation))

    async def transact(self, operations: Any, token: str, *, until_s: float | None = None) -> Any:
        # Only an embedded table is sent transactions here: they create a bucket and check the namespace.
        return await self._world.write(operations[0], lambda: self.table.transact(operations, token))

    def write_now(self, operation: Any) -> None:
        """Leave every write to ``write``, which the world may delay."""

    async def update_all(self, updates: Any) -> Any:
        return await self._world.write_together(updates, lambda: self.table.together.update_all(updates))

    async def size(self) -> Any:
        return await self.table.size()

    async def _read(self, read: Callable[[], Awaitable[Any]]) -> Any:
        if not self._world.active or self._world.choices.choose(USUAL, UNAVAILABLE) == USUAL:
            await self._world.travel()
            return await read()
        raise RateLimiterUnavailable(ConnectionError("unavailable"))


class World:
    """One run: a process with a client, another client, and the table of both."""

    def __init__(self, case: Case, choices: Choices) -> None:
        self.case = case
        self.choices = choices
        self.active = False
        self.result = Result(case)
        self._timeline = Timeline()
        self._process: ProcessLoop = self._timeline.loop("client")
        self._user: asyncio.Task[None] | None = None
        self._others = dict.fromkeys(BUCKETS, 0)

    def run(self) -> Result:
        """Run the acquire, and return its result."""
        try:
            self._timeline.run(self._main())
        finally:
            self._timeline.close()
        return self.result

    async def _main(self) -> None:
        clock = LocalClock(self._timeline)
        self._repo = await Repository.open("memory://", clock=clock, random=Random(1))
        self._other = RateLimiter(self._repo)._client
        await self._repo.set_system_defaults([self.case.limit])
        await self._repo.create_entity("user")
        await self._repo.create_entity("key", parent_id="user", cascade=True)
        await self._repo.set_limits("user", [self.case.limit], ALL_RESOURCES)
        if self.case.bypass:
            await self._repo.set_bypass("key", True)
        limiter = self._limiter()
        self._ended = self._timeline.network.create_future()
        self._user = self._process.create_task(self._work(limiter))
        self._user.add_done_callback(lambda _: self._end())
        await self._ended
        if not self.result.died:
            # What was put off is written by then, and what was left behind has ended.
            await asyncio.sleep(5)
            self.result.left_over = len(asyncio.all_tasks(self._process)) if self._process.alive else 0
        for item in buckets_in(self._repo):  # type: ignore[no-untyped-call] # see above
            parsed = parse_bucket_pk(item["PK"])
            assert parsed is not None, "it is a bucket"
            bucket = parsed.entity_id, parsed.resource
            used = sum(milli for name, milli in item.items() if name.startswith("b_rpy_h") and name != "b_rpy_hs")
            used = used if self.case.slots else item["b_rpy_tc"]
            self.result.charged[bucket] = used // 1000 - self._others[bucket]
            self.result.made |= CAPACITY * 1000 != item["b_rpy_tk"] + used
        await self._repo.close()

    def _limiter(self) -> RateLimiter:
        client = self._repo.scope.client
        settings = replace(client.settings, settle_within_s=self.case.settle_within_s)
        table = FaultyTable(self, client.table)
        mine = replace(
            client, table=table, settings=settings, caches={}, random=Random(2), put_off=PutOff(), own_thread=_NoThread
        )
        scope = mine.scope(self._repo.scope.namespace, self._repo.scope.namespace_id)
        return RateLimiter(Repository(scope, owns_table=False))

    async def _work(self, limiter: RateLimiter) -> None:
        for _ in range(2 * self.case.warm):
            # Twice: only then is every bucket, and the chain, cached.
            async with limiter.acquire("key", "api", {"rpy": 0}), limiter.acquire("user", "api", {"rpy": 0}):
                pass
        self.active = True
        await _Interruptible(self, self._acquire(limiter))

    async def _acquire(self, limiter: RateLimiter) -> None:
        also = [Also("user", "api", {"rpy": 1})] if self.case.also else []
        lease = limiter.acquire("key", "api", {"rpy": 1}, also=also)
        try:
            await lease.__aenter__()
        except ZAELimiterError:
            return
        self.result.told = ADMITTED
        if self.case.gives_back:
            error = LookupError()
            self.result.told = GIVEN_BACK
            await lease.__aexit__(LookupError, error, None)

    def die(self) -> None:
        """End the process: nothing of it runs any more."""
        self.result.died = True
        self._process.crash()
        self._end()

    def cancel(self) -> None:
        """Cancel the caller."""
        assert self._user is not None, "it was started"
        self._user.cancel()

    async def travel(self) -> None:
        """Let a message travel; an embedded table has none."""
        if not self.case.direct:
            await asyncio.sleep(0.001)

    async def write(self, operation: Any, write: Callable[[], Awaitable[Any]]) -> Any:
        """Write one bucket, as chosen."""
        bucket = _bucket_of(operation)
        if bucket is None or not self.active:
            await self.travel()
            return await write()
        if self.case.direct:
            return await self._write_in_place(bucket, write)
        chosen = self.choices.choose(USUAL, LATE, CONTENDED, REFUSED, LOST_APPLIED, LOST, UNAVAILABLE, *_AFTER)
        answer = self._process.create_future()
        self._timeline.network.call_later(0.004 if chosen == LATE else 0.001, self._act, chosen, bucket, write, answer)
        return await answer

    async def write_together(self, updates: Any, write: Callable[[], Awaitable[Any]]) -> Any:
        """Write several buckets of an embedded table in one step, as chosen."""
        if not self.active:
            return await write()
        buckets = [_bucket_of(one) for one in updates]
        others = [f"{bucket} {how}" for how in (CONTENDED, REFUSED) for bucket in buckets]
        chosen = self.choices.choose(USUAL, DIED, _AFTER[1], *others)
        if chosen == DIED:
            return await self._dead()
        if chosen in others:
            bucket = buckets[others.index(chosen) % len(buckets)]
            assert bucket is not None, "only buckets are written together"
            await self._take_as_another(bucket, chosen.removeprefix(f"{bucket} "))
        outcome = await write()
        return await self._dead() if chosen == _AFTER[1] else outcome

    async def _write_in_place(self, bucket: BucketId, write: Callable[[], Awaitable[Any]]) -> Any:
        chosen = self.choices.choose(USUAL, CONTENDED, REFUSED, UNAVAILABLE, DIED, _AFTER[1])
        if chosen == DIED:
            return await self._dead()
        if chosen == UNAVAILABLE:
            self.result.lossy.add(bucket)
            return Unavailable(ConnectionError("unavailable"), ambiguous=False)
        await self._take_as_another(bucket, chosen)
        outcome = await write()
        return await self._dead() if chosen == _AFTER[1] else outcome

    async def _dead(self) -> None:
        """End the process here; the caller never continues."""
        self.die()
        await self._process.create_future()

    def _act(
        self, chosen: str, bucket: BucketId, write: Callable[[], Awaitable[Any]], answer: "asyncio.Future[Any]"
    ) -> None:
        """Let a request arrive at the table, and its answer travel back."""
        network = self._timeline.network
        _finished(self._take_as_another(bucket, chosen))
        if chosen in (LOST_APPLIED, LOST, UNAVAILABLE):
            self.result.lossy.add(bucket)
        outcome = None if chosen in (LOST, UNAVAILABLE) else _finished(write())
        if chosen == _AFTER[1]:
            self.die()
        elif chosen == _AFTER[0]:
            self.cancel()
        if chosen in (LOST_APPLIED, LOST, UNAVAILABLE):
            outcome = Unavailable(ConnectionError(chosen), ambiguous=chosen != UNAVAILABLE)
        network.call_later(0.001, lambda: None if answer.done() else answer.set_result(outcome))

    async def _take_as_another(self, bucket: BucketId, chosen: str) -> None:
        """Let another client take tokens of a bucket, if that was chosen."""
        if chosen not in (CONTENDED, REFUSED):
            return
        client, left = self._other, CAPACITY
        for item in buckets_in(self._repo):  # type: ignore[no-untyped-call] # as above
            if item["PK"].endswith(f"BUCKET#{bucket[0]}#{bucket[1]}#0"):
                left = item["b_rpy_tk"] // 1000
        amount = left if chosen == REFUSED else min(1, left)
        plan = await client.prepare(AcquireRequest(bucket, {"rpy": amount}, None, client.until_s()))
        await client.carry_out(plan)  # type: ignore[arg-type] # the bucket has these tokens
        self._others[bucket] += amount

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


class _NoThread:
    """Renews nothing: a run ends long before slots do."""

    def __init__(self, due: object, ended: object) -> None:
        pass

    def wake_in(self, seconds: float) -> bool:
        """Do nothing."""
        return True

    def stop(self) -> None:
        """Do nothing."""


class _Interruptible:
    """Await a coroutine; at each of its awaits the caller may be cancelled, or the process may die."""

    def __init__(self, world: World, coroutine: Coroutine[Any, None, None]) -> None:
        self._world = world
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, None, None]:
        world, coroutine = self._world, self._coroutine
        step: tuple[Callable[..., Any], Any] = coroutine.send, None
        while True:
            try:
                pending = step[0](step[1])
            except StopIteration:
                return
            chosen = world.choices.choose("goes on", CANCELLED, DIED)
            if chosen == CANCELLED:
                world.cancel()
            elif chosen == DIED:
                world.die()
            try:
                yield pending
            except BaseException as error:  # noqa: BLE001 - it is handed to the coroutine
                step = coroutine.throw, error
            else:
                step = coroutine.send, None


@dataclass
class Explored:
    """How many runs were made of a case, what callers were told, and the first violation with its faults."""

    case: Case
    runs: int = 0
    told: dict[str, int] = field(default_factory=dict)
    died: int = 0
    violation: str | None = None

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count:,}" for name, count in sorted(self.told.items()))
        found = "" if self.violation is None else f"\n{self.violation}"
        return f"{self.case.name:<28} {self.runs:>7,} runs: {told}, died {self.died:,}{found}"


def explore_several(case: Case, most: int | None = None) -> Explored:
    """Run a case with every combination of at most ``most`` faults, or until one violates what must hold."""
    explored = Explored(case)
    with _garbage_kept():
        for choices in every_run(case.faults if most is None else most):
            result = World(case, choices).run()
            explored.runs += 1
            explored.told[result.told] = explored.told.get(result.told, 0) + 1
            explored.died += result.died
            explored.violation = result.violation()
            if explored.violation is not None:
                explored.violation += f", after these choices of {len(choices.made)}: {'; '.join(choices.deviations)}"
                break
            if explored.runs % _COLLECTED_EVERY == 0:
                gc.collect()
    return explored


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect garbage only between two runs.

    A process that has died leaves coroutines that never began. Python warns of each when it is collected. The code that
    runs at that moment may be unable to import what a warning needs.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def _bucket_of(operation: Any) -> BucketId | None:
    """Return the bucket that an operation writes, None if it writes something else."""
    parsed = parse_bucket_pk(operation.key.pk) if isinstance(operation, Put | Update) else None
    return None if parsed is None else (parsed.entity_id, parsed.resource)


def _finished(coroutine: Any) -> Any:
    """Run a coroutine that never waits, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a table in memory never waits")
