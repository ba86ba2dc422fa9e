"""Translates DynamoDB's error codes, all of them in this module. Pure.

Each error answers three questions: may the write have been carried out, may a retry succeed, and who can fix it? An
error that passes with time, or when access is restored, becomes a value. An error that needs a change by the caller or
the operator is raised.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter.core.errors import (
    InfrastructureNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.outcome import Cancelled, Conflict, Missing, Refused, Throttled, Unavailable
from zae_limiter.tables.dynamodb.codec import decode_item
from zae_limiter.tables.dynamodb.json import JSONDecodeError, loads

_LONGEST_MESSAGE = 300
_THROTTLED, _CONTESTED, _MISSING, _CONFLICT = Throttled(), Throttled(contested=True), Missing(), Conflict()
_PARTITION_THROTTLED, _SHARED_THROTTLED = Throttled(partition=True), Throttled(partition=False)
_OF_TABLE, _OF_KEY_RANGE = "Table", "KeyRange"
"""Parts of a throttling reason, such as TableWriteKeyRangeThroughputExceeded."""
_CANCELLED, _CONDITION_FAILED = "TransactionCanceledException", "ConditionalCheckFailedException"

_THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "LimitExceededException",
        "BandwidthLimitExceeded",
        "SlowDown",
    }
)
# Nothing was written, because another request is writing the same item. A retry may succeed after a short pause.
_CONTESTS = frozenset({"TransactionConflictException", "ReplicatedWriteConflictException"})
_TOO_MANY_REQUESTS = 429

# It is unknown whether the write was carried out. A transaction in progress was sent twice, and the first is running.
_UNDECIDED = frozenset({"TransactionInProgressException", "RequestTimeout", "RequestTimeoutException"})
_REQUEST_TIMEOUT = 408

_NO_TABLE = frozenset({"ResourceNotFoundException", "TableNotFoundException"})

_TABLE_EXISTS = frozenset({"ResourceInUseException", "TableAlreadyExistsException"})

_BAD_REQUESTS = frozenset(
    {"ValidationException", "SerializationException", "IdempotentParameterMismatchException", "RequestEntityTooLarge"}
)
_ENTITY_TOO_LARGE = 413

_EXPIRED_CREDENTIALS = frozenset(
    {"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId"}
)
_WRONG_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_ACCESS = (
    frozenset(
        {
            "AccessDeniedException",
            "AccessDenied",
            "NotAuthorized",
            "OptInRequired",
            "InvalidSignatureException",
            "SignatureDoesNotMatch",
            "IncompleteSignature",
            "IncompleteSignatureException",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
        }
    )
    | _EXPIRED_CREDENTIALS
    | _WRONG_CLOCK
)

_REASON_CONDITION, _REASON_CONFLICT, _REASON_INVALID = (
    "ConditionalCheckFailed",
    "TransactionConflict",
    "ValidationError",
)
_REASON_THROTTLES = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})

# The message about a refused signature repeats the signed headers, including the session token. It is cut at these.
_CONFIDENTIAL = ("\n", "The Canonical String", "Authorization=", "Authorization header:")


@dataclass(frozen=True, slots=True)
class ServiceFailure:
    """A response other than 200: its code ("" if it has none), its shortened message and its parsed body."""

    status: int
    code: str
    message: str
    body: Mapping[str, Any] = field(repr=False)
    table_name: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A read that may succeed if it is sent again; if ``throttled``, only after a pause."""

    cause: Exception
    throttled: bool


class AccessRefused(Exception):  # noqa: N818 - a cause, named for what happened
    """DynamoDB denied access or refused the signature. Nothing was done."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    def __str__(self) -> str:
        said = f"{self.code}: {self.message}".rstrip(".: ")
        return f"{said}. Check the credentials, their permissions, and this machine's clock."


class CallFailed(Exception):  # noqa: N818 - a cause, named for what happened
    """DynamoDB, or a proxy before it, responded with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(status, code, message)

    def __str__(self) -> str:
        return f"HTTP {self.status} {self.code}: {self.message}" if self.code else f"HTTP {self.status}"


def failure_of(status: int, error_type: str | None, body: bytes, table_name: str) -> ServiceFailure:
    """Parse a response other than 200; ``error_type`` is its header ``x-amzn-errortype``, None if it is missing."""
    try:
        parsed = loads(body)
    except JSONDecodeError:
        parsed = None
    if type(parsed) is not dict:
        parsed = {}
    found = parsed.get("__type") or error_type or ""
    code = str(found).rpartition("#")[2].partition(":")[0].strip()
    message = str(parsed.get("message") or parsed.get("Message") or "")
    return ServiceFailure(status, code, _shown(message), parsed, table_name)


def write_outcome(failure: ServiceFailure) -> Refused | Missing | Throttled | Unavailable:
    """Return the outcome of a failed write of one operation.

    Raises:
        InfrastructureNotFoundError: The table does not exist.
        ValidationError: DynamoDB rejects such an operation, whether or not its conditions hold.
    """
    if failure.code == _CONDITION_FAILED:
        return _refusal(failure.body)
    return _outcome(failure)


def transact_outcome(failure: ServiceFailure, count: int) -> Cancelled | Conflict | Throttled | Unavailable:
    """Return the outcome of a failed transaction of ``count`` operations.

    Raises:
        InfrastructureNotFoundError: The table does not exist.
        ValidationError: DynamoDB rejects such a transaction, whether or not its conditions hold. Or an earlier
            transaction with other operations had the same token.
    """
    if failure.code == "TransactionConflictException":
        return _CONFLICT
    if failure.code != _CANCELLED:
        return _outcome(failure)
    reasons = failure.body.get("CancellationReasons")
    if type(reasons) is not list or len(reasons) != count or any(type(reason) is not dict for reason in reasons):
        return Unavailable(_call_failed(failure), ambiguous=False)
    return _cancellation(failure, reasons)


def read_problem(failure: ServiceFailure) -> Retry | ZAELimiterError:
    """Return a retry if a failed read may be sent again, else the error to raise."""
    try:
        outcome = _outcome(failure)
    except ZAELimiterError as error:
        return error
    if isinstance(outcome, Throttled):
        return Retry(_call_failed(failure), throttled=True)
    if outcome.ambiguous:
        return Retry(_call_failed(failure), throttled=False)
    return RateLimiterUnavailable(outcome.cause, failure.table_name)


def clock_refused(failure: ServiceFailure) -> bool:
    """Return whether a signature was refused for its time: the signing time was wrong, or the call was slow."""
    message = failure.message
    return failure.code in _WRONG_CLOCK or "Signature expired" in message or "Signature not yet current" in message


def credentials_expired(failure: ServiceFailure) -> bool:
    """Return whether newer credentials may be accepted."""
    return failure.code in _EXPIRED_CREDENTIALS


def no_such_table(failure: ServiceFailure) -> bool:
    """Return whether the table does not exist."""
    return failure.code in _NO_TABLE


def exists_already(failure: ServiceFailure) -> bool:
    """Return whether a table was not created because it exists already."""
    return failure.code in _TABLE_EXISTS


def enabled_already(failure: ServiceFailure) -> bool:
    """Return whether the expiry of items was not enabled because it is enabled already."""
    return failure.code == "ValidationException" and "already enabled" in failure.message


def throttling_reasons(failure: ServiceFailure) -> list[str]:
    """Return why a call was throttled, by DynamoDB's reasons or else its error code; empty if it was not throttled."""
    parts = _cancellation_reasons(failure)
    codes = [failure.code, *(str(part.get("Code")) for part in parts)]
    throttles = [code for code in codes if code in _THROTTLES | _REASON_THROTTLES]
    if not throttles and failure.status != _TOO_MANY_REQUESTS:
        return []
    return _reasons([failure.body, *parts]) or throttles[:1] or [f"HTTP {failure.status}"]


def refused_write_units(failure: ServiceFailure) -> int:
    """Return the least number of write units that a write costs whose condition failed; 0 for other failures.

    DynamoDB bills them but does not report them. An item below 1 KB is one unit, and two in a transaction.
    """
    if failure.code == _CONDITION_FAILED:
        return 1
    parts = _cancellation_reasons(failure)
    return 2 * len(parts) if any(part.get("Code") == _REASON_CONDITION for part in parts) else 0


def _cancellation_reasons(failure: ServiceFailure) -> list[Mapping[str, Any]]:
    reasons = failure.body.get("CancellationReasons") if failure.code == _CANCELLED else None
    return [reason for reason in reasons if isinstance(reason, Mapping)] if type(reasons) is list else []


def _outcome(failure: ServiceFailure) -> Throttled | Unavailable:
    """Return the outcome of any failed call; a known code takes precedence over the HTTP status."""
    code, status = failure.code, failure.status
    if code in _THROTTLES or status == _TOO_MANY_REQUESTS:
        return _throttle([failure.body])
    if code in _CONTESTS:
        return _CONTESTED
    if code in _NO_TABLE:
        raise InfrastructureNotFoundError(failure.table_name)
    if code in _BAD_REQUESTS or status == _ENTITY_TOO_LARGE:
        raise ValidationError("request", code or status, failure.message or "DynamoDB rejects it")
    if code in _ACCESS:
        return Unavailable(AccessRefused(code, failure.message), ambiguous=False)
    # According to DynamoDB's documentation, a write may have been carried out if the response is a server error.
    ambiguous = status >= 500 or status == _REQUEST_TIMEOUT or code in _UNDECIDED
    return Unavailable(_call_failed(failure), ambiguous)


def _cancellation(
    failure: ServiceFailure, reasons: Sequence[Mapping[str, Any]]
) -> Cancelled | Conflict | Throttled | Unavailable:
    """Return the outcome of a cancelled transaction; of several reasons, the most definite one decides."""
    codes = [str(reason.get("Code") or "None") for reason in reasons]
    if _REASON_INVALID in codes:
        number = codes.index(_REASON_INVALID)
        message = _shown(str(reasons[number].get("Message") or "DynamoDB rejects it"))
        raise ValidationError("operation", number, message)
    # A failed condition takes precedence over a conflict. It was evaluated on the stored item, so a retry would fail
    # again. A conflict only means that another item was not evaluated.
    if _REASON_CONDITION in codes:
        pairs = zip(codes, reasons, strict=True)
        return Cancelled(tuple(_refusal(reason) if code == _REASON_CONDITION else None for code, reason in pairs))
    if _REASON_CONFLICT in codes:
        return _CONFLICT
    if not _REASON_THROTTLES.isdisjoint(codes):
        throttled = [reason for code, reason in zip(codes, reasons, strict=True) if code in _REASON_THROTTLES]
        return _throttle([failure.body, *throttled])
    other = next((code for code in codes if code != "None"), failure.code)
    return Unavailable(CallFailed(failure.status, other, failure.message), ambiguous=False)


def _throttle(parts: Sequence[Mapping[str, Any]]) -> Throttled:
    """Return a throttle, with the scope that the parts of a response give as reason: one partition or all keys."""
    found = _reasons(parts)
    if not found:
        return _THROTTLED
    return _PARTITION_THROTTLED if any(_is_key_range(reason) for reason in found) else _SHARED_THROTTLED


def _reasons(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the throttling reasons of the parts of a response."""
    found: list[str] = []
    for part in parts:
        reasons = part.get("ThrottlingReasons") or part.get("throttlingReasons")
        for one in reasons if type(reasons) is list else ():
            reason = one.get("reason") or one.get("Reason") if isinstance(one, Mapping) else None
            if type(reason) is str:
                found.append(reason)
    return found


def _is_key_range(reason: str) -> bool:
    """Return whether a reason is the partition of the written item; that of an index entry is another one."""
    return reason.startswith(_OF_TABLE) and _OF_KEY_RANGE in reason


def _refusal(answer: Mapping[str, Any]) -> Refused | Missing:
    """Return the outcome of a failed condition, with the item on which it failed."""
    item = answer.get("Item")
    return Refused(decode_item(item)) if item else _MISSING


def _call_failed(failure: ServiceFailure) -> CallFailed:
    return CallFailed(failure.status, failure.code, failure.message)


def _shown(message: str) -> str:
    """Return the server's message without confidential parts, short enough for a log."""
    for mark in _CONFIDENTIAL:
        message = message.partition(mark)[0]
    return message.strip()[:_LONGEST_MESSAGE]
