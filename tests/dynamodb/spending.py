"""Clients of a table on an engine, in both trees, and a ledger of what every call of one of them costs.

Time is the test's: the table's clock stands still until it is moved. Calls take as long as they take.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import botocore.session

import zae_limiter.runtime.aio as async_runtime
import zae_limiter.runtime.threads as sync_runtime
from tests.dynamodb.billing import Units, billed, told
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
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

DEADLINE_S = 120.0
MEETING_S = 60.0
POLL_S = 0.001


class StandingClock:
    """A server's clock that is moved by hand, and known from the beginning."""

    known = True
    suspicious = unconfirmed = False

    def __init__(self) -> None:
        self.time_ms = time.time_ns() // 1_000_000

    def now(self) -> tuple[int, int]:
        return self.time_ms, self.time_ms

    def signing_s(self) -> int:
        return int(time.time())

    def hear(self, date_s: int | None, sent_s: float, received_s: float, connection: int = 0) -> None:
        """Learn nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call: when it was made and answered, what it is billed by the rules, and what the engine told, if it did."""

    verb: str
    refused: bool
    began_s: float
    ended_s: float
    billed: Units
    told: Units | None


@dataclass(frozen=True, slots=True)
class Cost:
    """What some calls cost together; calls at the same time are one round trip."""

    trips: int
    calls: tuple[str, ...]
    rcu: float
    wcu: float
    index_wcu: float


class Ledger:
    """What a client's calls cost, while somebody wants to know."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._open = False
        self._to_meet = 0
        self._arrived: list[DynamoDbCall] = []

    def begin(self, *, meeting: bool = False) -> None:
        """Write down what is called from now on; ``meeting`` has the first two calls wait until both have begun."""
        self._open, self._to_meet = True, 2 if meeting else 0
        self._arrived.clear()

    def meet(self, call: DynamoDbCall) -> Iterator[None]:
        """Arrive with a call; goes on while another is to be met, though not for ever."""
        self._arrived.append(call)
        end_s = time.monotonic() + MEETING_S
        while len(self._arrived) < self._to_meet and time.monotonic() < end_s:
            yield

    def enter(self, call: DynamoDbCall, began_s: float, answer: object) -> None:
        """Write a call down that was answered."""
        if self._open:
            assert isinstance(answer, HttpResponse), answer
            verb = call.target.rpartition(".")[2]
            consumed = responses.consumed_of(answer.body) if answer.status == 200 else []
            by_rule = billed(call, answer.status, answer.body)
            said = told(consumed, verb) if consumed else None
            self.entries.append(Entry(verb, answer.status != 200, began_s, time.monotonic(), by_rule, said))

    def cost(self) -> Cost:
        """What the calls cost: as the engine told, and by the rules where it cannot tell."""
        units = [entry.told or entry.billed for entry in self.entries]
        return Cost(
            _depth(self.entries),
            tuple(entry.verb for entry in sorted(self.entries, key=lambda entry: entry.began_s)),
            sum(one.read for one in units),
            sum(one.written for one in units),
            sum(sum(one.indexes.values()) for one in units),
        )


def _depth(entries: list[Entry]) -> int:
    """The longest row of calls of which each began after the one before had ended."""
    depth, end_s = 0, 0.0
    for entry in sorted(entries, key=lambda entry: entry.ended_s):
        if entry.began_s >= end_s:
            depth, end_s = depth + 1, entry.ended_s
    return depth


@dataclass(frozen=True, slots=True)
class Site:
    """A table on an engine, and the time there."""

    url: str
    table_name: str
    server: StandingClock


@cache
def account_at(url: str) -> Account:
    """Who calls an engine, which takes any keys; finding that out takes longer than most tests."""
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    return Account(EndpointOptions("any-table", "us-east-1", url, DEADLINE_S), session)


class AsyncRecorder:
    """A caller that enters its calls in a ledger."""

    def __init__(self, caller: Any, ledger: Ledger) -> None:
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
    """The same without waiting for a loop."""

    def call(self, call: DynamoDbCall, until_s: float) -> Any:
        began_s = time.monotonic()
        for _ in self._ledger.meet(call):
            time.sleep(POLL_S)
        answer = self._caller.call(call, until_s)
        self._ledger.enter(call, began_s, answer)
        return answer


class Awaited:
    """A sync object whose verbs are awaited, and whose ``acquire`` is entered, as those of the async tree."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)

        async def carry_out(*arguments: Any, **options: Any) -> Any:
            return verb(*arguments, **options)

        return carry_out

    @asynccontextmanager
    async def acquire(self, *arguments: Any) -> AsyncIterator["Awaited"]:
        with self._inner.acquire(*arguments) as lease:
            yield Awaited(lease)


@dataclass(frozen=True, slots=True)
class Spender:
    """A client with a memory of its own, its table, and the ledger of its calls."""

    limiter: Any
    table: Any
    ledger: Ledger


async def open_async(site: Site, *, speculative_writes: bool = True) -> Spender:
    """A client of the async tree; the table is made where there is none."""
    clock, random, ledger = SystemClock(), Random(), Ledger()
    caller: Any = AsyncRecorder(async_table.choose_transport(account_at(site.url), clock, site.server), ledger)
    patience = async_table.Patience(clock, DEADLINE_S, random.random)
    table = async_table.DynamoTable(site.table_name, caller, site.server, patience, meter=_hear_nothing)
    await table.create()
    parallel, nonces = async_runtime.Parallel(), async_scope.Nonces(random)
    settings = make_settings(deadline_s=DEADLINE_S)
    client = async_scope.Client(table, clock, random, settings, parallel, site.url, nonces)
    found = await async_namespaces.NamespaceStore(client).register("default")
    repo = Repository(client.scope("default", found.id), owns_table=True)
    return Spender(RateLimiter(repo, speculative_writes=speculative_writes), table, ledger)


async def open_sync(site: Site, *, speculative_writes: bool = True) -> Spender:
    """A client of the sync tree; the table is made where there is none."""
    clock, random, ledger = SystemClock(), Random(), Ledger()
    caller: Any = SyncRecorder(sync_table.choose_transport(account_at(site.url), clock, site.server), ledger)
    patience = sync_table.Patience(clock, DEADLINE_S, random.random)
    table = sync_table.DynamoTable(site.table_name, caller, site.server, patience, meter=_hear_nothing)
    table.create()
    parallel, nonces = sync_runtime.Parallel(), sync_scope.Nonces(random)
    settings = make_settings(deadline_s=DEADLINE_S)
    client = sync_scope.Client(table, clock, random, settings, parallel, site.url, nonces)
    found = sync_namespaces.NamespaceStore(client).register("default")
    repo = SyncRepository(client.scope("default", found.id), owns_table=True)
    return Spender(Awaited(SyncRateLimiter(repo, speculative_writes=speculative_writes)), Awaited(table), ledger)


def _hear_nothing(verb: str, consumed: list[dict[str, Any]]) -> None:
    """Have calls metered; the ledger reads the meter off their answers, together with what they asked."""


OPENINGS = {"async": open_async, "sync": open_sync}
