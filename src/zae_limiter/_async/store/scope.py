"""What every store works on: one table, one namespace of it, and the client's memory of that namespace."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from random import Random
from typing import Any

from zae_limiter._async.backoff import Backoff, Pauses
from zae_limiter._async.table import Table
from zae_limiter.caches.buckets import NamespaceCaches
from zae_limiter.clock import Clock
from zae_limiter.core.settings import Settings
from zae_limiter.core.version import VersionRecord
from zae_limiter.process import renew_in_copies
from zae_limiter.runtime.aio import Parallel
from zae_limiter.schema.bucket_item import BIRTH_BITS
from zae_limiter.schema.bucket_writes import Signature

_NONCE_BITS = 60
_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Client:
    """One client of a table: what all its namespaces share; ``session`` is the caller's own, if there is one."""

    table: Table
    clock: Clock
    random: Random
    settings: Settings
    parallel: Parallel
    location: str
    nonces: "Nonces"
    caches: dict[str, NamespaceCaches] = field(default_factory=dict)
    session: Any = None

    def scope(self, namespace: str, namespace_id: str) -> "Scope":
        """Return the client's view of one namespace; its memory is shared with every other view of it."""
        caches = self.caches.get(namespace_id)
        if caches is None:
            caches = self.caches.setdefault(namespace_id, NamespaceCaches(self.settings.remembered_buckets))
        return Scope(self, namespace, namespace_id, caches)

    async def close(self) -> None:
        """Close the table, and forget every view: a rejection from memory would hide that it is closed."""
        try:
            await self.table.close()
        finally:
            for caches in list(self.caches.values()):
                caches.forget()

    def backoff(self, pauses: Pauses, until_s: float = inf) -> Backoff:
        """Return what waits between tries of this client, until a deadline if there is one."""
        return Backoff(self.clock, self.random.random, pauses, until_s)

    def draw_birth(self) -> int:
        """Return the birth number of a bucket to be created."""
        return self.random.getrandbits(BIRTH_BITS)

    def signature(self) -> Signature:
        """Return the numbers of a bucket to be created."""
        return Signature(next(self.nonces), self.draw_birth())

    def under(self, record: VersionRecord | None) -> "Client":
        """Return the same client, that behaves as the table's record asks of all."""
        if record is None or record.audit_retention_days is None:
            return self
        return replace(self, settings=replace(self.settings, audit_retention_days=record.audit_retention_days))


@dataclass(frozen=True, slots=True)
class Scope:
    """A client at work in one namespace."""

    client: Client
    namespace: str
    namespace_id: str
    caches: NamespaceCaches

    @property
    def table(self) -> Table:
        """The table."""
        return self.client.table

    @property
    def settings(self) -> Settings:
        """How the client behaves."""
        return self.client.settings

    def now_ms(self) -> int:
        """Return the time of day by the table's clock, for what is written down and for how long it is remembered.

        It is the earliest it may be: that end rises steadily while the clock is still being found out.
        """
        return self.client.table.now()[0]

    def until_s(self) -> float:
        """Return when the store must have answered what is begun now, by the clock that never goes back."""
        return self.client.clock.monotonic_s() + self.client.settings.deadline_s


class Nonces:
    """Numbers that no other write of any client has, except by chance, and the randomness of one client.

    ``current`` yields the same numbers faster, until the process is copied.
    """

    __slots__ = ("__weakref__", "_random", "_system", "current")

    def __init__(self, random: Random, system: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._system = system
        self.current: Iterator[int] = count(random.getrandbits(_NONCE_BITS))
        renew_in_copies(self)

    def __iter__(self) -> "Nonces":
        """Return the numbers themselves."""
        return self

    def __next__(self) -> int:
        """Return the next number."""
        return next(self.current)

    def renew(self, *, restored: bool) -> None:
        """Start elsewhere, and reseed what jitter and birth numbers are drawn from.

        Both come from the system: every copy of the process has inherited the same state, also of a caller's Random.
        """
        self._random.seed(self._system(_SEED_BYTES))
        self.current = count(int.from_bytes(self._system(_SEED_BYTES)) >> (8 * _SEED_BYTES - _NONCE_BITS))
