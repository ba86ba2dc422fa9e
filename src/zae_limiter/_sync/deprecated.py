"""The deprecated constructors: they take a name, and the first method that needs the table opens it."""  # generated from _async by tools/mirror.py; do not edit

import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.admin import ADMIN_VERBS
from zae_limiter._sync.builder import SyncRepositoryBuilder
from zae_limiter._sync.limiter.client import BucketClient
from zae_limiter._sync.limiter.group_commit import BatchedClient
from zae_limiter._sync.limiter.lease import GIVE_BACK, BatchedLease, SyncLease
from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter._sync.protocol import ScopedRepository
from zae_limiter._sync.repository import SyncRepository
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.errors import RateLimiterUnavailable, RepositoryClosedError, StorageError, ValidationError
from zae_limiter.core.location import DynamoLocation, dynamo_url, without_credentials
from zae_limiter.core.names import check_stack_name
from zae_limiter.core.repository_misuse import not_a_repository
from zae_limiter.core.status import OnUnavailable, check_on_unavailable
from zae_limiter.infra.options import StackOptions
from zae_limiter.process import renew_in_copies
from zae_limiter.runtime.threads import ParallelMode

if TYPE_CHECKING:
    from zae_limiter.infra.stack import StackListener

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


class LateRepository(SyncRepository):
    """A repository that has only a name; its first method that needs the table opens it."""

    opens_first = (*ADMIN_VERBS, "namespace", "delete_stack", "__enter__")

    def __init__(self, named: Named, *, owns_table: bool = True) -> None:
        """Check the arguments and store them in a builder.

        Raises:
            ValidationError: There is no name, or it is invalid.
            TypeError: An argument is unknown.
        """
        unknown = named.keys() - Named.__annotations__.keys()
        if unknown:
            raise TypeError(f"unexpected keyword argument {sorted(unknown)[0]!r}")
        name, options = named.get("name"), named.get("stack_options")
        if name is None:
            raise not_a_repository(None, SyncRepository.__name__)
        check_stack_name(name)
        location = DynamoLocation(name, named.get("region"), named.get("endpoint_url"))
        mode, session = named.get("parallel_mode", "auto"), named.get("session")
        builder: SyncRepositoryBuilder[Scope] = SyncRepositoryBuilder(location, lambda scope: scope, mode, session)
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
        """Replace the lock in a forked child, where a task or thread of the parent may hold it forever."""
        if not restored:
            self._lock = runtime.Lock()

    @property
    def is_open(self) -> bool:
        """Whether a method has opened the table."""
        return self._opened is not None

    @property
    def _scope(self) -> Scope:  # type: ignore[override]  # it is never assigned to
        if self._opened is not None:
            return self._opened
        shown = without_credentials(self._url)
        if self._closed:
            raise RepositoryClosedError(shown)
        reason = "it is not open yet; call ensure_infrastructure(), or open it with connect() or builder()"
        raise StorageError(shown, reason)

    @property
    def _url(self) -> str:
        return self._location

    def __repr__(self) -> str:
        if self.is_open:
            return super().__repr__()
        state = "closed" if self._closed else "not open yet"
        return f"{type(self).__name__}({without_credentials(self._url)!r}, {state})"

    def opened(self, *, deploy: bool = False) -> None:
        """Open the repository unless it is open; if ``deploy``, deploy its stack first.

        Raises:
            RepositoryClosedError: It was closed before or during the call.
        """
        if not self.is_open:
            self._open(deploy)

    def _open(self, deploy: bool) -> None:
        with self._lock:
            # Checked again: another caller may have opened or closed it while this one waited for the lock.
            if not self.is_open and not self._closed:
                self._opened = (self._builder.build() if deploy or self._deploys else self._builder.connect())
            scope = self._scope
        if self._closed:
            # close() was called while the table was being opened, and had nothing to close yet.
            scope.client.close()
            raise RepositoryClosedError(without_credentials(self._url))

    def ensure_infrastructure(self) -> None:
        """Deploy the stack, unless the repository is open."""
        if not self._closed:
            self.opened(deploy=True)
        super().ensure_infrastructure()

    def create_stack(self, listener: "StackListener | None" = None) -> None:
        """Deploy the stack and open the repository, as its options say."""
        if not self._closed:
            self.opened(deploy=True)
        super().create_stack(listener)

    def ping(self) -> bool:
        """Return whether the table can be opened and responds; False after ``close()``."""
        try:
            self.opened()
        except (RateLimiterUnavailable, RepositoryClosedError):
            return False
        return super().ping()

    def close(self) -> None:
        """Close permanently; a call that is opening the table closes it."""
        self._closed = self._owns_table
        if self.is_open:
            super().close()


class LateRateLimiter(SyncRateLimiter):
    """A limiter for a repository that has only a name; its methods open the repository first."""

    opens_first = ("available", "time_until_available", "__enter__")

    def _begin(self, repository: ScopedRepository) -> None:
        assert isinstance(repository, LateRepository), "every other repository is open"
        self._late = repository

    def opened(self) -> BucketClient:
        """Return the client of the repository; open the repository first if needed."""
        self._late.opened()
        # Another task may have set it while this one waited.
        if not hasattr(self, "_client"):
            super()._begin(self._late)
        return self._client

    def opened_or_unavailable(self) -> BucketClient:
        """Return the client, or one whose acquires all fail if the repository cannot be opened in time."""
        try:
            return self.opened()
        except RateLimiterUnavailable as error:
            return UnavailableClient(error, self._late.on_unavailable)

    def acquire(  # noqa: PLR0913 - those of the limiter
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        limits: Any = None,
        on_unavailable: Any = None,
        on_error: Any = GIVE_BACK,
        durable: Any = False,
        also: Any = None,
        on_lost: Any = None,
        max_wait: Any = None,
        priority: Any = 0,
    ) -> SyncLease:
        """Return a lease as ``SyncRateLimiter.acquire`` does; entering the lease opens the repository first.

        Raises:
            ValidationError: There are requests in ``also``, or there is a ``max_wait``, and the repository is not open
                yet.
        """
        if hasattr(self, "_client"):
            options = on_unavailable, on_error, durable, also, on_lost, max_wait, priority
            return super().acquire(entity_id, resource, consume, limits, *options)
        if max_wait is not None:
            reason = "needs an open repository: use Repository.open or Repository.connect"
            raise ValidationError("max_wait", max_wait, reason)
        if also:
            raise ValidationError("also", also, "needs an open repository: use Repository.open or Repository.connect")
        lease = LateLease(self, (entity_id, resource), consume, limits, on_unavailable, on_error, durable)
        return lease if on_lost is None else lease.report_loss_to(on_lost)


class UnavailableClient(BatchedClient):
    """A client for a store that could not be opened in time; every acquire fails with the error of the opening."""

    def __init__(self, error: RateLimiterUnavailable, on_unavailable: object) -> None:
        self.lease_mutex = runtime.Mutex()
        self.stack_name = error.stack_name
        self._error = error
        self._on_unavailable = on_unavailable

    def until_s(self) -> float:
        """Return a deadline that has passed."""
        return 0.0

    def is_alone(self, bucket: object) -> NoReturn:
        """Raise RateLimiterUnavailable, before anything is consumed."""
        raise self._error

    def unblocked_chain_of(self, request: object) -> NoReturn:
        """Raise RateLimiterUnavailable, as ``is_alone`` does for a lease of one request."""
        raise self._error

    def see_through(self, _: object) -> None:
        """Settle nothing, because nothing was consumed."""

    def choice(self, asked: object) -> OnUnavailable:
        """Return the choice of the call, or else that of the constructor, or else to block."""
        return check_on_unavailable(asked) or check_on_unavailable(self._on_unavailable) or OnUnavailable.BLOCK


class LateLease(BatchedLease):
    """A lease that opens the repository when it is entered."""

    __slots__ = ("_arguments", "_limiter")

    def __init__(self, limiter: LateRateLimiter, *arguments: Any) -> None:
        self._limiter = limiter
        self._arguments = arguments

    def __enter__(self) -> "SyncLease":
        """Open the repository, and consume."""
        if not hasattr(self, "_client"):
            super().__init__(self._limiter.opened_or_unavailable(), *self._arguments)
        return super().__enter__()

    def __repr__(self) -> str:
        if hasattr(self, "_client"):
            return super().__repr__()
        kind, (entity_id, resource) = SyncLease.__name__, self._arguments[0]
        return f"<{kind} of {entity_id!r}, {resource!r}: not entered>"


def _opens_first(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def opened(self: Any, *positional: Any, **named: Any) -> Any:
        self.opened()
        return verb(self, *positional, **named)

    return opened


def late_form(kind: type, late: type[T]) -> type[T]:
    """Return a subclass whose methods open the repository first; a user's subclass keeps what it overrides."""
    if (kind, late) not in _FORMS:
        verbs = {verb: _opens_first(getattr(kind, verb)) for verb in vars(late)["opens_first"]}
        _FORMS[kind, late] = type(kind.__name__, (late, kind), verbs)
    form: type[T] = _FORMS[kind, late]
    return form


NamedRepository = late_form(SyncRepository, LateRepository)
"""The repository that a limiter opens for itself."""


def warn_deprecated(kind: str) -> None:
    """Warn about a deprecated constructor at the place of the call, and name the replacement."""
    repository = SyncRepository.__name__
    text = (
        f"{kind}(name=...) is deprecated: open the repository with {repository}.connect(name, region) if it is "
        f"deployed, or with {repository}.builder(name, region).build() to deploy it, and pass it to the limiter"
    )
    warnings.warn(text, DeprecationWarning, stacklevel=3)
