"""What CloudFormation tells of a stack while it works on it, and what follows from it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

STACK_TYPE = "AWS::CloudFormation::Stack"

# What CloudFormation says of resources that fail only because another has failed.
_FAILED_WITH_OTHERS = ("Resource creation cancelled", "Resource update cancelled", "Resource deletion cancelled")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class StackEvent:
    """One step of work on a stack."""

    event_id: str
    at: datetime
    logical_id: str
    resource_type: str
    status: str
    reason: str | None

    @property
    def is_failure(self) -> bool:
        """Whether the step failed."""
        return self.status.endswith("_FAILED")

    @property
    def is_of_stack(self) -> bool:
        """Whether it tells of the stack itself, and not of a part of it."""
        return self.resource_type == STACK_TYPE

    @property
    def ends_work(self) -> bool:
        """Whether nothing more follows."""
        return self.is_of_stack and not is_under_way(self.status)

    def __str__(self) -> str:
        reason = "" if self.reason is None else f": {self.reason}"
        return f"{self.status} {self.logical_id} ({self.resource_type}){reason}"


class StackStep(Enum):
    """What has to be done so that a stack is as wanted."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    REFUSE = "refuse"


_REPLACEABLE = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
_UNUSABLE = {
    "DELETE_FAILED": "its deletion has failed; delete it again, then deploy",
    "REVIEW_IN_PROGRESS": "a change set of it waits to be carried out; carry it out, or delete the stack, then deploy",
    "UPDATE_ROLLBACK_FAILED": "an update of it could not be taken back; continue the rollback in CloudFormation first",
    "UPDATE_FAILED": "an update of it has failed and was not taken back; roll it back in CloudFormation first",
}


def event_of(told: Mapping[str, Any]) -> StackEvent:
    """Return the event that CloudFormation told of."""
    return StackEvent(
        told["EventId"],
        told["Timestamp"],
        told["LogicalResourceId"],
        told["ResourceType"],
        told["ResourceStatus"],
        told.get("ResourceStatusReason") or None,
    )


def is_under_way(status: str) -> bool:
    """Say whether a stack is being worked on; a change set that waits for review is not work."""
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"


def is_failed(status: str) -> bool:
    """Say whether the last work on a stack failed, also where it was taken back."""
    return not is_under_way(status) and ("FAILED" in status or "ROLLBACK" in status)


def next_step(status: str | None) -> StackStep:
    """Decide what makes a stack that nobody works on as wanted; None is no stack."""
    if status is None:
        return StackStep.CREATE
    if status in _UNUSABLE:
        return StackStep.REFUSE
    # Its creation was taken back, so there is nothing in it to lose.
    return StackStep.REPLACE if status in _REPLACEABLE else StackStep.UPDATE


def why_refused(status: str) -> str:
    """Return what has to be done before a stack in this state can be deployed."""
    return f"it is in state {status}: {_UNUSABLE[status]}"


def reason_of_failure(events: Iterable[StackEvent], status: str) -> str:
    """Return why work on a stack failed: the reason of the first part that did."""
    failures = [event for event in events if event.is_failure and event.reason]
    parts = [event for event in failures if not event.is_of_stack and not _failed_with_others(event)]
    for event in [*parts, *failures]:
        return f"{event.logical_id} ({event.resource_type}): {event.reason}"
    return f"it ended in state {status}, and CloudFormation gave no reason"


def pause_s(polls: int) -> float:
    """Return how long to wait after so many looks: shortly at first, then as long as work on AWS takes."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 1.5 ** min(polls, 20))


def _failed_with_others(event: StackEvent) -> bool:
    return event.reason is not None and event.reason.startswith(_FAILED_WITH_OTHERS)
