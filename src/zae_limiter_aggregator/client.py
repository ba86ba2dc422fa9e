"""Carry out requests on a DynamoDB table, one blocking call at a time.

Only calls that are safe to repeat are retried here: reads, and transactions with their token. If
the response of a single write is lost, the requester decides what to do.
"""

import time
from calendar import timegm
from collections.abc import Callable, Sequence
from email.utils import parsedate
from random import random
from typing import TypeVar

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import CorruptItemError, RateLimiterUnavailable
from zae_limiter.core.outcome import Cancelled, Committed, Item, TransactOutcome, Unavailable, WriteOutcome
from zae_limiter.core.server_time import Heard, ServerTime, judged, machine_offset, offset_of
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Key, Operation, Write
from zae_limiter.tables.dynamodb import errors, responses
from zae_limiter.tables.dynamodb.errors import Retry, ServiceFailure
from zae_limiter.tables.dynamodb.requests import Calls, DynamoDbCall
from zae_limiter_aggregator.apply import Pause, Read, TableAnswer, TableDialogue, TableRequest, Transaction, drive
from zae_limiter_aggregator.transport import AggregatorTransport

T = TypeVar("T")

_OK = 200
_CONFIRMATIONS = 3
"""The maximum number of reads on new connections that confirm or refute a date."""
_MOST_TRIES = 5
_FIRST_PAUSE_S = 0.05
_TOO_LATE = TimeoutError("no time left")
_MOST_READ_BYTES = 1 << 20
"""More than any batch of items that this package writes. A larger response could use up the function's memory."""
_UNPROCESSED = TimeoutError("DynamoDB repeatedly left parts of a batch unprocessed")


class AggregatorTable:
    """A DynamoDB table. Its clock is the server's, or the machine's before the first accepted response."""

    def __init__(
        self, caller: AggregatorTransport, table_name: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._caller = caller
        self._name = table_name
        self._calls = Calls(table_name)
        self._sleep = sleep
        self._time = ServerTime()
        self._in_time: Callable[[], bool] = lambda: True

    def now(self) -> TimeBounds:
        """Return the earliest and the latest possible server time, in milliseconds since the epoch."""
        known = self._time.known
        if known is None:
            now_ms = time.time_ns() // 1_000_000
            return now_ms, now_ms
        return known.at(_steady_ms())

    def run(self, dialogue: TableDialogue[T], in_time: Callable[[], bool]) -> T:
        """Carry out all requests of a dialogue while there is time.

        Raises:
            RateLimiterUnavailable: A read was not answered, or no time is left.
            InfrastructureNotFoundError: The table does not exist.
            ValidationError: DynamoDB rejects the request as invalid.
            CorruptItemError: An item is damaged, or too large for an item of this package.
        """
        self._in_time = in_time
        return drive(dialogue, self._answer)

    def _answer(self, ask: TableRequest) -> TableAnswer:
        if not self._in_time():
            raise RateLimiterUnavailable(_TOO_LATE, self._name)
        match ask:
            case Read(keys, consistent):
                return self._read(keys, consistent)
            case Transaction(operations, token):
                return self._transact(operations, token)
            case Pause(seconds):
                self._sleep(seconds * (0.5 + random() / 2))
                return None
            case write:
                return self._write(write)

    def _read(self, keys: Sequence[Key], consistent: bool) -> list[Item | None]:
        """Read items, and retry parts that were left unprocessed."""
        found: dict[Key, Item] = {}
        left = list(dict.fromkeys(keys))
        cause: BaseException = _UNPROCESSED
        for attempt in range(_MOST_TRIES):
            if attempt and not self._may_try_again(attempt):
                break
            told = self._call(self._calls.batch_get(left, consistent))
            if isinstance(told, bytes):
                if len(told) > _MOST_READ_BYTES:
                    raise CorruptItemError(left[0].pk, f"it and the items read with it have {len(told)} bytes")
                items, left = responses.batch_of(told)
                found.update({Key(item["PK"], item["SK"]): item for item in items})
                if not left:
                    return [found.get(key) for key in keys]
            elif isinstance(told, ServiceFailure):
                problem = errors.read_problem(told)
                if not isinstance(problem, Retry):
                    raise problem
                cause = problem.cause
            else:
                cause = told.cause
        raise RateLimiterUnavailable(cause, self._name)

    def _write(self, operation: Write) -> WriteOutcome:
        told = self._call(self._calls.write(operation))
        if isinstance(told, bytes):
            return responses.applied_of(operation, told)
        return errors.write_outcome(told) if isinstance(told, ServiceFailure) else told

    def _transact(self, operations: Sequence[Operation], token: str) -> TransactOutcome:
        """Send a transaction, and repeat it after a lost response; its token ensures that it is applied once."""
        call = self._calls.transact(operations, token)
        in_doubt: Unavailable | None = None
        for attempt in range(_MOST_TRIES):
            if attempt and not self._may_try_again(attempt):
                break
            outcome = self._transacted(call, len(operations))
            if isinstance(outcome, Unavailable) and outcome.ambiguous:
                in_doubt = outcome
            # A throttle or a conflict does not show whether an earlier attempt was applied.
            if in_doubt is None or isinstance(outcome, Committed | Cancelled):
                return outcome
        assert in_doubt is not None, "only a transaction in doubt is retried"
        return in_doubt

    def _transacted(self, call: DynamoDbCall, count: int) -> TransactOutcome:
        told = self._call(call)
        if isinstance(told, bytes):
            return Committed()
        return errors.transact_outcome(told, count) if isinstance(told, ServiceFailure) else told

    def _call(self, call: DynamoDbCall) -> bytes | ServiceFailure | Unavailable:
        """Make one call, without retries; return its JSON, its failure, or that the outcome is unknown.

        A date that contradicts what is known is confirmed or refuted on other connections before it
        is used.
        """
        result = self._made(call)
        for _ in range(_CONFIRMATIONS):
            if self._time.suspect is None:
                break
            self._caller.reconnect()
            self._made(self._calls.batch_get([version_item.key()], consistent=False))
        return result

    def _made(self, call: DynamoDbCall) -> bytes | ServiceFailure | Unavailable:
        sent_ms = _steady_ms()
        # Sign at the middle of the bounds, in seconds. A signature may be some minutes off.
        answer = self._caller.call(call, sum(self.now()) // 2000)
        if isinstance(answer, Unavailable):
            return answer
        date_s, received_ms = _seconds(answer.date), _steady_ms()
        if date_s is not None:
            heard = Heard(offset_of(date_s, sent_ms, received_ms), self._caller.connection)
            machine = machine_offset(time.time_ns() // 1_000_000, received_ms)
            self._time = judged(self._time, heard, machine)
        if answer.status == _OK:
            return answer.body
        return errors.failure_of(answer.status, answer.error_type, answer.body, self._name)

    def _may_try_again(self, attempt: int) -> bool:
        """Wait before a retry; False if there is no time for one."""
        if not self._in_time():
            return False
        self._sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1) * (0.5 + random() / 2))
        return True


def _seconds(date: str | None) -> int | None:
    """Return a date in seconds since the epoch, None if it is missing or not a date."""
    try:
        parsed = parsedate(date)
        return None if parsed is None else timegm(parsed)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _steady_ms() -> int:
    """Return a monotonic time that continues while a Lambda is frozen, if the system has such a clock."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() // 1_000_000 if boot_time is None else time.clock_gettime_ns(boot_time) // 1_000_000
