"""The context of every store: a client of one table, and its view of one namespace with the caches."""  # generated from _async by tools/mirror.py; do not edit

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, Self

from zae_limiter._sync.backoff import Backoff, Pauses
from zae_limiter._sync.table import Table
from zae_limiter.caches.buckets import NamespaceCaches
from zae_limiter.clock import Clock
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.lazy_dataclass import dataclass, field, replace
from zae_limiter.core.location import selecting_options, stack_of
from zae_limiter.core.outcome import Cancelled, Committed, Conflict, Throttled, Unavailable
from zae_limiter.core.settings import Settings
from zae_limiter.core.version import UPGRADE, VersionRecord
from zae_limiter.process import renew_in_copies
from zae_limiter.schema.bucket_item import BIRTH_BITS
from zae_limiter.schema.bucket_writes import Signature
from zae_limiter.schema.operations import Operation

if TYPE_CHECKING:
    from zae_limiter.infra.given_options import GivenOptions
    from zae_limiter.runtime.threads import Parallel

_NONCE_BITS = 60
_SEED_BYTES = 32


class Closable:
    """The base of what is closed when its ``with`` block ends."""

    __slots__ = ()

    def close(self) -> None:
        """Release everything."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Enter."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()


class Deferring(Protocol):
    """A limiter that has put off writes."""

    def finish(self) -> None:
        """Write what was put off, and end the timer."""


class PutOff:
    """The limiters of a client that have put off writes. They are kept alive until these are written."""

    __slots__ = ("_limiters", "closed")

    def __init__(self) -> None:
        self._limiters: dict[Deferring, None] = {}
        self.closed = False

    def add(self, limiter: Deferring) -> bool:
        """Add a limiter that wants to put off writes; return False if the client is closed."""
        if not self.closed:
            self._limiters[limiter] = None
        return not self.closed

    def discard(self, limiter: Deferring) -> None:
        """Remove a limiter that has written everything."""
        self._limiters.pop(limiter, None)

    def close(self) -> None:
        """Write everything that was put off; nothing can be put off any more."""
        self.closed = True
        for limiter in list(self._limiters):
            limiter.finish()


@dataclass(frozen=True, slots=True)
class Client(Closable):
    """A client of one table, shared by all its namespaces; ``session`` is the caller's, None if not given.

    ``stack_options`` are the options of the stack that the caller set, None if it set none. ``own_thread`` makes what
    runs renewals of slots, None for a thread.
    """

    table: Table
    clock: Clock
    random: Random
    settings: Settings
    parallel: "Parallel"
    location: str
    nonces: "Nonces"
    caches: dict[str, NamespaceCaches] = field(default_factory=dict)
    session: Any = None
    stack_options: "GivenOptions | None" = None
    put_off: PutOff = field(default_factory=PutOff)
    own_thread: Callable[..., Any] | None = None

    def scope(self, namespace: str, namespace_id: str) -> "Scope":
        """Return a view of one namespace; all views of the same namespace share their caches."""
        caches = self.caches.get(namespace_id)
        if caches is None:
            # `setdefault`, because another thread may have added the caches meanwhile.
            caches = self.caches.setdefault(namespace_id, NamespaceCaches(self.settings.remembered_buckets))
        return Scope(self, namespace, namespace_id, caches)

    def close(self) -> None:
        """Write what was put off, close the table and empty the caches.

        The caches are emptied because a rejection from a cache would hide that the table is closed.
        """
        try:
            self.put_off.close()
        finally:
            self._close_table()

    def _close_table(self) -> None:
        try:
            self.table.close()
        finally:
            for caches in list(self.caches.values()):
                caches.close()

    @property
    def upgrade_command(self) -> str:
        """The command that upgrades the limiter."""
        return f"{UPGRADE}{selecting_options(self.location)}"

    def backoff(self, pauses: Pauses, until_s: float = inf) -> Backoff:
        """Return a backoff for this client, until a deadline if there is one."""
        return Backoff(self.clock, self.random.random, pauses, until_s)

    @property
    def stack_name(self) -> str | None:
        """The name of the stack, None for a file or memory."""
        return stack_of(self.location)

    def unavailable(self, cause: BaseException | None) -> RateLimiterUnavailable:
        """Return the error for a table that did not respond, with the name of the stack."""
        return RateLimiterUnavailable(cause, self.stack_name)

    def transact(
        self, operations: Sequence[Operation], purpose: str, until_s: float | None = None
    ) -> Committed | Cancelled | Conflict | Throttled:
        """Carry out all operations, or none; ``purpose`` is the beginning of the token.

        Raises:
            RateLimiterUnavailable: The table did not respond.
        """
        # A new token for each attempt: DynamoDB rejects a token that was used with other operations.
        outcome = self.table.transact(operations, f"{purpose}-{next(self.nonces)}", until_s=until_s)
        if isinstance(outcome, Unavailable):
            raise self.unavailable(outcome.cause)
        return outcome

    def draw_birth(self) -> int:
        """Return a random birth number for a bucket to be created.

        A bucket that is deleted and created again has another birth number. So a credit never reaches the wrong one.
        """
        return self.random.getrandbits(BIRTH_BITS)

    def signature(self) -> Signature:
        """Return the nonce and the birth number for a bucket to be created."""
        return Signature(next(self.nonces), self.draw_birth())

    def under(self, record: VersionRecord | None) -> "Client":
        """Return this client with the settings that the table's version record prescribes for all clients."""
        if record is None or record.audit_retention_days is None:
            return self
        return replace(self, settings=replace(self.settings, audit_retention_days=record.audit_retention_days))


@dataclass(frozen=True, slots=True)
class Scope:
    """A client's view of one namespace."""

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
        """The settings of the client."""
        return self.client.settings

    def now_ms(self) -> int:
        """Return the time of day by the table's clock, for timestamps and cache periods, in milliseconds.

        It is the lower bound of the server's time, which rises steadily while the bounds become narrower.
        """
        return self.client.table.now()[0]

    def until_s(self) -> float:
        """Return the deadline of a call that begins now, by the monotonic clock."""
        return self.client.clock.monotonic_s() + self.client.settings.deadline_s


class Nonces:
    """Unique numbers for the writes of one client: consecutive, from a random 60-bit start.

    ``current`` yields the same numbers faster, but is replaced when the process is copied.
    """

    __slots__ = ("__weakref__", "_random", "_system", "current")

    def __init__(self, random: Random, system: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._system = system
        self.current: Iterator[int] = count(random.getrandbits(_NONCE_BITS))
        renew_in_copies(self)

    def __iter__(self) -> "Nonces":
        """Return this iterator."""
        return self

    def __next__(self) -> int:
        """Return the next number."""
        return next(self.current)

    def renew(self, *, restored: bool) -> None:
        """Start from another number, and reseed the random numbers for jitter and births.

        Both use the randomness of the operating system. All copies of a process have the same state of ``Random``, so
        they would draw the same numbers.
        """
        self._random.seed(self._system(_SEED_BYTES))
        self.current = count(int.from_bytes(self._system(_SEED_BYTES)) >> (8 * _SEED_BYTES - _NONCE_BITS))
