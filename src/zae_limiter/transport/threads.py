"""Sends signed DynamoDB requests over pooled HTTP/1.1 connections, with deadlines and renewal of credentials.

`transport.aio` has the same names for the asynchronous tree. This layer never retries: only the caller knows whether a
request may be repeated.
"""

import os
import select
import socket
import ssl
import threading
from collections import deque
from contextlib import suppress
from itertools import count

import zae_limiter.runtime.threads as runtime
from zae_limiter.aws.account import Account
from zae_limiter.aws.lookup import Address, Lookup
from zae_limiter.aws.shared_call import SharedResult
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import BrokenResponseError, HttpResponse, HttpResponseReader
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Endpoint, Signer
from zae_limiter.transport import RestorableTransport

_MOST_CONNECTIONS = 64
_LONGEST_IDLE_S = 20.0
_SURELY_OPEN_S = 0.01
"""A connection is not checked for this many seconds after a response: no server closes it so soon unannounced."""
_BYTES_AT_ONCE = 64 * 1024
_GRACE_S = 0.5
"""A call that holds its connection this many seconds after its deadline counts as interrupted."""

_numbers = count(1)
"""Numbers of connections; `ServerClock` trusts an unexpected time only if two connections report it."""


class Transport(RestorableTransport):
    """Makes calls to one endpoint, over at most 64 connections."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._pool = _Pool(account.tls, clock)
        super().__init__(account, clock, server)

    def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once; ``until_s`` is the deadline by the monotonic clock."""
        try:
            if self._monotonic_s() >= self._keys.check_at_s:
                self._wait_for(self._keys.check(), until_s)
            signer = self._account.signer
            pool = self._pool_here()
            connection = pool.borrow(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a provider of keys or a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = connection.ask(signer.request(call, self._server.signing_s()), until_s)
        finally:
            # If the caller was interrupted, the response has not arrived yet: the pool closes the connection.
            pool.give_back(connection)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once, on a new connection that is closed afterwards."""
        try:
            signer = self._account.signer
            pool = self._pool_here()
            connection = pool.connect_alone(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = connection.ask(signer.request(call, self._server.signing_s()), until_s)
        finally:
            connection.usable = False
            pool.give_back(connection)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Find new credentials after the server refused those of a signer; raise what their provider raises."""
        self._wait_for(self._keys.replace(refused), until_s)

    def _wait_for(self, renewal: SharedResult[None] | None, until_s: float) -> None:
        if renewal is not None:
            runtime.shared(renewal, max(0, until_s - self._monotonic_s()))

    @property
    def signer(self) -> Signer:
        """The signer of the next call."""
        return self._account.signer

    def close(self) -> None:
        """Close every connection permanently; calls in flight end with an error."""
        self._closed = True
        self._pool.close()

    def _pool_here(self) -> "_Pool":
        """Return the pool of this process, a new one in a forked child."""
        pool = self._pool
        # Two processes that write to one socket would mix their requests.
        if pool.process != os.getpid():
            pool.abandon()
            self._pool = pool = _Pool(self._account.tls, self._clock)
            if self._closed:
                pool.close()
        return pool

    def _drop_connections(self) -> None:
        if not self._closed:
            self._pool.abandon()
            self._pool = _Pool(self._account.tls, self._clock)


class _Connection:
    """One connection, which carries one call at a time."""

    def __init__(self, endpoint: Endpoint, connected: socket.socket, clock: Clock) -> None:
        self.endpoint = endpoint
        self.number = next(_numbers)
        self._socket = connected
        self._monotonic_s = clock.monotonic_s
        self._reader = HttpResponseReader()
        self._cut = False
        self.heard_s = clock.monotonic_s()
        self.usable = True

    def ask(self, request: bytes, until_s: float) -> HttpResponse | Unavailable:
        """Send a request and wait for its response."""
        started_s = self._monotonic_s()
        if until_s <= started_s:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        if not self.usable:
            return Unavailable(ConnectionError("the connection was closed before the request"), ambiguous=False)
        # Until the response is complete, another caller would read the rest of it. So the connection is not reusable.
        self.usable = False
        try:
            self._socket.settimeout(until_s - started_s)
            self._send(request, until_s)
            answer = self._receive(until_s)
        except TimeoutError:
            late = TimeoutError(f"no answer within {until_s - started_s:.3f} s")
            return Unavailable(late, ambiguous=True)
        except (OSError, BrokenResponseError) as error:
            return Unavailable(error, ambiguous=True)
        self.heard_s = self._monotonic_s()
        self.usable = self._reader.keep_alive and not self._cut
        return answer

    def _send(self, request: bytes, until_s: float) -> None:
        """Send all of a request; each part after the first gets the time that is left."""
        sent = self._socket.send(request)
        while sent < len(request):
            self._limit(until_s)
            sent += self._socket.send(memoryview(request)[sent:])

    def _receive(self, until_s: float) -> HttpResponse:
        """Read until the response is complete."""
        while True:
            data = self._socket.recv(_BYTES_AT_ONCE)
            if not data:
                raise ConnectionError("the connection was closed before the answer")
            answer = self._reader.feed(data)
            if answer is not None:
                return answer
            self._limit(until_s)

    def _limit(self, until_s: float) -> None:
        # A socket's timeout applies to each call, so a server that sends slowly could exceed the deadline.
        left_s = until_s - self._monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)

    def is_quiet(self) -> bool:
        """Return whether nothing is readable while no call waits: neither data nor the end of the connection."""
        return not _readable(self._socket)

    def cut(self) -> None:
        """End the call in flight in another thread, which then closes the connection itself."""
        self._cut = True
        self.usable = False
        with suppress(OSError):
            # The method of the plain socket: SSLSocket.shutdown() would drop the TLS state that the other thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close immediately; nothing is sent."""
        self.usable = False
        self._socket.close()


class _Ticket:
    """A place in the queue, and what is handed to it: a connection, or the permit to make one."""

    __slots__ = ("handed", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.handed: runtime.Slot[_Connection | _Permit] = runtime.Slot()


class _Permit:
    """The permit to make one connection; it counts as a connection until it is used or returned."""


class _Pool:
    """The connections of one process: idle ones (newest last), lent ones, and a queue of callers without one.

    A connection that becomes free, or a permit to make one, goes to the first caller in the queue. An interrupt may
    stop a caller before it gives back what was lent. So everything lent has the deadline of its caller. What is overdue
    is dropped when the pool is full.
    """

    def __init__(self, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self.process = os.getpid()
        self._tls = tls
        self._clock = clock
        self._lock = threading.Lock()
        self._lookup: Lookup | None = None
        self._idle: deque[_Connection] = deque()
        # Connections and permits, with the deadlines of their callers by the monotonic clock.
        self._lent: dict[_Connection | _Permit, float] = {}
        self._waiting: deque[_Ticket] = deque()
        self._closed = False

    def borrow(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Lend a connection to one caller.

        Raises:
            OSError: It cannot be connected, or not in time, or TLS fails.
        """
        left_s = until_s - self._clock.monotonic_s()
        try:
            found = self._take(endpoint, until_s)
            return found if isinstance(found, _Connection) else self._connect(endpoint, until_s, found)
        except TimeoutError:
            where = f"{endpoint.host}:{endpoint.port}"
            raise TimeoutError(f"no connection to {where} within {left_s:.3f} s") from None

    def connect_alone(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Lend a new connection, even if the pool is full.

        Raises:
            OSError: It cannot be connected, or not in time, or TLS fails.
        """
        permit = _Permit()
        self._lent[permit] = until_s
        return self._connect(endpoint, until_s, permit)

    def give_back(self, connection: _Connection) -> None:
        """Take a connection back for the queue or as idle; close it if it is unusable."""
        with self._lock:
            if not connection.usable:
                connection.close()
                self._release(connection)
            elif not self._wake(connection, connection):
                self._idle.append(connection)
                self._lent.pop(connection, None)
                # Callers get the newest connection, so the oldest one would never be closed without this check.
                if self._rested_s(self._idle[0]) >= _LONGEST_IDLE_S:
                    self._close_idle(self._idle.popleft())

    def close(self) -> None:
        """Close every connection; callers in the queue get an error."""
        with self._lock:
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            for lent in list(self._lent):
                if isinstance(lent, _Connection):
                    lent.cut()
            # Every caller in the queue gets a permit. `_connect` raises an error, because the pool is closed.
            while self._wake(_Permit(), None):
                pass

    def abandon(self) -> None:
        """Close sockets that this process shares with its parent, or that a restore has cut off; nothing is sent."""
        # Without the lock: in a forked child, a thread of the parent may hold it forever.
        for connection in (*self._idle, *self._lent):
            if isinstance(connection, _Connection):
                connection.close()

    def _take(self, endpoint: Endpoint, until_s: float) -> _Connection | _Permit:
        """Lend an idle connection or a permit; wait in the queue if there is neither.

        Raises:
            TimeoutError: There was neither before the deadline.
        """
        ticket = _Ticket(until_s)
        try:
            with self._lock:
                found = self._newest_idle(endpoint, until_s) or self._permit_if_room(until_s)
                if found is not None:
                    return found
                self._waiting.append(ticket)
            ticket.handed.wait(until_s - self._clock.monotonic_s())
        except BaseException:
            # An interrupt: without this, a connection that is handed over now would be lost.
            self._leave(ticket)
            raise
        handed = ticket.handed.value
        if handed is None:
            self._leave(ticket)
            raise TimeoutError
        return handed

    @property
    def _open(self) -> int:
        """The number of connections and permits."""
        return len(self._idle) + len(self._lent)

    def _permit_if_room(self, until_s: float) -> _Permit | None:
        """Lend a permit, None if the pool is full."""
        if self._open >= _MOST_CONNECTIONS:
            self._drop_lost()
        if self._open >= _MOST_CONNECTIONS:
            return None
        permit = _Permit()
        self._lent[permit] = until_s
        return permit

    def _drop_lost(self) -> None:
        """Drop what interrupted callers did not give back: any other call has ended by its deadline."""
        now_s = self._clock.monotonic_s()
        for lent in [lent for lent, until_s in list(self._lent.items()) if until_s + _GRACE_S < now_s]:
            self._lent.pop(lent, None)
            if isinstance(lent, _Connection):
                lent.cut()

    def _leave(self, ticket: _Ticket) -> None:
        """Leave the queue, and pass on what was handed over at the last moment."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
            handed = ticket.handed.value
            if isinstance(handed, _Permit):
                self._release(handed)
        # Outside of the lock, because `give_back` acquires it.
        if isinstance(handed, _Connection):
            self.give_back(handed)

    def _newest_idle(self, endpoint: Endpoint, until_s: float) -> _Connection | None:
        """Lend the idle connection that was used last, or None; close those that were idle too long."""
        while self._idle:
            connection = self._idle.pop()
            rested_s = self._rested_s(connection)
            quiet = rested_s < _SURELY_OPEN_S or (rested_s < _LONGEST_IDLE_S and connection.is_quiet())
            if quiet and connection.endpoint is endpoint and connection.usable:
                self._lent[connection] = until_s
                return connection
            self._close_idle(connection)
        return None

    def _close_idle(self, connection: _Connection) -> None:
        """Close an idle connection; the first caller in the queue may make another."""
        connection.close()
        self._wake(_Permit(), None)

    def _rested_s(self, connection: _Connection) -> float:
        return self._clock.monotonic_s() - connection.heard_s

    def _connect(self, endpoint: Endpoint, until_s: float, permit: _Permit) -> _Connection:
        """Use a permit to make a connection, and lend it."""
        try:
            if self._closed:
                raise ConnectionError("the connections were closed")
            lookup = self._lookup
            if lookup is None or lookup.endpoint is not endpoint:
                self._lookup = lookup = Lookup(endpoint)
            addresses = lookup.begin().result(max(0, until_s - self._clock.monotonic_s()))
            plain = _connected(addresses, until_s, self._clock)
            connection = _Connection(endpoint, self._secured(plain, endpoint, until_s), self._clock)
        except BaseException:
            with self._lock:
                self._release(permit)
            raise
        self._exchange(permit, connection, until_s)
        return connection

    def _exchange(self, permit: _Permit, connection: _Connection, until_s: float) -> None:
        """Lend a connection in place of the permit."""
        with self._lock:
            self._lent[connection] = until_s
            self._lent.pop(permit, None)
            # The pool may have been closed while this connection was made, so nothing else would close it.
            if self._closed:
                connection.usable = False

    def _secured(self, plain: socket.socket, endpoint: Endpoint, until_s: float) -> socket.socket:
        """Return the socket wrapped in TLS, or as it is for an endpoint without TLS."""
        if self._tls is None:
            return plain
        try:
            plain.settimeout(_positive(until_s - self._clock.monotonic_s()))
            return self._tls.wrap_socket(plain, server_hostname=endpoint.host)
        except BaseException:
            plain.close()
            raise

    def _release(self, lent: "_Connection | _Permit") -> None:
        """Remove what was lent; the first caller in the queue gets a permit in its place."""
        if not self._wake(_Permit(), lent):
            self._lent.pop(lent, None)

    def _wake(self, handed: "_Connection | _Permit", lent: "_Connection | _Permit | None") -> bool:
        """Lend ``handed`` to the first caller in the queue, in place of ``lent``; False if the queue is empty."""
        if not self._waiting:
            return False
        ticket = self._waiting.popleft()
        if lent is not None:
            self._lent.pop(lent, None)
        self._lent[handed] = ticket.until_s
        ticket.handed.set(handed)
        return True


def _connected(addresses: list[Address], until_s: float, clock: Clock) -> socket.socket:
    """Return a socket connected to the first address that answers; each but the last gets half the remaining time."""
    failure: OSError = ConnectionError("the endpoint has no address")
    for number, (family, address) in enumerate(addresses, 1):
        left_s = _positive(until_s - clock.monotonic_s())
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(left_s if number == len(addresses) else left_s / 2)
            plain.connect(address)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            plain.close()
            failure = _with_address(error, address)
        except BaseException:
            plain.close()
            raise
        else:
            return plain
    raise failure


def _with_address(error: OSError, address: Address) -> OSError:
    """Return a refused connection as asyncio reports it: with the address, of the same class."""
    return error if error.errno is None else OSError(error.errno, f"Connect call failed {address}")


def _positive(left_s: float) -> float:
    """Return the remaining seconds; 0 would make a socket non-blocking, so raise TimeoutError instead."""
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _readable(connected: socket.socket) -> bool:
    """Return without waiting whether a socket has data to read or was closed by its peer."""
    # TLS may have decrypted data that the socket itself no longer shows.
    if isinstance(connected, ssl.SSLSocket) and connected.pending():
        return True
    # `select` fails for file descriptors above 1023.
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([connected], [], [], 0)[0])
