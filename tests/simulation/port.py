"""A client's connection to the simulated server: the table port over a network that delays, loses and breaks.

It answers as ``DynamoTable`` does. A write whose answer was lost is ambiguous, and its caller decides what to do. A
transaction is retried with its token, and a read is retried, within the deadline. Every answer has the server's time in
whole seconds. The client's clock is the real ``ServerClock`` over a local clock that is wrong and drifts. Single
answers may have a wrong date; then the real ``TimeProbe`` asks on another connection.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, NamedTuple

from tests.simulation.loop import START_MS, ProcessLoop, Timeline
from tests.simulation.server import Sent, Server, nonce_of
from zae_limiter._async.time_probe import TimeProbe
from zae_limiter.clock import ServerClock
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import (
    Cancelled,
    Committed,
    Conflict,
    Item,
    Missing,
    Refused,
    Throttled,
    TransactOutcome,
    Unavailable,
    WriteOutcome,
)
from zae_limiter.core.status import BackendCapabilities
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Key, Operation, Page, Query, Write
from zae_limiter.tables.dynamodb.http_parser import HttpResponse as Response
from zae_limiter.tables.dynamodb.requests import Calls, DynamoDbCall

Answer = Any

LOST_REQUEST, LOST_RESPONSE, LATE, THROTTLE, UNREACHABLE = (
    "lost-request",
    "lost-response",
    "late",
    "throttle",
    "unreachable",
)
WRONG_DATE = "wrong-date"
NETWORK_FAULTS = (LOST_REQUEST, LOST_RESPONSE, LATE, THROTTLE, UNREACHABLE)

_NO_ANSWER = Unavailable(TimeoutError("no answer"), ambiguous=True)
_RESET = Unavailable(ConnectionResetError("the connection was reset"), ambiguous=True)
_REFUSED = Unavailable(ConnectionRefusedError("connection refused"), ambiguous=False)
_UNCONFIRMED = Unavailable(TimeoutError("the server's time could not be confirmed"), ambiguous=False)
_ANSWERED = Response(200, b"{}", None, "")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.2
_WRONG_BY_S = (60, 86_400)
"""The smallest and the largest error of a wrong date, in seconds; hardly two agree."""


class LocalClock:
    """The clocks of one machine: the error of its time of day, and the drift of its monotonic clock."""

    def __init__(self, timeline: Timeline, ahead_ms: int = 0, drift: float = 0.0) -> None:
        self._timeline = timeline
        self._ahead_ms = START_MS + ahead_ms
        self._pace = 1.0 + drift

    def now_ms(self) -> int:
        return self._ahead_ms + int(self._timeline.now_s * 1000)

    def monotonic_s(self) -> float:
        return 1000.0 + self._timeline.now_s * self._pace


@dataclass(frozen=True, slots=True)
class Network:
    """The latency of a call, and the probability of each fault.

    ``late_s`` is how long after its deadline a late request may still arrive.
    """

    chances: Mapping[str, float]
    least_s: float = 0.001
    extra_s: float = 0.008
    late_s: float = 0.5

    @property
    def reliable(self) -> bool:
        """Whether no fault ever happens."""
        return not any(self.chances.values())


class Port:
    """The table port of one simulated process."""

    inline = False
    log = None
    together = None

    def __init__(self, loop: ProcessLoop, timeline: Timeline, server: Server, network: Network, of: "Machine") -> None:
        self.capabilities = BackendCapabilities(partition_writes_per_second=of.partition_writes_per_s)
        self.index_lag_s = 0.5
        self.faults: Counter[str] = Counter()
        self.failures = 0
        self.writes = 0
        self._loop = loop
        self._timeline = timeline
        self._server = server
        self._network = network
        self._random = of.random
        self._clock = of.clock
        self._deadline_s = of.deadline_s
        self._server_clock = ServerClock(of.clock)
        self.now: Callable[[], TimeBounds] = self._server_clock.now
        self._thresholds = _thresholds(network)
        probe = Calls("simulated").get(version_item.key())
        self._probe = TimeProbe(self, probe, self._server_clock, of.clock)
        self.server_time = self._probe
        # Separate random numbers: dates are drawn for every answer, and must not change the rest of the run.
        self._dates = Random(f"dates {of.random.getrandbits(64)}") if network.chances.get(WRONG_DATE) else None
        self._connections = count(1)
        self._idle: list[int] = []
        # A retried write was decided when it was first sent.
        self._decided: dict[Any, TimeBounds] = {}

    async def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        (item,) = await self._read(lambda: self._server.read((key,), consistent=consistent), until_s)
        return item  # type: ignore[no-any-return] # one answer of many kinds

    async def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        return await self._read(lambda: self._server.read(keys, consistent=consistent), until_s)  # type: ignore[no-any-return] # see above

    async def query(self, query: Query) -> Page:
        return await self._read(lambda: self._server.query(query), None)  # type: ignore[no-any-return] # see above

    async def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        self.writes += 1
        now_s = self._clock.monotonic_s()
        by_s = until_s or now_s + self._deadline_s
        if self._server_clock.unconfirmed:
            return await self._current(operation, by_s) if await self._probe.confirm(by_s) else _UNCONFIRMED
        time_bounds = self._decided_at(operation)
        server, process = self._server, self._loop.name

        def act(heard: bool, answer: Callable[[Answer], None]) -> None:
            answer(server.write(operation, Sent(process, time_bounds, not (heard and self._loop.alive))))

        outcome = await self._send(act, (by_s - now_s) / 2)
        if self._server_clock.suspicious:
            self._probe.start()
        if outcome.__class__ is Unavailable or outcome.__class__ is Throttled:
            self.failures += 1
            if len(self._decided) > 10_000:
                # Not all of them: a write that is repeated later would count as decided then.
                del self._decided[next(iter(self._decided))]
            self._decided[nonce_of(operation)] = time_bounds
        return outcome  # type: ignore[no-any-return] # see above

    async def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        server, process, network = self._server, self._loop.name, self._timeline.network
        time_bounds = self._server_clock.now()
        operations = list(operations)

        def act(heard: bool, answer: Callable[[Answer], None]) -> None:
            outcome = server.prepare(operations, token)
            if outcome is None:
                network.call_later(0.001 + 0.004 * self._random.random(), commit, heard, answer)
            else:
                answer(outcome)

        def commit(heard: bool, answer: Callable[[Answer], None]) -> None:
            answer(server.commit(operations, token, Sent(process, time_bounds, not (heard and self._loop.alive))))

        by_s = until_s or self._clock.monotonic_s() + 5 * self._deadline_s
        if self._server_clock.unconfirmed:
            return Conflict() if await self._probe.confirm(by_s) else _UNCONFIRMED
        return await self._transacted(act, by_s)

    async def batch_delete(self, keys: Sequence[Key]) -> None:
        sent = Sent(self._loop.name, self._server_clock.now(), unanswered=False)
        await self._read(lambda: self._server.delete(list(keys), sent), None)

    async def call(self, call: DynamoDbCall, until_s: float, *, alone: bool = False) -> Response | Unavailable:
        """Make a call that only asks for the time."""
        attempt_s = until_s - self._clock.monotonic_s()
        answer = await self._send(lambda heard, answer: answer(_ANSWERED), attempt_s, alone=alone)
        return answer if isinstance(answer, Response) else _NO_ANSWER

    async def call_alone(self, call: DynamoDbCall, until_s: float) -> Response | Unavailable:
        """Make a call that only asks for the time, on a new connection."""
        return await self.call(call, until_s, alone=True)

    def for_thread(self) -> "Port":
        """Return the port: renewals run in the loop of the process."""
        return self

    async def close(self) -> None:
        """Do nothing: a port has nothing to close."""

    async def _current(self, operation: Write, until_s: float) -> WriteOutcome:
        """Answer a write that was not sent with the current item."""
        item = await self.get(operation.key, consistent=True, until_s=until_s)
        return Missing() if item is None else Refused(item)

    async def _transacted(self, act: "Act", until_s: float) -> TransactOutcome:
        """Send a transaction, and retry while it is ambiguous."""
        pause_s = _FIRST_PAUSE_S
        in_doubt: Unavailable | None = None
        while True:
            outcome = await self._send(act, (until_s - self._clock.monotonic_s()) / 2)
            if isinstance(outcome, Unavailable) and outcome.ambiguous:
                in_doubt = outcome
            if not isinstance(outcome, Committed | Cancelled):
                self.failures += 1
            if isinstance(outcome, Cancelled):
                return replace(outcome, in_doubt=in_doubt is not None)
            if in_doubt is None or isinstance(outcome, Committed):
                return outcome  # type: ignore[no-any-return] # see above
            if self._clock.monotonic_s() + pause_s >= until_s:
                return in_doubt
            await asyncio.sleep(pause_s * (0.5 + self._random.random() / 2))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def _read(self, read: Callable[[], Answer], until_s: float | None) -> Answer:
        """Read, and retry until there is an answer."""
        by_s = self._clock.monotonic_s() + self._deadline_s if until_s is None else until_s
        pause_s = _FIRST_PAUSE_S
        while True:
            answer = await self._send(lambda heard, answer: answer(read()), (by_s - self._clock.monotonic_s()) / 2)
            if not isinstance(answer, Unavailable | Throttled):
                if self._server_clock.unconfirmed:
                    await self._probe.confirm(by_s)
                elif self._server_clock.suspicious:
                    self._probe.start()
                return answer
            self.failures += 1
            if self._clock.monotonic_s() + pause_s >= by_s:
                raise RateLimiterUnavailable(TimeoutError("no answer to a read"))
            await asyncio.sleep(pause_s * (0.5 + self._random.random() / 2))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def _decided_at(self, operation: Write) -> TimeBounds:
        """Return the client's time bounds when it decided on a write."""
        if self._decided:
            decided = self._decided.get(nonce_of(operation))
            if decided is not None:
                return decided
        return self._server_clock.now()

    def _send(self, act: "Act", attempt_s: float, *, alone: bool = False) -> "asyncio.Future[Answer]":
        """Send a request once. The future gets the answer, or the failure, by the end of the attempt.

        ``alone``: on a new connection, which is not kept. A connection whose request failed is not kept either.
        """
        loop, network, random = self._loop, self._network, self._random
        future = loop.create_future()
        sent_s = self._clock.monotonic_s()
        fault = self._fault()
        there_s = network.least_s + network.extra_s * random.random() * random.random()
        back_s = network.least_s + network.extra_s * random.random() * random.random()
        attempt_s = max(0.001, attempt_s)
        connection = self._idle.pop() if self._idle and not alone else next(self._connections)
        if fault is None and there_s + back_s + 0.01 < attempt_s:

            def answer(outcome: Answer) -> None:
                answer_time = AnswerTime(self._dated(self._server.date_s()), sent_s, connection, kept=not alone)
                loop.call_later(back_s, self._receive, future, outcome, answer_time)

            self._timeline.network.call_later(there_s, act, True, answer)
            return future
        self.faults[fault or LATE] += 1
        if fault is THROTTLE or fault is UNREACHABLE:
            outcome = Throttled() if fault is THROTTLE else _REFUSED
            loop.call_later(there_s, _deliver, future, outcome)
            return future
        silent = fault is None or fault is LATE or random.random() < 0.5
        # A lost message is noticed at the end of the attempt, a broken connection immediately.
        if fault is not LOST_REQUEST:
            if fault is not LOST_RESPONSE:
                there_s = attempt_s + network.late_s * random.random()
            self._timeline.network.call_later(there_s, act, False, _ignore)
        if silent:
            loop.call_later(attempt_s, _deliver, future, _NO_ANSWER)
        else:
            loop.call_later(there_s + back_s, _deliver, future, _RESET)
        return future

    def _fault(self) -> str | None:
        if not self._thresholds:
            return None
        drawn = self._random.random()
        for fault, threshold in self._thresholds:
            if drawn < threshold:
                return fault
        return None

    def _dated(self, date_s: int) -> int:
        """Return the date of an answer, sometimes wrong by minutes or hours."""
        dates = self._dates
        if dates is None or dates.random() >= self._network.chances[WRONG_DATE]:
            return date_s
        self.faults[WRONG_DATE] += 1
        return date_s + dates.choice((-1, 1)) * dates.randint(*_WRONG_BY_S)

    def _receive(self, future: "asyncio.Future[Answer]", outcome: Answer, answer_time: "AnswerTime") -> None:
        self._server_clock.hear(
            answer_time.date_s, answer_time.sent_s, self._clock.monotonic_s(), answer_time.connection
        )
        if answer_time.kept:
            self._idle.append(answer_time.connection)
        if not future.done():
            future.set_result(outcome)


class AnswerTime(NamedTuple):
    """The date of an answer, when its request was sent, and its connection with whether that is kept."""

    date_s: int
    sent_s: float
    connection: int
    kept: bool


Act = Callable[[bool, Callable[[Answer], None]], None]
"""Carries out a request at the server. Receives whether the answer will arrive, and how to answer."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The clock, the random numbers and the limits of one process."""

    clock: LocalClock
    random: Random
    deadline_s: float
    partition_writes_per_s: int


def _deliver(future: "asyncio.Future[Answer]", outcome: Answer) -> None:
    if not future.done():
        future.set_result(outcome)


def _ignore(outcome: Answer) -> None:
    """Drop the answer."""


def _thresholds(network: Network) -> list[tuple[str, float]]:
    found, reached = [], 0.0
    for fault in NETWORK_FAULTS:
        if network.chances.get(fault):
            reached += network.chances[fault]
            found.append((fault, reached))
    return found
