"""Sends signed DynamoDB requests over pooled HTTP/1.1 connections, with deadlines and renewal of credentials.

`transport.threads` has the same names for the synchronous tree. This layer never retries: only the caller knows
whether a request may be repeated.
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from itertools import count
from typing import cast

import zae_limiter.runtime.aio as runtime
from zae_limiter.aws.account import Account
from zae_limiter.aws.lookup import Address, Lookup
from zae_limiter.aws.shared_call import SharedResult
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import BrokenResponseError, HttpResponse, HttpResponseReader
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Endpoint, Signer
from zae_limiter.transport import RestorableTransport

_MOST_CONNECTIONS = 64
_LONGEST_IDLE_S = 20.0
_LOOK_EVERY_S = 0.5
_GRACE_S = 0.5
"""A call that holds its connection this many seconds after its deadline counts as interrupted."""

_numbers = count(1)
"""Numbers of connections; `ServerClock` trusts an unexpected time only if two connections report it."""


class Transport(RestorableTransport):
    """Makes calls to one endpoint, over at most 64 connections."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._pool: _Pool | None = None
        super().__init__(account, clock, server)

    async def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once; ``until_s`` is the deadline by the monotonic clock."""
        try:
            if self._monotonic_s() >= self._keys.check_at_s:
                await self._wait_for(self._keys.check(), until_s)
            signer = self._account.signer
            pool = self._pool_here()
            connection = await pool.borrow(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a provider of keys or a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = await connection.ask(signer.request(call, self._server.signing_s()), until_s - sent_s)
        finally:
            # If the caller was cancelled, the response has not arrived yet: the pool closes the connection.
            pool.give_back(connection)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    async def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once, on a new connection that is closed afterwards."""
        try:
            signer = self._account.signer
            pool = self._pool_here()
            connection = await pool.connect_alone(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = await connection.ask(signer.request(call, self._server.signing_s()), until_s - sent_s)
        finally:
            connection.usable = False
            pool.give_back(connection)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    async def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Find new credentials after the server refused those of a signer; raise what their provider raises."""
        await self._wait_for(self._keys.replace(refused), until_s)

    async def _wait_for(self, renewal: SharedResult[None] | None, until_s: float) -> None:
        if renewal is not None:
            await runtime.shared(renewal, max(0, until_s - self._monotonic_s()))

    @property
    def signer(self) -> Signer:
        """The signer of the next call."""
        return self._account.signer

    async def close(self) -> None:
        """Close every connection permanently; calls in flight end with an error."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
            # The loop calls `connection_lost` in its next iteration.
            await asyncio.sleep(0)

    def _pool_here(self) -> "_Pool":
        """Return the pool of this loop and process, or raise ConnectionError if the transport is closed."""
        if self._closed:
            raise ConnectionError("the connections were closed")
        home = (asyncio.get_running_loop(), os.getpid())
        pool = self._pool
        # Connections belong to one loop. A forked child must not write to the sockets of its parent.
        if pool is None or pool.home != home:
            if pool is not None:
                pool.close()
            self._pool = pool = _Pool(home, self._account.tls, self._clock)
        return pool

    def _drop_connections(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.retire()


class _Connection(asyncio.Protocol):
    """One connection, not necessarily connected yet, that carries one call at a time."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self.endpoint = endpoint
        self.number = next(_numbers)
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._closed = False
        self._monotonic_s = clock.monotonic_s
        self._reader = HttpResponseReader()
        self._transport: asyncio.Transport | None = None
        self._waiter: runtime.Answer[HttpResponse | Unavailable] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._late_at_s = self._timeout_s = 0.0
        self.heard_s = clock.monotonic_s()
        # `connected` stays True after the first connect. `usable` is False during a call and after the end.
        self.connected = self.usable = False

    async def ask(self, request: bytes, timeout_s: float) -> HttpResponse | Unavailable:
        """Send a request and wait for its response."""
        if timeout_s <= 0:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        if self._transport is None or not self.usable:
            return Unavailable(ConnectionError("the connection was closed before the request"), ambiguous=False)
        # Until the response is complete, another caller would read the rest of it. So the connection is not reusable.
        self.usable = False
        waiter: runtime.Answer[HttpResponse | Unavailable] = runtime.Answer(loop=self._loop)
        waiter.detached = None
        self._waiter = waiter
        self._watch(timeout_s)
        self._transport.write(request)
        try:
            return await waiter
        finally:
            self._waiter = None

    async def connect(self, connected: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Start to use a connected socket, with TLS if there is a context."""
        self._socket = connected
        host = self.endpoint.host if tls else None
        try:
            await self._loop.create_connection(lambda: self, sock=connected, ssl=tls, server_hostname=host)
        except BaseException:
            # The loop closes the socket if this fails, but not if a cancellation comes after `connection_made`.
            self.close()
            raise

    def close(self) -> None:
        """Close immediately, or as soon as it is connected."""
        self.usable = False
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close the socket without its loop, which has ended or belongs to the parent process; nothing is sent."""
        self.usable = False
        if self._socket is not None:
            self._socket.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection can be used."""
        self._transport = cast("asyncio.Transport", transport)
        self.connected = self.usable = True
        if self._closed:
            self.close()

    def data_received(self, data: bytes) -> None:
        """Parse the response; close the connection if no call waits for data."""
        waiter = self._waiter
        if waiter is None:
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except BrokenResponseError as error:
            self._end(Unavailable(error, ambiguous=True))
            self.close()
            return
        if answer is not None:
            self.heard_s = self._monotonic_s()
            # If the waiter is done, its call was cancelled or has timed out, and this connection is being closed.
            self.usable = self._reader.keep_alive and not waiter.done()
            # Last: the caller continues in this call, and may use the connection again.
            if not waiter.done():
                waiter.deliver(answer)

    def eof_received(self) -> None:
        """Stop the reuse of a connection that the server has closed; the loop closes it in its next iteration."""
        self.usable = False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call in flight; the server may have carried it out."""
        self.usable = False
        self._end(Unavailable(exc or ConnectionError("the connection was closed before the answer"), ambiguous=True))
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, timeout_s: float) -> None:
        """End the call after this many seconds; one timer serves many calls, because a new one costs more."""
        self._timeout_s = timeout_s
        self._late_at_s = late_at_s = self._loop.time() + timeout_s
        # A timer that is due earlier is kept: `_check_deadline` starts it again for the rest.
        if self._timer is not None and self._timer.when() > late_at_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(late_at_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        # The timer may be that of an earlier call.
        if self._loop.time() < self._late_at_s:
            self._timer = self._loop.call_at(self._late_at_s, self._check_deadline)
        else:
            self.expire()

    def expire(self) -> None:
        """End the call in flight with a timeout and close the connection."""
        self._end(Unavailable(TimeoutError(f"no answer within {self._timeout_s:.3f} s"), ambiguous=True))
        self.close()

    def _end(self, outcome: HttpResponse | Unavailable) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)


@dataclass(slots=True, eq=False)
class _Ticket:
    """A place in the queue, and the connection that is handed to it; None if the pool was closed."""

    endpoint: Endpoint
    until_s: float
    handed: runtime.Slot[_Connection] = field(default_factory=runtime.Slot)


class _Pool:
    """The connections of one loop: idle ones (newest last), lent ones, and a queue of callers without one.

    A connection that becomes free, or room for a new one, goes to the first caller in the queue. An interrupt may stop
    a caller before it gives its connection back. So every lent connection has the deadline of its caller, and an
    overdue one is closed.
    """

    def __init__(self, home: tuple[asyncio.AbstractEventLoop, int], tls: ssl.SSLContext | None, clock: Clock) -> None:
        self.home = home
        self._tls = tls
        self._clock = clock
        self._lookup: Lookup | None = None
        self._idle: deque[_Connection] = deque()
        self._lent: dict[_Connection, float] = {}  # with the deadlines of their callers, by the monotonic clock
        self._waiting: deque[_Ticket] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._look_at_s = 0.0
        self._closed = False

    async def borrow(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Lend a connection to one caller, or raise OSError (also for a timeout or an error of TLS)."""
        connection = self._newest_idle(endpoint, until_s)
        if connection is None:
            left_s = until_s - self._clock.monotonic_s()
            try:
                connection = self._new_if_room(endpoint, until_s) or await self._wait_in_turn(endpoint, until_s)
                if not connection.connected:
                    await self._connect(connection, until_s)
            except TimeoutError:
                raise TimeoutError(f"no connection to {endpoint.host}:{endpoint.port} within {left_s:.3f} s") from None
        return connection

    async def connect_alone(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Lend a new connection even if the pool is full, or raise OSError (also for a timeout or an error of TLS)."""
        connection = self._new(endpoint, until_s)
        await self._connect(connection, until_s)
        return connection

    def give_back(self, connection: _Connection) -> None:
        """Take a connection back for the queue or as idle; close it if it is unusable."""
        if connection.usable:
            self._idle.append(connection)
            # Callers get the newest connection, so the oldest one would never be closed without this check.
            if self._clock.monotonic_s() - self._idle[0].heard_s >= _LONGEST_IDLE_S:
                self._idle[0].close()
                self._idle.popleft()
        else:
            connection.close()
        # Last: if an interrupt skips this line, a later check closes the connection once it is overdue.
        self._lent.pop(connection, None)
        if self._waiting:
            self._serve_queue()

    def close(self) -> None:
        """Close every connection; callers in the queue get an error."""
        self._closed = True
        loop, process = self.home
        # A transport of asyncio may only be used on its loop: without the loop, the sockets themselves are closed.
        if loop.is_closed() or process != os.getpid():
            for connection in (*self._idle, *self._lent):
                connection.abandon()
        elif loop is _running_loop():
            for connection in (*self._idle, *self._lent):
                connection.close()
            for ticket in [one for one in self._waiting if not one.handed.filled]:
                ticket.handed.set(None)

    def retire(self) -> None:
        """Close every connection from any thread, also if the loop of this pool does not run at the moment."""
        loop, _ = self.home
        if loop.is_closed() or loop is _running_loop():
            self.close()
        else:
            loop.call_soon_threadsafe(self.close)

    @property
    def _open(self) -> int:
        """The number of connections, including those that are not connected yet."""
        return len(self._idle) + len(self._lent)

    def _newest_idle(self, endpoint: Endpoint, until_s: float) -> _Connection | None:
        """Lend the idle connection that was used last, or None; close those that were idle too long."""
        while self._idle:
            # Popped last: an interrupt must not leave an open connection that the pool does not know.
            connection = self._idle[-1]
            now_s = self._clock.monotonic_s()
            young = now_s - connection.heard_s < _LONGEST_IDLE_S
            if young and connection.usable and connection.endpoint is endpoint:
                self._lent[connection] = until_s
                if now_s >= self._look_at_s:
                    self._look_later(now_s)
                return self._idle.pop()
            connection.close()
            self._idle.pop()
        return None

    def _new_if_room(self, endpoint: Endpoint, until_s: float) -> _Connection | None:
        """Lend a connection that is not connected yet, None if the pool is full."""
        if self._open >= _MOST_CONNECTIONS:
            self._drop_lost()
        return self._new(endpoint, until_s) if self._open < _MOST_CONNECTIONS else None

    def _new(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Lend a connection that is not connected yet."""
        connection = _Connection(endpoint, self._clock)
        self._lent[connection] = until_s
        now_s = self._clock.monotonic_s()
        if now_s >= self._look_at_s:
            self._look_later(now_s)
        return connection

    def _drop_lost(self) -> None:
        """Close the connections of interrupted callers: any other call has ended by its deadline."""
        latest_s = self._clock.monotonic_s() - _GRACE_S
        for connection in [lent for lent, until_s in self._lent.items() if until_s < latest_s]:
            connection.expire()
            self._lent.pop(connection, None)

    def _look_later(self, now_s: float) -> None:
        """Schedule the next check for overdue connections, in place of one that an interrupt may have removed."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.home[0].call_later(_LOOK_EVERY_S, self._look)
        self._look_at_s = now_s + 2 * _LOOK_EVERY_S

    def _look(self) -> None:
        """End overdue calls whose timer an interrupt removed, and serve callers that it left in the queue."""
        self._look_at_s = 0.0
        if self._lent:
            self._look_later(self._clock.monotonic_s())
            self._drop_lost()
        if self._waiting:
            self._serve_queue()

    async def _wait_in_turn(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Wait in the queue for a connection; raise OSError if none is free in time or the pool is closed."""
        ticket = _Ticket(endpoint, until_s)
        try:
            self._waiting.append(ticket)
            await ticket.handed.wait(until_s - self._clock.monotonic_s())
        except BaseException:
            self._leave(ticket)
            raise
        connection = ticket.handed.value
        if connection is not None:
            return connection
        self._leave(ticket)
        raise ConnectionError("the connections were closed") if self._closed else TimeoutError

    def _leave(self, ticket: _Ticket) -> None:
        """Leave the queue, and pass on a connection that was handed over at the last moment."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        if ticket.handed.value is not None:
            self.give_back(ticket.handed.value)

    def _serve_queue(self) -> None:
        """Lend free connections to the callers in the queue, in order."""
        while self._waiting:
            # Removed last: an interrupt must not remove a caller that got nothing.
            ticket = self._waiting[0]
            if not ticket.handed.filled:
                endpoint, until_s = ticket.endpoint, ticket.until_s
                connection = self._newest_idle(endpoint, until_s) or self._new_if_room(endpoint, until_s)
                if connection is None:
                    return
                ticket.handed.set(connection)
            self._waiting.popleft()

    async def _connect(self, connection: _Connection, until_s: float) -> None:
        """Connect a lent connection; raise OSError if that fails, is too slow, or the loop shuts down."""
        try:
            await runtime.within(until_s - self._clock.monotonic_s(), lambda: self._connect_first(connection, until_s))
        except BaseException:
            self.give_back(connection)
            raise

    async def _connect_first(self, connection: _Connection, until_s: float) -> None:
        """Resolve the name of the endpoint and connect to the first address that answers."""
        endpoint = connection.endpoint
        if self._lookup is None or self._lookup.endpoint is not endpoint:
            self._lookup = Lookup(endpoint)
        addresses = await runtime.shared(self._lookup.begin(), until_s - self._clock.monotonic_s())
        await connection.connect(await _connected(addresses, until_s, self._clock), self._tls)


async def _connected(addresses: list[Address], until_s: float, clock: Clock) -> socket.socket:
    """Return a socket connected to the first address that answers; each but the last gets half the remaining time."""
    failure: OSError = ConnectionError("the endpoint has no address")
    for number, (family, address) in enumerate(addresses, 1):
        left_s = until_s - clock.monotonic_s()
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            async with asyncio.timeout(left_s if number == len(addresses) else left_s / 2):
                await asyncio.get_running_loop().sock_connect(plain, address)
        except OSError as error:
            plain.close()
            failure = error
        except BaseException:
            plain.close()
            raise
        else:
            return plain
    raise failure


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
