"""One signed DynamoDB call over HTTP/1.1: connections that are kept, deadlines, keys that are renewed in time.

Written by hand in both trees under the same names. It knows nothing of operations or items. A call is made once:
whether it is made again is decided by whoever knows what it does.
"""

import os
import select
import socket
import ssl
import threading

from zae_limiter._sync import runtime
from zae_limiter.aws.account import Account, Freshness
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.calls import Call
from zae_limiter.tables.dynamodb.signing import Endpoint, Signer
from zae_limiter.tables.dynamodb.wire import Answer, AnswerReader, BrokenAnswerError

_MOST_CONNECTIONS = 64
_LONGEST_IDLE_S = 20.0
_CHECK_KEYS_EVERY_S = 5.0
_BYTES_AT_ONCE = 16 * 1024


class Transport:
    """Makes calls to one endpoint, over at most so many connections at a time."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._pool = _Pool(account.tls(), clock)
        self._check_keys_at_s = clock.monotonic_s() + _CHECK_KEYS_EVERY_S
        self._renewing = runtime.Lock()

    def call(self, call: Call, until_s: float) -> Answer | Unavailable:
        """Make one call, once; ``until_s`` is by the clock that never goes back."""
        try:
            if self._monotonic_s() >= self._check_keys_at_s:
                self._check_keys(until_s)
            signer = self._account.signer
            connection = self._pool.borrow(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a provider of keys or a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = connection.ask(signer.request(call, self._server.signing_s()), until_s)
        finally:
            # A connection whose caller was interrupted has an answer under way, and is closed here.
            self._pool.give_back(connection)
        if isinstance(answer, Answer):
            self._server.hear(answer.date_s, sent_s, connection.heard_s)
        return answer

    def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Find keys anew, after the server has refused those of a signer as expired.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        left_s = until_s - self._monotonic_s()
        runtime.within(left_s, lambda: self._account.replace(refused))

    @property
    def signer(self) -> Signer:
        """What the next call is signed by."""
        return self._account.signer

    def close(self) -> None:
        """Close every connection; calls under way end without an answer."""
        self._pool.close()

    def _check_keys(self, until_s: float) -> None:
        """See to it that keys are renewed: ahead of time in the background, and waited for only where they must be."""
        with self._renewing:
            now_s = self._monotonic_s()
            if now_s < self._check_keys_at_s:
                return
            match self._account.freshness():
                case Freshness.STALE:
                    runtime.within(until_s - now_s, self._account.renew)
                case Freshness.AGING:
                    runtime.in_background(self._account.renew)
                case Freshness.FRESH:
                    self._account.adopt()
            self._check_keys_at_s = now_s + _CHECK_KEYS_EVERY_S


class _Connection:
    """One connection, which carries one call at a time."""

    def __init__(self, endpoint: Endpoint, connected: socket.socket, clock: Clock) -> None:
        self.endpoint = endpoint
        self._socket = connected
        self._monotonic_s = clock.monotonic_s
        self._reader = AnswerReader()
        self.heard_s = clock.monotonic_s()
        self.usable = True

    def ask(self, request: bytes, until_s: float) -> Answer | Unavailable:
        """Send a request and wait for its answer."""
        started_s = self._monotonic_s()
        if until_s <= started_s:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        # Until the answer is whole the connection is in doubt.
        self.usable = False
        try:
            self._socket.settimeout(until_s - started_s)
            self._socket.sendall(request)
            answer = self._receive(until_s)
        except TimeoutError:
            late = TimeoutError(f"no answer within {until_s - started_s:.3f} s")
            return Unavailable(late, ambiguous=True)
        except (OSError, BrokenAnswerError) as error:
            return Unavailable(error, ambiguous=True)
        self.heard_s = self._monotonic_s()
        self.usable = self._reader.keep_alive
        return answer

    def _receive(self, until_s: float) -> Answer:
        """Read on until the answer is whole."""
        while True:
            data = self._socket.recv(_BYTES_AT_ONCE)
            if not data:
                raise ConnectionError("the connection was closed before the answer")
            answer = self._reader.feed(data)
            if answer is not None:
                return answer
            left_s = until_s - self._monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)

    def is_quiet(self) -> bool:
        """Say whether nothing has come unasked: neither an end nor bytes that belong to no call."""
        return not _readable(self._socket)

    def close(self) -> None:
        """Close at once."""
        self.usable = False
        self._socket.close()


class _Pool:
    """Connections that are kept: the idle ones, newest last, and a count of all."""

    def __init__(self, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._tls = tls
        self._clock = clock
        self._start_anew()

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._idle: list[_Connection] = []
        self._lent: set[_Connection] = set()
        self._open = 0
        self._changed = threading.Condition()

    def borrow(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a connection that nobody else uses.

        Raises:
            OSError: It cannot be connected (a TimeoutError is one, and so is an error of TLS).
        """
        if self._process != os.getpid():
            # Connections are not shared with a forked child.
            self._start_anew()
        left_s = until_s - self._clock.monotonic_s()
        try:
            with self._changed:
                connection = self._idle_or_leave(endpoint, until_s)
            if connection is None:
                connection = self._connect(endpoint, until_s)
        except TimeoutError:
            where = f"{endpoint.host}:{endpoint.port}"
            raise TimeoutError(f"no connection to {where} within {left_s:.3f} s") from None
        self._lent.add(connection)
        return connection

    def give_back(self, connection: _Connection) -> None:
        """Take a connection back, for the next who waits, or to lie idle; one in doubt is closed."""
        with self._changed:
            if connection not in self._lent:
                # It was lent before the pool was closed, or before this process was forked.
                connection.close()
                return
            self._lent.remove(connection)
            if connection.usable:
                self._idle.append(connection)
            else:
                connection.close()
                self._open -= 1
            self._changed.notify()

    def close(self) -> None:
        """Close every connection."""
        with self._changed:
            for connection in (*self._idle, *self._lent):
                connection.close()
        self._start_anew()

    def _idle_or_leave(self, endpoint: Endpoint, until_s: float) -> _Connection | None:
        """Return an idle connection, or None as leave to make one; where there is neither, wait.

        Raises:
            TimeoutError: Neither came in time.
        """
        while True:
            connection = self._newest_idle(endpoint)
            if connection is not None:
                return connection
            if self._open < _MOST_CONNECTIONS:
                self._open += 1
                return None
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0 or not self._changed.wait(left_s):
                raise TimeoutError

    def _newest_idle(self, endpoint: Endpoint) -> _Connection | None:
        """Return the idle connection that was used last; those that were idle for too long are closed."""
        while self._idle:
            connection = self._idle.pop()
            rested_s = self._clock.monotonic_s() - connection.heard_s
            if rested_s < _LONGEST_IDLE_S and connection.endpoint is endpoint and connection.is_quiet():
                return connection
            connection.close()
            self._open -= 1
        return None

    def _connect(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Make a connection, having had leave to."""
        try:
            return _Connection(endpoint, self._connected(endpoint, until_s), self._clock)
        except BaseException:
            with self._changed:
                self._open -= 1
                self._changed.notify()
            raise

    def _connected(self, endpoint: Endpoint, until_s: float) -> socket.socket:
        """Return a socket that is connected to the first address that answers, wrapped in TLS where that is due."""
        left_s = until_s - self._clock.monotonic_s()
        # Resolving a name cannot be given a deadline of its own.
        found = runtime.within(left_s, lambda: _addresses(endpoint))
        failure: OSError = ConnectionError(f"{endpoint.host} has no address")
        for family, address in found:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            plain = socket.socket(family, socket.SOCK_STREAM)
            try:
                plain.settimeout(left_s)
                plain.connect(address)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=endpoint.host)
            except OSError as error:
                plain.close()
                failure = error
            except BaseException:
                plain.close()
                raise
        raise failure


def _addresses(endpoint: Endpoint) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Return the addresses of an endpoint."""
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc] # of AF_INET and AF_INET6


def _readable(connected: socket.socket) -> bool:
    """Say whether a socket has something to read, its end included, without waiting."""
    if isinstance(connected, ssl.SSLSocket) and connected.pending():
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([connected], [], [], 0)[0])
