"""One signed DynamoDB call over HTTP/1.1: connections that are kept, deadlines, keys that are renewed in time.

Written by hand in both trees under the same names. It knows nothing of operations or items. A call is made once:
whether it is made again is decided by whoever knows what it does.
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
from zae_limiter.aws.key_renewal import KeyRenewal
from zae_limiter.aws.lookup import Address, Lookup
from zae_limiter.aws.shared_call import SharedResult
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.process import renew_in_copies
from zae_limiter.tables.dynamodb.http_parser import BrokenResponseError, HttpResponse, HttpResponseReader
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Endpoint, Signer

_MOST_CONNECTIONS = 64
_LONGEST_IDLE_S = 20.0
_SURELY_OPEN_S = 0.01
"""Nobody closes a connection, without having said so, that soon after an answer."""
_BYTES_AT_ONCE = 64 * 1024
_GRACE_S = 0.5
"""How long after its deadline a call may still hold its connection."""

_numbers = count(1)
"""The numbers of connections: responses on two connections are two witnesses of the server's time."""


class Transport:
    """Makes calls to one endpoint, over at most so many connections at a time."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._pool = _Pool(account.tls, clock)
        self._closed = False
        self._keys = KeyRenewal(account, clock.monotonic_s)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Connect again, learn the server's time again, and check the keys, in a restored copy of the process.

        A forked child has its own connections as soon as it makes a call, and the parent's clock is right.
        """
        if not restored:
            return
        self._drop_connections()
        self._server.forget()
        self._keys.check_soon()

    def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make one call, once; ``until_s`` is by the clock that never goes back."""
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
            # A connection whose caller was interrupted has an answer under way, and is closed here.
            pool.give_back(connection)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make one call, once, on a new connection that is closed afterwards."""
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
        """Find keys again, after the server has refused those of a signer as expired.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        self._wait_for(self._keys.replace(refused), until_s)

    def _wait_for(self, renewal: SharedResult[None] | None, until_s: float) -> None:
        if renewal is not None:
            runtime.shared(renewal, max(0, until_s - self._monotonic_s()))

    @property
    def signer(self) -> Signer:
        """What the next call is signed by."""
        return self._account.signer

    def close(self) -> None:
        """Close every connection for good; calls in flight end without an answer."""
        self._closed = True
        self._pool.close()

    def _pool_here(self) -> "_Pool":
        """Return the pool of this process: connections are not shared with a forked child."""
        pool = self._pool
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
        """Send a request and wait for its answer."""
        started_s = self._monotonic_s()
        if until_s <= started_s:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        if not self.usable:
            return Unavailable(ConnectionError("the connection was closed before the request"), ambiguous=False)
        # Until the answer is whole the connection is in doubt.
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
        """Send all of a request; what does not go out at once has what is left of the time."""
        sent = self._socket.send(request)
        while sent < len(request):
            self._limit(until_s)
            sent += self._socket.send(memoryview(request)[sent:])

    def _receive(self, until_s: float) -> HttpResponse:
        """Read on until the answer is whole."""
        while True:
            data = self._socket.recv(_BYTES_AT_ONCE)
            if not data:
                raise ConnectionError("the connection was closed before the answer")
            answer = self._reader.feed(data)
            if answer is not None:
                return answer
            self._limit(until_s)

    def _limit(self, until_s: float) -> None:
        left_s = until_s - self._monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)

    def is_quiet(self) -> bool:
        """Say whether nothing has come unasked: neither an end nor bytes that belong to no call."""
        return not _readable(self._socket)

    def cut(self) -> None:
        """End a call under way in another thread, which then closes the connection itself."""
        self._cut = True
        self.usable = False
        with suppress(OSError):
            # That of a plain socket: TLS would be taken off under the hands of whoever reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close at once; nothing is sent."""
        self.usable = False
        self._socket.close()


class _Ticket:
    """A place in the queue, and what is handed to its holder: a connection, or leave to make one."""

    __slots__ = ("handed", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.handed: runtime.Slot[_Connection | _Leave] = runtime.Slot()


class _Leave:
    """The leave to make one connection."""


class _Pool:
    """The connections of one process: the idle ones, newest last, those on loan, and a queue of callers without one.

    A connection, or the leave to make one, that becomes free goes to the first in the queue and to no other caller.

    A caller may be interrupted before it can give back what it has. So every loan has the deadline of its caller, and
    one that is overdue is dropped when its place is needed.
    """

    def __init__(self, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self.process = os.getpid()
        self._tls = tls
        self._clock = clock
        self._lock = threading.Lock()
        self._lookup: Lookup | None = None
        self._idle: deque[_Connection] = deque()
        # Connections, and leaves to make one, with the deadlines of their callers.
        self._lent: dict[_Connection | _Leave, float] = {}
        self._waiting: deque[_Ticket] = deque()
        self._closed = False

    def borrow(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a connection for this caller alone.

        Raises:
            OSError: It cannot be connected (a TimeoutError is one, and so is an error of TLS).
        """
        left_s = until_s - self._clock.monotonic_s()
        try:
            found = self._take(endpoint, until_s)
            return found if isinstance(found, _Connection) else self._connect(endpoint, until_s, found)
        except TimeoutError:
            where = f"{endpoint.host}:{endpoint.port}"
            raise TimeoutError(f"no connection to {where} within {left_s:.3f} s") from None

    def connect_alone(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a new connection, in excess of the maximum if need be.

        Raises:
            OSError: It cannot be connected (a TimeoutError is one, and so is an error of TLS).
        """
        leave = _Leave()
        self._lent[leave] = until_s
        return self._connect(endpoint, until_s, leave)

    def give_back(self, connection: _Connection) -> None:
        """Take a connection back, for the next caller in the queue or to lie idle; one in doubt is closed."""
        with self._lock:
            if not connection.usable:
                connection.close()
                self._release(connection)
            elif not self._wake(connection, connection):
                self._idle.append(connection)
                self._lent.pop(connection, None)
                # The newest is always the next, so the oldest may never be used again.
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
            while self._wake(_Leave(), None):
                pass

    def abandon(self) -> None:
        """Close sockets that belong to the parent of this process: nothing is sent."""
        for connection in (*self._idle, *self._lent):
            if isinstance(connection, _Connection):
                connection.close()

    def _take(self, endpoint: Endpoint, until_s: float) -> _Connection | _Leave:
        """Return an idle connection, or leave to make one; if there is neither, wait in turn.

        Raises:
            TimeoutError: Neither came in time.
        """
        ticket = _Ticket(until_s)
        try:
            with self._lock:
                found = self._newest_idle(endpoint, until_s) or self._leave_if_room(until_s)
                if found is not None:
                    return found
                self._waiting.append(ticket)
            ticket.handed.wait(until_s - self._clock.monotonic_s())
        except BaseException:
            self._leave(ticket)
            raise
        handed = ticket.handed.value
        if handed is None:
            self._leave(ticket)
            raise TimeoutError
        return handed

    @property
    def _open(self) -> int:
        """How many connections there are, or may be made."""
        return len(self._idle) + len(self._lent)

    def _leave_if_room(self, until_s: float) -> _Leave | None:
        """Return leave to make a connection, None if there are as many as there may be."""
        if self._open >= _MOST_CONNECTIONS:
            self._drop_lost()
        if self._open >= _MOST_CONNECTIONS:
            return None
        leave = _Leave()
        self._lent[leave] = until_s
        return leave

    def _drop_lost(self) -> None:
        """Drop loans whose callers were interrupted: a call ends with its deadline."""
        now_s = self._clock.monotonic_s()
        for lent in [lent for lent, until_s in list(self._lent.items()) if until_s + _GRACE_S < now_s]:
            self._lent.pop(lent, None)
            if isinstance(lent, _Connection):
                lent.cut()

    def _leave(self, ticket: _Ticket) -> None:
        """Leave the queue; what was handed over in the last moment goes on to the next."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                return
            handed = ticket.handed.value
            if isinstance(handed, _Leave):
                self._release(handed)
        if isinstance(handed, _Connection):
            self.give_back(handed)

    def _newest_idle(self, endpoint: Endpoint, until_s: float) -> _Connection | None:
        """Lend the idle connection that was used last; those that were idle for too long are closed."""
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
        """Close a connection that was idle; the next in the queue may make another."""
        connection.close()
        self._wake(_Leave(), None)

    def _rested_s(self, connection: _Connection) -> float:
        return self._clock.monotonic_s() - connection.heard_s

    def _connect(self, endpoint: Endpoint, until_s: float, leave: _Leave) -> _Connection:
        """Make a connection in the place of a leave to."""
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
                self._release(leave)
            raise
        self._exchange(leave, connection, until_s)
        return connection

    def _exchange(self, leave: _Leave, connection: _Connection, until_s: float) -> None:
        """Lend a connection in place of the leave to make it."""
        with self._lock:
            self._lent[connection] = until_s
            self._lent.pop(leave, None)
            if self._closed:
                connection.usable = False

    def _secured(self, plain: socket.socket, endpoint: Endpoint, until_s: float) -> socket.socket:
        """Return a socket wrapped in TLS where that is due."""
        if self._tls is None:
            return plain
        try:
            plain.settimeout(_positive(until_s - self._clock.monotonic_s()))
            return self._tls.wrap_socket(plain, server_hostname=endpoint.host)
        except BaseException:
            plain.close()
            raise

    def _release(self, lent: "_Connection | _Leave") -> None:
        """End a loan; the next in the queue may make a connection in its place."""
        if not self._wake(_Leave(), lent):
            self._lent.pop(lent, None)

    def _wake(self, handed: "_Connection | _Leave", lent: "_Connection | _Leave | None") -> bool:
        """Lend something to the next in the queue in place of an earlier loan; False if the queue is empty."""
        if not self._waiting:
            return False
        ticket = self._waiting.popleft()
        if lent is not None:
            self._lent.pop(lent, None)
        self._lent[handed] = ticket.until_s
        ticket.handed.set(handed)
        return True


def _connected(addresses: list[Address], until_s: float, clock: Clock) -> socket.socket:
    """Return a socket that is connected to the first address that answers; each but the last has half the time left."""
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
            failure = error
        except BaseException:
            plain.close()
            raise
        else:
            return plain
    raise failure


def _positive(left_s: float) -> float:
    """Return the time that is left.

    Raises:
        TimeoutError: None is.
    """
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _readable(connected: socket.socket) -> bool:
    """Say whether a socket has something to read, its end included, without waiting."""
    if isinstance(connected, ssl.SSLSocket) and connected.pending():
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([connected], [], [], 0)[0])
