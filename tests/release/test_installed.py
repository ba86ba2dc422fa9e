"""The wheel in an environment with its requirements and nothing else: every public entry point works."""

import zipfile

LIMIT = """
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

with SyncRepository.open("sqlite:///limits.db") as repo:
    limiter = SyncRateLimiter(repo)
    with limiter.acquire("user-1", "search", {"rpd": 3}, limits=[Limit.per_day("rpd", 5)]):
        pass
    try:
        with limiter.acquire("user-1", "search", {"rpd": 3}, limits=[Limit.per_day("rpd", 5)]):
            pass
    except RateLimitExceeded as exceeded:
        print(exceeded.primary_violation.available)
"""

IMPORT_ALL = """
import importlib, pkgutil, sys

import zae_limiter, zae_limiter_aggregator

for root in (zae_limiter, zae_limiter_aggregator):
    for module in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            print(module.name, error)
"""


def test_installed_package_imports_with_the_version_of_its_file(bare, dist, tmp_path):
    """The version is that of the wheel."""
    (wheel,) = dist.glob("*.whl")
    said = bare.run("python", "-c", "import zae_limiter; print(zae_limiter.__version__)", cwd=tmp_path)

    assert wheel.name.split("-")[1] == said.strip()


def test_installed_sync_limiter_limits_on_a_file(bare, tmp_path):
    """The first thing that a service does."""
    assert "2" == bare.run("python", "-c", LIMIT, cwd=tmp_path).strip()


def test_installed_commands_store_limits_and_take_from_them(bare, tmp_path):
    """The first thing that a new user does, in the default file."""
    assert "acquire" in bare.run("zae-limiter", "--help", cwd=tmp_path)
    bare.run("zae-limiter", "system", "set-defaults", "-l", "rpd:5", cwd=tmp_path)
    bare.run("zae-limiter", "acquire", "user-1", "search", "-c", "rpd:5", cwd=tmp_path)
    refused = bare.run("zae-limiter", "acquire", "user-1", "search", "-c", "rpd:5", cwd=tmp_path, code=75)

    assert "rpd" in refused
    assert "rpd" in bare.run("zae-limiter", "available", "user-1", "search", cwd=tmp_path)


def test_installed_demo_runs(bare, tmp_path):
    """It needs no extra."""
    assert "demo-key-1a" in bare.run("zae-limiter", "demo", "--seconds", "0.5", cwd=tmp_path)


def test_installed_command_prints_the_template(bare, tmp_path):
    """The template is in the wheel."""
    assert "AWS::DynamoDB::Table" in bare.run("zae-limiter", "cfn-template", cwd=tmp_path)


def test_command_without_its_extra_names_the_extra(bare, tmp_path):
    """One line says what to install, without a traceback."""
    said = bare.run("zae-limiter", "lambda-export", "-o", "function.zip", cwd=tmp_path, code=69)

    assert "pip install 'zae-limiter[lambda]'" in said
    assert "Traceback" not in said


def test_function_is_exported_if_its_extra_is_installed(with_lambda, tmp_path):
    """The zip has both packages and the library."""
    with_lambda.run("zae-limiter", "lambda-export", "-o", "function.zip", cwd=tmp_path)

    with zipfile.ZipFile(tmp_path / "function.zip") as opened:
        names = set(opened.namelist())
    assert {"zae_limiter_aggregator/handler.py", "zae_limiter/core/bucket.py"} <= names


def test_every_module_imports_if_its_extra_is_installed(bare, with_lambda, tmp_path):
    """Only requirements are installed, so a module that needs more belongs to an extra."""
    without = failed_imports(bare.run("python", "-c", IMPORT_ALL, cwd=tmp_path))
    with_extra = failed_imports(with_lambda.run("python", "-c", IMPORT_ALL, cwd=tmp_path))

    assert {"zae_limiter.infra.cdk", "zae_limiter_aggregator.handler"} == without.keys()
    assert {"zae_limiter.infra.cdk"} == with_extra.keys()
    assert "pip install 'zae-limiter[cdk]'" in with_extra["zae_limiter.infra.cdk"]


def failed_imports(said: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in said.splitlines())
