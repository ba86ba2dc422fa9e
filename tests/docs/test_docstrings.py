"""The examples in docstrings of public names run."""

import doctest
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import zae_limiter
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository, bucket

LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
# These need AWS: the DynamoDB guide has the same, as a program that runs.
ON_AWS = re.compile(r"\.builder\(|\.connect\(")


def shown(thing: Any) -> list[str]:
    """Return the programs in a docstring."""
    found = re.findall(r"```python\n(.*?)```", inspect.getdoc(thing) or "", re.DOTALL)
    return [textwrap.dedent(text) for text in found]


def examples() -> Iterator[object]:
    """Return every program in a docstring of a public name or of its methods; sessions separately."""
    public = {name: getattr(zae_limiter, name) for name in zae_limiter.__all__ if name != "__version__"}
    for name, thing in public.items():
        below = inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else []
        for path, one in [(name, thing), *((f"{name}.{member}", method) for member, method in below)]:
            for number, text in enumerate(shown(one)):
                if ">>>" not in text and not ON_AWS.search(text):
                    yield pytest.param(text, id=f"{path}-{number}")


async def call_model() -> SimpleNamespace:
    """Answer as a model does."""
    return SimpleNamespace(tokens=730)


def names_at_hand() -> dict[str, Any]:
    """Return the names that examples use: all public names, and a store in memory."""
    return {name: getattr(zae_limiter, name) for name in zae_limiter.__all__}


@pytest.mark.parametrize("program", [one for one in examples() if "await" in one.values[0] or "async" in one.values[0]])
async def test_async_example_in_a_docstring_runs(program):
    """With a repository and a limiter, as the text around it says."""
    async with await Repository.open("memory://") as repo:
        await repo.set_system_defaults(LIMITS)
        names = {**names_at_hand(), "repo": repo, "limiter": RateLimiter(repo), "call_model": call_model}
        exec(f"async def example():\n{textwrap.indent(program, '    ')}\n", names)
        await names["example"]()


@pytest.mark.parametrize("program", [one for one in examples() if "await" not in one.values[0]])
def test_sync_example_in_a_docstring_runs(program):
    """Those of the sync classes are mirrored, and run as well."""
    with SyncRepository.open("memory://") as repo:
        repo.set_system_defaults(LIMITS)
        names = {**names_at_hand(), "repo": repo, "limiter": SyncRateLimiter(repo)}
        exec(program, names | {"call_model": lambda: SimpleNamespace(tokens=730)})


@pytest.mark.parametrize("module", [bucket, inspect.getmodule(Limit)], ids=lambda module: module.__name__)
def test_session_in_a_docstring_prints_what_it_shows(module):
    """As in an interpreter."""
    done = doctest.testmod(module)

    assert done.attempted > 0
    assert done.failed == 0
