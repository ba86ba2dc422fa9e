"""The package in an environment with its requirements and nothing else: every public entry point works."""

import shutil
import time
import zipfile

import pytest

from tests.dynamodb.engines import free_port
from tests.infra.local_servers import always_stopped
from tests.long_waits import LONG_DEADLINE
from tests.release.empty import Environment
from tools.package import ROOT
from zae_limiter.infra.local import Wanted, environment_of

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

# The adapters that need a framework. Their extras have the same names.
ADAPTERS = {
    "aiohttp": "aiohttp",
    "django": "django",
    "drf": "djangorestframework",
    "fastapi": "fastapi",
    "flask": "flask",
}
IMPORT_ALL = """
import importlib, pkgutil, sys

import zae_limiter, zae_limiter_aggregator

for root in (zae_limiter, zae_limiter_aggregator):
    for module in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except (ImportError, zae_limiter.ZAELimiterError) as error:
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


def test_function_is_exported_without_an_extra(bare, tmp_path):
    """The zip has both packages."""
    bare.run("zae-limiter", "lambda-export", "-o", "function.zip", cwd=tmp_path)

    with zipfile.ZipFile(tmp_path / "function.zip") as opened:
        names = set(opened.namelist())
    assert {"zae_limiter_aggregator/handler.py", "zae_limiter/core/bucket.py"} <= names


def test_every_module_imports_except_those_of_extras(plain, tmp_path):
    """Only requirements are installed. The errors of public modules name the clone that was installed."""
    failed = failed_imports(plain.run("python", "-c", IMPORT_ALL, cwd=tmp_path))

    expected = {
        "zae_limiter.infra.cdk": f'the construct needs the AWS CDK; install it: {pip()} "{ROOT}[cdk]"',
        "zae_limiter.locust": f'locust is not installed; install it: {pip()} "{ROOT}[bench]"',
        **{
            f"zae_limiter.web.{extra}": f'{package} is not installed; install it: {pip()} "{ROOT}[{extra}]"'
            for extra, package in ADAPTERS.items()
        },
        # Only a Locust process imports them.
        "zae_limiter.loadtest.locust_node": "No module named 'gevent'",
        "zae_limiter.loadtest.locust_plugin": "No module named 'gevent'",
    }
    assert expected == failed


@pytest.mark.parametrize(
    ("command", "code", "missing", "extra"),
    [
        (("usage", "list", "--plot", "--entity", "user-1"), 1, "asciichartpy", "plot"),
        (("local", "up", "--docker"), 69, "the docker SDK", "local"),
    ],
)
def test_command_without_its_extra_says_how_to_install_it(plain, tmp_path, command, code, missing, extra):
    """One line, with the directory that was installed."""
    plain.run("zae-limiter", "acquire", "user-1", "search", "-c", "rpd:1", "-l", "rpd:5", cwd=tmp_path)
    said = plain.run("zae-limiter", *command, cwd=tmp_path, code=code)

    assert f'{missing} is not installed; install it: {pip()} "{ROOT}[{extra}]"' in said
    assert "Traceback" not in said


def test_command_without_its_extra_names_the_wheel_that_was_installed(bare, dist, tmp_path):
    """The same for a wheel."""
    (wheel,) = dist.glob("*.whl")
    bare.run("zae-limiter", "acquire", "user-1", "search", "-c", "rpd:1", "-l", "rpd:5", cwd=tmp_path)
    said = bare.run("zae-limiter", "usage", "list", "--plot", "--entity", "user-1", cwd=tmp_path, code=1)

    assert f'{pip()} "{wheel}[plot]"' in said


DEPLOY_IN_CODE = """
from zae_limiter import SyncRepository

with SyncRepository.builder("built", "us-east-1").enable_alarms(False).build() as repo:
    status = repo.get_status()
    print(status.stack_status, status.aggregator_enabled)
"""


def test_plain_installation_deploys_limits_counts_and_shows_usage(plain, tmp_path):
    """No extra is needed, on the command line and in a program; the local AWS is another installation's."""
    with always_stopped(tmp_path / "local") as aws:
        variables = environment_of(aws.up(Wanted(port=free_port())).server) | LONG_DEADLINE
        plain.run("zae-limiter", "deploy", "--name", "my-app", cwd=tmp_path, **variables)
        admitted = plain.run("zae-limiter", *TAKE, cwd=tmp_path, **variables)
        rejected = plain.run("zae-limiter", *TAKE, cwd=tmp_path, code=75, **variables)
        usage = shown_usage(plain, tmp_path, variables)
        built = plain.run("python", "-c", DEPLOY_IN_CODE, cwd=tmp_path, **variables)

    assert "rpd        3     2\n" in admitted
    assert "rate limit exceeded: rpd of user-1 for search: 2 of 5 available, 3 requested" in rejected
    assert ["user-1", "search", "3"] == usage[2:5]
    assert "CREATE_COMPLETE True\n" == built


TAKE = ("acquire", "user-1", "search", "-c", "rpd:3", "-l", "rpd:5/d", "--name", "my-app")


def shown_usage(plain: Environment, cwd, variables: dict[str, str]) -> list[str]:
    """Return the words of the last line of usage, once it was counted."""
    command = ("zae-limiter", "usage", "list", "--entity", "user-1", "--name", "my-app")
    end = time.monotonic() + 120
    while True:
        words = plain.run(*command, cwd=cwd, **variables).split("\n")[-2].split()
        if "search" in words or time.monotonic() > end:
            return words
        time.sleep(0.2)


def pip() -> str:
    """Return the command of the installer that the tests have used."""
    return "uv pip install" if shutil.which("uv") else "pip install"


def failed_imports(said: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in said.splitlines())
