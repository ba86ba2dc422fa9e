"""docker-compose.yml describes the container that the command runs: a fake engine records what is requested."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.dynamodb.engines import free_port
from tests.infra.docker_engine import Engine, docker_engine
from tests.infra.local_servers import always_stopped
from zae_limiter.infra import local, local_container
from zae_limiter.infra.local import Wanted

COMPOSE = yaml.safe_load((Path(__file__).resolve().parents[2] / "docker-compose.yml").read_text())
SERVICE = COMPOSE["services"]["aws"]


@pytest.fixture
def asked(tmp_path, tmp_path_factory, monkeypatch):
    """Return what ``zae-limiter local up --docker`` requests of an engine."""
    engine = Engine(images={local_container.IMAGE})
    # The path of a socket has at most about 100 characters.
    with docker_engine(tmp_path_factory.mktemp("d"), engine) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        with always_stopped(tmp_path / "local") as aws:
            aws.up(Wanted(port=free_port(), in_docker=True))
            ((container,),) = [engine.containers.values()]
            yield container.wanted


def test_compose_container_is_the_container_of_the_command(asked):
    """Image, environment, the port inside, this machine only, the paths of its state and of the engine's socket."""
    (port,) = SERVICE["ports"]
    ((inner, (binding,)),) = asked["HostConfig"]["PortBindings"].items()

    assert asked["Image"] == SERVICE["image"]
    assert sorted(asked["Env"]) == sorted(f"{name}={value}" for name, value in SERVICE["environment"].items())
    assert f"{binding['HostIp']}:{local.DEFAULT_PORT}:{inner.removesuffix('/tcp')}" == port
    assert targets(asked["HostConfig"]["Binds"]) == targets(SERVICE["volumes"])


def targets(volumes: list[str]) -> list[str]:
    return [volume.split(":")[1] for volume in volumes]


def test_compose_container_has_the_start_and_stop_times_of_the_command():
    """It writes its state while it ends, and a short wait would cut that off."""
    assert f"{local_container._STOP_S}s" == SERVICE["stop_grace_period"]
    assert f"{local._START_S:.0f}s" == SERVICE["healthcheck"]["start_period"]
    assert f"{local._HEALTH_S:.0f}s" == SERVICE["healthcheck"]["timeout"]


@pytest.mark.parametrize("program", ["curl", "wget", "python3"])
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_compose_health_check_is_that_of_the_command(program, status, healthy, tmp_path):
    """The same path, requested with any program that an image has."""
    found = sys.executable if program == "python3" else shutil.which(program)
    if found is None:
        pytest.skip(f"no {program} here")
    (tmp_path / program).symlink_to(os.path.realpath(found))
    with answering(status) as (port, paths):
        kind, script = SERVICE["healthcheck"]["test"]
        # Compose replaces a doubled dollar with one.
        script = script.replace("$$", "$").replace("127.0.0.1:4566", f"127.0.0.1:{port}")
        shell = ["/bin/sh", "-c", script]
        done = subprocess.run(shell, env={"PATH": str(tmp_path)}, capture_output=True, check=False, timeout=60)

    assert ("CMD-SHELL", healthy) == (kind, done.returncode == 0)
    assert {"/_localstack/health"} == set(paths)


@contextmanager
def answering(status: int) -> Iterator[tuple[int, list[str]]]:
    """Return the port of a server that answers one status to every path, and the paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server.server_port, paths
        finally:
            server.shutdown()
