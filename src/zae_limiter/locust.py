"""Users and a session for Locust, which drive a limiter and measure every call.

The extra ``bench`` installs Locust. Its import makes gevent patch the standard library, so import
this module in Locust files only.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from zae_limiter.installation import missing_extra

try:
    import locust
except ModuleNotFoundError as error:
    raise missing_extra("bench", "locust") from error

from zae_limiter._sync.limiter.lease import SyncLease
from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.core.entity import Entity
from zae_limiter.core.errors import EntityHasChildrenError, EntityNotFoundError, RateLimitExceeded
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import DEFAULT_RESOURCE
from zae_limiter.core.status import OnUnavailable
from zae_limiter.loadtest import locust_plugin
from zae_limiter.loadtest.locust_target import Schedule, TargetChoice, pacing_s
from zae_limiter.loadtest.recorder import ACQUIRE, COMMIT, RATE_LIMITED, Recorder

if TYPE_CHECKING:
    from locust.env import Environment

__all__ = ["RateLimiterSession", "RateLimiterUser"]

P = ParamSpec("P")
T = TypeVar("T")

_SYSTEM = "system"


class RequestHook(Protocol):
    """The event of Locust that is fired for every call."""

    def fire(self, **fields: Any) -> None:
        """Call the listeners."""


class CallLog:
    """Counts and reports the calls of one user."""

    def __init__(self, user: locust.User, recorder: Recorder, schedule: Schedule | None) -> None:
        self.recorder = recorder
        self._user = user
        self._request: RequestHook = user.environment.events.request
        self._schedule = schedule

    def begin(self) -> "CallStart":
        """Return when a call begins. The first call of a scheduled task begins when the task was due."""
        now_s = time.time()
        due_s = None if self._schedule is None else self._schedule.take_due_s()
        return CallStart(now_s, None) if due_s is None else CallStart(min(due_s, now_s), now_s)

    def fire(
        self, request_type: str, name: str, began_s: float, ended_s: float, failure: Exception | None = None
    ) -> None:
        """Report a call to Locust."""
        self._request.fire(
            request_type=request_type,
            name=name,
            response_time=(ended_s - began_s) * 1000,
            response_length=0,
            exception=failure,
            context=self._user.context(),
        )

    def measure(self, request_type: str, name: str, call: Callable[[], T]) -> T:
        """Make a call that takes no tokens."""
        start = self.begin()
        try:
            result = call()
        except Exception as failure:
            ended_s = time.time()
            self.recorder.failed(request_type, failure, start.began_s, ended_s, start.sent_s)
            self.fire(request_type, name, start.began_s, ended_s, failure)
            raise
        ended_s = time.time()
        self.recorder.timed(request_type, start.began_s, ended_s)
        self.fire(request_type, name, start.began_s, ended_s)
        return result


class CallStart(NamedTuple):
    """The time from which the latency of a call counts, and when it was sent if that is another one."""

    began_s: float
    sent_s: float | None


class MeasuredAcquire:
    """An acquire of a session: it yields the lease, and reports how both ends of it went."""

    def __init__(self, calls: CallLog, lease: SyncLease, consume: dict[str, int], name: str) -> None:
        self._calls = calls
        self._lease = lease
        self._consume = consume
        self._name = name

    def __enter__(self) -> SyncLease:
        """Take, or raise."""
        calls, start = self._calls, self._calls.begin()
        try:
            lease = self._lease.__enter__()
        except RateLimitExceeded as rejection:
            ended_s = time.time()
            calls.recorder.rejected(rejection, start.began_s, ended_s, start.sent_s)
            calls.fire(RATE_LIMITED, self._name, start.began_s, ended_s)
            raise
        except Exception as failure:
            ended_s = time.time()
            calls.recorder.failed(ACQUIRE, failure, start.began_s, ended_s, start.sent_s)
            calls.fire(ACQUIRE, self._name, start.began_s, ended_s, failure)
            raise
        ended_s = time.time()
        calls.recorder.admitted(lease, self._consume, start.began_s, ended_s, start.sent_s)
        calls.fire(ACQUIRE, self._name, start.began_s, ended_s)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the adjustments, or give everything back after a failure."""
        calls, lease = self._calls, self._lease
        gives_back = kind is not None and not lease.committed
        is_commit = lease.adjusted and not gives_back
        change = given_back(lease, self._consume) if gives_back else changed(lease, self._consume)
        began_s = time.time()
        try:
            lease.__exit__(kind, error, trace)
        except Exception as failure:
            ended_s = time.time()
            calls.recorder.failed(COMMIT, failure, began_s, ended_s)
            calls.fire(COMMIT, self._name, began_s, ended_s, failure)
            raise
        ended_s = time.time()
        if change:
            calls.recorder.settled(lease, change, began_s, ended_s)
        if is_commit:
            calls.fire(COMMIT, self._name, began_s, ended_s)


def changed(lease: SyncLease, consume: dict[str, int]) -> dict[str, int]:
    """Return what a lease holds more, or less, than its acquire took."""
    held = lease.consumed
    return {name: amount for name in held if (amount := held[name] - consume.get(name, 0))}


def given_back(lease: SyncLease, consume: dict[str, int]) -> dict[str, int]:
    """Return what a lease gives back if its block fails; adjustments are dropped then."""
    return {name: -amount for name, amount in (consume if lease.adjusted else lease.consumed).items() if amount}


class RateLimiterSession:
    """The calls of a Locust user. Each fires the event ``request`` with its own name in upper case.

    ``name`` groups calls in Locust's statistics. Its default is the resource, else the entity, else
    ``system``.
    """

    def __init__(self, limiter: SyncRateLimiter, calls: CallLog) -> None:
        self._limiter = limiter
        self._calls = calls

    @property
    def limiter(self) -> SyncRateLimiter:
        """The limiter itself, for set-up calls that are not part of the load."""
        return self._limiter

    def acquire(
        self, entity_id: str, resource: str, consume: dict[str, int], *, name: str | None = None
    ) -> MeasuredAcquire:
        """Take from every limit named in ``consume``, or from none; entering yields the lease.

        Entering fires ACQUIRE, or RATE_LIMITED if it is rejected. Leaving fires COMMIT if
        adjustments are written.

        Raises:
            RateLimitExceeded: A limit lacks the tokens. It is raised on entering.
        """
        lease = self._limiter.acquire(entity_id, resource, consume)
        return MeasuredAcquire(self._calls, lease, consume, name or resource)

    def available(
        self, entity_id: str, resource: str, limits: Sequence[Limit] | None = None, *, name: str | None = None
    ) -> dict[str, int]:
        """Return what is available of each limit now."""
        return self._measure("AVAILABLE", name or resource, self._limiter.available, entity_id, resource, limits)

    def time_until_available(
        self,
        entity_id: str,
        resource: str,
        needed: dict[str, int],
        limits: Sequence[Limit] | None = None,
        *,
        name: str | None = None,
    ) -> float:
        """Return the seconds until everything needed is available."""
        call = self._limiter.time_until_available
        return self._measure("TIME_UNTIL_AVAILABLE", name or resource, call, entity_id, resource, needed, limits)

    def is_available(self, timeout: float = 1.0, *, name: str | None = None) -> bool:
        """Return whether the store answers within this many seconds."""
        return self._measure("IS_AVAILABLE", name or _SYSTEM, self._limiter.is_available, timeout)

    def set_system_defaults(
        self,
        limits: Sequence[Limit],
        on_unavailable: OnUnavailable | str | None = None,
        principal: str | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Store the limits of the system."""
        call = self._limiter.set_system_defaults
        self._measure("SET_SYSTEM_DEFAULTS", name or _SYSTEM, call, limits, on_unavailable, principal)

    def get_system_defaults(self, *, name: str | None = None) -> tuple[list[Limit], OnUnavailable | None]:
        """Return the limits of the system, and the choice for an unavailable store."""
        return self._measure("GET_SYSTEM_DEFAULTS", name or _SYSTEM, self._limiter.get_system_defaults)

    def delete_system_defaults(self, principal: str | None = None, *, name: str | None = None) -> None:
        """Delete the limits of the system."""
        self._measure("DELETE_SYSTEM_DEFAULTS", name or _SYSTEM, self._limiter.delete_system_defaults, principal)

    def set_resource_defaults(
        self,
        resource: str,
        limits: Sequence[Limit],
        principal: str | None = None,
        inherit: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        """Store the limits of a resource."""
        call = self._limiter.set_resource_defaults
        self._measure("SET_RESOURCE_DEFAULTS", name or resource, call, resource, limits, principal, inherit)

    def get_resource_defaults(self, resource: str, *, name: str | None = None) -> list[Limit]:
        """Return the limits of a resource."""
        return self._measure("GET_RESOURCE_DEFAULTS", name or resource, self._limiter.get_resource_defaults, resource)

    def delete_resource_defaults(self, resource: str, principal: str | None = None, *, name: str | None = None) -> None:
        """Delete the limits of a resource."""
        call = self._limiter.delete_resource_defaults
        self._measure("DELETE_RESOURCE_DEFAULTS", name or resource, call, resource, principal)

    def list_resources_with_defaults(self, *, name: str | None = None) -> list[str]:
        """Return the resources that have limits."""
        call = self._limiter.list_resources_with_defaults
        return self._measure("LIST_RESOURCES_WITH_DEFAULTS", name or _SYSTEM, call)

    def set_limits(
        self,
        entity_id: str,
        limits: Sequence[Limit],
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        inherit: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        """Store the limits of an entity, for one resource or for all."""
        call = self._limiter.set_limits
        named = name or _name_of(entity_id, resource)
        self._measure("SET_LIMITS", named, call, entity_id, limits, resource, principal, inherit)

    def get_limits(self, entity_id: str, resource: str = DEFAULT_RESOURCE, *, name: str | None = None) -> list[Limit]:
        """Return the limits of an entity."""
        named = name or _name_of(entity_id, resource)
        return self._measure("GET_LIMITS", named, self._limiter.get_limits, entity_id, resource)

    def delete_limits(
        self,
        entity_id: str,
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Delete the limits of an entity."""
        named = name or _name_of(entity_id, resource)
        self._measure("DELETE_LIMITS", named, self._limiter.delete_limits, entity_id, resource, principal)

    def create_entity(
        self,
        entity_id: str,
        *,
        entity_name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: dict[str, Any] | None = None,
        principal: str | None = None,
        name: str | None = None,
    ) -> Entity:
        """Create an entity. ``entity_name`` is its display name, because ``name`` is that of the event."""
        create, named = self._limiter.create_entity, name or entity_id
        return self._measure(
            "CREATE_ENTITY", named, create, entity_id, entity_name, parent_id, cascade, metadata, principal
        )

    def get_entity(self, entity_id: str, *, name: str | None = None) -> Entity | None:
        """Return an entity, None if it does not exist."""
        return self._measure("GET_ENTITY", name or entity_id, self._limiter.get_entity, entity_id)

    def delete_entity(self, entity_id: str, principal: str | None = None, *, name: str | None = None) -> None:
        """Delete an entity. Report an unknown one, or one that has children, but do not raise."""
        with suppress(EntityNotFoundError, EntityHasChildrenError):
            self._measure("DELETE_ENTITY", name or entity_id, self._limiter.delete_entity, entity_id, principal)

    def get_children(self, parent_id: str, *, name: str | None = None) -> list[Entity]:
        """Return the children of an entity."""
        return self._measure("GET_CHILDREN", name or parent_id, self._limiter.get_children, parent_id)

    def _measure(self, request_type: str, name: str, call: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
        return self._calls.measure(request_type, name, partial(call, *values, **named))


class RateLimiterUser(locust.User):
    """A user that calls a limiter. Subclass it in a Locust file, and write tasks that use ``client``.

    The limiter is the stack that ``stack_name`` names, else ``--host``, else ``TARGET_STACK_NAME``,
    in ``region`` or ``TARGET_REGION``. ``url``, or ``ZAE_LIMITER_URL`` if nothing else is given,
    selects any store. All users of a process share one repository.

    Example:
        ```python
        class ChatUser(RateLimiterUser):
            wait_time = between(0.1, 0.5)

            @task
            def chat(self):
                with suppress(RateLimitExceeded), self.client.acquire("user-1", "gpt-4", {"rpm": 1}):
                    pass
        ```
    """

    abstract = True

    stack_name: str | None = None
    region: str | None = None
    url: str | None = None
    client: RateLimiterSession

    def __init__(self, environment: "Environment") -> None:
        super().__init__(environment)
        collector = locust_plugin.collector_of(environment)
        choice = TargetChoice(self.stack_name, self.region, self.url, self.host or environment.host)
        limiter = collector.limiter(choice)
        interval_s = pacing_s(type(self).wait_time)
        schedule = None if interval_s is None else Schedule(interval_s)
        if schedule is not None:
            self.wait_time = schedule.wait_s  # type: ignore[method-assign]  # Locust calls what the user has
        self.client = RateLimiterSession(limiter, CallLog(self, collector.recorder, schedule))


def _name_of(entity_id: str, resource: str) -> str:
    return entity_id if resource == DEFAULT_RESOURCE else resource


locust_plugin.install()
