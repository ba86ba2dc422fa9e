"""Importing a limiter, and its first acquire, load only what an embedded limiter needs."""

import subprocess
import sys

import pytest

NEEDED_ON_AWS = ("botocore", "httptools", "orjson", "ssl", "zae_limiter.aws", "zae_limiter.infra.options")
NEEDED_BY_COMMANDS = ("click", "rich", "platformdirs", "zae_limiter.cli")
NEEDED_BY_REPORTS = ("zae_limiter_aggregator",)
NEEDED_BY_FEW = (
    *("dataclasses", "decimal", "inspect", "hashlib", "urllib.parse", "zoneinfo"),
    *(f"zae_limiter.{tree}.{name}" for tree in ("_async", "_sync") for name in ("builder", "deployment")),
    *(f"zae_limiter.{tree}.limiter.{name}" for tree in ("_async", "_sync") for name in ("deferred", "group_commit")),
)
FRAMEWORKS = ("aiohttp", "anyio", "django", "fastapi", "flask", "litestar", "rest_framework", "starlette", "werkzeug")
UNNEEDED = (*NEEDED_ON_AWS, *NEEDED_BY_COMMANDS, *NEEDED_BY_REPORTS, *NEEDED_BY_FEW)
SYNC_ACQUIRE = """
with SyncRepository.open("memory://") as repository:
    repository.set_system_defaults([Limit.per_minute("rpm", 100)])
    with SyncRateLimiter(repository).acquire("user", "gpt-4", {"rpm": 1}):
        pass
"""
IMPORT_SYNC = "from zae_limiter import Limit, SyncRateLimiter, SyncRepository\n"
IMPORT_ASYNC = "from zae_limiter import Limit, RateLimiter, Repository\n"
PROGRAMS = {
    "import of the sync limiter": (IMPORT_SYNC, (*UNNEEDED, "asyncio", "sqlite3", "zae_limiter._async")),
    "import of the async limiter": (IMPORT_ASYNC, (*UNNEEDED, "asyncio", "sqlite3", "zae_limiter._sync")),
    "first sync acquire in memory": (IMPORT_SYNC + SYNC_ACQUIRE, (*UNNEEDED, "asyncio", "sqlite3")),
    "import of the package": ("import zae_limiter\n", (*UNNEEDED, *FRAMEWORKS, "asyncio", "zae_limiter.web")),
    "import of the web package": ("import zae_limiter.web\n", (*FRAMEWORKS, *NEEDED_ON_AWS, "asyncio")),
    "import of the ASGI adapter": ("import zae_limiter.web.asgi\n", FRAMEWORKS),
    "import of the FastAPI adapter": (
        "import zae_limiter.web.fastapi\n",
        tuple(name for name in FRAMEWORKS if name not in ("anyio", "fastapi", "starlette")),
    ),
}

ADAPTERS = {"fastapi": ("fastapi", "fastapi")}
"""The adapters that need a framework, with their extra and the package that is looked for."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_loads_no_module_that_it_does_not_need(program: str):
    """An import at the top of a module would make every process slower to start."""
    text, unneeded = PROGRAMS[program]
    script = f"import sys\n{text}\nprint(*[name for name in {unneeded!r} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "\n" == done.stdout


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_adapter_without_its_framework_raises_a_named_error(adapter: str):
    """The error names the command that installs the extra."""
    extra, package = ADAPTERS[adapter]
    script = f"""
import sys
sys.modules[{package!r}] = None
from zae_limiter import MissingExtraError
try:
    import zae_limiter.web.{adapter}
except MissingExtraError as error:
    print(error.extra, error.package, {extra!r} in error.command)
"""

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert f"{extra} {package} True\n" == done.stdout


def test_async_runtime_has_only_names_that_its_modules_define():
    """Its names are imported on first use, so that a wrong one would be found late."""
    from zae_limiter.runtime import aio

    for name in aio._MODULES:
        assert aio.__dict__.get(name) is getattr(aio, name) or name in vars(aio)
    with pytest.raises(AttributeError, match="has no attribute 'asyncio'"):
        aio.asyncio  # noqa: B018 - the attribute is what the test is about
