"""Errors contain their data, say what to do, and can be pickled."""

import json
import pickle
from datetime import UTC, datetime

import pytest

from zae_limiter.core import errors, version_errors
from zae_limiter.core.errors import RateLimiterUnavailable, RateLimitExceeded, ValidationError, ZAELimiterError
from zae_limiter.core.limit import Limit
from zae_limiter.core.operator_actions import IdempotencyKeyReusedError
from zae_limiter.core.status import LimitStatus

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 10_000)


def status(limit: Limit, available: int, requested: int, retry_after_seconds: float) -> LimitStatus:
    exceeded = requested > available
    return LimitStatus("user-1", "gpt-4", limit.name, limit, available, requested, exceeded, retry_after_seconds)


PASSED = status(RPM, 50, 1, 0.0)
SHORT = status(RPM, 0, 1, 0.6)
LONG = status(TPM, 20, 500, 2.88)

EVERY_ERROR = [
    errors.AmountExceedsCapacityError([], "consume[rpm]", 11, "is more than the capacity"),
    version_errors.UnknownKindError("yak", "9.0.0", "1.0.0"),
    version_errors.KindNotAllowedError("inherit"),
    errors.RateLimitExceeded([PASSED, LONG]),
    errors.EntityBlockedError("user-1"),
    errors.EntityBlockedError("user-1", "gpt-4", "unpaid", datetime(2026, 12, 1, tzinfo=UTC)),
    errors.TooManyBucketsError("entity_id", "user-1", "too many"),
    errors.LeaseExpiredError("adjust"),
    errors.LeaseExpiredError("adjust", "user-1", "gpt-4"),
    errors.EntityNotFoundError("user-1"),
    errors.EntityExistsError("user-1"),
    errors.EntityHasChildrenError("user-1"),
    errors.RateLimiterUnavailable(TimeoutError("1 s"), "my-app", "user-1", "gpt-4"),
    errors.RateLimiterUnavailable(None),
    errors.StorageError("limits.db", "it is read-only"),
    errors.CorruptItemError("ns/ENTITY#a #META", "name must be a string"),
    errors.RepositoryClosedError("memory://"),
    errors.UnsupportedByBackendError("ensure_infrastructure", "sqlite"),
    errors.UnsupportedByBackendError("backup", "dynamodb", "use point-in-time recovery"),
    errors.StackOperationError("my-app", "rolled back", ["Table: no quota"]),
    errors.StackCreationError("my-app", "rolled back"),
    errors.StackAlreadyExistsError("my-app"),
    errors.InfrastructureNotFoundError("my-app"),
    errors.InfrastructureNotFoundError("my-app", "us-east-1"),
    errors.LocalAwsError("port 4566 is in use"),
    errors.LocalAwsError("it ended while it started", ["no such option"]),
    errors.NamespaceNotFoundError("tenant"),
    errors.NamespaceStateError("tenant", "purging", "recover"),
    errors.NamespaceStateError("tenant", "deleted", "recover", "its name was taken"),
    version_errors.VersionMismatchError("1.0", "0.9", "the stack is older"),
    version_errors.VersionMismatchError("1.0", "1.1", "it requires client 1.1 or later", True),
    version_errors.IncompatibleSchemaError("1.0.0", "2.0.0", True),
    version_errors.IncompatibleSchemaError("1.0.0", "0.9.0", False, "zae-limiter upgrade --name my-app"),
    errors.ValidationError("capacity", 0, "must be at least 1"),
    errors.InvalidIdentifierError("entity_id", "a#b", "no"),
    errors.InvalidNameError("resource", "a#b", "no"),
    errors.NoLimitsInForceError("limits", None, "no limits are in force"),
    IdempotencyKeyReusedError("idempotency_key", "ticket-1", "was used for another credit"),
    errors.MissingExtraError("plot", "asciichartpy", 'pip install "asciichartpy>=1.5"'),
]


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_every_error_survives_pickling(error: ZAELimiterError) -> None:
    """An error that crosses processes is complete."""
    arrived = pickle.loads(pickle.dumps(error))

    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert vars(error).keys() == vars(arrived).keys()


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_every_error_derives_from_one_root_and_has_a_message(error: ZAELimiterError) -> None:
    """One except clause catches all errors."""
    assert isinstance(error, ZAELimiterError)
    assert "" != str(error)


def test_error_hierarchy_is_the_documented_one() -> None:
    """Groups of errors can be caught by their base class."""
    branches = {
        errors.RateLimitError: [errors.RateLimitExceeded, errors.EntityBlockedError, errors.LeaseExpiredError],
        errors.EntityError: [errors.EntityNotFoundError, errors.EntityExistsError],
        errors.InfrastructureError: [
            errors.RateLimiterUnavailable,
            errors.StackOperationError,
            errors.StackCreationError,
            errors.StackAlreadyExistsError,
            errors.InfrastructureNotFoundError,
            errors.LocalAwsError,
            errors.NamespaceNotFoundError,
            errors.NamespaceStateError,
        ],
        version_errors.VersionError: [version_errors.VersionMismatchError, version_errors.IncompatibleSchemaError],
        errors.ValidationError: [errors.InvalidIdentifierError, errors.InvalidNameError],
    }

    assert all(issubclass(error, branch) for branch, found in branches.items() for error in found)


@pytest.mark.parametrize(
    "kind", [ValidationError, errors.InvalidIdentifierError, errors.InvalidNameError, errors.NoLimitsInForceError]
)
def test_validation_error_is_caught_as_python_value_error(kind: type[ValidationError]) -> None:
    """Code that expects Python's own error for a bad argument needs no import of this package."""
    with pytest.raises(ValueError, match="must be at least 1"):
        raise kind("capacity", 0, "must be at least 1")


def test_no_limits_message_does_not_name_the_missing_value() -> None:
    """The caller passed no limits, so there is no value to show."""
    error = errors.NoLimitsInForceError("limits", None, "no limits are in force for entity 'user-1'")

    assert "Missing limits: no limits are in force for entity 'user-1'" == str(error)


def test_rate_limit_exceeded_separates_violations_and_passed_limits() -> None:
    """Every limit that was checked is on the error."""
    error = RateLimitExceeded([PASSED, SHORT, LONG])

    assert (PASSED, SHORT, LONG) == error.statuses
    assert (SHORT, LONG) == error.violations
    assert (PASSED,) == error.passed


def test_primary_violation_has_the_longest_wait() -> None:
    """Waiting for the slowest limit is waiting for all."""
    error = RateLimitExceeded([LONG, SHORT])

    assert LONG == error.primary_violation
    assert 2.88 == error.retry_after_seconds


def test_rate_limit_exceeded_message_names_entity_resource_limit_and_wait() -> None:
    """A log line alone explains the rejection."""
    expected = (
        "Rate limit exceeded for entity 'user-1', resource 'gpt-4', limit 'tpm': "
        "20 available, 500 requested (2 limits exceeded). Retry after 2.880 s."
    )

    assert expected == str(RateLimitExceeded([SHORT, LONG]))


@pytest.mark.parametrize(
    ("field", "entity"), [("consume[rpm]", " for entity 'user-1'"), ("consume[tpm]", ""), ("consume[pm]", "")]
)
def test_amount_above_a_capacity_names_the_entity_of_the_limit(field: str, entity: str) -> None:
    """With a cascade it may be an ancestor. Without a status of the limit, it is unknown."""
    error = errors.AmountExceedsCapacityError([status(RPM, 100, 101, 0.0), LONG], field, 101, "is too much")

    assert f"Invalid {field} 101: is too much{entity}" == str(error)


def test_message_of_a_single_violation_has_no_count() -> None:
    """A count of one adds nothing."""
    assert "limits exceeded" not in str(RateLimitExceeded([LONG, PASSED]))


def test_rate_limit_exceeded_without_violations_has_a_message() -> None:
    """Printing an error never raises another."""
    error = RateLimitExceeded([])

    assert "Rate limit exceeded." == str(error)
    assert 0.0 == error.retry_after_seconds


@pytest.mark.parametrize(("seconds", "header"), [(0.001, "1"), (0.6, "1"), (1.0, "1"), (1.001, "2"), (59.5, "60")])
def test_retry_after_header_is_whole_seconds_rounded_up(seconds: float, header: str) -> None:
    """A client that waits this long is not too early."""
    assert header == RateLimitExceeded([status(RPM, 0, 1, seconds)]).retry_after_header


@pytest.mark.parametrize(("seconds", "ms"), [(0.0, 0), (0.0001, 1), (0.001, 1), (4.035, 4035), (59.9991, 60_000)])
def test_retry_after_ms_is_whole_milliseconds_rounded_up(seconds: float, ms: int) -> None:
    """A client that waits this long is not too early, and an exact wait is not one longer."""
    assert ms == RateLimitExceeded([status(RPM, 0, 1, seconds)]).as_dict()["retry_after_ms"]


def test_as_dict_is_complete_and_json_serializable() -> None:
    """An HTTP handler can return it unchanged."""
    error = RateLimitExceeded([PASSED, LONG])
    expected = {
        "error": "rate_limit_exceeded",
        "message": str(error),
        "retry_after_seconds": 2.88,
        "never": False,
        "retry_after_ms": 2880,
        "limits": [PASSED.as_dict(), LONG.as_dict()],
        "buckets": [
            {"entity_id": "user-1", "resource": "gpt-4", "limits": [PASSED.as_dict(), LONG.as_dict()]},
        ],
    }

    assert expected == json.loads(json.dumps(error.as_dict()))


def test_unavailable_error_has_its_cause_and_shows_it() -> None:
    """The cause is in the traceback and in the message."""
    cause = TimeoutError("no answer in 1 s")
    error = RateLimiterUnavailable(cause, "my-app", resource="gpt-4")

    assert cause is error.__cause__
    assert "(stack 'my-app', resource 'gpt-4'): TimeoutError: no answer in 1 s." in str(error)


def test_long_value_is_shortened_in_the_message_but_kept_on_the_error() -> None:
    """A megabyte passed by mistake does not fill the log."""
    value = "x" * 2**20
    error = ValidationError("resource", value, "too long")

    assert value is error.value
    assert 200 > len(str(error))


@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), [10**5000], float("nan"), None, True, 10**18, {"a": "b" * 10**6}],
    ids=lambda value: type(value).__name__,
)
def test_validation_error_message_can_show_any_value(value: object) -> None:
    """Even an integer that Python refuses to print does not break the message."""
    assert 300 > len(str(ValidationError("capacity", value, "is wrong")))


def test_stack_creation_error_shows_the_stack_events() -> None:
    """They contain CloudFormation's reason."""
    error = errors.StackCreationError("my-app", "rolled back", ["Table: no quota"])

    assert "Could not create stack 'my-app': rolled back\n  Table: no quota" == str(error)


def test_local_aws_error_shows_the_last_log_lines() -> None:
    """They contain the reason."""
    error = errors.LocalAwsError("it ended while it started", ["no such option"])

    assert "Local AWS: it ended while it started\n  no such option" == str(error)


def test_namespace_state_error_shows_its_hint_if_it_has_one() -> None:
    """The hint says what to do first."""
    plain = errors.NamespaceStateError("tenant", "purging", "recover")
    hinted = errors.NamespaceStateError("tenant", "deleted", "recover", "delete the other one first")

    assert "Cannot recover namespace 'tenant': it is purging." == str(plain)
    assert "Cannot recover namespace 'tenant': it is deleted; delete the other one first." == str(hinted)


@pytest.mark.parametrize(
    "error",
    [
        version_errors.VersionMismatchError(
            "1.0", "1.1", "it requires client 1.1 or later", True, "zae-limiter upgrade -n a"
        ),
        version_errors.IncompatibleSchemaError("1.0.0", "2.0.0", True, "zae-limiter upgrade -n a"),
    ],
)
def test_outdated_client_is_told_to_update_itself(error: version_errors.VersionError) -> None:
    """``upgrade`` of an outdated client cannot help."""
    assert str(error).endswith(". Install a newer version of this client.")
    assert "zae-limiter upgrade" not in str(error)


@pytest.mark.parametrize(
    "error",
    [
        version_errors.VersionMismatchError(
            "1.0", "0.9", "the aggregator is older", False, "zae-limiter upgrade --name a"
        ),
        version_errors.IncompatibleSchemaError("1.0.0", "0.9.0", False, "zae-limiter upgrade --name a"),
    ],
)
def test_outdated_limiter_is_to_be_upgraded(error: version_errors.VersionError) -> None:
    """The message has the whole command."""
    assert str(error).endswith(". Upgrade the limiter: zae-limiter upgrade --name a")


def test_incompatible_schema_says_which_side_is_older() -> None:
    """Both schemas are named."""
    assert "The table has schema 2.0.0, newer than this client's 1.0.0." in str(
        version_errors.IncompatibleSchemaError("1.0.0", "2.0.0", True)
    )
    assert "The table has schema 0.9.0, older than this client's 1.0.0." in str(
        version_errors.IncompatibleSchemaError("1.0.0", "0.9.0")
    )


class CountedRejection:
    """A rejection that counts how often its statuses are made."""

    def __init__(self) -> None:
        self.made = 0

    def statuses(self) -> list[LimitStatus]:
        self.made += 1
        return [PASSED, LONG]


def test_statuses_of_a_rejection_are_made_once_when_they_are_read():
    """A caller that only catches the error does not pay for them."""
    rejection = CountedRejection()
    error = RateLimitExceeded(rejection)
    before = rejection.made

    assert 2.88 == error.retry_after_seconds
    assert (PASSED, LONG) == error.statuses == error.args[0]
    assert (0, 1) == (before, rejection.made)


def test_rejection_whose_statuses_were_never_read_can_be_pickled_and_shown():
    """The copy has the statuses, not the object that makes them."""
    arrived = pickle.loads(pickle.dumps(RateLimitExceeded(CountedRejection())))

    assert (PASSED, LONG) == arrived.statuses
    assert repr(RateLimitExceeded([PASSED, LONG])) == repr(RateLimitExceeded(CountedRejection()))


def test_rejection_lists_its_limits_by_bucket_too() -> None:
    """A client sees which entity and resource lack tokens, and what the other buckets have."""
    parent = LimitStatus("org-1", "gpt-4", "rpm", RPM, 0, 1, True, 0.6)
    data = errors.RateLimitExceeded([PASSED, LONG, parent]).as_dict()

    assert 3 == len(data["limits"])
    assert [("user-1", "gpt-4", 2), ("org-1", "gpt-4", 1)] == [
        (one["entity_id"], one["resource"], len(one["limits"])) for one in data["buckets"]
    ]


def test_block_is_described_with_its_resource_reason_and_end() -> None:
    """Each part is named only if it is known."""
    until = datetime(2026, 12, 1, tzinfo=UTC)
    error = errors.EntityBlockedError("user-1", "gpt-4", "unpaid", until)

    assert "Entity 'user-1' is blocked. An operator can call unblock_entity()." == str(
        errors.EntityBlockedError("user-1")
    )
    assert "for resource 'gpt-4' until 2026-12-01T00:00:00+00:00: unpaid" in str(error)
    assert ("entity_blocked", "2026-12-01T00:00:00+00:00") == (error.as_dict()["error"], error.as_dict()["until"])
    assert errors.EntityBlockedError("user-1").as_dict()["until"] is None


SLOTS = Limit.concurrent("slots", 20)
NONE_FREE = LimitStatus("user-1", "gpt-4", "slots", SLOTS, 0, 1, True, 44.0, exact=False, in_use=20)


class TestSlots:
    def test_wait_for_slots_is_not_exact_and_the_advice_is_a_second(self):
        """They may be returned at any time, long before the wait that is known."""
        error = RateLimitExceeded([NONE_FREE, PASSED])

        assert (False, 44.0, 1.0, "1") == (
            error.exact,
            error.retry_after_seconds,
            error.next_try_seconds,
            error.retry_after_header,
        )
        assert (False, 1.0) == (error.as_dict()["exact"], error.as_dict()["next_try_seconds"])
        assert str(error).endswith("Slots are returned at any time; those in use end within 44.000 s.")

    def test_advice_for_slots_and_tokens_is_the_exact_wait_for_the_tokens(self):
        """Tokens do not refill earlier because a slot is returned."""
        assert 2.88 == RateLimitExceeded([NONE_FREE, LONG]).next_try_seconds
        assert 1.0 == RateLimitExceeded([NONE_FREE, SHORT]).next_try_seconds

    def test_wait_for_tokens_is_exact(self):
        """The advice is the wait, and a report to programs does not name it twice."""
        error = RateLimitExceeded([SHORT, LONG])

        assert (True, 2.88) == (error.exact, error.next_try_seconds)
        assert not {"exact", "next_try_seconds"} & error.as_dict().keys()
