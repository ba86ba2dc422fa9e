"""Interpret the events and states of a CloudFormation stack. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from zae_limiter.core.lazy_dataclass import dataclass

STACK_TYPE = "AWS::CloudFormation::Stack"

# The reasons of resources that fail only because another one failed.
_FAILED_WITH_OTHERS = ("Resource creation cancelled", "Resource update cancelled", "Resource deletion cancelled")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class StackEvent:
    """One event of an operation on a stack."""

    event_id: str
    at: datetime
    logical_id: str
    resource_type: str
    status: str
    reason: str | None

    @property
    def is_failure(self) -> bool:
        """Whether the event reports a failure."""
        return self.status.endswith("_FAILED")

    @property
    def is_of_stack(self) -> bool:
        """Whether the event is about the stack itself, not about one of its resources."""
        return self.resource_type == STACK_TYPE

    @property
    def ends_work(self) -> bool:
        """Whether the event ends the operation."""
        return self.is_of_stack and not is_under_way(self.status)

    def __str__(self) -> str:
        reason = "" if self.reason is None else f": {self.reason}"
        return f"{self.status} {self.logical_id} ({self.resource_type}){reason}"


class StackStep(Enum):
    """The operation that brings a stack to the wanted state."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    REFUSE = "refuse"


_REPLACEABLE = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
_UNUSABLE = {
    "DELETE_FAILED": "its deletion failed; delete it again, then deploy",
    "REVIEW_IN_PROGRESS": "it has a change set that was not executed; execute it, or delete the stack, then deploy",
    "UPDATE_ROLLBACK_FAILED": "an update could not be rolled back; continue the rollback in CloudFormation first",
    "UPDATE_FAILED": "an update failed and was not rolled back; roll it back in CloudFormation first",
}


def event_of(told: Mapping[str, Any]) -> StackEvent:
    """Return an event from the data of CloudFormation."""
    return StackEvent(
        told["EventId"],
        told["Timestamp"],
        told["LogicalResourceId"],
        told["ResourceType"],
        told["ResourceStatus"],
        told.get("ResourceStatusReason") or None,
    )


def is_under_way(status: str) -> bool:
    """Return whether an operation on a stack is in progress. A change set that waits for review is not one."""
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"


def is_failed(status: str) -> bool:
    """Return whether the last operation on a stack failed, even if it was rolled back."""
    return not is_under_way(status) and ("FAILED" in status or "ROLLBACK" in status)


def next_step(status: str | None) -> StackStep:
    """Decide how to bring an idle stack to the wanted state; ``status`` is None if there is no stack."""
    if status is None:
        return StackStep.CREATE
    if status in _UNUSABLE:
        return StackStep.REFUSE
    # Its creation was rolled back, so it contains nothing to lose.
    return StackStep.REPLACE if status in _REPLACEABLE else StackStep.UPDATE


def why_refused(status: str) -> str:
    """Return what must be done before a stack in this state can be deployed."""
    return f"it is in state {status}: {_UNUSABLE[status]}"


def reason_of_failure(events: Iterable[StackEvent], status: str) -> str:
    """Return why an operation failed: the reason of the first resource that failed."""
    failures = [event for event in events if event.is_failure and event.reason]
    parts = [event for event in failures if not event.is_of_stack and not _failed_with_others(event)]
    for event in [*parts, *failures]:
        return f"{event.logical_id} ({event.resource_type}): {event.reason}"
    return f"it ended in state {status}, and CloudFormation gave no reason"


def pause_s(polls: int) -> float:
    """Return the seconds to wait after this many polls: short at first, then up to 5 seconds."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 1.5 ** min(polls, 20))


def _failed_with_others(event: StackEvent) -> bool:
    return event.reason is not None and event.reason.startswith(_FAILED_WITH_OTHERS)
