"""The table port over DynamoDB: sends requests, parses responses, and retries within the deadline.

Only requests that are safe to repeat are retried here: a read, a transaction with its token, a request that never
reached the server. After a single write whose response was lost, the caller decides.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Protocol

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.backoff import Backoff, Pauses
from zae_limiter._async.botocore_transport import BotocoreTransport
from zae_limiter._async.time_probe import TimeProbe
from zae_limiter.aws.account import Account, EndpointOptions, load_account, loaded
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable, RepositoryClosedError, ZAELimiterError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.location import DynamoLocation
from zae_limiter.core.outcome import (
    Cancelled,
    Committed,
    Conflict,
    Item,
    Missing,
    Refused,
    TransactOutcome,
    Unavailable,
    WriteOutcome,
)
from zae_limiter.core.status import BackendCapabilities
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Key, Operation, Page, Query, Write
from zae_limiter.tables.dynamodb import errors, responses
from zae_limiter.tables.dynamodb.errors import Retry, ServiceFailure
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import MOST_DELETED, MOST_READ, Calls, DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Signer
from zae_limiter.transport.aio import Transport

_log = logging.getLogger("zae_limiter")

ADMIN_FACTOR = 5
"""An admin call may take this many times the deadline of an acquire."""
_PAUSES = Pauses(0.02, 0.2)
_CONNECTING_TRIES = 3
_CREATION_S = 300.0
_INDEX_LAG_S = 5.0
_PARTITION_WRITES_PER_SECOND = 1000
_OK = 200
_SIGNED_AGAIN = 2
"""A request that was refused for its signing time is signed again at most this many times."""
_DATED = ("UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems")
"""Requests whose content depends on the time; they must not be sent again with another time."""

_UNPROCESSED = TimeoutError("DynamoDB did not process all of a batch before the deadline")
_UNCONFIRMED = Unavailable(TimeoutError("the server's time could not be confirmed"), ambiguous=False)
_UNREADY = TimeoutError(f"the table could not be used within {_CREATION_S:.0f} s")

Tried = tuple[Signer, HttpResponse | Unavailable]
"""The signer of an attempt, and its result."""


class CallMeter(Protocol):
    """Counts the calls to DynamoDB and what they consume."""

    def consumed(self, action: str, capacity: list[dict[str, Any]]) -> None:
        """Count a call that succeeded, with the capacity that DynamoDB reports."""

    def failed(self, action: str, failure: ServiceFailure) -> None:
        """Count a call that DynamoDB refused or throttled."""


class TransportPort(Protocol):
    """Sends one request, once."""

    @property
    def signer(self) -> Signer:
        """The signer of the next request."""

    async def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once."""

    async def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once, on a new connection that is closed afterwards."""

    async def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Find new credentials after the server refused those of a signer as expired."""

    async def close(self) -> None:
        """Close all connections."""


class _ClosedTransport:
    """The transport of a closed table; every use of it raises, so an open table needs no check."""

    def __init__(self, table_name: str) -> None:
        self._location = f"dynamodb://{table_name}"

    @property
    def signer(self) -> Signer:
        """Raise RepositoryClosedError."""
        raise RepositoryClosedError(self._location)

    async def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Raise RepositoryClosedError."""
        raise RepositoryClosedError(self._location)

    async def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Raise RepositoryClosedError."""
        raise RepositoryClosedError(self._location)

    async def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Raise RepositoryClosedError."""
        raise RepositoryClosedError(self._location)

    async def close(self) -> None:
        """Do nothing: the table is closed already."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The deadline of the calls of an acquire, and the factor by which admin calls may take longer."""

    clock: Clock
    deadline_s: float
    jitter: Callable[[], float]
    admin_factor: int = ADMIN_FACTOR


class DynamoTable:
    """A table of DynamoDB, or of a compatible engine."""

    capabilities = BackendCapabilities(
        supports_infrastructure_management=True,
        supports_change_streams=True,
        partition_writes_per_second=_PARTITION_WRITES_PER_SECOND,
    )
    inline = False
    index_lag_s = _INDEX_LAG_S
    log = None
    together = None

    def __init__(
        self,
        table_name: str,
        caller: TransportPort,
        server: ServerClock,
        patience: Patience,
        meter: CallMeter | None = None,
        connect: Callable[[], TransportPort] | None = None,
    ) -> None:
        self._name = table_name
        self._connect = connect
        self._caller: TransportPort = caller
        self._patience = patience
        self._monotonic_s = patience.clock.monotonic_s
        self._meter = meter
        self._calls = Calls(table_name, metered=meter is not None)
        self._server = server
        self.now: Callable[[], TimeBounds] = server.now
        self._probe = TimeProbe(caller, self._calls.get(version_item.key(), consistent=False), server, patience.clock)
        self.server_time = self._probe

    def for_thread(self) -> "DynamoTable":
        """Return the same table with connections of its own, because connections belong to one loop."""
        if self._connect is None:
            return self
        return DynamoTable(self._name, self._connect(), self._server, self._patience, self._meter)

    async def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        """Return the item, None if it does not exist."""
        answer = await self._read(self._calls.get(key, consistent), until_s)
        return responses.item_of(answer.body)

    async def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        """Return the items in the order of their keys, None for each that does not exist."""
        found: dict[Key, Item] = {}
        left = list(dict.fromkeys(keys))
        pauses = self._pauses(until_s or self._until_s())
        while left:
            some, left = left[:MOST_READ], left[MOST_READ:]
            answer = await self._read(self._calls.batch_get(some, consistent), until_s or self._until_s())
            items, unread = responses.batch_of(answer.body)
            found.update({Key(item["PK"], item["SK"]): item for item in items})
            # Without a deadline of the caller, each batch that reads something gets a new one.
            if len(unread) < len(some) and until_s is None:
                pauses = self._pauses(self._until_s())
            if unread:
                left = [*unread, *left]
                await self._pause(pauses, _UNPROCESSED)
        return [found.get(key) for key in keys]

    async def query(self, query: Query, *, until_s: float | None = None) -> Page:
        """Return one page of a partition of the table or of an index."""
        answer = await self._read(self._calls.query(query), until_s or self._admin_until_s())
        return responses.page_of(answer.body)

    async def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        """Carry out one operation if its conditions hold; it is not sent again after a lost response.

        If it was refused for its signing time, it was decided with a wrong time. It is not sent again either: the
        outcome is the stored item, and the caller decides again.
        """
        call = self._calls.write(operation)
        now_s = self._monotonic_s()
        by_s = until_s or now_s + self._patience.deadline_s
        if self._server.unconfirmed:
            confirmed = await self._probe.confirm(by_s)
            return await self._seen(operation, by_s) if confirmed else _UNCONFIRMED
        signer = self._caller.signer
        # The first attempt gets half of the time. `_send` repeats it in the other half if it never reached the server.
        first = await self._caller.call(call, (now_s + by_s) / 2)
        if isinstance(first, HttpResponse) and first.status == _OK and self._meter is None:
            if self._server.suspicious:
                self._probe.start()
            return responses.applied_of(operation, first.body)
        answer = await self._send(call, by_s, again=False, first=(signer, first))
        if isinstance(answer, HttpResponse):
            return responses.applied_of(operation, answer.body)
        if isinstance(answer, Unavailable):
            return answer
        return await self._seen(operation, by_s) if errors.clock_refused(answer) else errors.write_outcome(answer)

    async def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        """Carry out up to 100 operations, all or none; after a lost response it is sent again with its token."""
        call = self._calls.transact(operations, token)
        until_s = until_s or self._admin_until_s()
        pauses = self._pauses(until_s)
        in_doubt: Unavailable | None = None
        if self._server.unconfirmed:
            # The operations were decided before the time was known. A conflict makes the caller decide again.
            return Conflict() if await self._probe.confirm(until_s) else _UNCONFIRMED
        while True:
            answer = await self._send(call, until_s, again=False)
            outcome = _transacted(answer, len(operations))
            if isinstance(outcome, Unavailable) and outcome.ambiguous:
                in_doubt = outcome
            # After a lost response, a throttle, a conflict or a lost connection does not show what the first attempt
            # did. So the transaction is sent again until the token's result is known.
            if in_doubt is None or isinstance(outcome, Committed):
                return outcome
            if isinstance(outcome, Cancelled):
                # The lost attempt may still arrive and be carried out.
                return replace(outcome, in_doubt=True)
            if not await pauses.wait():
                return in_doubt

    async def _seen(self, operation: Write, until_s: float) -> Refused | Missing | Unavailable:
        """Return the stored item as the outcome of a write that was not carried out."""
        try:
            item = await self.get(operation.key, consistent=True, until_s=until_s)
        except RateLimiterUnavailable as error:
            return Unavailable(error.cause or error, ambiguous=False)
        return Missing() if item is None else Refused(item)

    async def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items unconditionally, not in one transaction."""
        left = list(dict.fromkeys(keys))
        pauses = self._pauses(self._admin_until_s())
        while left:
            some, left = left[:MOST_DELETED], left[MOST_DELETED:]
            answer = await self._read(self._calls.batch_delete(some), self._admin_until_s())
            undeleted = responses.undeleted_of(answer.body)
            if len(undeleted) < len(some):
                pauses = self._pauses(self._admin_until_s())
            if undeleted:
                left = [*undeleted, *left]
                await self._pause(pauses, _UNPROCESSED)

    async def create(self) -> None:
        """Create the table unless it exists, and wait until it can be used.

        Raises:
            RateLimiterUnavailable: DynamoDB does not respond, denies access, or takes too long.
        """
        if await self._done(self._calls.describe_table(), errors.no_such_table) is None:
            await self._done(self._calls.create_table(), errors.exists_already)
        pauses = self._pauses(self._monotonic_s() + _CREATION_S)
        while True:
            # A new table may not be visible everywhere yet, so a missing table is tolerated here.
            described = await self._done(self._calls.describe_table(), errors.no_such_table)
            if described is not None and responses.active(described.body):
                break
            await self._pause(pauses, _UNREADY)
        await self._done(self._calls.update_time_to_live(), errors.enabled_already)

    async def size(self) -> None:
        """Return None: DynamoDB counts items only every six hours, and reading the count needs another permission."""

    async def close(self) -> None:
        """Close the connections permanently; calls in flight and later calls raise RepositoryClosedError."""
        # Replaced first, so that no call begins while the connections are closed.
        caller, self._caller = self._caller, _ClosedTransport(self._name)
        await self._probe.stop()
        await caller.close()
        self._probe.join()

    def _until_s(self) -> float:
        return self._monotonic_s() + self._patience.deadline_s

    def _admin_until_s(self) -> float:
        return self._monotonic_s() + self._patience.deadline_s * self._patience.admin_factor

    def _pauses(self, until_s: float) -> Backoff:
        return Backoff(self._patience.clock, self._patience.jitter, _PAUSES, until_s)

    async def _pause(self, pauses: Backoff, cause: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            RateLimiterUnavailable: The deadline leaves no time; ``cause`` becomes its cause.
        """
        if not await pauses.wait():
            raise RateLimiterUnavailable(cause, self._name)

    async def _done(self, call: DynamoDbCall, tolerated: Callable[[ServiceFailure], bool]) -> HttpResponse | None:
        """Make an admin call; None if it fails in the tolerated way."""
        answer = await self._answered(call, self._admin_until_s())
        if isinstance(answer, HttpResponse):
            return answer
        if tolerated(answer):
            return None
        raise self._error(answer)

    async def _read(self, call: DynamoDbCall, until_s: float | None) -> HttpResponse:
        """Make a call that may be repeated, until it succeeds.

        Raises:
            RateLimiterUnavailable: The deadline has passed, or access is denied.
        """
        answer = await self._answered(call, until_s or self._until_s())
        if isinstance(answer, HttpResponse):
            return answer
        raise self._error(answer)

    def _error(self, failure: ServiceFailure) -> ZAELimiterError:
        problem = errors.read_problem(failure)
        return RateLimiterUnavailable(problem.cause, self._name) if isinstance(problem, Retry) else problem

    async def _answered(self, call: DynamoDbCall, until_s: float) -> HttpResponse | ServiceFailure:
        """Make a call that may be repeated, until it succeeds or fails in a way that a retry cannot change.

        Raises:
            RateLimiterUnavailable: The deadline has passed.
        """
        pauses = self._pauses(until_s)
        while True:
            answer = await self._send(call, until_s, again=True)
            if isinstance(answer, Unavailable):
                raise RateLimiterUnavailable(answer.cause, self._name)
            if isinstance(answer, HttpResponse):
                return answer
            problem = errors.read_problem(answer)
            if not isinstance(problem, Retry):
                return answer
            await self._pause(pauses, problem.cause)

    async def _send(
        self, call: DynamoDbCall, until_s: float, *, again: bool, first: Tried | None = None
    ) -> HttpResponse | ServiceFailure | Unavailable:
        """Make a call, and repeat it if it never reached the server; if ``again``, also if that is unknown.

        ``first`` is the first attempt, None if there was none yet.
        """
        pauses = self._pauses(until_s)
        attempt_s = (until_s - self._monotonic_s()) / 2
        tries = 0
        while True:
            tries += 1
            answer = await self._make(call, until_s, attempt_s, first)
            first = None
            if not isinstance(answer, Unavailable):
                if self._server.suspicious:
                    await self._confirm_time(until_s)
                return answer
            if answer.ambiguous:
                hopeless = not again
            else:
                # Only a network error may be temporary. A retry does not help against missing credentials.
                hopeless = tries >= _CONNECTING_TRIES or not isinstance(answer.cause, OSError)
            if hopeless or not await pauses.wait():
                return answer

    async def _make(
        self, call: DynamoDbCall, until_s: float, attempt_s: float, first: Tried | None = None
    ) -> HttpResponse | ServiceFailure | Unavailable:
        """Make a call once; if only its signature was refused, sign and send it again.

        A signature is refused for its credentials or for its time. A call whose content depends on the time is not sent
        again for its time. Others are, twice, because the date of the first refusal may be wrong.
        """
        signed_again = 0
        dated = call.target.endswith(_DATED)
        while True:
            if first is None or signed_again:
                signer = self._caller.signer
                answer = await self._caller.call(call, min(until_s, self._monotonic_s() + attempt_s))
            else:
                signer, answer = first
            if isinstance(answer, Unavailable):
                return answer
            if answer.status == _OK:
                if self._meter is not None:
                    self._meter.consumed(call.action, responses.consumed_of(answer.body))
                return answer
            failure = errors.failure_of(answer.status, answer.error_type, answer.body, self._name)
            if self._meter is not None:
                self._meter.failed(call.action, failure)
            late = errors.clock_refused(failure)
            if late:
                self._server.sign_by_suspect()
            # For its time, a request is signed again twice. For its credentials, only if it was not signed again yet.
            may_sign = late and not dated and signed_again < _SIGNED_AGAIN
            if not may_sign and (signed_again or not errors.credentials_expired(failure)):
                return failure
            signed_again += 1
            if errors.credentials_expired(failure) and not await self._replaced(signer, until_s):
                return failure

    async def _confirm_time(self, until_s: float) -> None:
        """Confirm a suspicious time in the background; wait for that if no time is confirmed yet."""
        if self._server.unconfirmed:
            await self._probe.confirm(until_s)
        else:
            self._probe.start()

    async def _replaced(self, refused: Signer, until_s: float) -> bool:
        """Find new credentials; False if there are none but the refused ones."""
        try:
            await self._caller.replace_keys(refused, until_s)
        except Exception:  # noqa: BLE001 - a provider of keys may raise anything; the refusal says more
            return False
        return self._caller.signer is not refused


def _transacted(answer: HttpResponse | ServiceFailure | Unavailable, count: int) -> TransactOutcome:
    """Return the outcome of a transaction of ``count`` operations."""
    if isinstance(answer, HttpResponse):
        return Committed()
    if isinstance(answer, Unavailable):
        return answer
    # Refused for its time: it was decided with a wrong time, and a conflict makes the caller decide again.
    return Conflict() if errors.clock_refused(answer) else errors.transact_outcome(answer, count)


async def open_table(
    location: DynamoLocation,
    deadline_s: float,
    clock: Clock,
    random: Random,
    session: Any = None,
    meter: CallMeter | None = None,
) -> DynamoTable:
    """Return the table at a location; the table need not exist yet.

    Raises:
        ValidationError: No region is configured.
        StorageError: There are no credentials, or the configuration cannot be used.
        RateLimiterUnavailable: Loading the credentials took longer than an admin call may.
    """
    place = EndpointOptions(location.name, location.region, location.endpoint_url, deadline_s / 2)
    account = await _account(place, session, deadline_s * ADMIN_FACTOR)
    server = ServerClock(clock)
    connect = partial(choose_transport, account, clock, server)
    return DynamoTable(location.name, connect(), server, Patience(clock, deadline_s, random.random), meter, connect)


async def _account(place: EndpointOptions, session: Any, within_s: float) -> Account:
    """Find credentials and endpoint; callers that open the same table at the same time share one load.

    A load that takes too long continues, and the next caller uses it.
    """
    load = load_account(place, session)
    # An error of the load is raised by `result` below.
    with suppress(Exception):
        await runtime.shared(load, within_s)
    if not load.done():
        late = TimeoutError(f"the credentials were not loaded within {within_s:.2f} s")
        raise RateLimiterUnavailable(late, place.table)
    loaded(place, session)
    return load.result(0)


def choose_transport(account: Account, clock: Clock, server: ServerClock) -> TransportPort:
    """Return this package's transport, or botocore's if the configuration requires it."""
    if account.reason_to_carry is None:
        return Transport(account, clock, server)
    _log.info("Using botocore for calls to DynamoDB, which is slower: %s", account.reason_to_carry)
    return BotocoreTransport(account, clock, server)
