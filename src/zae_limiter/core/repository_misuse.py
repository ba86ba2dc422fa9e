"""Say what is wrong with a value that was passed as a repository, and which line is correct."""

from collections.abc import Awaitable
from types import CoroutineType

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.location import without_credentials

_ASYNC, _SYNC = "Repository", "SyncRepository"
_METHODS = {"open": "{}.open(...)", "connect": "{}.connect(...)", "build": "{}.builder(...).build()"}
_OTHER_METHOD = "repository.{}(...)"
_PACKAGE = "zae_limiter."


def not_a_repository(value: object, wanted: str) -> ValidationError:
    """Return the error for a value that is not a ``wanted`` repository, ``Repository`` or ``SyncRepository``.

    A coroutine is closed, because Python would also warn that it was never awaited.
    """
    limiter, other = _limiter_of(wanted), _SYNC if wanted == _ASYNC else _ASYNC
    kinds = [kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith(_PACKAGE)]
    if isinstance(value, str):
        return _text(value, wanted)
    if isinstance(value, Awaitable):
        return _not_awaited(value, wanted)
    if other in kinds:
        reason = f"{limiter} needs a {wanted}. Write {_made(wanted, 'open')}, or {_limiter_of(other)}(repository)"
    elif f"{wanted}Builder" in kinds or f"{other}Builder" in kinds:
        reason = f"it is a builder and not a repository yet. Write {_made(wanted, 'build')}"
    elif value is None:
        reason = f"it is missing. Write {_made(wanted, 'open')}"
    elif isinstance(value, type):
        reason = f"it is a class and not a repository. Write {_made(wanted, 'open')}"
    else:
        reason = (
            "must come from open(), connect() or builder(), "
            f"or be a {wanted}Protocol that exposes one of these as `wrapped`"
        )
    return ValidationError("repository", value, reason)


def _text(value: str, wanted: str) -> ValidationError:
    shown = without_credentials(value)
    if "://" in value:
        reason = f"it is a URL and not a repository. Write {_call(wanted, f'{wanted}.open({shown!r})')}"
    else:
        made = _call(wanted, f"{wanted}.connect({shown!r}, region)")
        reason = f"it is text and not a repository. Write {made} for a stack of this name"
    return ValidationError("repository", shown, reason)


def _not_awaited(value: Awaitable[object], wanted: str) -> ValidationError:
    method = ""
    if isinstance(value, CoroutineType):
        method = value.__name__
        value.close()
    # A coroutine cannot be pickled, and an error can. So the error has its name.
    shown = f"{getattr(value, '__qualname__', type(value).__name__)}(...)"
    what = "it was not awaited" if wanted == _ASYNC else f"{_limiter_of(wanted)} needs a {wanted}"
    return ValidationError("repository", shown, f"{what}. Write {_made(wanted, method or 'open')}")


def _made(wanted: str, method: str) -> str:
    """Return the correct line for a repository that a method returns."""
    return _call(wanted, _METHODS.get(method, _OTHER_METHOD).format(wanted if method in _METHODS else method))


def _call(wanted: str, made: str) -> str:
    return f"{_limiter_of(wanted)}({'await ' if wanted == _ASYNC else ''}{made})"


def _limiter_of(wanted: str) -> str:
    return "RateLimiter" if wanted == _ASYNC else "SyncRateLimiter"
