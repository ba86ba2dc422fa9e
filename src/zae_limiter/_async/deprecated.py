"""Opening late: what a deprecated constructor only names is opened by the first verb that waits."""

import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, Protocol, TypedDict, cast

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.admin import AdminVerbs
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.errors import RepositoryClosedError, StorageError
from zae_limiter.core.status import OnUnavailable
from zae_limiter.infra.options import StackOptions
from zae_limiter.process import renew_in_copies
from zae_limiter.runtime.aio import ParallelMode

ADMIN_VERBS = tuple(
    name
    for name, _ in inspect.getmembers(AdminVerbs, inspect.isfunction)
    if not name.startswith("_") and name != "get_cache_stats"
)
"""All admin verbs that wait."""


class Named(TypedDict, total=False):
    """What the deprecated constructors take."""

    name: str
    region: str | None
    endpoint_url: str | None
    stack_options: StackOptions | None
    on_unavailable: OnUnavailable | str | None
    auto_update: bool | None
    bucket_ttl_refill_multiplier: int
    config_cache_ttl: float
    parallel_mode: ParallelMode
    session: Any


class LateScope:
    """A scope that is opened once, by whoever needs it first, or provided when that is asked for."""

    def __init__(
        self, opens: Callable[[], Awaitable[Scope]], provides: Callable[[], Awaitable[Scope]], location: str
    ) -> None:
        self.location = location
        self._opens = opens
        self._provides = provides
        self._lock = runtime.Lock()
        self._scope: Scope | None = None
        self.closed = False
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Open the scope in this process, if the parent was just opening it."""
        if not restored:
            self._lock = runtime.Lock()

    async def get(self) -> Scope:
        """Return the scope, opened now if it is not yet."""
        return self._scope or await self._get(self._opens)

    async def provide(self) -> Scope:
        """Return the scope, with the stack around it provided if it is not open yet."""
        return self._scope or await self._get(self._provides)

    async def _get(self, opens: Callable[[], Awaitable[Scope]]) -> Scope:
        async with self._lock:
            if self._scope is None and not self.closed:
                self._scope = await opens()
            scope = self._scope
        if self.closed:
            # close() was called before or during the opening.
            if scope is not None:
                await scope.client.close()
            raise RepositoryClosedError(self.location)
        assert scope is not None, "an open late scope has a scope"
        return scope

    async def close(self) -> None:
        """Close for good; a scope that is being opened is closed by the call that opens it."""
        self.closed = True
        if self._scope is not None:
            await self._scope.client.close()


class Unopened:
    """Stands in the place of a scope that is not open yet, and says what is to be done where it is used too early."""

    def __init__(self, late: LateScope) -> None:
        self._late = late

    def error(self) -> StorageError:
        """Return the error of a use before the opening, or after ``close()``."""
        if self._late.closed:
            return RepositoryClosedError(self._late.location)
        reason = "it is not open yet; call ensure_infrastructure(), or open it with connect() or builder()"
        return StorageError(self._late.location, reason)

    def __getattr__(self, name: str) -> Any:
        """Say that it is not open yet.

        Raises:
            StorageError: Always.
        """
        raise self.error()


class MaybeLate:
    """What has a scope, or waits for one that is opened late."""

    late: LateScope | None = None
    _scope: Scope

    @property
    def is_open(self) -> bool:
        """Whether the scope is there."""
        return not isinstance(self._scope, Unopened)

    def wait_for(self, late: LateScope) -> None:
        """Have no scope before the first verb opens it."""
        self.late = late
        self._scope = cast(Scope, Unopened(late))

    async def opened(self) -> Scope:
        """Return the scope, opened now if it is not yet."""
        if self.late is not None and not self.is_open:
            self._scope = await self.late.get()
        return self._scope


def open_first(target: object, verbs: Iterable[str], opens: Callable[[], Awaitable[Scope]]) -> None:
    """Have each of an object's verbs open it first."""
    for verb in verbs:
        vars(target)[verb] = _after(opens, getattr(target, verb))


def _after(opens: Callable[[], Awaitable[Scope]], verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(verb)
    async def opened(*positional: Any, **named: Any) -> Any:
        await opens()
        return await verb(*positional, **named)

    return opened


class Enterable(Protocol):
    """What is entered and left."""

    async def __aenter__(self) -> Any:
        """Enter."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""


class LateLease:
    """A lease of a limiter that is opened when the lease is entered."""

    def __init__(self, opens: Callable[[], Awaitable[Scope]], acquire: Callable[[], Enterable]) -> None:
        self._opens = opens
        self._acquire = acquire

    async def __aenter__(self) -> Any:
        """Open, and take."""
        await self._opens()
        self._lease = self._acquire()
        return await self._lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle, or give back."""
        await self._lease.__aexit__(kind, error, trace)


def lease_late(target: object, acquire: Callable[..., Enterable], opens: Callable[[], Awaitable[Scope]]) -> None:
    """Have a limiter's leases open it first."""
    vars(target)["acquire"] = lambda *positional, **named: LateLease(opens, lambda: acquire(*positional, **named))


def warn_deprecated(kind: str, repository: str) -> None:
    """Warn of a deprecated constructor, where it is called, and say what to write instead."""
    text = (
        f"{kind}(name=...) is deprecated: open the repository with {repository}.connect(name, region) where it is "
        f"deployed, or with {repository}.builder(name, region).build() to deploy it, and hand it to the limiter"
    )
    warnings.warn(text, DeprecationWarning, stacklevel=3)
