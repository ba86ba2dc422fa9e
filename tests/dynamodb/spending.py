"""Clients of a table on an engine, in both trees, and a ledger of what every call of one of them costs.

Time is the test's: the table's clock stands still until it is moved. Calls take as long as they take.
"""

import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import botocore.session

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter._async import dynamo_opening as async_opening
from zae_limiter._async import dynamo_table as async_table
from zae_limiter._async import runtime as async_runtime
from zae_limiter._async.store import namespaces as async_namespaces
from zae_limiter._async.store import scope as async_scope
from zae_limiter._sync import dynamo_opening as sync_opening
from zae_limiter._sync import dynamo_table as sync_table
from zae_limiter._sync import runtime as sync_runtime
from zae_limiter._sync.store import namespaces as sync_namespaces
from zae_limiter._sync.store import scope as sync_scope
from zae_limiter.aws.account import Account, Place
from zae_limiter.clock import SystemClock
from zae_limiter.core.settings import make_settings
from zae_limiter.tables.dynamodb import answers
from zae_limiter.tables.dynamodb.calls import Call
from zae_limiter.tables.dynamodb.wire import Answer

from tests.dynamodb.billing import Units, billed, told

DEADLINE_S = 20.0


class StandingClock:
    """A server's clock that is moved by hand, and known from the beginning."""

    known = True

    def __init__(self) -> None:
        self.time_ms = time.time_ns() // 1_000_000

    def now(self) -> tuple[int, int]:
        return self.time_ms, self.time_ms

    def signing_s(self) -> int:
        return int(time.time())

    def hear(self, date_s: int | None, sent_s: float, received_s: float) -> None:
        """Learn nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call: when it was made and answered, what it is billed by the rules, and what the engine told, if it did."""

    verb: str
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


@dataclass(slots=True)
class Ledger:
    """What a client's calls cost. ``slow_s``: how long each is held up, so that calls at the same time meet."""

    entries: list[Entry] = field(default_factory=list)
    slow_s: float = 0.0

    def enter(self, call: Call, began_s: float, answer: object) -> None:
        """Write a call down that was answered."""
        assert isinstance(answer, Answer), answer
        verb = call.target.rpartition(".")[2]
        consumed = answers.consumed_of(answer.body) if answer.status == 200 else []
        told_units = told(consumed, verb) if consumed else None
        by_rule = billed(call, answer.status, answer.body)
        self.entries.append(Entry(verb, began_s, time.monotonic(), by_rule, told_units))

    @contextmanager
    def only(self, slow_s: float = 0.0) -> Iterator[None]:
        """Keep only the calls that are made inside."""
        self.entries.clear()
        self.slow_s = slow_s
        yield
        self.slow_s = 0.0
        kept, self.entries = self.entries, []
        self.entries = kept

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
