"""The async and the sync API, each with the means to build and connect a limiter on a local AWS."""

import inspect
from typing import Any

import pytest

from tests.dynamodb.trees import AsyncTree, Blocking, session
from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository

REGION = "us-east-1"
PATIENCE_S = 30.0


class Side:
    """One of the two APIs, with the means to build and connect."""

    def __init__(self, tree: Any, name: str, url: str) -> None:
        self._tree = tree
        self._name = name
        self._place = {"endpoint_url": url, "session": session()}
        is_async = isinstance(tree, AsyncTree)
        self.repository: Any = Repository if is_async else SyncRepository
        self._limiter: Any = RateLimiter if is_async else SyncRateLimiter

    def builder(self) -> Any:
        return self.repository.builder(self._name, REGION, **self._place).deadline_s(PATIENCE_S)

    def build(self, builder: Any = None) -> Any:
        return self.wait((builder or self.builder()).build())

    def connect(self, **options: Any) -> Any:
        return self.wait(
            self.repository.connect(self._name, REGION, **{**self._place, "deadline_s": PATIENCE_S, **options})
        )

    def limiter(self, repo: Any) -> Any:
        return self._tree.limiter(repo)

    def named(self, kind: str, **options: Any) -> Any:
        """Return what a deprecated constructor makes."""
        constructor = self.repository if kind == "repository" else self._limiter
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            made = constructor(name=self._name, region=REGION, **self._place, **options)
        return Blocking(made, self._tree.run) if isinstance(self._tree, AsyncTree) else made

    def wait(self, result: Any) -> Any:
        return Blocking(self._tree.run(result), self._tree.run) if inspect.iscoroutine(result) else result
