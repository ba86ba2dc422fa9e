"""Run the local AWS as a container of a LocalStack-compatible image, through the docker SDK."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra.local_files import Server

IMAGE = "ministackorg/ministack:latest"
INSTALL = 'the docker SDK is not installed; install it: pip install "zae-limiter[local]"'

_NO_ENGINE = "no docker engine answers; start one, or omit --docker to run it as a process"
_NAME = "zae-limiter-local"
_INNER_PORT = 4566
_KEPT_IN = "/var/lib/localstack"
_SOCKET = Path("/var/run/docker.sock")
_STOP_S = 30


def start(server: Server, image: str, state: Path) -> str:
    """Start the container and return its id; the image is pulled if it is missing.

    Raises:
        LocalAwsError: The SDK or the engine is missing, or the engine refuses.
    """
    from docker.errors import APIError

    with _Engine() as engine:
        state.mkdir(parents=True, exist_ok=True)
        try:
            _remove_left(engine)
            started = engine.containers.run(
                image,
                name=_NAME,
                detach=True,
                ports={f"{_INNER_PORT}/tcp": ("127.0.0.1", server.port)},
                environment=_environment(server.region),
                volumes=_volumes(state),
            )
        except APIError as error:
            raise LocalAwsError(f"the docker engine refuses {image}: {error.explanation or error}") from error
        return str(started.id)


def lives(container_id: str) -> bool:
    """Return whether the container is running; False without an engine."""
    with suppress(LocalAwsError), _Engine() as engine:
        return any(found.id == container_id for found in engine.containers.list())
    return False


def stop(container_id: str) -> None:
    """Stop and remove the container; its volume keeps its state."""
    from docker.errors import NotFound

    with _Engine() as engine, suppress(NotFound):
        container = engine.containers.get(container_id)
        container.stop(timeout=_STOP_S)
        container.remove()


def last_lines(container_id: str, lines: int) -> list[str]:
    """Return the last lines of its log."""
    from docker.errors import NotFound

    with _Engine() as engine, suppress(NotFound):
        told: bytes = engine.containers.get(container_id).logs(tail=lines)
        return told.decode(errors="replace").splitlines()
    return []


def follow(container_id: str, lines: int) -> Iterator[str]:
    """Yield the last lines of its log, and new lines until it ends."""
    from docker.errors import NotFound

    with _Engine() as engine, suppress(NotFound):
        rest = b""
        for part in engine.containers.get(container_id).logs(stream=True, follow=True, tail=lines):
            *whole, rest = (rest + part).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)


class _Engine:
    """A connection to the docker engine of the environment."""

    def __enter__(self) -> Any:
        try:
            import docker
        except ImportError as error:
            raise LocalAwsError(INSTALL) from error
        _require_listener(_host())
        try:
            self._client = docker.from_env()
        except docker.errors.DockerException as error:
            raise LocalAwsError(_NO_ENGINE) from error
        return self._client

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from docker.errors import DockerException

        self._client.close()
        if isinstance(error, DockerException):
            raise LocalAwsError(f"the docker engine refuses: {getattr(error, 'explanation', None) or error}") from error


def _host() -> str:
    return os.environ.get("DOCKER_HOST") or f"unix://{_SOCKET}"


def _require_listener(host: str) -> None:
    """Require that the engine's socket accepts connections; otherwise the SDK would leak a socket."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as tried:
            try:
                tried.connect(host.removeprefix("unix://"))
            except OSError as error:
                raise LocalAwsError(_NO_ENGINE) from error


def _remove_left(engine: Any) -> None:
    """Remove the container that an earlier run has left."""
    for found in engine.containers.list(all=True, filters={"name": f"^/{_NAME}$"}):
        found.remove(force=True)


def _environment(region: str) -> dict[str, str]:
    # LocalStack reads PERSISTENCE, ministack the others.
    kept = {"PERSISTENCE": "1", "PERSIST_STATE": "1", "STATE_DIR": f"{_KEPT_IN}/state"}
    return {**kept, "S3_PERSIST": "1", "S3_DATA_DIR": f"{_KEPT_IN}/s3", "MINISTACK_REGION": region}


def _volumes(state: Path) -> list[str]:
    kept = [f"{state}:{_KEPT_IN}"]
    # LocalStack runs Lambda functions as containers of the same engine.
    host = _host()
    return [*kept, f"{host.removeprefix('unix://')}:{_SOCKET}"] if host.startswith("unix://") else kept
