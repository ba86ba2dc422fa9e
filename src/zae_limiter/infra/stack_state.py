"""Describe a stack and its table, and the results of operations on it. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.infra import tags


@dataclass(frozen=True, slots=True)
class StackState:
    """The description of a stack by CloudFormation."""

    stack_id: str
    name: str
    status: str
    reason: str | None
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]
    tags: Mapping[str, str]
    description: str
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The description of a stack's table by DynamoDB. The counts are up to some hours old."""

    status: str
    item_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StackResult:
    """A deployed stack, and whether the operation changed it."""

    state: StackState
    changed: bool


@dataclass(frozen=True, slots=True)
class Deletion:
    """Whether a stack existed, and the name of the audit archive bucket that was kept, or None."""

    existed: bool
    archive_kept: str | None


def state_of(told: Mapping[str, Any]) -> StackState:
    """Return the description of a stack from the data of CloudFormation."""
    return StackState(
        told["StackId"],
        told["StackName"],
        told["StackStatus"],
        told.get("StackStatusReason") or None,
        {one["ParameterKey"]: one.get("ParameterValue", "") for one in told.get("Parameters", [])},
        {one["OutputKey"]: one["OutputValue"] for one in told.get("Outputs", [])},
        tags.from_list(told.get("Tags", [])),
        told.get("Description", ""),
        told["CreationTime"],
        told.get("LastUpdatedTime"),
    )
