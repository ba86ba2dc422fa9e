"""The simulated processes: clients, an administrator who changes limits, and a resharder that splits and merges.

Users of a client acquire, hold, settle, fail and are cancelled. Any process may crash at any time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests._async.shards import merge
from tests.simulation.hierarchy import Hierarchy
from tests.simulation.holdings import Holdings
from tests.simulation.invariants import Bucket, Invariants
from tests.simulation.levels import ACROSS, ALSO, BLOCK, LEVELS, MOVE, ONLY_ACROSS, RESOURCE
from tests.simulation.loop import ProcessLoop, Timeline
from tests.simulation.plan import (
    CANCEL,
    CONFIG,
    DEFER,
    HARMLESS,
    OWN,
    RESERVE,
    SHARDS,
    SKEW,
    Plan,
    Scenario,
    changed_limits,
    drawn_requests,
    plan_of,
)
from tests.simulation.port import LocalClock, Machine, Network, Port
from tests.simulation.quota_ledger import QuotaLedger
from tests.simulation.request import Requests, UserRequest
from tests.simulation.server import Server
from tests.simulation.slot_holders import SlotHolders
from tests.simulation.slot_timer import SlotTimer
from tests.simulation.stream import Stream, carry_out
from zae_limiter import ALL_RESOURCES, Also, Limit, RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter._async.store.buckets import ShardId
from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Client, Nonces
from zae_limiter.core.settings import Settings, make_settings
from zae_limiter.runtime.aio import Parallel
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter_aggregator.apply import ApplyContext
from zae_limiter_aggregator.apply import _join as join

NAMESPACE = "default"
URL = "dynamodb://simulated?region=us-east-1"

_MOST_SKEW_MS = 5 * 60_000
_MOST_DRIFT = 0.00019
_MOST_SHARDS = 8
_WITHOUT_RESERVE = 0.4
"""The share of clients without a reserve, in runs in which others have one."""
_CANCELLED_TAKING = 0.1
_LONGEST_TAKING_S = 0.02
"""Seconds. Longer than most takes from several buckets."""


class Fleet:
    """Everything that the processes of one run share."""

    def __init__(self, plan: Plan, scenario: Scenario, timeline: Timeline, server: Server) -> None:
        self.plan = plan
        self.scenario = scenario
        self.timeline = timeline
        self.server = server
        self.holdings = Holdings()
        self.invariants = Invariants(self.holdings.acted, self.holdings.forgot)
        self.hierarchy = Hierarchy(
            timeline,
            scenario.everyone if MOVE in plan.faults else (),
            scenario.everyone if ACROSS in plan.faults else (),
        )
        self.tally: Counter[str] = Counter()
        self.ports: list[Port] = []
        self.limits = scenario.limits
        self.stream = Stream()
        self.slots = SlotHolders(server.now_ms)
        self.quotas = QuotaLedger(self.holdings.acted, self.holdings.forgot)
        self.over = False
        chances = dict.fromkeys(plan.faults, scenario.chance)
        self.network = Network(chances)
        self.reliable = Network({})

    def configure(self, limits: tuple[Limit, ...]) -> None:
        """Record that these limits may be in force from now on."""
        self.invariants.known.update(
            (one.name, one.capacity * 1000, one.refill_amount * 1000, one.refill_period_seconds * 1000)
            for one in limits
        )

    def capacity(self, name: str) -> int:
        """Return the configured capacity of a limit, or its first one if it was removed."""
        across = [limit for limits in self.scenario.tree.across.values() for limit in limits]
        found = [limit.capacity for limit in (*self.limits, *self.scenario.limits, *across) if limit.name == name]
        return found[0] if found else 1


class Process:
    """One simulated process: a loop, a clock that may be wrong, a port, and a limiter."""

    def __init__(self, fleet: Fleet, name: str, network: Network, like: "Process | None" = None) -> None:
        self.fleet = fleet
        self.name = name
        self.loop: ProcessLoop = fleet.timeline.loop(name)
        self.random = fleet.plan.part(name)
        skewed = SKEW in fleet.plan.faults
        ahead_ms = self.random.randint(-_MOST_SKEW_MS, _MOST_SKEW_MS) if skewed else 0
        drift = (self.random.random() * 2 - 1) * _MOST_DRIFT if skewed else 0.0
        clock = LocalClock(fleet.timeline, ahead_ms, drift) if like is None else like.clock
        scenario = fleet.scenario
        machine = Machine(clock, self.random, scenario.deadline_s, scenario.partition_writes_per_s)
        self.port = Port(self.loop, fleet.timeline, fleet.server, network, machine)
        fleet.ports.append(self.port)
        self.clock = clock
        self.ended: asyncio.Future[None] = fleet.timeline.network.create_future()
        self.limiter: RateLimiter | None = None

    def start(self, work: Callable[["Process"], Coroutine[Any, Any, None]]) -> None:
        """Start the work of the process."""
        self._task = self.loop.create_task(self._guarded(work))

    def crash(self) -> None:
        """Stop at once. Only messages that are already in the network still arrive."""
        self.loop.crash()
        self._end()

    def slot_timer(self, due: Callable[[], Any], ended: Callable[[], Any]) -> SlotTimer:
        """Return what renews slots in simulated time, with pauses in some runs."""
        return SlotTimer(self.loop, due, self.fleet.plan.part(f"renewals of {self.name}"))

    async def open(self, settings: Settings, *, first: bool = False) -> RateLimiter:
        """Return the limiter of this process; the first process creates the namespace."""
        client = Client(self.port, self.clock, self.random, settings, Parallel(), URL, Nonces(self.random))
        client = replace(client, own_thread=self.slot_timer)
        store = NamespaceStore(client)
        namespace = await (store.register(NAMESPACE) if first else store.find(NAMESPACE))
        repository = Repository(client.scope(NAMESPACE, namespace.id), owns_table=False)
        together, speculative = self.random.random() < 0.7, self.random.random() < 0.95
        # Without group commit, a crowd may reach its deadline because other writes reshard changing the bucket.
        together = together or not self.fleet.plan.faults - HARMLESS
        reserve = None if first else self._drawn_reserve()
        self.limiter = RateLimiter(
            repository, group_commit=together, speculative_writes=speculative, priority_reserve=reserve
        )
        return self.limiter

    def _drawn_reserve(self) -> dict[int, float] | None:
        """Return what all requests of the process must leave; None if they may take everything."""
        # Separate random numbers, so that the rest of the run is the same without them.
        random = self.fleet.plan.part(f"reserve of {self.name}")
        if RESERVE not in self.fleet.plan.faults or random.random() < _WITHOUT_RESERVE:
            return None
        fraction = random.choice((0.1, 0.3, 0.5, 0.75))
        self.fleet.invariants.reserved[self.name] = fraction
        return {0: fraction}

    async def _guarded(self, work: Callable[["Process"], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(self)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
            self.fleet.timeline.fail(error)
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def client_settings(process: Process) -> Settings:
    """Return the settings of a client."""
    fleet, random = process.fleet, process.random
    scenario = fleet.scenario
    # Separate random numbers, so that the rest of the run is the same without them.
    deferring = fleet.plan.part(f"deferring of {process.name}")
    return make_settings(
        config_cache_ttl_s=scenario.cache_s,
        on_unavailable="allow" if random.random() < 0.2 else "block",
        bucket_ttl_multiplier=scenario.ttl_multiplier,
        deadline_s=scenario.deadline_s,
        reject_locally_s=scenario.reject_s,
        settle_within_s=deferring.choice((0.0, 0.05, 0.25, 0.25, 1.0)) if DEFER in fleet.plan.faults else 0.0,
    )


class Users:
    """The users of one client. Their requests arrive at random times, sometimes many at once."""

    def __init__(self, process: Process, requests: int, limiter: RateLimiter | None = None) -> None:
        self._limiter = limiter
        self._process = process
        self._fleet = process.fleet
        self.left = requests
        self._random = process.random
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Separate random numbers, so that the rest of the run is the same without them.
        cancels = {CANCEL, LEVELS} <= self._fleet.plan.faults
        self._cancelling = self._fleet.plan.part(f"cancelling of {process.name}") if cancels else None

        also = ALSO in self._fleet.plan.faults
        self._also = self._fleet.plan.part(f"also of {process.name}") if also else None

    async def work(self, process: Process) -> None:
        """Let all requests arrive, and wait until the last of them has ended."""
        scenario, plan = self._fleet.scenario, self._fleet.plan
        limiter = self._limiter or await opened(process, client_settings(process))
        requests = Requests(self._fleet, process, limiter)
        whole = plan_of(plan.seed)
        gap_s = scenario.seconds * whole.clients / drawn_requests(plan.seed)
        cancels = 0.03 if CANCEL in plan.faults else 0.0
        least, most, often = scenario.crowd
        while self.left > 0:
            await self._keep_quiet(requests)
            burst = self._random.randint(least, most) if self._random.random() < often else 1
            for _ in range(min(burst, self.left)):
                self.left -= 1
                self._begin(requests)
            if cancels and self._random.random() < cancels and self._tasks:
                self._random.choice(list(self._tasks)).cancel()
                self._fleet.tally["cancelled"] += 1
            # Two draws give small and large gaps, and sometimes a long one.
            rest_s = gap_s * 40 if self._random.random() < 0.01 else 0.0
            await asyncio.sleep(gap_s * burst * 2 * self._random.random() + rest_s * self._random.random())
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        await requests.flush()

    async def _keep_quiet(self, requests: Requests) -> None:
        """Make no requests during a quiet interval. Afterwards the client's caches are old."""
        now_s, scenario = self._fleet.timeline.now_s, self._fleet.scenario
        for begin_s, end_s in scenario.quiet_s:
            if begin_s <= now_s < end_s:
                if scenario.habits.own_before_quiet and self._random.random() < scenario.habits.own_before_quiet:
                    self._begin(requests, own=1.0)
                await asyncio.sleep(end_s - now_s + self._random.random())

    def _begin(self, requests: Requests, own: float | None = None) -> None:
        task = self._process.loop.create_task(requests.run(self._with_others(self._ask(own))))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        if self._cancelling is not None and self._cancelling.random() < _CANCELLED_TAKING:
            # While it takes from several buckets, of which some may have answered.
            self._process.loop.call_later(_LONGEST_TAKING_S * self._cancelling.random(), task.cancel)
            self._fleet.tally["taking cancelled"] += 1

    def _with_others(self, ask: UserRequest) -> UserRequest:
        """Return the request, in some runs often with requests for other entities, or for the same one again."""
        random, scenario = self._also, self._fleet.scenario
        if random is None or random.random() < 0.6:
            return ask
        also = []
        for _ in range(random.choice((1, 1, 2))):
            limit = random.choice(self._fleet.limits)
            amount = random.randint(1, max(1, min(scenario.amounts.get(limit.name, 1), limit.capacity)))
            also.append(Also(random.choice(scenario.everyone), random.choice(scenario.resources), {limit.name: amount}))
        return ask._replace(also=tuple(also))

    def _ask(self, often: float | None = None) -> UserRequest:
        """Return the next request; ``often`` replaces the usual probability that it brings its own limits."""
        random, scenario = self._random, self._fleet.scenario
        entity = random.choice(scenario.entities)
        limits = self._fleet.limits
        wanted = limits if random.random() < 0.6 else [random.choice(limits)]
        greedy = bool(scenario.habits.greedy) and random.random() < scenario.habits.greedy
        consume = {limit.name: self._most(limit) if greedy else self._amount(limit) for limit in wanted}
        resource = RESOURCE if len(scenario.resources) == 1 else random.choice(scenario.resources)
        if ACROSS in self._fleet.plan.faults and random.random() < 0.2:
            # The entity has this limit at best across resources.
            consume |= {limit.name: 1 for limit in scenario.tree.across.get(entity, ()) if limit.name == ONLY_ACROSS}
        own = None
        if scenario.habits.own_missing_one and len(limits) > 1 and random.random() < scenario.habits.own_missing_one:
            gone = random.choice(limits).name
            own = tuple(limit for limit in limits if limit.name != gone)
            self._fleet.configure(own)
            return UserRequest(entity, resource, {limit.name: consume.get(limit.name, 1) for limit in own}, own)
        if OWN in self._fleet.plan.faults and random.random() < (scenario.own if often is None else often):
            own = changed_limits(limits, random)
            self._fleet.configure(own)
        return UserRequest(entity, resource, consume, own)

    def _amount(self, limit: Limit) -> int:
        random = self._random
        usual = self._fleet.scenario.amounts.get(limit.name, 1)
        large = self._fleet.scenario.habits.large
        drawn = random.random()
        if drawn < 1 - large:
            return random.randint(0 if drawn < 0.02 else 1, max(1, min(usual, limit.capacity)))
        return random.randint(1, limit.capacity) if drawn < 1 - large / 20 else limit.capacity + 1

    def _most(self, limit: Limit) -> int:
        return limit.capacity - self._random.randint(0, limit.capacity // 8)


async def opened(process: Process, settings: Settings) -> RateLimiter:
    """Open the limiter, and retry while the store is unavailable."""
    while True:
        try:
            return await process.open(settings)
        except RateLimiterUnavailable:
            await asyncio.sleep(0.1)


async def prepare(process: Process) -> None:
    """Create the namespace, the entities and their limits."""
    scenario = process.fleet.scenario
    limiter = await process.open(make_settings(), first=True)
    process.fleet.configure(scenario.limits)
    await limiter.set_system_defaults(list(scenario.limits))
    await _prepare_tree(process.fleet, limiter)
    # Wait until no read lags behind these items.
    await asyncio.sleep(1)


async def _prepare_tree(fleet: Fleet, limiter: RateLimiter) -> None:
    """Create the entities, and their own limits."""
    tree = fleet.scenario.tree
    created = dict(tree.created())
    if {MOVE, BLOCK} & fleet.plan.faults:
        # Only what exists can be moved or blocked.
        created |= {entity: None for entity in fleet.scenario.everyone if entity not in created}
    for entity, link in created.items():
        if link is None:
            await limiter.create_entity(entity)
        else:
            await limiter.create_entity(
                entity, parent_id=link.parent_id, cascade=link.cascade, cascade_resources=link.resources
            )
    for limits in (*tree.own.values(), *tree.across.values(), tree.across_all):
        fleet.configure(limits)
    for entity, limits in tree.own.items():
        await limiter.set_limits(entity, list(limits), RESOURCE)
    for entity, limits in tree.across.items():
        await limiter.set_limits(entity, list(limits), ALL_RESOURCES)
    if tree.across_all:
        await limiter.set_resource_defaults(ALL_RESOURCES, list(tree.across_all))
    fleet.hierarchy.begin()


async def administer(process: Process) -> None:
    """Change limits now and then, at every level."""
    fleet, random = process.fleet, process.random
    if CONFIG not in fleet.plan.faults:
        return
    limiter = await opened(process, make_settings())
    owners = fleet.scenario.everyone
    for _ in range(random.randint(1, 12)):
        await asyncio.sleep(fleet.scenario.seconds / 8 * random.random())
        limits = changed_limits(fleet.limits, random)
        for kind in {limit.kind for limit in fleet.scenario.limits}:
            if not any(limit.kind == kind for limit in limits):
                # The limit was removed, and is added again.
                limits = (*limits, *(limit for limit in fleet.scenario.limits if limit.kind == kind))
        fleet.configure(limits)
        kind = random.randrange(6)
        owner = random.choice(owners)
        try:
            if kind < 2:
                await limiter.set_system_defaults(list(limits))
            elif kind == 2:
                await limiter.set_resource_defaults(RESOURCE, list(limits))
            elif kind == 3:
                await limiter.set_limits(owner, list(limits), RESOURCE)
            elif kind == 4:
                await limiter.delete_limits(owner, RESOURCE)
            else:
                await limiter.delete_resource_defaults(RESOURCE)
        except RateLimiterUnavailable:
            fleet.tally["config unchanged"] += 1
        fleet.limits = limits
        fleet.tally["config"] += 1


async def reshard(process: Process) -> None:
    """Split and merge shards now and then, whether or not there is a reason."""
    fleet, random = process.fleet, process.random
    if SHARDS not in fleet.plan.faults:
        return
    resharder = Resharder(process, await opened(process, make_settings()))
    if fleet.scenario.habits.reshard_pause_s:
        await resharder.alternate(fleet.scenario.habits.reshard_pause_s)
        return
    for _ in range(random.randint(5, 60)):
        await asyncio.sleep(fleet.scenario.seconds / 30 * random.random())
        places = [(bucket.id, number) for bucket in fleet.invariants.buckets.values() for number in bucket.shards]
        if not places:
            continue
        if fleet.scenario.habits.greedy:
            places = fleet.invariants.indebted(fleet.server.now_ms()) or places
        try:
            await resharder.act(random.choice(places))
        except (RateLimiterUnavailable, KeyError):
            fleet.tally["shards unchanged"] += 1


class Resharder:
    """Splits and merges shards by earlier reads, which other processes may have made stale."""

    def __init__(self, process: Process, limiter: RateLimiter) -> None:
        self._process = process
        self._fleet = process.fleet
        self._random = process.random
        self._client = limiter._client
        self._context = ApplyContext(Nonces(process.random), process.port.now)
        self._seen: dict[ShardId, BucketView] = {}

    async def act(self, place: ShardId) -> None:
        """Split a shard, or merge it into the shard that it was split from.

        Raises:
            RateLimiterUnavailable: The table did not answer.
            KeyError: The shard is gone.
        """
        bucket, number = place
        until_s = self._client.until_s
        if self._random.random() < 0.5:
            view = await self._view(place)
            if view is not None and view.layout.shard_count < _MOST_SHARDS:
                await self._client.shards.split(place, view, until_s())
                self._fleet.tally["splits tried"] += 1
            return
        count = self._fleet.invariants.buckets[bucket].shards[number].item["shard_count"]
        if count == 1 or number < count // 2:
            return
        if self._random.random() < 0.3:
            merged = await merge(self._client, bucket, number - count // 2, number)
        else:
            stays, goes = await self._view((bucket, number - count // 2)), await self._view(place)
            both = stays is not None and goes is not None
            merged = both and await carry_out(self._process, join(stays, goes, self._context))
        self._fleet.tally["merges"] += bool(merged)

    async def alternate(self, longest_s: float) -> None:
        """Split every bucket in two and merge it again, all the time, with pauses of at most this many seconds."""
        fleet = self._fleet
        end_s = fleet.timeline.now_s + fleet.scenario.seconds
        while fleet.timeline.now_s < end_s:
            await asyncio.sleep(longest_s * self._random.random())
            for bucket in list(fleet.invariants.buckets.values()):
                with suppress(RateLimiterUnavailable):
                    await self._split_or_merge(bucket)

    async def _split_or_merge(self, bucket: Bucket) -> None:
        client, tally = self._client, self._fleet.tally
        if len(bucket.shards) > 1:
            last = max(bucket.shards)
            half = bucket.shards[last].item["shard_count"] // 2
            tally["merges"] += await merge(client, bucket.id, last - half, last)
            return
        view = await client.buckets.look((bucket.id, 0), None, client.until_s())
        if view is not None:
            await client.shards.split((bucket.id, 0), view, client.until_s())
            tally["splits tried"] += 1

    async def _view(self, place: ShardId) -> BucketView | None:
        """Return a view of a shard, possibly an old one, and wait a while before it is used."""
        view = self._seen.get(place)
        if view is None or self._random.random() < 0.7:
            view = await self._client.buckets.look(place, None, self._client.until_s())
        if view is not None:
            self._seen[place] = view
        if self._random.random() < 0.5:
            slow = 1 if self._fleet.scenario.habits.greedy else 3
            await asyncio.sleep(2 * self._random.random() ** slow)
        return view
