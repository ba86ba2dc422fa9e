"""Limit the calls of a function with a decorator."""

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import wraps
from inspect import isasyncgenfunction, isclass, iscoroutine, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

from zae_limiter.core.cascade import Also
from zae_limiter.core.cost import cost_changes
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit, check_limits
from zae_limiter.core.names import check_amount, check_entity_id, check_limit_name, check_resource
from zae_limiter.core.status import OnUnavailable, check_on_unavailable
from zae_limiter.core.waiting import check_wait

if TYPE_CHECKING:
    from zae_limiter._async.limiter.lease import Lease
    from zae_limiter._async.limiter.lease_facts import OnError
    from zae_limiter._async.limiter.limiter import RateLimiter
    from zae_limiter._sync.limiter.lease import SyncLease
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter

Function = TypeVar("Function", bound=Callable[..., Any])

_ASYNC = ("zae_limiter._async.limiter.limiter", "RateLimiter")
_SYNC = ("zae_limiter._sync.limiter.limiter", "SyncRateLimiter")


def limited(  # noqa: PLR0913 - the options of acquire, all keyword-only
    limiter: "RateLimiter | SyncRateLimiter | Callable[[], RateLimiter | SyncRateLimiter]",
    resource: str,
    *,
    consume: dict[str, int] | Callable[..., dict[str, int]],
    key: str | Callable[..., str],
    cost: Callable[[Any], dict[str, int] | None] | None = None,
    limits: Sequence[Limit] | None = None,
    on_error: "OnError" = "give_back",
    on_unavailable: OnUnavailable | str | None = None,
    also: Sequence[Also] | Callable[..., Sequence[Also]] | None = None,
    max_wait: float | None = None,
    priority: int = 0,
) -> Callable[[Function], Function]:
    """Limit every call of a function: take before it runs, and settle the actual cost afterwards.

    Example:
        ```python
        @limited(limiter, "gpt-4", consume={"tpm": 500}, key=lambda user: user, cost=lambda text: {"tpm": text.tokens})
        async def ask(user: str):
            return await call_model()
        ```

    Async functions need a ``RateLimiter``, all others a ``SyncRateLimiter``. A generator has one lease, which is
    charged from its first item on, even if it is closed early or fails.

    Args:
        limiter: The limiter, or a function that returns it.
        resource: What the function uses, for example a model.
        consume: How many tokens to take from each limit, or a function of the call's arguments that returns it.
        key: The entity that is limited, or a function of the call's arguments that returns it.
        cost: Return the actual amounts of a result, or of an item, to replace what was taken. None counts nothing.
        limits: Replace the stored limits. If None, the stored limits are in force.
        on_error: As for ``acquire``, if the function raises.
        on_unavailable: As for ``acquire``.
        also: As for ``acquire``, or a function of the call's arguments.
        max_wait: As for ``acquire``.
        priority: As for ``acquire``.

    Raises:
        ValidationError: An argument is invalid, or the limiter does not fit the function.
    """
    arguments = _Arguments(resource, consume, key, cost, limits, on_error, on_unavailable, also, (max_wait, priority))
    arguments.check()

    def decorate(function: Function) -> Function:
        _check_function(function)
        return cast("Function", _wrapper_of(function)(function, _Source(limiter, function), arguments))

    return decorate


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of the decorator: what every call of a function takes, and how it is settled."""

    resource: str
    consume: dict[str, int] | Callable[..., dict[str, int]]
    key: str | Callable[..., str]
    cost: Callable[[Any], dict[str, int] | None] | None
    limits: Sequence[Limit] | None
    on_error: "OnError"
    on_unavailable: OnUnavailable | str | None
    also: Sequence[Also] | Callable[..., Sequence[Also]] | None
    waits: tuple[float | None, int]

    def check(self) -> None:
        """Check the arguments of the decorator, as far as they are known before a call.

        Raises:
            ValidationError: One is invalid.
        """
        check_resource(self.resource)
        if not _is_sync_function("key", self.key):
            if self.key is None:
                raise ValidationError("key", None, "is missing: pass an entity, or a function of the call's arguments")
            check_entity_id(self.key, "key")
        if not _is_sync_function("consume", self.consume):
            _check_consume(self.consume)
        if self.cost is not None and not _is_sync_function("cost", self.cost):
            raise ValidationError("cost", self.cost, "must be a function of the result")
        if self.limits is not None:
            check_limits(self.limits)
        if self.on_error not in ("give_back", "keep"):
            raise ValidationError("on_error", self.on_error, "must be 'give_back' or 'keep'")
        check_on_unavailable(self.on_unavailable)
        if self.also is not None and not _is_sync_function("also", self.also):
            _check_also(self.also)
        if self.waits[0] is not None:
            check_wait(*self.waits)

    def acquire(self, limiter: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a lease for one call, which has not been entered."""
        key, consume = self.key, self.consume
        entity = key(*args, **kwargs) if callable(key) else key
        amounts = consume(*args, **kwargs) if callable(consume) else consume
        taken = entity, self.resource, amounts, self.limits, self.on_unavailable, self.on_error
        others = self.also(*args, **kwargs) if callable(self.also) else self.also
        max_wait, priority = self.waits
        if max_wait is not None or priority:
            return limiter.acquire(*taken, also=others, max_wait=max_wait, priority=priority)
        return limiter.acquire(*taken, also=others) if others else limiter.acquire(*taken)


class _Source:
    """The limiter of a function; looked up at each call if another function returns it."""

    __slots__ = ("_given", "_is_known", "_name", "_waits")

    def __init__(self, given: object, function: Callable[..., Any]) -> None:
        self._given: Any = given
        self._waits = iscoroutinefunction(function) or isasyncgenfunction(function)
        self._name = getattr(function, "__qualname__", repr(function))
        self._is_known = not _is_sync_function("limiter", given)
        if self._is_known:
            self._check(given)

    def get(self) -> Any:
        """Return the limiter.

        Raises:
            ValidationError: A function has returned something else, or a limiter that does not fit.
        """
        if self._is_known:
            return self._given
        limiter = self._given()
        self._check(limiter)
        return limiter

    def of_coroutine(self) -> ValidationError:
        """Return the error of a function that looks sync, and has returned a coroutine."""
        reason = "has returned a coroutine, but is no async function: decorate the async function itself"
        return ValidationError("function", self._name, reason)

    def _check(self, limiter: object) -> None:
        wanted, other = (_ASYNC, _SYNC) if self._waits else (_SYNC, _ASYNC)
        if _is_instance(limiter, wanted):
            return
        if not _is_instance(limiter, other):
            raise ValidationError(
                "limiter", limiter, "must be a RateLimiter, a SyncRateLimiter, or a function that returns one"
            )
        if self._waits:
            raise ValidationError("limiter", limiter, f"is sync, and {self._name} is async: pass a RateLimiter")
        raise ValidationError(
            "limiter",
            limiter,
            f"is async, and {self._name} is not: pass a SyncRateLimiter, or write it as an async function",
        )


class _Meter:
    """Charges for what a call has returned, and adjusts its lease to the cost."""

    __slots__ = ("_cost", "_counted", "_lease", "_taken")

    def __init__(self, lease: "Lease | SyncLease", cost: Callable[[Any], object] | None) -> None:
        self._lease = lease
        self._cost = cost
        self._taken = lease.consumed
        self._counted: set[str] = set()

    def count(self, result: Any) -> None:
        """Count a result, or one item of an iteration."""
        lease = self._lease
        if not lease.committed:
            lease.commit()
        if self._cost is not None:
            changes = cost_changes(self._taken, self._counted, self._cost(result))
            if changes:
                lease.adjust(**changes)
                self._counted.update(changes)


class _CountedItems:
    """A generator whose items are counted; ``yield from`` passes everything on to it."""

    __slots__ = ("_items", "_meter")

    def __init__(self, items: Generator[Any, Any, Any], meter: _Meter) -> None:
        self._items = items
        self._meter = meter

    def __iter__(self) -> "_CountedItems":
        return self

    def __next__(self) -> Any:
        return self._counted(next(self._items))

    def send(self, value: Any) -> Any:
        return self._counted(self._items.send(value))

    def throw(self, *error: Any) -> Any:
        return self._counted(self._items.throw(*error))

    def close(self) -> None:
        self._items.close()

    def _counted(self, item: Any) -> Any:
        self._meter.count(item)
        return item


def _wrap_function(function: Callable[..., Any], source: _Source, arguments: _Arguments) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with arguments.acquire(source.get(), args, kwargs) as lease:
            result = function(*args, **kwargs)
            if iscoroutine(result):
                # Its work would run after the lease. Another decorator can hide that a function is async.
                result.close()
                raise source.of_coroutine()
            if arguments.cost is not None:
                _Meter(lease, arguments.cost).count(result)
            return result

    return call


def _wrap_coroutine_function(
    function: Callable[..., Any], source: _Source, arguments: _Arguments
) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with arguments.acquire(source.get(), args, kwargs) as lease:
            result = await function(*args, **kwargs)
            if arguments.cost is not None:
                _Meter(lease, arguments.cost).count(result)
            return result

    return call


def _wrap_generator(function: Callable[..., Any], source: _Source, arguments: _Arguments) -> Callable[..., Any]:
    @wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with arguments.acquire(source.get(), args, kwargs) as lease:
            items = function(*args, **kwargs)
            try:
                return (yield from _CountedItems(items, _Meter(lease, arguments.cost)))
            finally:
                # If counting has failed, the generator is still open.
                items.close()

    return iterate


def _wrap_async_generator(function: Callable[..., Any], source: _Source, arguments: _Arguments) -> Callable[..., Any]:
    @wraps(function)
    async def iterate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with arguments.acquire(source.get(), args, kwargs) as lease:
            items, meter = function(*args, **kwargs), _Meter(lease, arguments.cost)
            step = items.__anext__()
            try:
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    meter.count(item)
                    try:
                        step = items.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - the generator decides what becomes of it
                        step = items.athrow(thrown)
            finally:
                await items.aclose()

    return iterate


def _wrapper_of(function: object) -> Callable[[Callable[..., Any], _Source, _Arguments], Callable[..., Any]]:
    if isasyncgenfunction(function):
        return _wrap_async_generator
    if iscoroutinefunction(function):
        return _wrap_coroutine_function
    return _wrap_generator if isgeneratorfunction(function) else _wrap_function


def _check_function(function: object) -> None:
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__
        raise ValidationError("function", function, f"is a {kind}: write @{kind} above @limited")
    if isclass(function) or not callable(function):
        raise ValidationError("function", function, "must be a function: @limited(limiter, resource, ...) above it")


def _is_sync_function(field: str, value: object) -> bool:
    """Return whether a value is a function to call; a coroutine function would return no value."""
    if iscoroutinefunction(value):
        raise ValidationError(field, value, "must not be a coroutine function")
    return callable(value)


def _check_consume(consume: object) -> None:
    if type(consume) is not dict or not consume:
        raise ValidationError("consume", consume, "must be a dict of limit names and amounts, not empty")
    for name, amount in consume.items():
        check_limit_name(name)
        check_amount(f"consume[{name}]", amount)


def _check_also(also: object) -> None:
    if not isinstance(also, list | tuple) or not all(isinstance(one, Also) for one in also):
        raise ValidationError("also", also, "must be a list of Also(entity_id, resource, consume)")
    for one in also:
        check_entity_id(one.entity_id, "also")
        check_resource(one.resource, "also")
        _check_consume(one.consume)


def _is_instance(value: object, kind: tuple[str, str]) -> bool:
    """Return whether a value is an instance of a class, without importing its module.

    If there is an instance, the module was imported. An async program does not load the sync tree for this.
    """
    module, name = kind
    found = sys.modules.get(module)
    return found is not None and isinstance(value, getattr(found, name))
