"""Connect to the docker engine of the environment, through the docker SDK."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import InfrastructureError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.installation import extra_command

SOCKET = Path("/var/run/docker.sock")
"""Where the engine listens by default."""


@dataclass(frozen=True, slots=True)
class DockerUse:
    """A feature that needs docker: the extra with its SDK, what to do without it, and the error of the feature."""

    extra: str
    otherwise: str
    failure: Callable[[str], InfrastructureError]


class DockerEngine:
    """A connection to the docker engine; errors of the SDK become the error of the feature."""

    def __init__(self, use: DockerUse) -> None:
        self._use = use

    def __enter__(self) -> Any:
        docker = docker_sdk(self._use)
        self._require_listener(engine_host())
        try:
            self._client = docker.from_env()
        except docker.errors.DockerException as error:
            raise self._no_engine() from error
        return self._client

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._client.close()
        if isinstance(error, docker_sdk(self._use).errors.DockerException):
            said = getattr(error, "explanation", None) or error
            raise self._use.failure(f"the docker engine refuses: {said}") from error

    def _require_listener(self, host: str) -> None:
        """Require that the engine's socket accepts connections; otherwise the SDK would leak a socket."""
        if host.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as tried:
                try:
                    tried.connect(host.removeprefix("unix://"))
                except OSError as error:
                    raise self._no_engine() from error

    def _no_engine(self) -> InfrastructureError:
        return self._use.failure(f"no docker engine answers; start one, or {self._use.otherwise}")


def docker_sdk(use: DockerUse) -> Any:
    """Return the docker SDK, whose errors are known only if it is installed.

    Raises:
        InfrastructureError: It is not installed; the message has the command that installs it.
    """
    try:
        import docker
    except ImportError as error:
        command = extra_command(use.extra, "docker")
        raise use.failure(f"the docker SDK is not installed; install it: {command}") from error
    return docker


def engine_host() -> str:
    """Return the address of the engine."""
    return os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"
