"""One signed DynamoDB call over HTTP/1.1: connections that are kept, deadlines, keys that are renewed in time.

Written by hand in both trees under the same names. It knows nothing of operations or items. A call is made once:
whether it is made again is decided by whoever knows what it does.
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from contextlib import suppress
from itertools import count
from typing import cast

from zae_limiter._async import runtime
from zae_limiter.aws.account import Account, Freshness
from zae_limiter.aws.lookup import Address, Lookup
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.process import renew_in_copies
from zae_limiter.tables.dynamodb.calls import Call
from zae_limiter.tables.dynamodb.signing import Endpoint, Signer
from zae_limiter.tables.dynamodb.wire import Answer, AnswerReader, BrokenAnswerError

_MOST_CONNECTIONS = 64
_LONGEST_IDLE_S = 20.0
_CHECK_KEYS_EVERY_S = 5.0
_RENEW_EVERY_S = 60.0

_numbers = count(1)
"""The numbers of connections: responses on two connections are two witnesses of the server's time."""


class Transport:
    """Makes calls to one endpoint, over at most so many connections at a time."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._pool: _Pool | None = None
        self._closed = False
        self._check_keys_at_s = clock.monotonic_s() + _CHECK_KEYS_EVERY_S
        self._replace_keys_at_s = clock.monotonic_s()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Connect again, learn the server's time again, and check the keys, in a restored copy of the process.

        A forked child has its own connections as soon as it makes a call, and the parent's clock is right.
        """
        if not restored:
            return
        self._drop_connections()
        self._server.forget()
        self._check_keys_at_s = self._replace_keys_at_s = self._monotonic_s()

    async def call(self, call: Call, until_s: float) -> Answer | Unavailable:
        """Make one call, once; ``until_s`` is by the clock that never goes back."""
        try:
            if self._monotonic_s() >= self._check_keys_at_s:
                await self._check_keys(until_s)
            signer = self._account.signer
            pool = self._pool_here()
            connection = await pool.borrow(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a provider of keys or a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = await connection.ask(signer.request(call, self._server.signing_s()), until_s - sent_s)
        finally:
            # A connection whose caller was cancelled has an answer under way, and is closed here.
            pool.give_back(connection)
        if isinstance(answer, Answer):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    async def call_alone(self, call: Call, until_s: float) -> Answer | Unavailable:
        """Make one call, once, on a new connection that is closed afterwards."""
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
        if isinstance(answer, Answer):
            self._server.hear(answer.date_s, sent_s, connection.heard_s, connection.number)
        return answer

    async def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Find keys anew, after the server has refused those of a signer as expired.

        Keys that stay the same are looked for only so often.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        now_s = self._monotonic_s()
        if refused is self._account.signer and now_s >= self._replace_keys_at_s:
            await runtime.shared(self._account.replace(refused), until_s - now_s)
            self._replace_keys_at_s = self._monotonic_s() + _CHECK_KEYS_EVERY_S

    @property
    def signer(self) -> Signer:
        """What the next call is signed by."""
        return self._account.signer

    async def close(self) -> None:
        """Close every connection for good; calls in flight end without an answer."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
            # The loop tells connections of their end in a turn of its own.
            await asyncio.sleep(0)

    def _pool_here(self) -> "_Pool":
        """Return the pool of this loop: connections belong to a loop, and are not shared with a forked child.

        Raises:
            ConnectionError: The transport is closed.
        """
        if self._closed:
            raise ConnectionError("the connections were closed")
        home = (asyncio.get_running_loop(), os.getpid())
        pool = self._pool
        if pool is None or pool.home != home:
            if pool is not None:
                pool.close()
            self._pool = pool = _Pool(home, self._account.tls, self._clock)
        return pool

    def _drop_connections(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.retire()

    async def _check_keys(self, until_s: float) -> None:
        """See to it that keys are renewed: ahead of time in the background, and waited for only where they must be."""
        again_s = _CHECK_KEYS_EVERY_S
        left_s = until_s - self._monotonic_s()
        match self._account.freshness():
            case Freshness.EXPIRED:
                await runtime.shared(self._account.renew(), left_s)
            case Freshness.STALE:
                # They are good for some minutes yet, so no caller waits.
                self._account.renew()
            case Freshness.AGING:
                again_s = _RENEW_EVERY_S
                self._account.renew()
            case Freshness.FRESH:
                if self._account.changes:
                    self._account.renew()
        self._check_keys_at_s = self._monotonic_s() + again_s


class _Connection(asyncio.Protocol):
    """One connection, which carries one call at a time."""

    def __init__(self, endpoint: Endpoint, connected: socket.socket, clock: Clock) -> None:
        self.endpoint = endpoint
        self.number = next(_numbers)
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._monotonic_s = clock.monotonic_s
        self._reader = AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer | Unavailable] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._late_at_s = self._timeout_s = 0.0
        self.heard_s = clock.monotonic_s()
        self.usable = False

    async def ask(self, request: bytes, timeout_s: float) -> Answer | Unavailable:
        """Send a request and wait for its answer."""
        if timeout_s <= 0:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        if self._transport is None or not self.usable:
            return Unavailable(ConnectionError("the connection was closed before the request"), ambiguous=False)
        self._waiter = self._loop.create_future()
        self._watch(timeout_s)
        # Until the answer is whole the connection is in doubt.
        self.usable = False
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Close at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Let go of a socket whose loop has ended, or is the parent's of this process: nothing is sent."""
        self.usable = False
        self._socket.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be connected."""
        self._transport = cast("asyncio.Transport", transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """Read on; what comes unasked ends the connection."""
        if self._waiter is None:
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except BrokenAnswerError as error:
            self._end(Unavailable(error, ambiguous=True))
            self.close()
            return
        if answer is not None:
            self.heard_s = self._monotonic_s()
            self.usable = self._reader.keep_alive and not self._waiter.done()
            self._end(answer)

    def eof_received(self) -> None:
        """Hear that the server sends no more; the loop closes the connection in a turn of its own."""
        self.usable = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Be cut off: a call under way may have been carried out all the same."""
        self.usable = False
        if self._timer is not None:
            self._timer.cancel()
        self._end(Unavailable(exc or ConnectionError("the connection was closed before the answer"), ambiguous=True))

    def _watch(self, timeout_s: float) -> None:
        """See to it that a call ends in time. One timer serves many calls: it is set anew when it has run out."""
        self._timeout_s = timeout_s
        self._late_at_s = late_at_s = self._loop.time() + timeout_s
        if self._timer is not None and self._timer.when() > late_at_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(late_at_s, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._late_at_s:
            self._timer = self._loop.call_at(self._late_at_s, self._look_at_the_time)
        else:
            self._expire(self._timeout_s)

    def _expire(self, timeout_s: float) -> None:
        self._end(Unavailable(TimeoutError(f"no answer within {timeout_s:.3f} s"), ambiguous=True))
        self.close()

    def _end(self, outcome: Answer | Unavailable) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)


class _Pool:
    """The connections of one loop: the idle ones, newest last, and a queue of those who wait for one.

    A connection, or the leave to make one, that becomes free goes to the first in the queue and to nobody else.
    """

    def __init__(self, home: tuple[asyncio.AbstractEventLoop, int], tls: ssl.SSLContext | None, clock: Clock) -> None:
        self.home = home
        self._tls = tls
        self._clock = clock
        self._lookup: Lookup | None = None
        self._idle: deque[_Connection] = deque()
        self._lent: set[_Connection] = set()
        self._waiting: deque[asyncio.Future[_Connection | None]] = deque()
        # Connections, and leaves to make one.
        self._open = 0
        self._closed = False

    async def borrow(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a connection that nobody else uses.

        Raises:
            OSError: It cannot be connected (a TimeoutError is one, and so is an error of TLS).
        """
        connection = self._newest_idle(endpoint)
        if connection is None:
            left_s = until_s - self._clock.monotonic_s()
            try:
                connection = await self._connected_within(left_s, endpoint, until_s)
            except TimeoutError:
                where = f"{endpoint.host}:{endpoint.port}"
                raise TimeoutError(f"no connection to {where} within {left_s:.3f} s") from None
        self._lent.add(connection)
        if self._closed:
            connection.close()
        return connection

    async def _connected_within(self, left_s: float, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a connection in a task of its own: a settlement runs in none, and asyncio.timeout() needs one.

        Raises:
            OSError: It cannot be connected, or not in time, or the loop shuts down.
        """

        async def connect() -> _Connection:
            async with asyncio.timeout(left_s):
                return await self._wait_or_connect(endpoint, until_s)

        task = asyncio.create_task(connect())
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((task,))
            if not task.cancelled() and task.exception() is None:
                self.give_back(task.result())
            raise
        if task.cancelled():
            raise ConnectionError("the loop shuts down")
        return task.result()

    async def connect_alone(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a new connection, in excess of the maximum if need be.

        Raises:
            OSError: It cannot be connected (a TimeoutError is one, and so is an error of TLS).
        """
        self._open += 1
        try:
            async with asyncio.timeout(until_s - self._clock.monotonic_s()):
                connection = await self._connect(endpoint, until_s)
        except BaseException:
            self._release()
            raise
        self._lent.add(connection)
        if self._closed:
            connection.close()
        return connection

    def give_back(self, connection: _Connection) -> None:
        """Take a connection back, for the next who waits, or to lie idle; one in doubt is closed."""
        self._lent.discard(connection)
        if not connection.usable:
            connection.close()
            self._release()
        elif not self._wake(connection):
            self._idle.append(connection)
            # The newest is always the next, so the oldest may never be used again.
            if self._rested_s(self._idle[0]) >= _LONGEST_IDLE_S:
                self._idle.popleft().close()
                self._release()

    def close(self) -> None:
        """Close every connection; whoever waits for one is told."""
        self._closed = True
        loop, process = self.home
        if loop.is_closed() or process != os.getpid():
            for connection in (*self._idle, *self._lent):
                connection.abandon()
        elif loop is _running_loop():
            for connection in (*self._idle, *self._lent):
                connection.close()
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(ConnectionError("the connections were closed"))

    def retire(self) -> None:
        """Close every connection from any thread, also while the loop of this pool does not run."""
        loop, _ = self.home
        if loop.is_closed() or loop is _running_loop():
            self.close()
        else:
            loop.call_soon_threadsafe(self.close)

    def _newest_idle(self, endpoint: Endpoint) -> _Connection | None:
        """Return the idle connection that was used last; those that were idle for too long are closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and self._rested_s(connection) < _LONGEST_IDLE_S and connection.endpoint is endpoint:
                return connection
            connection.close()
            self._release()
        return None

    def _rested_s(self, connection: _Connection) -> float:
        return self._clock.monotonic_s() - connection.heard_s

    async def _wait_or_connect(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a connection that another has given back, or a new one where there is room for it."""
        if self._open < _MOST_CONNECTIONS:
            self._open += 1
        else:
            connection = await self._wait_in_turn()
            if connection is not None:
                return connection
        try:
            return await self._connect(endpoint, until_s)
        except BaseException:
            self._release()
            raise

    async def _wait_in_turn(self) -> _Connection | None:
        """Wait for a connection, or for leave to make one."""
        waiter: asyncio.Future[_Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # What was handed over to somebody who has left goes on to the next.
                connection = waiter.result()
                self._release() if connection is None else self.give_back(connection)
            raise

    async def _connect(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Make a connection to the first address that answers."""
        if self._lookup is None or self._lookup.endpoint is not endpoint:
            self._lookup = Lookup(endpoint)
        addresses = await runtime.shared(self._lookup.begin(), until_s - self._clock.monotonic_s())
        connected = await _connected(addresses, until_s, self._clock)
        connection = _Connection(endpoint, connected, self._clock)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                sock=connected,
                ssl=self._tls,
                server_hostname=endpoint.host if self._tls else None,
            )
        except BaseException:
            # The loop has closed the socket, unless it has just been handed over.
            connection.close()
            raise
        return connection

    def _release(self) -> None:
        """Give up a place among the connections; the next in the queue has it."""
        if not self._wake(None):
            self._open -= 1

    def _wake(self, connection: _Connection | None) -> bool:
        """Give the next in the queue a connection, or leave to make one; False if nobody waits."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False


async def _connected(addresses: list[Address], until_s: float, clock: Clock) -> socket.socket:
    """Return a socket that is connected to the first address that answers; each but the last has half the time left."""
    loop = asyncio.get_running_loop()
    failure: OSError = ConnectionError("the endpoint has no address")
    for number, (family, address) in enumerate(addresses, 1):
        left_s = until_s - clock.monotonic_s()
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            async with asyncio.timeout(left_s if number == len(addresses) else left_s / 2):
                await loop.sock_connect(plain, address)
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
