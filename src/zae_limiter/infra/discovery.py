"""Find the stacks of limiters in a region. Blocking."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.infra import naming, progress, tags
from zae_limiter.infra.clients import FAILURES, Clients


@dataclass(frozen=True, slots=True)
class LimiterInfo:
    """A stack of this package, and the data of its tags; stacks of older versions have none."""

    stack_name: str
    user_name: str
    region: str
    stack_status: str
    creation_time: str
    last_updated_time: str | None
    version: str | None
    lambda_version: str | None
    schema_version: str | None
    stack_type: str

    @property
    def is_in_progress(self) -> bool:
        """Whether an operation on the stack is in progress."""
        return progress.is_under_way(self.stack_status)

    @property
    def is_failed(self) -> bool:
        """Whether the last operation failed, even if it was rolled back."""
        return progress.is_failed(self.stack_status)

    @property
    def is_healthy(self) -> bool:
        """Whether the last operation succeeded and none is in progress."""
        return not self.is_in_progress and not self.is_failed and self.stack_status != "REVIEW_IN_PROGRESS"


def list_limiters(clients: Clients, stack_type: str | None = tags.LIMITER) -> list[LimiterInfo]:
    """Return the stacks of a type, or of all types if it is None, sorted by name.

    Raises:
        ValidationError: No region is configured.
        InfrastructureError: There are no credentials, or AWS refuses the call or cannot be reached.
    """
    try:
        found = [info_of(told, clients.region) for told in _stacks(clients)]
    except FAILURES as error:
        raise RateLimiterUnavailable(error) from error
    chosen = [one for one in found if one is not None and stack_type in (None, one.stack_type)]
    return sorted(chosen, key=lambda one: one.stack_name)


def info_of(told: Mapping[str, Any], region: str) -> LimiterInfo | None:
    """Return the info of a stack of this package, None for any other stack."""
    name: str = told["StackName"]
    said = tags.from_list(told.get("Tags", []))
    stack_type = tags.stack_type(name, said, told.get("Description", ""))
    if stack_type is None:
        return None
    return LimiterInfo(
        stack_name=name,
        user_name=said.get(tags.NAME, naming.user_name(name)),
        region=region,
        stack_status=told["StackStatus"],
        creation_time=_iso(told["CreationTime"]),
        last_updated_time=_iso(told["LastUpdatedTime"]) if "LastUpdatedTime" in told else None,
        version=said.get(tags.VERSION),
        lambda_version=said.get(tags.LAMBDA_VERSION),
        schema_version=said.get(tags.SCHEMA),
        stack_type=stack_type,
    )


def _stacks(clients: Clients) -> Iterator[Mapping[str, Any]]:
    """Yield all stacks, page by page."""
    for page in clients.of("cloudformation").get_paginator("describe_stacks").paginate():
        yield from page["Stacks"]


def _iso(moment: datetime) -> str:
    return moment.isoformat()
