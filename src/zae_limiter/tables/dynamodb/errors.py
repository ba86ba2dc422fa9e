"""What DynamoDB's errors mean, every code in this one place. Pure.

Of each error three things are asked: may the write have been carried out all the same, would the same call fare better
later, and who can mend it. What heals by waiting, or by somebody mending access, is a value; what the caller or
the operator must change before any call can succeed is raised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zae_limiter.core.errors import (
    InfrastructureNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.outcome import Cancelled, Conflict, Missing, Refused, Throttled, Unavailable
from zae_limiter.tables.dynamodb.codec import decode_item
from zae_limiter.tables.dynamodb.json import JSONDecodeError, loads

_LONGEST_MESSAGE = 300
_THROTTLED, _CONTESTED, _MISSING, _CONFLICT = Throttled(), Throttled(contested=True), Missing(), Conflict()
_PARTITION_THROTTLED, _SHARED_THROTTLED = Throttled(partition=True), Throttled(partition=False)
_OF_TABLE, _OF_KEY_RANGE = "Table", "KeyRange"
"""Parts of a reason, such as TableWriteKeyRangeThroughputExceeded."""
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
# Nothing was written because others are writing the same item: it heals by waiting a moment.
_CONTESTS = frozenset({"TransactionConflictException", "ReplicatedWriteConflictException"})
_TOO_MANY_REQUESTS = 429

# Whether it was carried out cannot be told. A transaction in progress is one sent twice: its first sending goes on.
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

# A refused signature is explained with the headers that were signed, session token and all.
_CONFIDENTIAL = ("\n", "The Canonical String", "Authorization=", "Authorization header:")


@dataclass(frozen=True, slots=True)
class ServiceFailure:
    """An answer other than 200: its code (empty if it has none), its message, shortened, and its parsed body."""

    status: int
    code: str
    message: str
    body: Mapping[str, Any] = field(repr=False)
    table_name: str


@dataclass(frozen=True, slots=True)
class Retry:
    """The same read may succeed if it is sent again; ``throttled``: not at once."""

    cause: Exception
    throttled: bool


class AccessRefused(Exception):  # noqa: N818 - a cause, named for what happened
    """DynamoDB does not let this caller do this. Nothing was done."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    def __str__(self) -> str:
        told = f"{self.code}: {self.message}".rstrip(".: ")
        return f"{told}. Check the credentials, what they allow, and this machine's clock."


class CallFailed(Exception):  # noqa: N818 - a cause, named for what happened
    """DynamoDB, or something on the way to it, answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(status, code, message)

    def __str__(self) -> str:
        return f"HTTP {self.status} {self.code}: {self.message}" if self.code else f"HTTP {self.status}"


def failure_of(status: int, error_type: str | None, body: bytes, table_name: str) -> ServiceFailure:
    """Read an answer other than 200; ``error_type`` is its header ``x-amzn-errortype``, if it has one."""
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
    """What a failed write of one operation comes to.

    Raises:
        InfrastructureNotFoundError: There is no such table.
        ValidationError: DynamoDB would not carry out such an operation, whatever the conditions.
    """
    if failure.code == _CONDITION_FAILED:
        return _refusal(failure.body)
    return _outcome(failure)


def transact_outcome(failure: ServiceFailure, count: int) -> Cancelled | Conflict | Throttled | Unavailable:
    """What a failed transaction of ``count`` operations comes to.

    Raises:
        InfrastructureNotFoundError: There is no such table.
        ValidationError: DynamoDB would not carry out such a transaction, whatever the conditions, or it was carried
            out already, with other operations under the same token.
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
    """Whether a failed read may be sent again, or the error to raise."""
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
    """Say whether a signature was refused for its time: this machine's clock is wrong, or the call was slow."""
    told = failure.message
    return failure.code in _WRONG_CLOCK or "Signature expired" in told or "Signature not yet current" in told


def credentials_expired(failure: ServiceFailure) -> bool:
    """Say whether newer credentials might be accepted where these were not."""
    return failure.code in _EXPIRED_CREDENTIALS


def no_such_table(failure: ServiceFailure) -> bool:
    """Say whether there is no such table."""
    return failure.code in _NO_TABLE


def exists_already(failure: ServiceFailure) -> bool:
    """Say whether a table was not made because somebody else has made it."""
    return failure.code in _TABLE_EXISTS


def enabled_already(failure: ServiceFailure) -> bool:
    """Say whether the expiry of items was not turned on because it is."""
    return failure.code == "ValidationException" and "already enabled" in failure.message


def _outcome(failure: ServiceFailure) -> Throttled | Unavailable:
    """What a failed call comes to, whatever it was for. A code that is known counts more than the status."""
    code, status = failure.code, failure.status
    if code in _THROTTLES or status == _TOO_MANY_REQUESTS:
        return _throttle([failure.body])
    if code in _CONTESTS:
        return _CONTESTED
    if code in _NO_TABLE:
        raise InfrastructureNotFoundError(failure.table_name)
    if code in _BAD_REQUESTS or status == _ENTITY_TOO_LARGE:
        raise ValidationError("request", code or status, failure.message or "DynamoDB does not take it")
    if code in _ACCESS:
        return Unavailable(AccessRefused(code, failure.message), ambiguous=False)
    # DynamoDB says of its own errors, unavailability included, that the write may have been carried out.
    ambiguous = status >= 500 or status == _REQUEST_TIMEOUT or code in _UNDECIDED
    return Unavailable(_call_failed(failure), ambiguous)


def _cancellation(
    failure: ServiceFailure, reasons: Sequence[Mapping[str, Any]]
) -> Cancelled | Conflict | Throttled | Unavailable:
    """What the reasons of a cancelled transaction come to, the most definite first."""
    codes = [str(reason.get("Code") or "None") for reason in reasons]
    if _REASON_INVALID in codes:
        place = codes.index(_REASON_INVALID)
        told = _shown(str(reasons[place].get("Message") or "DynamoDB does not take it"))
        raise ValidationError("operation", place, told)
    # A failed condition was judged on an item as it stands: sent again the transaction would fail again, and the
    # item is news. A conflict beside it only says that another item was not judged.
    if _REASON_CONDITION in codes:
        judged = zip(codes, reasons, strict=True)
        return Cancelled(tuple(_refusal(reason) if code == _REASON_CONDITION else None for code, reason in judged))
    if _REASON_CONFLICT in codes:
        return _CONFLICT
    if not _REASON_THROTTLES.isdisjoint(codes):
        throttled = [reason for code, reason in zip(codes, reasons, strict=True) if code in _REASON_THROTTLES]
        return _throttle([failure.body, *throttled])
    other = next((code for code in codes if code != "None"), failure.code)
    return Unavailable(CallFailed(failure.status, other, failure.message), ambiguous=False)


def _throttle(told: Sequence[Mapping[str, Any]]) -> Throttled:
    """A throttle, by the reasons in the parts of an answer: a key range, or something that all keys share."""
    found: list[str] = []
    for part in told:
        reasons = part.get("ThrottlingReasons") or part.get("throttlingReasons")
        for one in reasons if type(reasons) is list else ():
            reason = one.get("reason") or one.get("Reason") if isinstance(one, Mapping) else None
            if type(reason) is str:
                found.append(reason)
    if not found:
        return _THROTTLED
    return _PARTITION_THROTTLED if any(_is_key_range(reason) for reason in found) else _SHARED_THROTTLED


def _is_key_range(reason: str) -> bool:
    """Say whether a reason is the partition of the key that was written: no index has the key of a bucket's writes."""
    return reason.startswith(_OF_TABLE) and _OF_KEY_RANGE in reason


def _refusal(answer: Mapping[str, Any]) -> Refused | Missing:
    """A failed condition, with the item it failed on."""
    item = answer.get("Item")
    return Refused(decode_item(item)) if item else _MISSING


def _call_failed(failure: ServiceFailure) -> CallFailed:
    return CallFailed(failure.status, failure.code, failure.message)


def _shown(message: str) -> str:
    """A server's message, without what is nobody's business, and not too long for a log."""
    for mark in _CONFIDENTIAL:
        message = message.partition(mark)[0]
    return message.strip()[:_LONGEST_MESSAGE]
