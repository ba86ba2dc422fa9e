"""Create, update and delete the CloudFormation stack of a limiter. Blocking.

``function`` uploads the aggregator's code.
"""

from collections.abc import Mapping
from importlib import metadata

from zae_limiter.core.errors import StackAlreadyExistsError, StackOperationError
from zae_limiter.core.names import check_stack_name
from zae_limiter.infra import naming, tags
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.infra.cloudformation_stack import (
    PATIENCE_S,
    CloudFormationStack,
    StackListener,
    StackRequest,
    UpdateAnswer,
    ignore,
    new_token,
    parameter_list,
    remove_bucket,
)
from zae_limiter.infra.given_options import GivenOptions, as_given, kept_parameters, own_tags, stored_options
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.progress import StackStep, is_under_way, next_step
from zae_limiter.infra.stack_state import Deletion, StackResult, StackState, TableFacts
from zae_limiter.infra.template import limiter_template

__all__ = ["Stack", "StackListener", "ignore", "kept_options"]

_BEING_DELETED = "DELETE_IN_PROGRESS"
_BUSY = "another operation on it is in progress; retry when that has ended"
_TO_BE_REPLACED = "its creation failed, and replacing it takes two operations; deploy it and wait"


class Stack(CloudFormationStack):
    """The stack of one limiter."""

    stack_type = tags.LIMITER
    described = "a limiter"

    def __init__(self, name: str, clients: Clients, *, patience_s: float = PATIENCE_S) -> None:
        """Refer to a stack, which need not exist.

        Raises:
            InvalidNameError: The name is not a valid stack name.
        """
        # Stacks of older versions have a prefix in their name.
        check_stack_name(naming.user_name(name))
        super().__init__(name, clients, patience_s=patience_s)

    def template(self) -> str:
        """Return the template of a limiter."""
        return limiter_template()

    def table_facts(self) -> TableFacts | None:
        """Return the description of the table, None if it does not exist."""
        client = self._clients.of("dynamodb")
        with self._translated():
            try:
                told = client.describe_table(TableName=naming.table_name(self.name))["Table"]
            except client.exceptions.ResourceNotFoundException:
                return None
        return TableFacts(told["TableStatus"], told.get("ItemCount", 0), told.get("TableSizeBytes", 0))

    def options_after(self, options: StackOptions | GivenOptions, found: StackState | None) -> StackOptions:
        """Return all options that a deployment would result in; ``found`` is None if there is no stack.

        Raises:
            ValidationError: An option contradicts another one, or a derived name is too long.
            StackOperationError: The options of the stack cannot be read.
        """
        given = as_given(options)
        after = given.over(kept_options(given, found))
        template_parameters(self.name, after)
        return after

    def deploy(self, options: StackOptions | GivenOptions, listener: StackListener = ignore) -> StackResult:
        """Create the stack, or update an existing one to these options. Waits for operations of others first.

        Raises:
            ValidationError: An option contradicts another one, or a derived name is too long.
            StackOperationError: The operation is not possible; the message says why and what to do.
        """
        found = self.own(self.wait(listener))
        step, wanted = self._possible_step(found), self.options_after(options, found)
        if step is StackStep.UPDATE:
            return self.update(options, listener)
        if step is StackStep.REPLACE:
            self.delete(listener=listener)
        try:
            return self.create(wanted, listener)
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
        self._create(self._creation_request(options), listener)
        return self._finished(changed=True)

    def begin(self, options: StackOptions | GivenOptions) -> StackResult:
        """Begin to create or update the stack, and return without waiting for the end.

        Raises:
            ValidationError: An option contradicts another one, or a derived name is too long.
            StackOperationError: The operation is not possible now; the message says why and what to do.
        """
        found = self.own(self.describe())
        if found is not None and is_under_way(found.status):
            raise StackOperationError(self.name, _BUSY)
        step, wanted = self._possible_step(found), self.options_after(options, found)
        if step is StackStep.REPLACE:
            raise StackOperationError(self.name, _TO_BE_REPLACED)
        if found is None:
            self._ask_for_creation(self._creation_request(wanted), new_token())
            return StackResult(self.require(), changed=True)
        match self._ask_for_update(found, self._update_request(found, options), new_token()):
            case UpdateAnswer.BUSY:
                raise StackOperationError(self.name, _BUSY)
            case answer:
                return StackResult(self.require(), changed=answer is UpdateAnswer.BEGUN)

    def update(
        self, options: StackOptions | GivenOptions | None = None, listener: StackListener = ignore
    ) -> StackResult:
        """Update the stack to the newest template, with these options, or its current ones if that is None.

        Raises:
            InfrastructureNotFoundError: There is no stack.
            ValidationError: An option contradicts another one, or a derived name is too long.
            StackOperationError: The update failed and was rolled back; the message has the first failure.
        """
        changed = self._update(lambda found: self._update_request(found, options), listener)
        return self._finished(changed=changed)

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

    def begin_deletion(self) -> Deletion:
        """Begin to delete the stack, and return without waiting for the end; the bucket of audit events stays.

        Raises:
            StackOperationError: The stack is protected, or another operation is in progress.
        """
        found = self.own(self.describe())
        if found is None:
            return Deletion(existed=False, archive_kept=None)
        if found.status != _BEING_DELETED:
            if is_under_way(found.status):
                raise StackOperationError(self.name, _BUSY)
            self._ask_for_deletion(found, new_token())
        return Deletion(existed=True, archive_kept=found.outputs.get("ArchiveBucketName"))

    def _creation_request(self, options: StackOptions) -> StackRequest:
        return StackRequest(parameter_list(template_parameters(self.name, options)), self._tags(options.tags))

    def _ask_for_deletion(self, found: StackState, token: str) -> None:
        if (
            found.parameters.get("EnableDeletionProtection") == "true"
            and next_step(found.status) is not StackStep.REPLACE
        ):
            reason = "it is protected from deletion; deploy it with enable_deletion_protection=False first"
            raise StackOperationError(self.name, reason)
        super()._ask_for_deletion(found, token)

    def _remove_archive(self, bucket: str) -> None:
        try:
            remove_bucket(self._clients.of("s3"), bucket)
        except FAILURES as failed:
            left = f"the stack was deleted, but not its archive bucket {bucket}; empty and delete it by hand"
            raise StackOperationError(self.name, f"{left}: {reason_of(failed)}") from failed

    def _tags(self, chosen: Mapping[str, str]) -> list[dict[str, str]]:
        name = naming.user_name(self.name)
        return tags.to_list(tags.limiter_tags(name, metadata.version("zae-limiter"), chosen))

    def _update_request(self, found: StackState, options: StackOptions | GivenOptions | None) -> StackRequest:
        if options is not None:
            given = as_given(options)
            before = kept_options(given, found)
            after = given.over(before)
            kept = kept_parameters(self.name, before, after, found.parameters)
            return StackRequest(parameter_list(template_parameters(self.name, after), kept), self._tags(after.tags))
        # Only parameters that both the stack and the template have: another version may have
        # others.
        known = template_parameters(naming.user_name(self.name), StackOptions())
        stored = {name: value for name, value in found.parameters.items() if name in known}
        return StackRequest(parameter_list(stored, stored.keys()), self._tags(own_tags(found.tags)))

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


def kept_options(given: GivenOptions, found: StackState | None) -> StackOptions | None:
    """Return the options of the stack that a deployment keeps unless they are given; None if it keeps none.

    A stack that could not be created is replaced, and its options may be the reason of the failure.

    Raises:
        StackOperationError: The options of the stack cannot be read.
    """
    if found is None or given.reset or next_step(found.status) is StackStep.REPLACE:
        return None
    return stored_options(found.name, found.parameters, found.tags)
