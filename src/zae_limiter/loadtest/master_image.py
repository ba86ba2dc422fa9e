"""Put the master's image into the repository of a load test stack, for subnets that cannot pull a public one. Blocking.

The image is the public one. The start script installs the code from the bucket, so a push of code
needs no new image.
"""

import base64
import io
from collections.abc import Callable
from typing import Any

from zae_limiter.core.errors import InfrastructureError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.infra.docker_engine import DockerEngine, DockerUse

BASE_IMAGE = "public.ecr.aws/docker/library/python:3.13-slim"
"""The image that the template uses without a repository."""

_PLATFORM = "linux/amd64"


class ImageError(InfrastructureError):
    """The image of the master cannot be built or pushed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"The image of the load test's master cannot be built: {self.reason}"


_USE = DockerUse("bench", "deploy to subnets with a route to the internet, which need no image of yours", ImageError)


def require_docker() -> None:
    """Require the docker SDK and an engine, before anything is created.

    Raises:
        ImageError: One of them is missing; the message says what to do.
    """
    with DockerEngine(_USE):
        pass


def push_image(image_uri: str, clients: Clients, say: Callable[[str], None]) -> None:
    """Build the image and push it to the repository of the stack.

    Raises:
        ImageError: Docker is missing, or the build or the push failed.
    """
    auth = _registry_login(clients)
    with DockerEngine(_USE) as engine:
        say(f"building the image from {BASE_IMAGE}")
        engine.images.build(fileobj=io.BytesIO(f"FROM {BASE_IMAGE}\n".encode()), tag=image_uri, platform=_PLATFORM)
        say(f"pushing {image_uri}")
        repository, _, tag = image_uri.rpartition(":")
        for told in engine.images.push(repository, tag=tag, auth_config=auth, stream=True, decode=True):
            if "error" in told:
                raise ImageError(f"the push failed: {told['error']}")


def _registry_login(clients: Clients) -> dict[str, Any]:
    """Return the user and the password of the registry."""
    try:
        (told,) = clients.of("ecr").get_authorization_token()["authorizationData"]
    except FAILURES as failed:
        raise ImageError(reason_of(failed)) from failed
    user, _, password = base64.b64decode(told["authorizationToken"]).decode().partition(":")
    return {"username": user, "password": password}
