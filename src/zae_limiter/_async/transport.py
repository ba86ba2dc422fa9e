"""One signed DynamoDB call over HTTP/1.1: connections that are kept, deadlines, keys that are renewed in time.

Written by hand in both trees under the same names. It knows nothing of operations or items. A call is made once:
whether it is made again is decided by whoever knows what it does.
"""

import asyncio
import os
import ssl
from collections import deque

from zae_limiter._async import runtime
from zae_limiter.aws.account import Account, Freshness
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.calls import Call
from zae_limiter.tables.dynamodb.signing import Endpoint, Signer
from zae_limiter.tables.dynamodb.wire import Answer, AnswerReader, BrokenAnswerError

_MOST_CONNECTIONS = 64
_LONGEST_IDLE_S = 20.0
_NEXT_ADDRESS_AFTER_S = 0.25
_CHECK_KEYS_EVERY_S = 5.0


class Transport:
    """Makes calls to one endpoint, over at most so many connections at a time."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._pool = _Pool(account.tls(), clock)
        self._check_keys_at_s = clock.monotonic_s() + _CHECK_KEYS_EVERY_S
        self._renewing = runtime.Lock()

    async def call(self, call: Call, until_s: float) -> Answer | Unavailable:
        """Make one call, once; ``until_s`` is by the clock that never goes back."""
        try:
            if self._monotonic_s() >= self._check_keys_at_s:
                await self._check_keys(until_s)
            signer = self._account.signer
            connection = await self._pool.borrow(signer.endpoint, until_s)
        except Exception as error:  # noqa: BLE001 - a provider of keys or a resolver of names may raise anything
            return Unavailable(error, ambiguous=False)
        try:
            sent_s = self._monotonic_s()
            answer = await connection.ask(signer.request(call, self._server.signing_s()), until_s - sent_s)
        finally:
            # A connection whose caller was cancelled has an answer under way, and is closed here.
            self._pool.give_back(connection)
        if isinstance(answer, Answer):
            self._server.hear(answer.date_s, sent_s, connection.heard_s)
        return answer

    async def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Find keys anew, after the server has refused those of a signer as expired.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        left_s = until_s - self._monotonic_s()
        await runtime.within(left_s, lambda: runtime.in_thread(self._account.replace, refused))

    @property
    def signer(self) -> Signer:
        """What the next call is signed by."""
        return self._account.signer

    async def close(self) -> None:
        """Close every connection; calls under way end without an answer."""
        await self._pool.close()

    async def _check_keys(self, until_s: float) -> None:
        """See to it that keys are renewed: ahead of time in the background, and waited for only where they must be."""
        async with self._renewing:
            now_s = self._monotonic_s()
            if now_s < self._check_keys_at_s:
                return
            match self._account.freshness():
                case Freshness.STALE:
                    await runtime.within(until_s - now_s, lambda: runtime.in_thread(self._account.renew))
                case Freshness.AGING:
                    runtime.in_background(self._account.renew)
                case Freshness.FRESH:
                    self._account.adopt()
            self._check_keys_at_s = now_s + _CHECK_KEYS_EVERY_S


class _Connection(asyncio.Protocol):
    """One connection, which carries one call at a time."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.endpoint = endpoint
        self._loop = loop
        self._monotonic_s = clock.monotonic_s
        self._reader = AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer | Unavailable] | None = None
        self.heard_s = clock.monotonic_s()
        self.usable = True

    async def ask(self, request: bytes, timeout_s: float) -> Answer | Unavailable:
        """Send a request and wait for its answer."""
        if self._transport is None or not self.usable or timeout_s <= 0:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._expire, timeout_s)
        # Until the answer is whole the connection is in doubt.
        self.usable = False
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def close(self) -> None:
        """Close at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

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

    def connection_lost(self, exc: Exception | None) -> None:
        """Be cut off: a call under way may have been carried out all the same."""
        self.usable = False
        self._end(Unavailable(exc or ConnectionError("the connection was closed before the answer"), ambiguous=True))

    def _expire(self, timeout_s: float) -> None:
        self._end(Unavailable(TimeoutError(f"no answer within {timeout_s:.3f} s"), ambiguous=True))
        self.close()

    def _end(self, outcome: Answer | Unavailable) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(outcome)


class _Pool:
    """Connections that are kept: the idle ones, newest last, and a queue of those who wait for one."""

    def __init__(self, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._tls = tls
        self._clock = clock
        self._home: tuple[asyncio.AbstractEventLoop | None, int] = (None, 0)
        self._start_anew()

    def _start_anew(self) -> None:
        self._idle: list[_Connection] = []
        self._lent: set[_Connection] = set()
        self._waiting: deque[asyncio.Future[_Connection | None]] = deque()
        self._open = 0

    async def borrow(self, endpoint: Endpoint, until_s: float) -> _Connection:
        """Return a connection that nobody else uses.

        Raises:
            OSError: It cannot be connected (a TimeoutError is one, and so is an error of TLS).
        """
        loop = asyncio.get_running_loop()
        home = (loop, os.getpid())
        if home != self._home:
            # Connections belong to the loop they were made in, and are not shared with a forked child.
            self._home = home
            self._start_anew()
        connection = self._newest_idle(endpoint)
        if connection is None:
            left_s = until_s - self._clock.monotonic_s()
            try:
                async with asyncio.timeout(left_s):
                    connection = await self._wait_or_connect(endpoint, loop)
            except TimeoutError:
                where = f"{endpoint.host}:{endpoint.port}"
                raise TimeoutError(f"no connection to {where} within {left_s:.3f} s") from None
        self._lent.add(connection)
        return connection

    def give_back(self, connection: _Connection) -> None:
        """Take a connection back, for the next who waits, or to lie idle; one in doubt is closed."""
        if connection not in self._lent:
            # It was lent in another loop, or before the pool was closed.
            connection.close()
            return
        self._lent.remove(connection)
        if not connection.usable:
            self._drop(connection)
        else:
            self._pass_on(connection)

    async def close(self) -> None:
        """Close every connection."""
        if self._home == (asyncio.get_running_loop(), os.getpid()):
            for connection in (*self._idle, *self._lent):
                connection.close()
            # The loop tells connections of their end in a turn of its own.
            await asyncio.sleep(0)
        self._home = (None, 0)
        self._start_anew()

    def _newest_idle(self, endpoint: Endpoint) -> _Connection | None:
        """Return the idle connection that was used last; those that were idle for too long are closed."""
        while self._idle:
            connection = self._idle.pop()
            rested_s = self._clock.monotonic_s() - connection.heard_s
            if connection.usable and rested_s < _LONGEST_IDLE_S and connection.endpoint is endpoint:
                return connection
            self._drop(connection)
        return None

    async def _wait_or_connect(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> _Connection:
        """Return a connection that another has given back, or a new one where there is room for it."""
        while self._open >= _MOST_CONNECTIONS:
            connection = await self._wait_in_turn(loop)
            if connection is not None:
                return connection
        self._open += 1
        try:
            _, made = await loop.create_connection(
                lambda: _Connection(endpoint, loop, self._clock),
                endpoint.host,
                endpoint.port,
                ssl=self._tls,
                server_hostname=endpoint.host if self._tls else None,
                happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S,
            )
        except BaseException:
            self._open -= 1
            self._wake(None)
            raise
        return made

    async def _wait_in_turn(self, loop: asyncio.AbstractEventLoop) -> _Connection | None:
        """Wait for a connection, or for leave to make one."""
        waiter: asyncio.Future[_Connection | None] = loop.create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._pass_on(waiter.result())
            raise

    def _pass_on(self, connection: _Connection | None) -> None:
        """Hand a connection, or leave to make one, to the next in the queue; where there is none it lies idle."""
        if not self._wake(connection) and connection is not None:
            self._idle.append(connection)

    def _drop(self, connection: _Connection) -> None:
        connection.close()
        self._open -= 1
        self._wake(None)

    def _wake(self, connection: _Connection | None) -> bool:
        """Give the next in the queue a connection, or leave to make one; False if nobody waits."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False
