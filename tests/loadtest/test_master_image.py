"""The master's image for subnets that cannot pull a public one: built and pushed through a docker engine."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import pytest

from tests.loadtest.load_stacks import local_clients
from zae_limiter.loadtest.master_image import BASE_IMAGE, ImageError, push_image, require_docker

IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/my-app-load:3.13"


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@contextmanager
def engine(folder: Path, pushed: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Run the used part of a docker engine on a socket, and yield what it is asked for."""
    asked: list[str] = []
    answers = {
        "/version": [{"ApiVersion": "1.45", "MinAPIVersion": "1.24"}],
        "/build": [{"stream": "Successfully built 0123456789ab"}],
        "/json": [{"Id": "0123456789ab"}],
        "/push": pushed,
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self._body()
            asked.append(f"{self.path} {body.decode(errors='replace')}")
            (lines,) = [told for part, told in answers.items() if part in self.path]
            content = "\r\n".join(json.dumps(line) for line in lines).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the name of the base class

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def address_string(self) -> str:
            return "socket"

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with _Server(str(folder / "docker.sock"), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield asked
        finally:
            server.shutdown()


def test_image_is_built_from_the_public_one_and_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for the machine of the task, whatever builds it."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    said: list[str] = []
    with engine(tmp_path, [{"status": "Pushed"}]) as asked:
        push_image(IMAGE, local_clients(), said.append)
    (build,) = [one for one in asked if "/build" in one]
    (push,) = [one for one in asked if "/push" in one]

    assert f"FROM {BASE_IMAGE}" in build
    assert "platform=linux%2Famd64" in build
    assert "my-app-load/push?tag=3.13" in push
    assert [f"building the image from {BASE_IMAGE}", f"pushing {IMAGE}"] == said


def test_refused_push_is_reported_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")

    with engine(tmp_path, [{"error": "no basic auth credentials"}]), pytest.raises(ImageError, match="no basic auth"):
        push_image(IMAGE, local_clients(), lambda _: None)


def test_missing_docker_sdk_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)

    with pytest.raises(ImageError, match="the docker SDK is not installed; install it: pip install"):
        require_docker()
