"""The deprecated constructors: a limiter that is only named is opened by its first verb that waits."""

import warnings
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, NoReturn, TypedDict, TypeVar

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.admin import ADMIN_VERBS
from zae_limiter._async.builder import RepositoryBuilder
from zae_limiter._async.limiter.client import BucketClient
from zae_limiter._async.limiter.group_commit import BatchedClient
from zae_limiter._async.limiter.lease import BatchedLease, Lease
from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.protocol import ScopedRepository
from zae_limiter._async.repository import Repository
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.errors import RateLimiterUnavailable, RepositoryClosedError, StorageError, ValidationError
from zae_limiter.core.location import DynamoLocation, dynamo_url
from zae_limiter.core.names import check_stack_name
from zae_limiter.core.status import OnUnavailable, check_on_unavailable
from zae_limiter.infra.options import StackOptions
from zae_limiter.process import renew_in_copies
from zae_limiter.runtime.aio import ParallelMode

T = TypeVar("T")

_FORMS: dict[tuple[type, type], Any] = {}


class Named(TypedDict, total=False):
    """The arguments of the deprecated constructors."""

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


class LateRepository(Repository):
    """A repository that was only named; the first verb that waits opens it."""

    opens_first = (*ADMIN_VERBS, "namespace", "__aenter__")

    def __init__(self, named: Named, *, owns_table: bool = True) -> None:
        """Choose what is named, as a builder would.

        Raises:
            ValidationError: There is no name, or it is invalid.
            TypeError: An argument is unknown.
        """
        unknown = named.keys() - Named.__annotations__.keys()
        if unknown:
            raise TypeError(f"unexpected keyword argument {sorted(unknown)[0]!r}")
        name, options = named.get("name"), named.get("stack_options")
        if name is None:
            raise ValidationError("repository", None, "must be one that was opened, as by connect() or builder()")
        check_stack_name(name)
        location = DynamoLocation(name, named.get("region"), named.get("endpoint_url"))
        mode, session = named.get("parallel_mode", "auto"), named.get("session")
        builder: RepositoryBuilder[Scope] = RepositoryBuilder(location, lambda scope: scope, mode, session)
        builder.auto_update(named.get("auto_update")).on_unavailable(named.get("on_unavailable"))
        builder.bucket_ttl_multiplier(named.get("bucket_ttl_refill_multiplier", 7))
        builder.config_cache_ttl(named.get("config_cache_ttl", 60))
        self._builder = builder if options is None else builder.stack_options(options)
        self._deploys = options is not None
        self._location = dynamo_url(location)
        self.on_unavailable = named.get("on_unavailable")
        self._owns_table = owns_table
        self._closed = False
        self._lock = runtime.Lock()
        self._opened: Scope | None = None
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Open the repository in this process, if the parent was just opening it."""
        if not restored:
            self._lock = runtime.Lock()

    @property
    def is_open(self) -> bool:
        """Whether a verb has opened it."""
        return self._opened is not None

    @property
    def _scope(self) -> Scope:  # type: ignore[override]  # it is never assigned to
        if self._opened is not None:
            return self._opened
        if self._closed:
            raise RepositoryClosedError(self.name)
        reason = "it is not open yet; call ensure_infrastructure(), or open it with connect() or builder()"
        raise StorageError(self.name, reason)

    @property
    def name(self) -> str:
        """The URL of the table."""
        return self._location

    async def opened(self, *, deploy: bool = False) -> None:
        """Open the repository if it is not open yet; ``deploy`` sees to its stack first.

        Raises:
            RepositoryClosedError: It was closed before that, or meanwhile.
        """
        if not self.is_open:
            await self._open(deploy)

    async def _open(self, deploy: bool) -> None:
        async with self._lock:
            if not self.is_open and not self._closed:
                self._opened = await (self._builder.build() if deploy or self._deploys else self._builder.connect())
            scope = self._scope
        if self._closed:
            # close() was called during the opening, and had nothing to close yet.
            await scope.client.close()
            raise RepositoryClosedError(self.name)

    async def ensure_infrastructure(self) -> None:
        """Deploy the stack, unless the repository is open."""
        if not self._closed:
            await self.opened(deploy=True)
        await super().ensure_infrastructure()

    async def ping(self) -> bool:
        """Return whether the table can be opened and answers; False after ``close()``."""
        try:
            await self.opened()
        except (RateLimiterUnavailable, RepositoryClosedError):
            return False
        return await super().ping()

    async def close(self) -> None:
        """Close for good; a scope that is being opened is closed by the call that opens it."""
        self._closed = self._owns_table
        if self.is_open:
            await super().close()


class LateRateLimiter(RateLimiter):
    """A limiter of a repository that was only named; its verbs open the repository first."""

    opens_first = ("available", "time_until_available", "__aenter__")

    def _begin(self, repository: ScopedRepository) -> None:
        assert isinstance(repository, LateRepository), "every other repository is open"
        self._late = repository

    async def opened(self) -> BucketClient:
        """Return the client of the repository, opened now if it is not open yet."""
        await self._late.opened()
        # Another task may have been faster.
        if not hasattr(self, "_client"):
            super()._begin(self._late)
        return self._client

    async def opened_or_unavailable(self) -> BucketClient:
        """Return the client; one that fails every take if the repository cannot be opened in time."""
        try:
            return await self.opened()
        except RateLimiterUnavailable as error:
            return UnavailableClient(error, self._late.on_unavailable)

    def acquire(
        self, entity_id: str, resource: str, consume: dict[str, int], limits: Any = None, on_unavailable: Any = None
    ) -> Lease:
        """Take as ``RateLimiter.acquire`` does; entering opens first."""
        if hasattr(self, "_client"):
            return super().acquire(entity_id, resource, consume, limits, on_unavailable)
        return LateLease(self, (entity_id, resource), consume, limits, on_unavailable)


class UnavailableClient(BatchedClient):
    """A client of a store that could not be opened in time: every take fails with the error of the opening."""

    def __init__(self, error: RateLimiterUnavailable, on_unavailable: object) -> None:
        self.lease_mutex = runtime.Mutex()
        self._error = error
        self._on_unavailable = on_unavailable

    def until_s(self) -> float:
        """Return a deadline that has passed."""
        return 0.0

    def cascading_limits(self, bucket: object) -> NoReturn:
        """Fail, before anything is taken.

        Raises:
            RateLimiterUnavailable: Always.
        """
        raise self._error

    async def see_through(self, _: object) -> None:
        """Settle nothing, because nothing was taken."""

    def choice(self, asked: object) -> OnUnavailable:
        """Return what to do: as the call says, else as the constructor did, else block."""
        return check_on_unavailable(asked) or check_on_unavailable(self._on_unavailable) or OnUnavailable.BLOCK


class LateLease(BatchedLease):
    """A lease of a limiter that is opened when the lease is entered."""

    __slots__ = ("_arguments", "_limiter")

    def __init__(self, limiter: LateRateLimiter, *arguments: Any) -> None:
        self._limiter = limiter
        self._arguments = arguments

    async def __aenter__(self) -> "Lease":
        """Open, and take."""
        if not hasattr(self, "_client"):
            super().__init__(await self._limiter.opened_or_unavailable(), *self._arguments)
        return await super().__aenter__()


def _opens_first(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(verb)
    async def opened(self: Any, *positional: Any, **named: Any) -> Any:
        await self.opened()
        return await verb(self, *positional, **named)

    return opened


def late_form(kind: type, late: type[T]) -> type[T]:
    """Return the form of a class whose verbs open first; a caller's subclass keeps what it overrides."""
    if (kind, late) not in _FORMS:
        verbs = {verb: _opens_first(getattr(kind, verb)) for verb in vars(late)["opens_first"]}
        _FORMS[kind, late] = type(kind.__name__, (late, kind), verbs)
    form: type[T] = _FORMS[kind, late]
    return form


NamedRepository = late_form(Repository, LateRepository)
"""The repository that a limiter opens for itself."""


def warn_deprecated(kind: str) -> None:
    """Warn of a deprecated constructor, where it is called, and say what to write instead."""
    repository = Repository.__name__
    text = (
        f"{kind}(name=...) is deprecated: open the repository with {repository}.connect(name, region) where it is "
        f"deployed, or with {repository}.builder(name, region).build() to deploy it, and hand it to the limiter"
    )
    warnings.warn(text, DeprecationWarning, stacklevel=3)
