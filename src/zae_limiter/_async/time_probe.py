"""Reads that ask for nothing but the server's time.

A response that contradicts what is known of the server's clock is confirmed or refuted by a read on a new connection.
Where a rough knowledge of the time has cost an admission, reads at chosen moments locate the turn of the second. Each
read is a GetItem of the version record: half a read unit, and every client may read it.
"""

from typing import Protocol

import zae_limiter.runtime.aio as runtime
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb import errors
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

_READ_S = 2.0
"""How long one read may take."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 10.0
_FORGET_S = 60.0
"""After this many seconds without a suspect, the pauses begin short again."""
_CONFIRMATIONS = 5
"""Reads that the first write of a client waits for, at the most."""
_MOST_READS = 48
"""Reads that locate the turn of the second, at the most."""
_NARROW_EVERY_S = 10.0
_OK = 200


class Reader(Protocol):
    """A transport that can also make a call on a connection of its own."""

    async def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make one call, once."""

    async def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make one call, once, on a new connection that is closed afterwards."""


class TimeProbe:
    """Learns the server's time by reads of its own, one at a time, beside all callers."""

    def __init__(self, caller: Reader, call: DynamoDbCall, server: ServerClock, clock: Clock) -> None:
        self._caller = caller
        self._call = call
        self._server = server
        self._monotonic_s = clock.monotonic_s
        self._background = runtime.Background()
        self._pause_s = _FIRST_PAUSE_S
        self._not_before_s = self._narrow_at_s = clock.monotonic_s()
        self._narrows = False

    def start(self) -> None:
        """Ask in the background, unless that is being done; after false alarms less and less often."""
        now_s = self._monotonic_s()
        if now_s >= self._not_before_s:
            if now_s >= self._not_before_s + _FORGET_S:
                self._pause_s = _FIRST_PAUSE_S
            self._background.start(self._run)

    def narrow(self) -> None:
        """Locate the turn of the server's second in the background, unless that was done a moment ago."""
        now_s = self._monotonic_s()
        if now_s >= self._narrow_at_s:
            self._narrow_at_s = now_s + _NARROW_EVERY_S
            self._narrows = True
            self._background.start(self._run)

    def latest_ms(self, local_s: float) -> int | None:
        """Return the latest the server's clock may have shown at a time of the clock that never goes back."""
        return self._server.latest_ms(local_s)

    async def confirm(self, until_s: float) -> bool:
        """Ask until a second connection has confirmed the time; False if none has by the deadline."""
        for _ in range(_CONFIRMATIONS):
            if not self._server.unconfirmed or self._monotonic_s() >= until_s:
                break
            await self._ask(until_s)
        return not self._server.unconfirmed

    async def stop(self) -> None:
        """End the work in the background."""
        await self._background.stop()

    def join(self) -> None:
        """Wait for the end of the work, once the transport is closed."""
        self._background.join()

    async def _run(self) -> None:
        asked = True
        while asked and self._server.suspicious:
            await self._ask(self._monotonic_s() + _READ_S)
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
            self._not_before_s = self._monotonic_s() + self._pause_s
            asked = await self._background.pause(self._pause_s)
        if asked and self._narrows:
            self._narrows = False
            await self._locate()

    async def _locate(self) -> None:
        """Read around the turn of the second until it is known well."""
        trip_s = 0.0
        for _ in range(_MOST_READS):
            at_s, now_s = self._server.next_read_s(trip_s), self._monotonic_s()
            if at_s is None or (at_s > now_s and not await self._background.pause(at_s - now_s)):
                return
            sent_s = self._monotonic_s()
            await self._caller.call(self._call, sent_s + _READ_S)
            took_s = self._monotonic_s() - sent_s
            trip_s = min(trip_s, took_s) if trip_s else took_s

    async def _ask(self, until_s: float) -> None:
        answer = await self._caller.call_alone(self._call, until_s)
        if isinstance(answer, HttpResponse) and answer.status != _OK:
            failure = errors.failure_of(answer.status, answer.error_type, answer.body, "")
            if errors.clock_refused(failure):
                self._server.sign_by_suspect()
