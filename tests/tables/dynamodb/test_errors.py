"""What DynamoDB's errors mean."""

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
def test_a_failure_has_a_code(header: str | None, body: object, code: str) -> None:
    """In the body, else in the header, else none."""
    assert code == failure_of(400, header, json.dumps(body).encode(), "limiter").code


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"\xff"])
def test_a_failure_need_not_be_dynamodbs(body: bytes) -> None:
    """A proxy answers as it likes."""
    assert ServiceFailure(502, "", "", {}, "limiter") == failure_of(502, None, body, "limiter")


@pytest.mark.parametrize("member", ["message", "Message"])
def test_a_message_is_kept_short(member: str) -> None:
    """It ends in logs."""
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
def test_a_message_shows_no_credentials(confidential: str) -> None:
    """DynamoDB explains a refused signature with all that was signed."""
    refused = failure(400, "InvalidSignatureException", "The signature does not match." + confidential)
    outcome = write_outcome(refused)

    assert "The signature does not match." == refused.message
    assert "SECRET" not in f"{refused!r} {outcome!r}"


def test_a_failed_condition_brings_the_item() -> None:
    """Or says that there is none."""
    assert Refused(READ) == write_outcome(failure(400, "ConditionalCheckFailedException", Item=WRITTEN))
    assert Missing() == write_outcome(failure(400, "ConditionalCheckFailedException"))


@pytest.mark.parametrize(("status", "code"), THROTTLES)
def test_a_throttle_is_definite_and_heals(status: int, code: str) -> None:
    """Nothing was written, whatever the status."""
    assert Throttled() == write_outcome(failure(status, code))
    assert Throttled() == transact_outcome(failure(status, code), 1)


@pytest.mark.parametrize("code", ["TransactionConflictException", "ReplicatedWriteConflictException"])
def test_a_plain_write_in_the_way_of_another_heals_by_waiting(code: str) -> None:
    """It is told from a partition that takes no more writes."""
    assert Throttled(contested=True) == write_outcome(failure(400, code))


def test_a_transaction_in_the_way_of_another_is_a_conflict() -> None:
    """Its caller decides on it anew."""
    assert Conflict() == transact_outcome(failure(400, "TransactionConflictException"), 1)


@pytest.mark.parametrize(("status", "code"), UNDECIDED)
def test_a_server_error_leaves_open_whether_the_write_was_carried_out(status: int, code: str) -> None:
    """A transaction in progress is one of these: its first sending goes on."""
    for outcome in (write_outcome(failure(status, code)), transact_outcome(failure(status, code), 1)):
        assert isinstance(outcome, Unavailable)
        assert outcome.ambiguous
        assert isinstance(outcome.cause, CallFailed)
        assert (status, code) == (outcome.cause.status, outcome.cause.code)


@pytest.mark.parametrize("code", ACCESS)
def test_refused_access_is_definite(code: str) -> None:
    """Nothing was written, and somebody has to mend it."""
    for outcome in (write_outcome(failure(400, code)), transact_outcome(failure(400, code), 1)):
        assert isinstance(outcome, Unavailable)
        assert not outcome.ambiguous
        assert isinstance(outcome.cause, AccessRefused)
        assert f"{code}: why. Check the credentials" in str(outcome.cause)


@pytest.mark.parametrize(("status", "code"), [(400, "ItemCollectionSizeLimitExceededException"), (403, ""), (301, "")])
def test_any_other_refusal_is_definite(status: int, code: str) -> None:
    """A code that is not known yet did not write either."""
    outcome = write_outcome(failure(status, code))

    assert isinstance(outcome, Unavailable)
    assert not outcome.ambiguous
    assert isinstance(outcome.cause, CallFailed)


@pytest.mark.parametrize(("status", "code"), BAD_REQUESTS)
def test_a_request_that_can_never_succeed_is_an_error(status: int, code: str) -> None:
    """It would fail the same way whenever it is sent."""
    for refuse in (write_outcome, lambda found: transact_outcome(found, 1)):
        with pytest.raises(ValidationError) as caught:
            refuse(failure(status, code))
        assert ("request", code or status) == (caught.value.field, caught.value.value)


def test_a_table_that_is_not_there_is_an_error() -> None:
    """It says what to deploy."""
    with pytest.raises(InfrastructureNotFoundError, match="There is no limiter 'limiter'"):
        write_outcome(failure(400, "ResourceNotFoundException"))


def test_a_cancelled_transaction_has_a_reason_for_each_operation() -> None:
    """None for an operation that could have been carried out."""
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Item": WRITTEN},
        {"Code": "ConditionalCheckFailed"},
        {},
    ]
    outcome = transact_outcome(failure(400, "TransactionCanceledException", CancellationReasons=reasons), 4)

    assert Cancelled((None, Refused(READ), Missing(), None)) == outcome


def test_a_failed_condition_counts_more_than_a_conflict() -> None:
    """Sent again the transaction would fail again, and the item is news."""
    mixed = cancelled("TransactionConflict", "ConditionalCheckFailed", "ThrottlingError", item=WRITTEN)

    assert Cancelled((None, Refused(READ), None)) == transact_outcome(mixed, 3)


def test_a_conflict_counts_more_than_a_throttle() -> None:
    """Another transaction held an item."""
    assert Conflict() == transact_outcome(cancelled("None", "ThrottlingError", "TransactionConflict"), 3)


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_throttled_operation_throttles_its_transaction(code: str) -> None:
    """Nothing was written."""
    assert Throttled() == transact_outcome(cancelled("None", code), 2)


def test_an_operation_that_can_never_succeed_is_an_error() -> None:
    """As the embedded tables have it, whatever the conditions of the others; the error says which one."""
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
def test_a_transaction_cancelled_for_another_reason_was_not_carried_out(found: ServiceFailure, code: str) -> None:
    """Also where the reasons cannot be told, or do not fit the operations."""
    outcome = transact_outcome(found, 2)

    assert isinstance(outcome, Unavailable)
    assert not outcome.ambiguous
    assert isinstance(outcome.cause, CallFailed)
    assert code == outcome.cause.code


@pytest.mark.parametrize(("status", "code"), THROTTLES + UNDECIDED)
def test_a_read_that_may_heal_may_be_sent_again(status: int, code: str) -> None:
    """There is nothing a read could do twice; a throttled one waits first."""
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
def test_a_read_that_cannot_heal_is_an_error(status: int, code: str, error: type[Exception]) -> None:
    """It is handed back, for the caller to raise."""
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
def test_a_wrong_clock_is_told_from_a_wrong_key(code: str, message: str, expected: bool) -> None:
    """The first is mended by the server's time."""
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
def test_expired_credentials_are_told_from_refused_ones(code: str, expected: bool) -> None:
    """The first are mended by newer ones."""
    assert expected is credentials_expired(failure(400, code))


def test_a_cause_says_what_is_known() -> None:
    """Also where there is little."""
    assert "HTTP 502" == str(CallFailed(502, "", ""))
    assert "HTTP 500 InternalServerError: why" == str(CallFailed(500, "InternalServerError", "why"))
    assert str(AccessRefused("AccessDenied", "")).startswith("AccessDenied. Check")


def test_what_was_made_already_is_told_from_what_cannot_be_made() -> None:
    """Who makes a table may find that somebody else has."""
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
def test_any_failure_is_an_outcome_or_a_named_error(status: int, body: dict[str, object], code: str) -> None:
    """Whatever its members hold."""
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
def test_a_throttle_says_whether_the_partition_of_the_key_is_full(reasons: list[str], partition: bool | None) -> None:
    """Only a key range of the table is; an index, the table and the account are shared by all keys."""
    told = [{"reason": reason, "resource": "arn:aws:dynamodb:us-east-1:1:table/limits"} for reason in reasons]
    body = {"__type": "x#ThrottlingException", "message": "slow down", "ThrottlingReasons": told}
    found = failure_of(400, None, json.dumps(body).encode(), "limits")

    assert Throttled(partition=partition) == write_outcome(found) == transact_outcome(found, 2)


@pytest.mark.parametrize(
    "told", [None, "TableWriteKeyRangeThroughputExceeded", [None], ["x"], [{}], [{"reason": 5}]], ids=str
)
def test_reasons_that_are_none_say_nothing(told: object) -> None:
    """As with an answer without any."""
    body = {"__type": "x#ThrottlingException", "ThrottlingReasons": told}
    found = failure_of(400, None, json.dumps(body).encode(), "limits")

    assert Throttled() == write_outcome(found)


def test_reasons_of_a_throttled_operation_are_those_of_its_transaction() -> None:
    """They are beside the code of the operation."""
    reasons = [{"Code": "None"}, {"Code": "ThrottlingError", "ThrottlingReasons": [{"reason": KEY_RANGE}]}]
    body = {"__type": "x#TransactionCanceledException", "CancellationReasons": reasons}
    found = failure_of(400, None, json.dumps(body).encode(), "limits")

    assert Throttled(partition=True) == transact_outcome(found, 2)
