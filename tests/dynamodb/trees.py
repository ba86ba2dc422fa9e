"""The async and sync APIs behind blocking calls, so that a test is written once; async runs in its own loop.

Many threads may call at the same time. In the async API, each call is a task of the one loop.
"""

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Self

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.clock import SystemClock
from zae_limiter.core.location import DynamoLocation

KINDS = ("async", "sync")
PATIENCE_S = 300.0
MOST_LOOKS, LOOK_EVERY_S = 12_000, 0.005


@functools.cache
def session() -> Any:
    """Return a session with keys that no engine checks; it is cached because creating it is slow."""
    import botocore.session

    made = botocore.session.Session()
    made.set_credentials("AKIDEXAMPLE", "secret")
    return made


def session_for(url: str) -> Any:
    """Return the session for a table at a URL; None if it needs none."""
    return session() if url.startswith("dynamodb:") else None


class Blocking:
    """An object of the async API whose awaitables are waited for."""

    def __init__(self, target: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._target = target
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found
        return lambda *positional, **named: self._wrapped(found(*positional, **named))

    def __enter__(self) -> Any:
        return self._wrapped(self._target.__aenter__())

    def __exit__(self, *failure: Any) -> None:
        self._run(self._target.__aexit__(*failure))

    def _wrapped(self, result: Any) -> Any:
        if inspect.iscoroutine(result):
            result = self._run(result)
        return Blocking(result, self._run) if hasattr(result, "__aenter__") else result


class AsyncTree:
    """The async API, with a loop in a thread."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="async tree", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, url: str, **settings: Any) -> Any:
        """Open a repository."""
        return Blocking(self.run(Repository.open(url, session=session_for(url), **settings)), self.run)

    def limiter(self, repo: Any, **options: Any) -> Any:
        """Return a limiter of a repository opened here."""
        return Blocking(RateLimiter(repo._target, **options), self.run)

    def elsewhere(self, repo: Any, endpoint_url: str, deadline_s: float) -> Any:
        """Return the same repository with its caches, at another endpoint."""
        from zae_limiter._async import dynamodb_table

        opening = dynamodb_table.open_table(_location(endpoint_url), deadline_s, SystemClock(), Random(), session())
        scope = _moved(repo.scope, self.run(opening), deadline_s)
        return Blocking(Repository(scope, owns_table=True), self.run)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run in the loop, and wait for the end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


class SyncTree:
    """The sync API."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release nothing."""

    def open(self, url: str, **settings: Any) -> Any:
        """Open a repository."""
        return SyncRepository.open(url, session=session_for(url), **settings)

    def limiter(self, repo: Any, **options: Any) -> Any:
        """Return a limiter of a repository opened here."""
        return SyncRateLimiter(repo, **options)

    def elsewhere(self, repo: Any, endpoint_url: str, deadline_s: float) -> Any:
        """Return the same repository with its caches, at another endpoint."""
        from zae_limiter._sync import dynamodb_table

        location = _location(endpoint_url)
        table = dynamodb_table.open_table(location, deadline_s, SystemClock(), Random(), session())
        return SyncRepository(_moved(repo.scope, table, deadline_s), owns_table=True)


def wait_for_time(table: Any) -> None:
    """Wait until another connection has confirmed or refuted what the last response said of the time.

    Raises:
        TimeoutError: Neither happened within a minute.
    """
    for _ in range(MOST_LOOKS):
        if not table._server.suspicious:
            return
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError("a suspect date was neither confirmed nor refuted")


def _location(endpoint_url: str) -> DynamoLocation:
    return DynamoLocation("moved-away", "us-east-1", endpoint_url)


def _moved(scope: Any, table: Any, deadline_s: float) -> Any:
    settings = replace(scope.settings, deadline_s=deadline_s)
    return replace(scope.client, table=table, settings=settings).scope(scope.namespace, scope.namespace_id)


def tree(kind: str) -> AsyncTree | SyncTree:
    """Return a context manager of the API of this kind."""
    return AsyncTree() if kind == "async" else SyncTree()
