"""Async and sync clients of a table on an engine, and a ledger of the cost of every call.

The table's clock only moves when the test advances it. The duration of calls is real.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any

import botocore.session

import zae_limiter.runtime.aio as async_runtime
import zae_limiter.runtime.threads as sync_runtime
from tests.dynamodb.billing import Units, billed, reported
from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter._async import dynamodb_table as async_table
from zae_limiter._async.store import namespaces as async_namespaces
from zae_limiter._async.store import scope as async_scope
from zae_limiter._sync import dynamodb_table as sync_table
from zae_limiter._sync.store import namespaces as sync_namespaces
from zae_limiter._sync.store import scope as sync_scope
from zae_limiter.aws.account import Account, EndpointOptions
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.tables.dynamodb import responses
from zae_limiter.tables.dynamodb.errors import ServiceFailure
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

DEADLINE_S = 120.0
MEETING_S = 60.0
POLL_S = 0.001


class FixedServerClock:
    """A server clock that the test advances; it is known from the start."""

    known = True
    suspicious = unconfirmed = False

    def __init__(self) -> None:
        self.time_ms = time.time_ns() // 1_000_000

    def now(self) -> tuple[int, int]:
        return self.time_ms, self.time_ms

    def signing_s(self) -> int:
        return int(time.time())

    def hear(self, date_s: int | None, sent_s: float, received_s: float, connection: int = 0) -> None:
        """Ignore the dates of responses."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call: its start and end, the units billed by the rules, and those the engine reported, if any."""

    verb: str
    refused: bool
    began_s: float
    ended_s: float
    billed: Units
    reported: Units | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The total cost of some calls; calls at the same time count as one round trip."""

    trips: int
    calls: tuple[str, ...]
    rcu: float
    wcu: float
    index_wcu: float


class CostLedger:
    """The cost of a client's calls while it is recorded."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._open = False
        self._meeting: tuple[int, ...] = ()
        self._arrived: list[DynamoDbCall] = []

    def begin(self, *meeting: int) -> None:
        """Start recording; this many of the first writes wait until all of them have begun, then of the next ones."""
        self._open, self._meeting = True, meeting
        self._arrived.clear()

    def end(self) -> None:
        """Stop recording."""
        self._open = False

    def meet(self, call: DynamoDbCall) -> Iterator[None]:
        """Wait for the other writes that meet, for a bounded time. Reads do not wait."""
        if "Get" in call.target:
            return
        self._arrived.append(call)
        here, end_s = len(self._arrived), time.monotonic() + MEETING_S
        complete = next((total for total in accumulate(self._meeting) if total >= here), 0)
        while len(self._arrived) < complete and time.monotonic() < end_s:
            yield

    def enter(self, call: DynamoDbCall, began_s: float, answer: object) -> None:
        """Record an answered call."""
        if self._open:
            assert isinstance(answer, HttpResponse), answer
            verb = call.target.rpartition(".")[2]
            consumed = responses.consumed_of(answer.body) if answer.status == 200 else []
            by_rule = billed(call, answer.status, answer.body)
            said = reported(consumed, verb) if consumed else None
            self.entries.append(Entry(verb, answer.status != 200, began_s, time.monotonic(), by_rule, said))

    def cost(self) -> Cost:
        """Return the cost of the calls, as the engine reports it, or by the rules if it does not."""
        units = [entry.reported or entry.billed for entry in self.entries]
        return Cost(
            _depth(self.entries),
            tuple(entry.verb for entry in sorted(self.entries, key=lambda entry: entry.began_s)),
            sum(one.read for one in units),
            sum(one.written for one in units),
            sum(sum(one.indexes.values()) for one in units),
        )


def _depth(entries: list[Entry]) -> int:
    """Return the longest chain of calls of which each began after the previous one had ended."""
    depth, end_s = 0, 0.0
    for entry in sorted(entries, key=lambda entry: entry.ended_s):
        if entry.began_s >= end_s:
            depth, end_s = depth + 1, entry.ended_s
    return depth


@dataclass(frozen=True, slots=True)
class MeteredTable:
    """A table on an engine, and its clock."""

    url: str
    table_name: str
    server: FixedServerClock

    @property
    def location(self) -> str:
        """The URL of the table."""
        return f"dynamodb://{self.table_name}?region=us-east-1&endpoint_url={self.url}"


@cache
def account_at(url: str) -> Account:
    """Return an account at an engine, which accepts any keys; it is cached because creating it is slow."""
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    return Account(EndpointOptions("any-table", "us-east-1", url, DEADLINE_S), session)


class AsyncRecorder:
    """A transport that records its calls in a ledger."""

    def __init__(self, caller: Any, ledger: CostLedger) -> None:
        self._caller = caller
        self._ledger = ledger
        self.close = caller.close

    @property
    def signer(self) -> Any:
        return self._caller.signer

    async def call(self, call: DynamoDbCall, until_s: float) -> Any:
        began_s = time.monotonic()
        for _ in self._ledger.meet(call):
            await async_runtime.sleep(POLL_S)
        answer = await self._caller.call(call, until_s)
        self._ledger.enter(call, began_s, answer)
        return answer


class SyncRecorder(AsyncRecorder):
    """The same for the sync transport."""

    def call(self, call: DynamoDbCall, until_s: float) -> Any:
        began_s = time.monotonic()
        for _ in self._ledger.meet(call):
            time.sleep(POLL_S)
        answer = self._caller.call(call, until_s)
        self._ledger.enter(call, began_s, answer)
        return answer


class AsyncAdapter:
    """A sync object with awaitable methods and an async ``acquire``, as in the async tree."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)

        async def carry_out(*arguments: Any, **options: Any) -> Any:
            return verb(*arguments, **options)

        return carry_out

    @asynccontextmanager
    async def acquire(self, *arguments: Any, **options: Any) -> AsyncIterator["AsyncAdapter"]:
        with self._inner.acquire(*arguments, **options) as lease:
            yield AsyncAdapter(lease)


@dataclass(frozen=True, slots=True)
class MeteredClient:
    """A client with caches of its own, its table, and the ledger of its calls."""

    limiter: Any
    table: Any
    ledger: CostLedger


async def open_async(metered: MeteredTable, *, speculative_writes: bool = True) -> MeteredClient:
    """Open an async client; the table is created if it does not exist."""
    clock, random, ledger = SystemClock(), Random(), CostLedger()
    caller: Any = AsyncRecorder(async_table.choose_transport(account_at(metered.url), clock, metered.server), ledger)
    patience = async_table.Patience(clock, DEADLINE_S, random.random)
    table = async_table.DynamoTable(metered.table_name, caller, metered.server, patience, meter=IgnoredMeter())
    await table.create()
    parallel, nonces = async_runtime.Parallel(), async_scope.Nonces(random)
    settings = make_settings(deadline_s=DEADLINE_S)
    client = async_scope.Client(table, clock, random, settings, parallel, metered.location, nonces)
    found = await async_namespaces.NamespaceStore(client).register("default")
    repo = Repository(client.scope("default", found.id), owns_table=True)
    return MeteredClient(RateLimiter(repo, speculative_writes=speculative_writes), table, ledger)


async def open_sync(metered: MeteredTable, *, speculative_writes: bool = True) -> MeteredClient:
    """Open a sync client; the table is created if it does not exist."""
    clock, random, ledger = SystemClock(), Random(), CostLedger()
    caller: Any = SyncRecorder(sync_table.choose_transport(account_at(metered.url), clock, metered.server), ledger)
    patience = sync_table.Patience(clock, DEADLINE_S, random.random)
    table = sync_table.DynamoTable(metered.table_name, caller, metered.server, patience, meter=IgnoredMeter())
    table.create()
    parallel, nonces = sync_runtime.Parallel(), sync_scope.Nonces(random)
    settings = make_settings(deadline_s=DEADLINE_S)
    client = sync_scope.Client(table, clock, random, settings, parallel, metered.location, nonces)
    found = sync_namespaces.NamespaceStore(client).register("default")
    repo = SyncRepository(client.scope("default", found.id), owns_table=True)
    return MeteredClient(
        AsyncAdapter(SyncRateLimiter(repo, speculative_writes=speculative_writes)), AsyncAdapter(table), ledger
    )


class IgnoredMeter:
    """Enables metering; the ledger reads the capacity from responses, together with the requests."""

    def consumed(self, action: str, capacity: list[dict[str, Any]]) -> None:
        """Count nothing."""

    def failed(self, action: str, failure: ServiceFailure) -> None:
        """Count nothing."""


OPENINGS = {"async": open_async, "sync": open_sync}
