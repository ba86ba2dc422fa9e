"""Create, update, wait for and delete the CloudFormation stack of a limiter. Blocking.

``function`` uploads the aggregator's code.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from importlib import metadata
from typing import Any

import botocore.exceptions

from zae_limiter.core.errors import (
    InfrastructureNotFoundError,
    StackAlreadyExistsError,
    StackCreationError,
    StackOperationError,
)
from zae_limiter.core.names import check_stack_name
from zae_limiter.infra import naming, tags
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.infra.event_log import EventLog
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.progress import (
    StackEvent,
    StackStep,
    is_failed,
    is_under_way,
    next_step,
    pause_s,
    reason_of_failure,
    why_refused,
)
from zae_limiter.infra.template import limiter_template

StackListener = Callable[[StackEvent], None]
"""A callback that gets every event of an operation on a stack, in order."""

_CAPABILITIES = ["CAPABILITY_NAMED_IAM"]
_PATIENCE_S = 3600.0
_NO_CHANGES = "No updates are to be performed"
_NO_STACK = "does not exist"
_UNDER_WAY = "_IN_PROGRESS state"


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


class _Answer(Enum):
    """The response of CloudFormation to an update request."""

    BEGUN = "begun"
    NOTHING_TO_DO = "nothing to do"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class _Request:
    """The parameters and tags of a request to CloudFormation."""

    parameters: list[dict[str, Any]]
    tags: list[dict[str, str]]


def ignore(event: StackEvent) -> None:
    """Ignore an event."""


class Stack:
    """The stack of one limiter."""

    def __init__(self, name: str, clients: Clients, *, patience_s: float = _PATIENCE_S) -> None:
        """Refer to a stack, which need not exist.

        Raises:
            InvalidNameError: The name is not a valid stack name.
        """
        # Stacks of older versions have a prefix in their name.
        check_stack_name(naming.user_name(name))
        self.name = name
        self._clients = clients
        self._patience_s = patience_s

    def describe(self) -> StackState | None:
        """Return the description of the stack, None if it does not exist."""
        with self._translated():
            try:
                (told,) = self._cloudformation.describe_stacks(StackName=self.name)["Stacks"]
            except botocore.exceptions.ClientError as error:
                if _NO_STACK in _message(error):
                    return None
                raise
        return _state_of(told)

    def require(self) -> StackState:
        """Return the description of the stack.

        Raises:
            InfrastructureNotFoundError: It does not exist.
        """
        found = self.describe()
        if found is None:
            raise InfrastructureNotFoundError(self.name, self._clients.region)
        return found

    def table_facts(self) -> TableFacts | None:
        """Return the description of the table, None if it does not exist."""
        client = self._clients.of("dynamodb")
        with self._translated():
            try:
                told = client.describe_table(TableName=naming.table_name(self.name))["Table"]
            except client.exceptions.ResourceNotFoundException:
                return None
        return TableFacts(told["TableStatus"], told.get("ItemCount", 0), told.get("TableSizeBytes", 0))

    def deploy(self, options: StackOptions, listener: StackListener = ignore) -> StackResult:
        """Create the stack, or update an existing one to these options. Waits for operations of others first.

        Raises:
            ValidationError: A derived name is too long.
            StackOperationError: The operation is not possible; the message says why and what to do.
        """
        template_parameters(self.name, options)
        found = self.own(self.wait(listener))
        match next_step(None if found is None else found.status):
            case StackStep.REFUSE:
                assert found is not None
                raise StackOperationError(self.name, why_refused(found.status))
            case StackStep.UPDATE:
                return self.update(options, listener)
            case StackStep.REPLACE:
                self.delete(listener=listener)
            case StackStep.CREATE:
                pass
        try:
            return self.create(options, listener)
        except StackAlreadyExistsError:
            # Another deployment was faster.
            self.wait(listener)
            return self.update(options, listener)

    def create(self, options: StackOptions, listener: StackListener = ignore) -> StackResult:
        """Create the stack; a failed creation is rolled back.

        Raises:
            ValidationError: A derived name is too long.
            StackAlreadyExistsError: The stack exists already.
            StackCreationError: The creation failed; the message has the first failure and its reason.
        """
        request = _Request(_all_parameters(self.name, options), self._tags(options.tags))
        token = _token()
        with self._translated(StackCreationError):
            try:
                answer = self._cloudformation.create_stack(
                    StackName=self.name,
                    TemplateBody=limiter_template(),
                    Parameters=request.parameters,
                    Tags=request.tags,
                    Capabilities=_CAPABILITIES,
                    ClientRequestToken=token,
                )
            except self._cloudformation.exceptions.AlreadyExistsException:
                raise StackAlreadyExistsError(self.name) from None
        self._follow(answer["StackId"], token, listener, StackCreationError)
        return self._finished(changed=True)

    def update(self, options: StackOptions | None = None, listener: StackListener = ignore) -> StackResult:
        """Update the stack to the newest template, with these options, or its current ones if that is None.

        Raises:
            InfrastructureNotFoundError: There is no stack.
            ValidationError: A derived name is too long.
            StackOperationError: The update failed and was rolled back; the message has the first failure.
        """
        for _ in self._looks():
            self.wait(listener)
            found, token = self.require(), _token()
            self.own(found)
            match self._ask_for_update(found, self._update_request(found, options), token):
                case _Answer.NOTHING_TO_DO:
                    return self._finished(changed=False)
                case _Answer.BEGUN:
                    self._follow(found.stack_id, token, listener)
                    return self._finished(changed=True)
                case _Answer.BUSY:
                    pass
        raise AssertionError("the polling loop ends with an error")

    def delete(self, *, keep_archive: bool = True, listener: StackListener = ignore) -> Deletion:
        """Delete the stack with its table; the bucket of audit events stays if ``keep_archive``.

        Raises:
            StackOperationError: The stack is protected, or the deletion failed; the message has the reason.
        """
        # A stack that is already being deleted reveals the name of its bucket only until it is
        # gone.
        begun = self.own(self.describe())
        if begun is None:
            return Deletion(existed=False, archive_kept=None)
        found = self.own(self.wait(listener))
        if found is not None:
            self._delete(found, listener)
        bucket = (found or begun).outputs.get("ArchiveBucketName")
        if bucket is not None and not keep_archive:
            self._remove_archive(bucket)
            bucket = None
        return Deletion(existed=True, archive_kept=bucket)

    def wait(self, listener: StackListener = ignore) -> StackState | None:
        """Wait until no operation is in progress, and return the description of the stack, None if it is gone.

        Raises:
            StackOperationError: It takes too long.
        """
        found = self.describe()
        if found is None or not is_under_way(found.status):
            return found
        events = EventLog(self._cloudformation, found.stack_id)
        with self._translated():
            # Skip the events so far, most of which belong to earlier operations.
            events.fresh()
        for _ in self._looks():
            with self._translated():
                fresh = events.fresh()
            for event in fresh:
                listener(event)
            found = self.describe()
            if found is None or not is_under_way(found.status):
                break
        return found

    def own(self, found: StackState | None) -> StackState | None:
        """Return the description of the stack. Another application's stack of the same name is never changed.

        Raises:
            StackOperationError: The stack is not a limiter.
        """
        if found is not None and tags.stack_type(found.name, found.tags, found.description) != tags.LIMITER:
            raise StackOperationError(self.name, "it exists, but it is not a limiter; choose another name")
        return found

    def _delete(self, found: StackState, listener: StackListener) -> None:
        if (
            found.parameters.get("EnableDeletionProtection") == "true"
            and next_step(found.status) is not StackStep.REPLACE
        ):
            reason = "it is protected from deletion; deploy it with enable_deletion_protection=False first"
            raise StackOperationError(self.name, reason)
        token = _token()
        with self._translated():
            self._cloudformation.delete_stack(StackName=found.stack_id, ClientRequestToken=token)
        self._follow(found.stack_id, token, listener)

    def _remove_archive(self, bucket: str) -> None:
        try:
            _remove_bucket(self._clients.of("s3"), bucket)
        except FAILURES as failed:
            left = f"the stack was deleted, but not its archive bucket {bucket}; empty and delete it by hand"
            raise StackOperationError(self.name, f"{left}: {reason_of(failed)}") from failed

    @property
    def _cloudformation(self) -> Any:
        return self._clients.of("cloudformation")

    def _tags(self, chosen: Mapping[str, str]) -> list[dict[str, str]]:
        name = naming.user_name(self.name)
        return tags.to_list(tags.limiter_tags(name, metadata.version("zae-limiter"), chosen))

    def _update_request(self, found: StackState, options: StackOptions | None) -> _Request:
        if options is not None:
            return _Request(_all_parameters(self.name, options), self._tags(options.tags))
        # Only parameters that both the stack and the template have: another version may have
        # others.
        kept = found.parameters.keys() & template_parameters(naming.user_name(self.name), StackOptions()).keys()
        parameters = [{"ParameterKey": name, "UsePreviousValue": True} for name in sorted(kept)]
        return _Request(parameters, self._tags(found.tags))

    def _finished(self, *, changed: bool) -> StackResult:
        self._expire_items()
        return StackResult(self.require(), changed)

    def _expire_items(self) -> None:
        """Enable TTL for the table if CloudFormation did not."""
        client, table = self._clients.of("dynamodb"), naming.table_name(self.name)
        with self._translated():
            told = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
            if told["TimeToLiveStatus"] == "DISABLED":
                specification = {"AttributeName": "ttl", "Enabled": True}
                client.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)

    def _ask_for_update(self, found: StackState, request: _Request, token: str) -> _Answer:
        with self._translated():
            try:
                self._cloudformation.update_stack(
                    StackName=found.stack_id,
                    TemplateBody=limiter_template(),
                    Parameters=request.parameters,
                    Tags=request.tags,
                    Capabilities=_CAPABILITIES,
                    ClientRequestToken=token,
                )
            except botocore.exceptions.ClientError as error:
                if _NO_CHANGES in _message(error):
                    return _Answer.NOTHING_TO_DO
                if _UNDER_WAY in _message(error):
                    return _Answer.BUSY
                raise
        return _Answer.BEGUN

    def _follow(
        self,
        stack_id: str,
        token: str,
        listener: StackListener,
        error: type[StackOperationError] = StackOperationError,
    ) -> None:
        """Report the events of our own operation until it ends; raise an error if it failed."""
        events = EventLog(self._cloudformation, stack_id, token)
        for _ in self._looks():
            with self._translated(error):
                fresh = events.fresh()
            for event in fresh:
                listener(event)
            if fresh and fresh[-1].ends_work:
                if is_failed(fresh[-1].status):
                    raise _failure(error, self.name, events.heard)
                return

    def _looks(self) -> Iterator[None]:
        """Yield between polls of the stack, until the time limit is reached."""
        end_s = time.monotonic() + self._patience_s
        polls = 0
        while True:
            yield
            if time.monotonic() > end_s:
                reason = f"the operation is still in progress after {self._patience_s:.0f} s; check again later"
                raise StackOperationError(self.name, reason)
            time.sleep(pause_s(polls))
            polls += 1

    @contextmanager
    def _translated(self, error: type[StackOperationError] = StackOperationError) -> Iterator[None]:
        """Raise errors of AWS as errors of this package."""
        try:
            yield
        except FAILURES as failed:
            raise error(self.name, reason_of(failed)) from failed


def _all_parameters(name: str, options: StackOptions) -> list[dict[str, Any]]:
    chosen = template_parameters(name, options)
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in chosen.items()]


def _failure(error: type[StackOperationError], name: str, heard: list[StackEvent]) -> StackOperationError:
    failures = [str(event) for event in heard if event.is_failure and not event.is_of_stack]
    return error(name, reason_of_failure(heard, heard[-1].status), failures)


def _state_of(told: Mapping[str, Any]) -> StackState:
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


def _message(error: botocore.exceptions.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))


def _token() -> str:
    """Return a token that identifies the events of one operation."""
    return f"zae-limiter-{uuid.uuid4()}"


def _remove_bucket(client: Any, bucket: str) -> None:
    """Delete a bucket with all its objects; a bucket that does not exist is ignored."""
    try:
        _empty(client, bucket)
        client.delete_bucket(Bucket=bucket)
    except client.exceptions.NoSuchBucket:
        return


def _empty(client: Any, bucket: str) -> None:
    """Delete all objects page by page, with all versions, because versioning may have been enabled."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
