"""The meaning of DynamoDB's errors."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.errors import (
    InfrastructureNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.outcome import Cancelled, Conflict, Missing, Refused, Throttled, Unavailable
from zae_limiter.tables.dynamodb.errors import (
    AccessRefused,
    CallFailed,
    Retry,
    ServiceFailure,
    clock_refused,
    credentials_expired,
    enabled_already,
    exists_already,
    failure_of,
    no_such_table,
    read_problem,
    transact_outcome,
    write_outcome,
)

PREFIX = "com.amazonaws.dynamodb.v20120810#"
WRITTEN = {"PK": {"S": "part"}, "SK": {"S": "sort"}, "x": {"N": "1"}}
READ = {"PK": "part", "SK": "sort", "x": 1}

THROTTLES = [
    (400, "ProvisionedThroughputExceededException"),
    (400, "ThrottlingException"),
    (400, "Throttling"),
    (400, "RequestLimitExceeded"),
    (400, "LimitExceededException"),
    (503, "SlowDown"),
    (429, ""),
]
UNDECIDED = [
    (500, "InternalServerError"),
    (500, "InternalFailure"),
    (503, "ServiceUnavailable"),
    (500, ""),
    (502, ""),
    (503, ""),
    (504, ""),
    (408, ""),
    (400, "RequestTimeoutException"),
    (400, "TransactionInProgressException"),
]
ACCESS = [
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "ExpiredTokenException",
    "RequestTimeTooSkewed",
]
BAD_REQUESTS = [
    (400, "ValidationException"),
    (400, "SerializationException"),
    (400, "IdempotentParameterMismatchException"),
    (413, ""),
]


def failure(status: int, code: str, message: str = "why", **members: object) -> ServiceFailure:
    body = {"__type": PREFIX + code, "message": message, **members} if code else {}
    return failure_of(status, None, json.dumps(body).encode(), "limiter")


def cancelled(*codes: str, item: object = None) -> ServiceFailure:
    reasons = [{"Code": code, "Message": "why"} | ({} if item is None else {"Item": item}) for code in codes]
    return failure(400, "TransactionCanceledException", CancellationReasons=reasons)


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        (None, {"__type": PREFIX + "ThrottlingException"}, "ThrottlingException"),
        (None, {"__type": "ThrottlingException"}, "ThrottlingException"),
        ("Other", {"__type": PREFIX + "ThrottlingException"}, "ThrottlingException"),
        ("ThrottlingException:http://internal.amazon.com/coral/", {}, "ThrottlingException"),
        (None, {}, ""),
        (None, [1], ""),
    ],
)
def test_a_failure_code_is_read_from_the_body_or_the_header(header: str | None, body: object, code: str) -> None:
    """The body takes precedence; without either, the code is empty."""
    assert code == failure_of(400, header, json.dumps(body).encode(), "limiter").code


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"\xff"])
def test_a_failure_of_another_format_has_no_code(body: bytes) -> None:
    """A proxy may answer in any format."""
    assert ServiceFailure(502, "", "", {}, "limiter") == failure_of(502, None, body, "limiter")


@pytest.mark.parametrize("member", ["message", "Message"])
def test_a_failure_message_is_truncated(member: str) -> None:
    """Messages are written to logs."""
    body = json.dumps({"__type": "ValidationException", member: "x" * 5000}).encode()

    assert "x" * 300 == failure_of(400, None, body, "limiter").message


@pytest.mark.parametrize(
    "confidential",
    [
        "\n\nThe Canonical String for this request should have been\n'POST\nx-amz-security-token:SECRET'",
        " The Canonical String for this request should have been x-amz-security-token:SECRET",
        " Authorization=AWS4-HMAC-SHA256 Credential=SECRET",
    ],
)
def test_a_failure_message_contains_no_credentials(confidential: str) -> None:
    """DynamoDB explains a refused signature with the whole signed text."""
    refused = failure(400, "InvalidSignatureException", "The signature does not match." + confidential)
    outcome = write_outcome(refused)

    assert "The signature does not match." == refused.message
    assert "SECRET" not in f"{refused!r} {outcome!r}"


def test_a_failed_condition_returns_the_stored_item() -> None:
    """The item is None if it does not exist."""
    assert Refused(READ) == write_outcome(failure(400, "ConditionalCheckFailedException", Item=WRITTEN))
    assert Missing() == write_outcome(failure(400, "ConditionalCheckFailedException"))


@pytest.mark.parametrize(("status", "code"), THROTTLES)
def test_a_throttled_write_is_definite_and_may_be_retried(status: int, code: str) -> None:
    """Nothing was written, whatever the HTTP status."""
    assert Throttled() == write_outcome(failure(status, code))
    assert Throttled() == transact_outcome(failure(status, code), 1)


@pytest.mark.parametrize("code", ["TransactionConflictException", "ReplicatedWriteConflictException"])
def test_a_write_that_conflicts_with_a_transaction_may_be_retried(code: str) -> None:
    """It is distinct from a partition that is out of write capacity."""
    assert Throttled(contested=True) == write_outcome(failure(400, code))


def test_a_transaction_that_conflicts_with_another_is_a_conflict() -> None:
    """The caller decides again with current data."""
    assert Conflict() == transact_outcome(failure(400, "TransactionConflictException"), 1)


@pytest.mark.parametrize(("status", "code"), UNDECIDED)
def test_a_server_error_leaves_the_outcome_of_a_write_unknown(status: int, code: str) -> None:
    """This includes a transaction in progress: its first request may still be applied."""
    for outcome in (write_outcome(failure(status, code)), transact_outcome(failure(status, code), 1)):
        assert isinstance(outcome, Unavailable)
        assert outcome.ambiguous
        assert isinstance(outcome.cause, CallFailed)
        assert (status, code) == (outcome.cause.status, outcome.cause.code)


@pytest.mark.parametrize("code", ACCESS)
def test_a_write_with_denied_access_is_definite(code: str) -> None:
    """Nothing was written, and the configuration has to be fixed."""
    for outcome in (write_outcome(failure(400, code)), transact_outcome(failure(400, code), 1)):
        assert isinstance(outcome, Unavailable)
        assert not outcome.ambiguous
        assert isinstance(outcome.cause, AccessRefused)
        assert f"{code}: why. Check the credentials" in str(outcome.cause)


@pytest.mark.parametrize(("status", "code"), [(400, "ItemCollectionSizeLimitExceededException"), (403, ""), (301, "")])
def test_a_write_refused_with_an_unknown_code_is_definite(status: int, code: str) -> None:
    """A refusal never writes, also if its code is not known."""
    outcome = write_outcome(failure(status, code))

    assert isinstance(outcome, Unavailable)
    assert not outcome.ambiguous
    assert isinstance(outcome.cause, CallFailed)


@pytest.mark.parametrize(("status", "code"), BAD_REQUESTS)
def test_an_invalid_request_raises_an_error(status: int, code: str) -> None:
    """It would fail in the same way at every retry."""
    for refuse in (write_outcome, lambda found: transact_outcome(found, 1)):
        with pytest.raises(ValidationError) as caught:
            refuse(failure(status, code))
        assert ("request", code or status) == (caught.value.field, caught.value.value)


def test_a_missing_table_raises_an_error() -> None:
    """The error says what to deploy."""
    with pytest.raises(InfrastructureNotFoundError, match="There is no limiter 'limiter'"):
        write_outcome(failure(400, "ResourceNotFoundException"))


def test_a_cancelled_transaction_has_a_reason_per_operation() -> None:
    """The reason is None for an operation that could have been applied."""
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Item": WRITTEN},
        {"Code": "ConditionalCheckFailed"},
        {},
    ]
    outcome = transact_outcome(failure(400, "TransactionCanceledException", CancellationReasons=reasons), 4)

    assert Cancelled((None, Refused(READ), Missing(), None)) == outcome


def test_a_failed_condition_takes_precedence_over_a_conflict() -> None:
    """A retry of the transaction would fail again, and the returned item is current."""
    mixed = cancelled("TransactionConflict", "ConditionalCheckFailed", "ThrottlingError", item=WRITTEN)

    assert Cancelled((None, Refused(READ), None)) == transact_outcome(mixed, 3)


def test_a_conflict_takes_precedence_over_a_throttle() -> None:
    """Another transaction held an item."""
    assert Conflict() == transact_outcome(cancelled("None", "ThrottlingError", "TransactionConflict"), 3)


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_throttled_operation_throttles_its_transaction(code: str) -> None:
    """Nothing was written."""
    assert Throttled() == transact_outcome(cancelled("None", code), 2)


def test_an_invalid_operation_in_a_transaction_raises_an_error() -> None:
    """The embedded tables do the same, whatever the other conditions; the error names the operation."""
    with pytest.raises(ValidationError, match="Invalid operation 1: why"):
        transact_outcome(cancelled("ConditionalCheckFailed", "ValidationError"), 2)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (cancelled("None", "ItemCollectionSizeLimitExceeded"), "ItemCollectionSizeLimitExceeded"),
        (cancelled("None", "None"), "TransactionCanceledException"),
        (cancelled("ConditionalCheckFailed"), "TransactionCanceledException"),
        (failure(400, "TransactionCanceledException"), "TransactionCanceledException"),
    ],
)
def test_a_transaction_cancelled_for_an_unknown_reason_is_not_applied(found: ServiceFailure, code: str) -> None:
    """This includes reasons that are missing or do not match the operations."""
    outcome = transact_outcome(found, 2)

    assert isinstance(outcome, Unavailable)
    assert not outcome.ambiguous
    assert isinstance(outcome.cause, CallFailed)
    assert code == outcome.cause.code


@pytest.mark.parametrize(("status", "code"), THROTTLES + UNDECIDED)
def test_a_read_with_a_temporary_failure_may_be_retried(status: int, code: str) -> None:
    """A repeated read has no effect; a throttled read waits first."""
    problem = read_problem(failure(status, code))

    assert isinstance(problem, Retry)
    assert ((status, code) in THROTTLES) is problem.throttled
    assert str(status) in str(problem.cause)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "ResourceNotFoundException", InfrastructureNotFoundError),
        (400, "ValidationException", ValidationError),
        (400, "AccessDeniedException", RateLimiterUnavailable),
        (400, "SomethingNewException", RateLimiterUnavailable),
    ],
)
def test_a_read_with_a_permanent_failure_returns_an_error(status: int, code: str, error: type[Exception]) -> None:
    """The error is returned, and the caller raises it."""
    assert isinstance(read_problem(failure(status, code)), error)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        ("RequestTimeTooSkewed", "", True),
        ("InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than 2026", True),
        ("InvalidSignatureException", "Signature not yet current: 20260101T000000Z is still later", True),
        ("InvalidSignatureException", "The signature does not match.", False),
        ("ExpiredTokenException", "The security token is expired", False),
    ],
)
def test_a_clock_skew_refusal_differs_from_a_wrong_key(code: str, message: str, expected: bool) -> None:
    """Only a clock skew is fixed by using the server's time."""
    assert expected is clock_refused(failure(400, code, message))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ExpiredTokenException", True),
        ("ExpiredToken", True),
        ("UnrecognizedClientException", True),
        ("InvalidSignatureException", False),
        ("AccessDeniedException", False),
    ],
)
def test_expired_credentials_differ_from_refused_ones(code: str, expected: bool) -> None:
    """Only expired credentials are fixed by loading newer ones."""
    assert expected is credentials_expired(failure(400, code))


def test_the_text_of_a_failure_shows_the_known_details() -> None:
    """Missing details are left out."""
    assert "HTTP 502" == str(CallFailed(502, "", ""))
    assert "HTTP 500 InternalServerError: why" == str(CallFailed(500, "InternalServerError", "why"))
    assert str(AccessRefused("AccessDenied", "")).startswith("AccessDenied. Check")


def test_an_existing_table_differs_from_a_table_that_cannot_be_made() -> None:
    """Another process may have created the table at the same time."""
    assert exists_already(failure(400, "ResourceInUseException"))
    assert not exists_already(failure(400, "ValidationException"))
    assert no_such_table(failure(400, "ResourceNotFoundException"))
    assert not no_such_table(failure(400, "ResourceInUseException"))
    assert enabled_already(failure(400, "ValidationException", "TimeToLive is already enabled"))
    assert not enabled_already(failure(400, "ValidationException", "TimeToLive is being changed"))


odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["ValidationError", "ConditionalCheckFailed", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["Code", "Item", "PK", "S"]), inner),
    max_leaves=8,
)


@given(
    st.sampled_from([200, 400, 500]),
    st.dictionaries(st.sampled_from(["__type", "message", "Message", "Item", "CancellationReasons"]), odd_values),
    st.sampled_from(["TransactionCanceledException", "ConditionalCheckFailedException", "x"]),
)
def test_any_failure_is_an_outcome_or_a_package_error(status: int, body: dict[str, object], code: str) -> None:
    """The members of the failure may have any values."""
    for members in (body, {**body, "__type": code}):
        found = failure_of(status, None, json.dumps(members).encode(), "limiter")
        for outcome in (write_outcome, lambda one: transact_outcome(one, 1), read_problem):
            with contextlib.suppress(ZAELimiterError):
                outcome(found)


KEY_RANGE, ON_DEMAND = "TableWriteKeyRangeThroughputExceeded", "TableWriteMaxOnDemandThroughputExceeded"


@pytest.mark.parametrize(
    ("reasons", "partition"),
    [
        ([KEY_RANGE], True),
        ([ON_DEMAND, KEY_RANGE], True),
        ([ON_DEMAND], False),
        (["TableWriteAccountLimitExceeded"], False),
        (["TableWriteProvisionedThroughputExceeded"], False),
        (["IndexWriteKeyRangeThroughputExceeded"], False),
        ([], None),
    ],
)
def test_a_throttle_reports_whether_the_partition_of_the_key_is_full(
    reasons: list[str], partition: bool | None
) -> None:
    """Only a key range of the table is one partition; an index, the table and the account are shared by all keys."""
    listed = [{"reason": reason, "resource": "arn:aws:dynamodb:us-east-1:1:table/limits"} for reason in reasons]
    body = {"__type": "x#ThrottlingException", "message": "slow down", "ThrottlingReasons": listed}
    found = failure_of(400, None, json.dumps(body).encode(), "limits")

    assert Throttled(partition=partition) == write_outcome(found) == transact_outcome(found, 2)


@pytest.mark.parametrize(
    "reasons", [None, "TableWriteKeyRangeThroughputExceeded", [None], ["x"], [{}], [{"reason": 5}]], ids=str
)
def test_malformed_throttling_reasons_are_ignored(reasons: object) -> None:
    """The outcome is the same as without reasons."""
    body = {"__type": "x#ThrottlingException", "ThrottlingReasons": reasons}
    found = failure_of(400, None, json.dumps(body).encode(), "limits")

    assert Throttled() == write_outcome(found)


def test_throttling_reasons_of_an_operation_apply_to_its_transaction() -> None:
    """They are listed beside the code of the operation."""
    reasons = [{"Code": "None"}, {"Code": "ThrottlingError", "ThrottlingReasons": [{"reason": KEY_RANGE}]}]
    body = {"__type": "x#TransactionCanceledException", "CancellationReasons": reasons}
    found = failure_of(400, None, json.dumps(body).encode(), "limits")

    assert Throttled(partition=True) == transact_outcome(found, 2)
