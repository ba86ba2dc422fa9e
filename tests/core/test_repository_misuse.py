"""The error for a value that is not a repository shows the correct line."""

import asyncio
import gc
import pickle
import warnings
from collections.abc import Callable

import pytest

from zae_limiter import Repository, SyncRepository
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.repository_misuse import not_a_repository


class Wrapper:
    """Something else."""


CASES: list[tuple[Callable[[], object], str, str]] = [
    (lambda: "sqlite:///x.db", "RateLimiter(await Repository.open('sqlite:///x.db'))", ".open('sqlite:///x.db'))"),
    (lambda: "my-app", "await Repository.connect('my-app', region)", "SyncRepository.connect('my-app', region)"),
    (lambda: Repository.open("memory://"), "await Repository.open(...)", "(SyncRepository.open(...))"),
    (lambda: Repository.connect("my-app"), "await Repository.connect(...)", "(SyncRepository.connect(...))"),
    (
        lambda: Repository.builder("my-app").build(),
        "await Repository.builder(...).build()",
        "(SyncRepository.builder(...).build())",
    ),
    (
        lambda: Repository.builder("my-app"),
        "await Repository.builder(...).build()",
        "SyncRepository.builder(...).build()",
    ),
    (lambda: SyncRepository.builder("my-app"), "builder(...).build()", "SyncRepository.builder(...).build()"),
    (lambda: Repository, "await Repository.open(...)", "(SyncRepository.open(...))"),
    (lambda: None, "RateLimiter(await Repository.open(...))", "SyncRateLimiter(SyncRepository.open(...))"),
    (Wrapper, "RepositoryProtocol that exposes", "SyncRepositoryProtocol that exposes"),
]


@pytest.mark.parametrize(("make", "line", "sync_line"), CASES)
def test_error_shows_the_correct_line_of_each_tree(make: Callable[[], object], line: str, sync_line: str) -> None:
    """It is what the caller meant to write."""
    error, sync_error = not_a_repository(make(), "Repository"), not_a_repository(make(), "SyncRepository")

    assert ("repository", "repository") == (error.field, sync_error.field)
    assert line in error.reason
    assert sync_line in sync_error.reason
    assert "await" not in sync_error.reason


def test_refused_coroutine_is_closed_and_its_error_can_be_pickled() -> None:
    """Python does not warn as well that it was never awaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error = not_a_repository(Repository.open("memory://"), "Repository")
        gc.collect()

    assert "Repository.open(...)" == error.value
    assert str(error) == str(pickle.loads(pickle.dumps(error)))


def test_coroutine_of_another_method_is_shown_by_its_own_name() -> None:
    """The correct line has the method that was called."""

    async def namespace() -> None: ...

    assert "await repository.namespace(...)" in not_a_repository(namespace(), "Repository").reason


async def test_future_that_was_not_awaited_is_left_running() -> None:
    """A task goes on without its result, so it is not cancelled."""
    task = asyncio.ensure_future(asyncio.sleep(0, "slept"))
    error = not_a_repository(task, "Repository")

    assert "it was not awaited" in error.reason
    assert "slept" == await task


def test_credentials_in_a_url_are_not_in_the_error() -> None:
    """Neither in the message nor in the value."""
    error = not_a_repository("dynamodb://my-app?endpoint_url=http://key:secret@host", "Repository")

    assert "secret" not in f"{error} {error.value}"


async def test_repository_of_the_other_tree_is_named_with_both_corrections() -> None:
    """Open one of the right tree, or use the limiter of the other tree."""
    with SyncRepository.open("memory://") as blocking:
        error = not_a_repository(blocking, "Repository")
    async with await Repository.open("memory://") as waiting:
        sync_error = not_a_repository(waiting, "SyncRepository")

    assert isinstance(error, ValidationError)
    assert "RateLimiter(await Repository.open(...)), or SyncRateLimiter(repository)" in error.reason
    assert "SyncRateLimiter(SyncRepository.open(...)), or RateLimiter(repository)" in sync_error.reason
