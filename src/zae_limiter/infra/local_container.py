"""Run the local AWS as a container of a LocalStack-compatible image, through the docker SDK."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra.docker_engine import SOCKET, DockerEngine, DockerUse, docker_sdk, engine_host
from zae_limiter.infra.local_files import Server

IMAGE = "ministackorg/ministack:latest"

_USE = DockerUse("local", "omit --docker to run it as a process", LocalAwsError)
_NAME = "zae-limiter-local"
_INNER_PORT = 4566
_KEPT_IN = "/var/lib/localstack"
_STOP_S = 30


def start(server: Server, image: str, state: Path) -> str:
    """Start the container and return its id; the image is pulled if it is missing.

    Raises:
        LocalAwsError: The SDK or the engine is missing, or the engine refuses.
    """
    with DockerEngine(_USE) as engine:
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
        except docker_sdk(_USE).errors.APIError as error:
            raise LocalAwsError(f"the docker engine refuses {image}: {error.explanation or error}") from error
        return str(started.id)


def lives(container_id: str) -> bool:
    """Return whether the container is running; False without an engine."""
    with suppress(LocalAwsError), DockerEngine(_USE) as engine:
        return any(found.id == container_id for found in engine.containers.list())
    return False


def stop(container_id: str) -> None:
    """Stop and remove the container; its volume keeps its state."""
    with DockerEngine(_USE) as engine, suppress(docker_sdk(_USE).errors.NotFound):
        container = engine.containers.get(container_id)
        container.stop(timeout=_STOP_S)
        container.remove()


def last_lines(container_id: str, lines: int) -> list[str]:
    """Return the last lines of its log."""
    with DockerEngine(_USE) as engine, suppress(docker_sdk(_USE).errors.NotFound):
        told: bytes = engine.containers.get(container_id).logs(tail=lines)
        return told.decode(errors="replace").splitlines()
    return []


def follow(container_id: str, lines: int) -> Iterator[str]:
    """Yield the last lines of its log, and new lines until it ends."""
    with DockerEngine(_USE) as engine, suppress(docker_sdk(_USE).errors.NotFound):
        rest = b""
        for part in engine.containers.get(container_id).logs(stream=True, follow=True, tail=lines):
            *whole, rest = (rest + part).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)


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
    host = engine_host()
    return [*kept, f"{host.removeprefix('unix://')}:{SOCKET}"] if host.startswith("unix://") else kept
