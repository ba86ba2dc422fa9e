"""Define every error that the package raises, each with its data as attributes.

Expected outcomes, such as a refused write, are values and not errors. Every error keeps its
arguments in ``args``, so it survives pickling. It builds its message only when the message is needed.

::

    ZAELimiterError
    ├── RateLimitError
    │   ├── RateLimitExceeded
    │   │   └── AmountExceedsCapacityError (also a ValidationError)
    │   ├── EntityBlockedError
    │   └── LeaseExpiredError
    ├── EntityError
    │   ├── EntityNotFoundError
    │   ├── EntityExistsError
    │   └── EntityHasChildrenError
    ├── InfrastructureError
    │   ├── RateLimiterUnavailable
    │   ├── StorageError
    │   │   ├── CorruptItemError
    │   │   └── RepositoryClosedError
    │   ├── UnsupportedByBackendError
    │   ├── StackOperationError
    │   │   └── StackCreationError
    │   │       └── StackAlreadyExistsError
    │   ├── InfrastructureNotFoundError
    │   ├── LocalAwsError
    │   ├── NamespaceNotFoundError
    │   └── NamespaceStateError
    ├── VersionError, and those below it: see version_errors
    ├── ValidationError (also a ValueError)
    │   ├── InvalidIdentifierError
    │   ├── InvalidNameError
    │   ├── NoLimitsInForceError
    │   ├── TooManyBucketsError
    │   └── IdempotencyKeyReusedError: see operator_actions
    └── MissingExtraError
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from zae_limiter.core.short_repr import short_repr

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter.core.status import DeferredStatuses, LimitStatus


class ZAELimiterError(Exception):
    """The base class of every error of this package."""


class RateLimitError(ZAELimiterError):
    """Taking tokens failed, or a lease was misused."""


class RateLimitExceeded(RateLimitError):  # noqa: N818 - the specification names it
    """At least one limit has too few tokens; nothing was taken.

    ``never`` is True if no wait helps, because an amount exceeds a capacity. ``waited`` is how many seconds the request
    has waited. ``position`` is its place among the requests that wait for the same bucket, 1 for the next.
    ``estimate`` is how many seconds it would still have to wait. Both are None for a request without ``max_wait``.
    """

    never = False
    waited: float = 0.0
    position: int | None = None
    estimate: float | None = None

    def __init__(self, statuses: "Sequence[LimitStatus] | DeferredStatuses") -> None:
        # Under overload most calls are rejections, and few callers read statuses, so they are made later.
        self._found = statuses

    def after_wait(self, waited: float, position: int, estimate: float) -> Self:
        """Note how the request has waited, and return this error."""
        self.waited, self.position, self.estimate = waited, position, estimate
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        parts = type(self), (self.statuses, *self.args[1:])
        return (*parts, self._wait()) if self._wait() else parts

    def _wait(self) -> dict[str, Any]:
        if self.position is None:
            return {}
        return {"waited": self.waited, "position": self.position, "estimate": self.estimate}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.statuses!r})"

    @property
    def statuses(self) -> "tuple[LimitStatus, ...]":
        """Every limit, exceeded or not, of every bucket that the request takes from, as the request found it."""
        found = self._found
        if type(found) is not tuple:
            self._found = found = tuple(found if isinstance(found, Sequence) else found.statuses())
            self.args = (found,)
        return found

    @property
    def violations(self) -> "tuple[LimitStatus, ...]":
        """The limits that reject the request: they have too few tokens, and are not soft."""
        return tuple(status for status in self.statuses if status.rejects)

    @property
    def passed(self) -> "tuple[LimitStatus, ...]":
        """The limits that do not reject the request."""
        return tuple(status for status in self.statuses if not status.rejects)

    @property
    def primary_violation(self) -> "LimitStatus":
        """The violation with the longest wait; if nothing is missing because others wait before, any limit."""
        return max(self.violations or self.statuses, key=lambda status: status.retry_after_seconds)

    @property
    def retry_after_seconds(self) -> float:
        """Seconds until the same request would be admitted, if no other request takes tokens meanwhile.

        Requests that wait before it count.
        """
        waits = [status.retry_after_seconds for status in self.violations]
        if self.estimate is not None and self.estimate < math.inf:
            waits.append(self.estimate)
        return max(waits, default=0.0)

    @property
    def exact(self) -> bool:
        """Whether ``retry_after_seconds`` is exact: no limit of concurrent use is exceeded."""
        return all(status.exact for status in self.violations)

    @property
    def next_try_seconds(self) -> float:
        """Seconds until it is worth to try again: as ``retry_after_seconds``, but at most 1 for slots.

        Slots are returned at any time. Their exact wait is only known if no lease renews or returns them.
        """
        waits = [one.retry_after_seconds if one.exact else min(1.0, one.retry_after_seconds) for one in self.violations]
        if self.estimate is not None and self.estimate < math.inf:
            waits.append(self.estimate if self.exact else min(1.0, self.estimate))
        return max(waits, default=0.0)

    @property
    def retry_after_header(self) -> str:
        """The value for an HTTP ``Retry-After`` header: whole seconds, rounded up, at least 1; exactly 1 for slots."""
        return str(max(1, math.ceil(self.next_try_seconds)))

    def as_dict(self) -> dict[str, Any]:
        """Return all data of the error, ready for JSON."""
        return {
            "error": "rate_limit_exceeded",
            "message": str(self),
            "retry_after_seconds": self.retry_after_seconds,
            "never": self.never,
            **({} if self.exact else {"exact": False, "next_try_seconds": self.next_try_seconds}),
            # Rounded first: 4.035 s is 4035.0000000000005 ms as a float, which would become 4036.
            "retry_after_ms": math.ceil(round(self.retry_after_seconds * 1000, 6)),
            "limits": [status.as_dict() for status in self.statuses],
            "buckets": self._buckets(),
            **self._wait(),
        }

    def _buckets(self) -> list[dict[str, Any]]:
        """Return every bucket that the request takes from, with its limits."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for status in self.statuses:
            found.setdefault((status.entity_id, status.resource), []).append(status.as_dict())
        return [
            {"entity_id": entity_id, "resource": resource, "limits": limits}
            for (entity_id, resource), limits in found.items()
        ]

    def __str__(self) -> str:
        violations = self.violations
        if not violations:
            if self.position is not None:
                return f"Rate limit exceeded: {self.position - 1} requests wait for the same tokens before this one."
            return "Rate limit exceeded."
        worst = self.primary_violation
        others = f" ({len(violations)} limits exceeded)" if len(violations) > 1 else ""
        wait = f"Retry after {worst.retry_after_seconds:.3f} s."
        if not worst.exact:
            wait = f"Slots are returned at any time; those in use end within {worst.retry_after_seconds:.3f} s."
        # Imported here, because it imports limits, which import this module.
        from zae_limiter.core.limit_text import shortage_text

        where = f"entity {worst.entity_id!r}, resource {worst.resource!r}, limit {worst.limit_name!r}"
        return f"Rate limit exceeded for {where}: {shortage_text(worst)}{others}. {wait}"


class EntityBlockedError(RateLimitError):
    """An operator has blocked the entity, or an ancestor that it cascades to; nothing was taken.

    ``entity_id`` is the blocked entity. ``resource`` is the blocked resource, None if all are blocked. ``until`` is
    when the block ends, None if it has no end.
    """

    def __init__(
        self, entity_id: str, resource: str | None = None, reason: str | None = None, until: "datetime | None" = None
    ) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.reason = reason
        self.until = until
        super().__init__(entity_id, resource, reason, until)

    def as_dict(self) -> dict[str, Any]:
        """Return all data of the error, ready for JSON."""
        return {
            "error": "entity_blocked",
            "message": str(self),
            "entity_id": self.entity_id,
            "resource": self.resource,
            "reason": self.reason,
            "until": None if self.until is None else self.until.isoformat(),
        }

    def __str__(self) -> str:
        what = "" if self.resource is None else f" for resource {self.resource!r}"
        until = "" if self.until is None else f" until {self.until.isoformat()}"
        reason = "" if self.reason is None else f": {self.reason}"
        return f"Entity {self.entity_id!r} is blocked{what}{until}{reason}. An operator can call unblock_entity()."


class LeaseExpiredError(RateLimitError):
    """A method was called on a lease that has ended."""

    def __init__(self, verb: str, entity_id: str | None = None, resource: str | None = None) -> None:
        self.verb = verb
        self.entity_id = entity_id
        self.resource = resource
        super().__init__(verb, entity_id, resource)

    def __str__(self) -> str:
        where = "" if self.entity_id is None else f" of entity {self.entity_id!r}, resource {self.resource!r}"
        return f"{self.verb}() was called on a lease{where} that has ended. Call it inside the acquire block."


class EntityError(ZAELimiterError):
    """The base class of errors about an entity."""

    def __init__(self, entity_id: str) -> None:
        self.entity_id = entity_id
        super().__init__(entity_id)


class EntityNotFoundError(EntityError):
    """The entity does not exist."""

    def __str__(self) -> str:
        return f"Entity {self.entity_id!r} does not exist. Create it with create_entity()."


class EntityExistsError(EntityError):
    """The entity exists already."""

    def __str__(self) -> str:
        return f"Entity {self.entity_id!r} exists already. Delete it first, or use it as it is."


class EntityHasChildrenError(EntityError):
    """The entity cannot be deleted, because other entities have it as their parent."""

    def __str__(self) -> str:
        return f"Entity {self.entity_id!r} has children. Move or delete them first; get_children() lists them."


class InfrastructureError(ZAELimiterError):
    """The base class of errors about the store or the stack."""


class RateLimiterUnavailable(InfrastructureError):  # noqa: N818 - the specification names it
    """The store did not answer in time, and ``on_unavailable`` is ``block``.

    ``stack_name`` is the name of the stack on DynamoDB, None for a file or memory.
    """

    def __init__(
        self,
        cause: BaseException | None,
        stack_name: str | None = None,
        entity_id: str | None = None,
        resource: str | None = None,
    ) -> None:
        self.cause = cause
        self.stack_name = stack_name
        self.entity_id = entity_id
        self.resource = resource
        super().__init__(cause, stack_name, entity_id, resource)
        self.__cause__ = cause

    def __str__(self) -> str:
        facts = {"stack": self.stack_name, "entity": self.entity_id, "resource": self.resource}
        known = ", ".join(f"{name} {value!r}" for name, value in facts.items() if value is not None)
        where = f" ({known})" if known else ""
        why = "it did not answer" if self.cause is None else f"{type(self.cause).__name__}: {self.cause}"
        return (
            f"The rate limiter's store is unavailable{where}: {why}. "
            "Retry later, or set on_unavailable='allow' to allow requests without limiting."
        )


class StorageError(InfrastructureError):
    """The store was found but cannot be used: it is damaged, read-only, or belongs to another program."""

    def __init__(self, location: str, reason: str) -> None:
        self.location = location
        self.reason = reason
        super().__init__(location, reason)

    def __str__(self) -> str:
        return f"Cannot use {self.location}: {self.reason}"


class CorruptItemError(StorageError):
    """An item of the table does not have the attributes of its record type."""

    def __str__(self) -> str:
        return f"The item {self.location} is damaged: {self.reason}. Delete it, or restore it from a backup."


class RepositoryClosedError(StorageError):
    """A method was called on a repository after ``close()``, or ``close()`` ended a call in flight."""

    def __init__(self, location: str) -> None:
        super().__init__(location, "this repository is closed; open a new one")
        # Unpickling calls the constructor with ``args``, and this one only takes the location.
        self.args = (location,)


class UnsupportedByBackendError(InfrastructureError):
    """The backend does not support the operation; ``hint`` says what to do instead, None if unknown."""

    def __init__(self, operation: str, backend: str, hint: str | None = None) -> None:
        self.operation = operation
        self.backend = backend
        self.hint = hint
        super().__init__(operation, backend, hint)

    def __str__(self) -> str:
        hint = "see repository.capabilities" if self.hint is None else self.hint
        return f"{self.operation} is not supported by the {self.backend} backend; {hint}."


class StackOperationError(InfrastructureError):
    """An operation on a CloudFormation stack failed."""

    operation = "change"

    def __init__(self, stack_name: str, reason: str, events: Sequence[str] = ()) -> None:
        self.stack_name = stack_name
        self.reason = reason
        self.events = tuple(events)
        super().__init__(stack_name, reason, self.events)

    def __str__(self) -> str:
        lines = [f"Could not {self.operation} stack {self.stack_name!r}: {self.reason}"]
        return "\n".join([*lines, *(f"  {event}" for event in self.events)])


class StackCreationError(StackOperationError):
    """A stack could not be created."""

    operation = "create"


class StackAlreadyExistsError(StackCreationError):
    """A stack with this name exists already."""

    def __init__(self, stack_name: str, reason: str = "it exists already", events: Sequence[str] = ()) -> None:
        super().__init__(stack_name, reason, events)


class InfrastructureNotFoundError(InfrastructureError):
    """A stack, table or file with this name does not exist."""

    def __init__(self, name: str, region: str | None = None) -> None:
        self.name = name
        self.region = region
        super().__init__(name, region)

    def __str__(self) -> str:
        where = "" if self.region is None else f" in {self.region}"
        return f"There is no limiter {self.name!r}{where}. Deploy it with: zae-limiter deploy --name {self.name}"


class LocalAwsError(InfrastructureError):
    """The local AWS cannot be started, reached or stopped; ``log_lines`` are the last lines of its log."""

    def __init__(self, reason: str, log_lines: Sequence[str] = ()) -> None:
        self.reason = reason
        self.log_lines = tuple(log_lines)
        super().__init__(reason, self.log_lines)

    def __str__(self) -> str:
        return "\n".join([f"Local AWS: {self.reason}", *(f"  {line}" for line in self.log_lines)])


class NamespaceNotFoundError(InfrastructureError):
    """The namespace is not registered, or was deleted."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        super().__init__(namespace)

    def __str__(self) -> str:
        return (
            f"Namespace {self.namespace!r} is not registered. Register it with register_namespace(); "
            "list_orphan_namespaces() lists deleted namespaces, recover_namespace() restores one."
        )


class NamespaceStateError(InfrastructureError):
    """The state of the namespace does not allow the operation; ``hint`` says what to do, None if unknown."""

    def __init__(self, namespace: str, status: str, operation: str, hint: str | None = None) -> None:
        self.namespace = namespace
        self.status = status
        self.operation = operation
        self.hint = hint
        super().__init__(namespace, status, operation, hint)

    def __str__(self) -> str:
        what = f"Cannot {self.operation} namespace {self.namespace!r}: it is {self.status}"
        return f"{what}." if self.hint is None else f"{what}; {self.hint}."


class ValidationError(ZAELimiterError, ValueError):
    """An argument is invalid; nothing was written. It is also a ``ValueError``."""

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        super().__init__(field, value, reason)

    def __str__(self) -> str:
        return f"Invalid {self.field} {short_repr(self.value)}: {self.reason}"


class InvalidIdentifierError(ValidationError):
    """The id of an entity or an audit event is invalid."""


class InvalidNameError(ValidationError):
    """The name of a resource, limit, namespace or stack is invalid."""


class NoLimitsInForceError(ValidationError):
    """No limits are stored for an entity and a resource, and the caller passed none."""

    def __str__(self) -> str:
        return f"Missing {self.field}: {self.reason}"


class TooManyBucketsError(ValidationError):
    """A request would take from too many levels or buckets, or a parent would make such requests."""


class AmountExceedsCapacityError(RateLimitExceeded, ValidationError):
    """An amount exceeds the capacity of its limit, so the request can never be admitted.

    It is a rejection and an invalid argument, so handlers of either catch it. For handlers that wait,
    ``retry_after_seconds`` is the time until the bucket is full. ``statuses`` is empty if no level is known.
    """

    never = True

    def __init__(self, statuses: "Sequence[LimitStatus]", field: str, value: object, reason: str) -> None:
        # The constructor of the other base class takes other arguments.
        super().__init__(tuple(statuses))
        self.args = (self.statuses, field, value, reason)
        self.field = field
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        above = [one for one in self.statuses if one.requested + one.reserved > one.limit.capacity]
        whose = next((f" for entity {one.entity_id!r}" for one in above if f"[{one.limit_name}]" in self.field), "")
        return f"{ValidationError.__str__(self)}{whose}"


class MissingExtraError(ZAELimiterError):
    """A feature needs a package that is installed with an extra, and that package is missing.

    ``command`` installs it, from where this copy was installed.
    """

    def __init__(self, extra: str, package: str, command: str) -> None:
        self.extra = extra
        self.package = package
        self.command = command
        super().__init__(extra, package, command)

    def __str__(self) -> str:
        return f"{self.package} is not installed; install it: {self.command}"
