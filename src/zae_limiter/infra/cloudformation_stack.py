"""Create, update, wait for and delete a CloudFormation stack of any type, and empty its buckets. Blocking.

``stack`` has the options of a limiter. A stack of another type has its own template and tags.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

import botocore.exceptions

from zae_limiter.core.errors import (
    InfrastructureNotFoundError,
    StackAlreadyExistsError,
    StackCreationError,
    StackOperationError,
)
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.infra import tags
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.infra.event_log import EventLog
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
from zae_limiter.infra.stack_state import StackState, state_of

StackListener = Callable[[StackEvent], None]
"""A callback that gets every event of an operation on a stack, in order."""

PATIENCE_S = 3600.0
"""The longest operation that is waited for, in seconds."""

_CAPABILITIES = ["CAPABILITY_NAMED_IAM"]
_NO_CHANGES = "No updates are to be performed"
_NO_STACK = "does not exist"
_UNDER_WAY = "_IN_PROGRESS state"


class UpdateAnswer(Enum):
    """The response of CloudFormation to an update request."""

    BEGUN = "begun"
    NOTHING_TO_DO = "nothing to do"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class StackRequest:
    """The parameters and tags of a request to CloudFormation."""

    parameters: list[dict[str, Any]]
    tags: list[dict[str, str]]


def ignore(event: StackEvent) -> None:
    """Ignore an event."""


class CloudFormationStack(ABC):
    """A stack of one type, by its name."""

    stack_type: str
    """The value of its type tag."""
    described: str
    """What it is, for messages: ``a limiter``."""

    def __init__(self, name: str, clients: Clients, *, patience_s: float = PATIENCE_S) -> None:
        """Refer to a stack, which need not exist."""
        self.name = name
        self._clients = clients
        self._patience_s = patience_s

    @abstractmethod
    def template(self) -> str:
        """Return the template of the stack."""

    def describe(self) -> StackState | None:
        """Return the description of the stack, None if it does not exist."""
        with self._translated():
            try:
                (told,) = self._cloudformation.describe_stacks(StackName=self.name)["Stacks"]
            except botocore.exceptions.ClientError as error:
                if _NO_STACK in _message(error):
                    return None
                raise
        return state_of(told)

    def require(self) -> StackState:
        """Return the description of the stack.

        Raises:
            InfrastructureNotFoundError: It does not exist.
        """
        found = self.describe()
        if found is None:
            raise self._not_found()
        return found

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
            StackOperationError: The stack has another type.
        """
        if found is not None and tags.stack_type(found.name, found.tags, found.description) != self.stack_type:
            raise StackOperationError(self.name, f"it exists, but it is not {self.described}; choose another name")
        return found

    def _not_found(self) -> InfrastructureNotFoundError:
        """Return the error for a stack that does not exist."""
        return InfrastructureNotFoundError(self.name, self._clients.region)

    def _possible_step(self, found: StackState | None) -> StackStep:
        """Return the step that brings the stack to the wanted state.

        Raises:
            StackOperationError: No step is possible.
        """
        step = next_step(None if found is None else found.status)
        if found is not None and step is StackStep.REFUSE:
            raise StackOperationError(self.name, why_refused(found.status))
        return step

    def _create(self, request: StackRequest, listener: StackListener) -> None:
        """Create the stack and wait for the end."""
        token = new_token()
        stack_id = self._ask_for_creation(request, token)
        self._follow(stack_id, token, listener, StackCreationError)

    def _update(self, request_for: Callable[[StackState], StackRequest], listener: StackListener) -> bool:
        """Update the stack and wait for the end; False if there was nothing to change.

        The request depends on the stack as it is after the operations of others.
        """
        for _ in self._looks():
            self.wait(listener)
            found, token = self.require(), new_token()
            self.own(found)
            match self._ask_for_update(found, request_for(found), token):
                case UpdateAnswer.NOTHING_TO_DO:
                    return False
                case UpdateAnswer.BEGUN:
                    self._follow(found.stack_id, token, listener)
                    return True
                case UpdateAnswer.BUSY:
                    pass
        raise AssertionError("the polling loop ends with an error")

    def _delete(self, found: StackState, listener: StackListener) -> None:
        """Delete the stack and wait for the end."""
        token = new_token()
        self._ask_for_deletion(found, token)
        self._follow(found.stack_id, token, listener)

    def _ask_for_creation(self, request: StackRequest, token: str) -> str:
        """Begin to create the stack, and return its id."""
        with self._translated(StackCreationError):
            try:
                answer = self._cloudformation.create_stack(StackName=self.name, **self._said(request, token))
            except self._cloudformation.exceptions.AlreadyExistsException:
                raise StackAlreadyExistsError(self.name) from None
        return str(answer["StackId"])

    def _ask_for_update(self, found: StackState, request: StackRequest, token: str) -> UpdateAnswer:
        with self._translated():
            try:
                self._cloudformation.update_stack(StackName=found.stack_id, **self._said(request, token))
            except botocore.exceptions.ClientError as error:
                if _NO_CHANGES in _message(error):
                    return UpdateAnswer.NOTHING_TO_DO
                if _UNDER_WAY in _message(error):
                    return UpdateAnswer.BUSY
                raise
        return UpdateAnswer.BEGUN

    def _ask_for_deletion(self, found: StackState, token: str) -> None:
        with self._translated():
            self._cloudformation.delete_stack(StackName=found.stack_id, ClientRequestToken=token)

    def _said(self, request: StackRequest, token: str) -> dict[str, Any]:
        """Return the arguments that creating and updating have in common."""
        return {
            "TemplateBody": self.template(),
            "Parameters": request.parameters,
            "Tags": request.tags,
            "Capabilities": _CAPABILITIES,
            "ClientRequestToken": token,
        }

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

    @property
    def _cloudformation(self) -> Any:
        return self._clients.of("cloudformation")

    @contextmanager
    def _translated(self, error: type[StackOperationError] = StackOperationError) -> Iterator[None]:
        """Raise errors of AWS as errors of this package."""
        try:
            yield
        except FAILURES as failed:
            raise error(self.name, reason_of(failed)) from failed


def parameter_list(values: Mapping[str, str], kept: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return parameters in the format of AWS; those that are kept have no value."""
    return [
        {"ParameterKey": key, "UsePreviousValue": True}
        if key in kept
        else {"ParameterKey": key, "ParameterValue": value}
        for key, value in sorted(values.items())
    ]


def remove_bucket(client: Any, bucket: str) -> None:
    """Delete a bucket with all its objects; a bucket that does not exist is ignored."""
    try:
        _delete_objects(client, bucket)
        client.delete_bucket(Bucket=bucket)
    except client.exceptions.NoSuchBucket:
        return


def empty_bucket(client: Any, bucket: str) -> None:
    """Delete all objects of a bucket; a bucket that does not exist is ignored."""
    try:
        _delete_objects(client, bucket)
    except client.exceptions.NoSuchBucket:
        return


def _delete_objects(client: Any, bucket: str) -> None:
    """Delete all objects page by page, with all versions, because versioning may have been enabled."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})


def new_token() -> str:
    """Return a token that identifies the events of one operation."""
    return f"zae-limiter-{uuid.uuid4()}"


def _failure(error: type[StackOperationError], name: str, heard: list[StackEvent]) -> StackOperationError:
    failures = [str(event) for event in heard if event.is_failure and not event.is_of_stack]
    return error(name, reason_of_failure(heard, heard[-1].status), failures)


def _message(error: botocore.exceptions.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))
