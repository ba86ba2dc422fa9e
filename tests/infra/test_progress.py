"""What follows from what CloudFormation tells."""

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
def test_what_is_done_about_a_stack(status: str | None, step: StackStep) -> None:
    """Only what never came up is replaced: there is nothing in it to lose."""
    assert step is next_step(status)


@pytest.mark.parametrize("status", [status for status, step in STATES.items() if step is StackStep.REFUSE])
def test_a_refusal_says_what_to_do(status: str) -> None:
    assert status in why_refused(status)
    assert ";" in why_refused(status)


@pytest.mark.parametrize(
    "status",
    ["CREATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "DELETE_IN_PROGRESS"],
)
def test_work_that_is_under_way_has_not_failed(status: str) -> None:
    """Not even while it is being taken back."""
    assert (True, False) == (is_under_way(status), is_failed(status))


def test_a_change_set_that_waits_is_not_work() -> None:
    """Nobody would ever end waiting for it."""
    assert not is_under_way("REVIEW_IN_PROGRESS")


def test_what_was_taken_back_has_failed() -> None:
    assert is_failed("UPDATE_ROLLBACK_COMPLETE")
    assert not is_failed("UPDATE_COMPLETE")


class TestReasons:
    def test_what_failed_because_another_did_is_not_the_reason(self) -> None:
        events = [
            event("Table", "CREATE_IN_PROGRESS"),
            event("Logs", "CREATE_FAILED", "Resource creation cancelled"),
            event("Queue", "CREATE_FAILED", "name is taken"),
            event("app", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [Queue].", STACK_TYPE),
        ]

        assert "Queue (AWS::SQS::Queue): name is taken" == reason_of_failure(events, "ROLLBACK_COMPLETE")

    def test_the_first_of_several_is_the_reason(self) -> None:
        events = [event("A", "UPDATE_FAILED", "first"), event("B", "UPDATE_FAILED", "second")]

        assert reason_of_failure(events, "UPDATE_ROLLBACK_COMPLETE").endswith("first")

    def test_where_only_the_stack_gives_a_reason_it_is_that(self) -> None:
        events = [event("app", "DELETE_FAILED", "a role is missing", STACK_TYPE)]

        assert reason_of_failure(events, "DELETE_FAILED").endswith("a role is missing")

    def test_where_nobody_gives_a_reason_the_state_is_told(self) -> None:
        assert "ROLLBACK_COMPLETE" in reason_of_failure([], "ROLLBACK_COMPLETE")


class TestEvents:
    def test_an_event_is_read(self) -> None:
        told = {
            "EventId": "1",
            "Timestamp": AT,
            "LogicalResourceId": "Table",
            "ResourceType": "AWS::DynamoDB::Table",
            "ResourceStatus": "CREATE_FAILED",
            "ResourceStatusReason": "it is there",
        }
        read = event_of(told)

        assert read.is_failure
        assert "CREATE_FAILED Table (AWS::DynamoDB::Table): it is there" == str(read)

    def test_an_empty_reason_is_none(self) -> None:
        told = {"EventId": "1", "Timestamp": AT, "LogicalResourceId": "a", "ResourceType": "b", "ResourceStatus": "c"}

        assert event_of({**told, "ResourceStatusReason": ""}) == event_of(told)

    @pytest.mark.parametrize(
        ("one", "ends"),
        [
            (event("app", "CREATE_COMPLETE", kind=STACK_TYPE), True),
            (event("app", "ROLLBACK_IN_PROGRESS", kind=STACK_TYPE), False),
            (event("Table", "CREATE_COMPLETE"), False),
        ],
    )
    def test_work_ends_with_the_stack(self, one: StackEvent, ends: bool) -> None:
        assert ends is one.ends_work


def test_pauses_grow_and_stay_bounded() -> None:
    """A local AWS is done in moments; AWS takes minutes."""
    pauses = [pause_s(polls) for polls in range(1000)]

    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.1
    assert 5.0 == pauses[-1]
