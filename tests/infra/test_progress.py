"""Conclusions from the states and events of CloudFormation."""

from datetime import UTC, datetime

import pytest

from zae_limiter.infra.progress import (
    STACK_TYPE,
    StackEvent,
    StackStep,
    event_of,
    is_failed,
    is_under_way,
    next_step,
    pause_s,
    reason_of_failure,
    why_refused,
)

AT = datetime(2024, 1, 1, tzinfo=UTC)

# Every state that CloudFormation documents for a stack.
STATES = {
    None: StackStep.CREATE,
    "CREATE_COMPLETE": StackStep.UPDATE,
    "UPDATE_COMPLETE": StackStep.UPDATE,
    "UPDATE_ROLLBACK_COMPLETE": StackStep.UPDATE,
    "IMPORT_COMPLETE": StackStep.UPDATE,
    "IMPORT_ROLLBACK_COMPLETE": StackStep.UPDATE,
    "CREATE_FAILED": StackStep.REPLACE,
    "ROLLBACK_COMPLETE": StackStep.REPLACE,
    "ROLLBACK_FAILED": StackStep.REPLACE,
    "DELETE_FAILED": StackStep.REFUSE,
    "UPDATE_FAILED": StackStep.REFUSE,
    "UPDATE_ROLLBACK_FAILED": StackStep.REFUSE,
    "REVIEW_IN_PROGRESS": StackStep.REFUSE,
}


def event(logical_id: str, status: str, reason: str | None = None, kind: str = "AWS::SQS::Queue") -> StackEvent:
    return StackEvent(logical_id, AT, logical_id, kind, status, reason)


@pytest.mark.parametrize(("status", "step"), STATES.items())
def test_the_next_step_for_a_stack_depends_on_its_status(status: str | None, step: StackStep) -> None:
    """Only a stack that was never created successfully is replaced, because it contains no data."""
    assert step is next_step(status)


@pytest.mark.parametrize("status", [status for status, step in STATES.items() if step is StackStep.REFUSE])
def test_a_refused_stack_status_says_what_to_do(status: str) -> None:
    assert status in why_refused(status)
    assert ";" in why_refused(status)


@pytest.mark.parametrize(
    "status",
    ["CREATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "DELETE_IN_PROGRESS"],
)
def test_a_stack_operation_in_progress_has_not_failed(status: str) -> None:
    """This includes a rollback in progress."""
    assert (True, False) == (is_under_way(status), is_failed(status))


def test_a_change_set_under_review_is_not_in_progress() -> None:
    """Waiting for it would never end."""
    assert not is_under_way("REVIEW_IN_PROGRESS")


def test_a_stack_that_was_rolled_back_has_failed() -> None:
    assert is_failed("UPDATE_ROLLBACK_COMPLETE")
    assert not is_failed("UPDATE_COMPLETE")


class TestReasons:
    def test_a_cancelled_resource_is_not_the_reason_of_a_failure(self) -> None:
        events = [
            event("Table", "CREATE_IN_PROGRESS"),
            event("Logs", "CREATE_FAILED", "Resource creation cancelled"),
            event("Queue", "CREATE_FAILED", "name is taken"),
            event("app", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [Queue].", STACK_TYPE),
        ]

        assert "Queue (AWS::SQS::Queue): name is taken" == reason_of_failure(events, "ROLLBACK_COMPLETE")

    def test_the_first_failed_resource_is_the_reason_of_a_failure(self) -> None:
        events = [event("A", "UPDATE_FAILED", "first"), event("B", "UPDATE_FAILED", "second")]

        assert reason_of_failure(events, "UPDATE_ROLLBACK_COMPLETE").endswith("first")

    def test_the_reason_of_the_stack_is_used_if_no_resource_has_one(self) -> None:
        events = [event("app", "DELETE_FAILED", "a role is missing", STACK_TYPE)]

        assert reason_of_failure(events, "DELETE_FAILED").endswith("a role is missing")

    def test_the_status_is_the_reason_if_no_event_has_one(self) -> None:
        assert "ROLLBACK_COMPLETE" in reason_of_failure([], "ROLLBACK_COMPLETE")


class TestEvents:
    def test_a_stack_event_is_parsed(self) -> None:
        description = {
            "EventId": "1",
            "Timestamp": AT,
            "LogicalResourceId": "Table",
            "ResourceType": "AWS::DynamoDB::Table",
            "ResourceStatus": "CREATE_FAILED",
            "ResourceStatusReason": "it is there",
        }
        read = event_of(description)

        assert read.is_failure
        assert "CREATE_FAILED Table (AWS::DynamoDB::Table): it is there" == str(read)

    def test_a_stack_event_with_an_empty_reason_has_none(self) -> None:
        description = {
            "EventId": "1",
            "Timestamp": AT,
            "LogicalResourceId": "a",
            "ResourceType": "b",
            "ResourceStatus": "c",
        }

        assert event_of({**description, "ResourceStatusReason": ""}) == event_of(description)

    @pytest.mark.parametrize(
        ("one", "ends"),
        [
            (event("app", "CREATE_COMPLETE", kind=STACK_TYPE), True),
            (event("app", "ROLLBACK_IN_PROGRESS", kind=STACK_TYPE), False),
            (event("Table", "CREATE_COMPLETE"), False),
        ],
    )
    def test_a_stack_operation_ends_with_the_event_of_the_stack(self, one: StackEvent, ends: bool) -> None:
        assert ends is one.ends_work


def test_polling_intervals_grow_up_to_a_bound() -> None:
    """A local AWS is ready in seconds; AWS takes minutes."""
    pauses = [pause_s(polls) for polls in range(1000)]

    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.1
    assert 5.0 == pauses[-1]
