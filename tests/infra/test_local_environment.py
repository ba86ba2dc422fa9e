"""The environment of the local AWS: created once by a real installer, whole or again, and apart from the user's."""

import sys
import threading
import tomllib
from pathlib import Path

import pytest

from tests.infra.local_servers import BROKEN, always_stopped, anywhere, in_place_of_ministack
from tests.infra.server_wheels import index_variables, write_server_wheels
from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra import local_environment
from zae_limiter.infra.local_environment import REQUIREMENTS, LocalEnvironment, default_environment, server_python

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalEnvironment:
    """An environment that does not exist yet, and an index that has the server."""
    for name, value in write_server_wheels(tmp_path / "index").items():
        monkeypatch.setenv(name, value)
    return LocalEnvironment(tmp_path / "cache" / "server")


@pytest.fixture
def without_ministack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the server, as users have it."""
    monkeypatch.setitem(sys.modules, "ministack", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def ignore(_: str) -> None:
    pass


def test_environment_is_created_once_with_progress(environment):
    """The second start installs nothing and says nothing."""
    steps, again = [], []
    python = environment.provide(steps.append)
    environment.provide(again.append)

    assert (environment.python, []) == (python, again)
    assert f"installing its server ({REQUIREMENTS[0]}) into {environment.directory}, once" == steps[0]
    assert any("ministack" in step for step in steps[1:])
    assert [*environment.directory.glob("lib/python*/site-packages/ministack-*.dist-info")]


def test_environment_whose_creation_was_interrupted_is_created_again(environment):
    """It is not used half-installed."""

    def interrupt(step: str) -> None:
        if "ministack" in step and "once" not in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        environment.provide(interrupt)
    begun, is_complete = environment.directory.exists(), environment.is_complete()
    environment.provide(ignore)

    assert (True, False, True) == (begun, is_complete, environment.is_complete())


@pytest.mark.parametrize(("base", "is_complete"), [(sys.executable, True), ("/nonexistent/python", False)])
def test_environment_whose_interpreter_was_removed_is_incomplete(environment, base, is_complete):
    """An update of the system may remove the Python that it was made from."""
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(base)
    (environment.directory / "complete").write_text("")

    assert is_complete == environment.is_complete()


def test_environment_that_two_starts_create_is_created_once(environment):
    """The second one waits for the first."""
    steps: list[str] = []
    starts = [threading.Thread(target=environment.provide, args=(steps.append,)) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()

    assert (1, True) == (len([step for step in steps if "once" in step]), environment.is_complete())


def test_environment_without_pip_beside_it_gets_a_pip_of_its_own(environment, monkeypatch, tmp_path):
    """An environment that uv has made, or a zipped application, has none."""
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    environment.provide(ignore)

    assert [*environment.directory.glob("lib/python*/site-packages/pip")]


def test_environment_without_an_index_says_what_to_do(environment, monkeypatch, tmp_path):
    """The output of the installer follows, and the environment stays incomplete."""
    for name, value in index_variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LocalAwsError) as caught:
        environment.provide(ignore)

    assert (
        f"its server could not be installed into {environment.directory}. The first start needs a package index. "
        "Make one reachable and retry, or run it in a container: zae-limiter local up --docker"
    ) == caught.value.reason
    assert any("ministack" in line for line in caught.value.log_lines)
    assert not environment.is_complete()


def test_environment_without_any_installer_says_what_to_install(environment, monkeypatch, tmp_path):
    """Debian has a Python without pip and without ensurepip."""
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    stub = tmp_path / "python"
    stub.write_text("#!/bin/sh\necho No module named ensurepip >&2; exit 1\n")
    stub.chmod(0o755)
    made = local_environment.LocalEnvironment._make_empty

    def without_ensurepip(self: LocalEnvironment) -> None:
        made(self)
        self.python.unlink()
        self.python.symlink_to(stub)

    monkeypatch.setattr(LocalEnvironment, "_make_empty", without_ensurepip)
    with pytest.raises(LocalAwsError, match="cannot be installed without pip; install pip or uv") as caught:
        environment.provide(ignore)

    assert ("No module named ensurepip",) == caught.value.log_lines


def test_environment_in_an_unusable_directory_names_it(tmp_path):
    """A file has the path of its parent."""
    (tmp_path / "file").write_text("")

    with pytest.raises(LocalAwsError, match=f"cannot create {tmp_path}/file/server"):
        LocalEnvironment(tmp_path / "file" / "server").provide(ignore)


def test_server_runs_in_an_environment_of_its_own(environment, without_ministack, tmp_path, monkeypatch):
    """It does not see the modules of the user's environment."""
    monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, BROKEN))
    steps: list[str] = []
    with always_stopped(tmp_path / "local") as aws:
        running = aws.up(anywhere(), steps.append)
        command = Path(f"/proc/{running.pid}/cmdline").read_text().split("\0")

    assert (True, str(LocalEnvironment(default_environment()).python)) == (running.answers, command[0])
    assert f"{tmp_path}/cache/zae-limiter/local/" in steps[0]


def test_server_that_is_installed_already_is_used(environment, tmp_path, monkeypatch):
    """A developer's environment has it; nothing is created or installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    assert (Path(sys.executable), False) == (server_python(ignore), default_environment().exists())


def test_versions_of_the_server_are_those_that_tests_run():
    """And no extra of users brings the server, which would decide the version of their botocore."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    having = {name for name, packages in extras.items() if any(one.startswith("ministack") for one in packages)}

    assert {"dev"} == having
    assert REQUIREMENTS[0] in extras["dev"]
