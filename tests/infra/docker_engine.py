"""A fake Docker engine: the used part of its HTTP interface on a socket, with containers that answer.

Requests are recorded, so that a test sees what an engine would see.
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

API = {"ApiVersion": "1.45", "MinAPIVersion": "1.24", "Version": "27"}
SAID = (b"starting\n", b"Re", b"ady\n")


@dataclass
class Container:
    """A container: its settings, and the server at its port while it runs."""

    name: str
    wanted: dict[str, Any]
    server: ThreadingHTTPServer | None = None


@dataclass
class Engine:
    """The containers and images of an engine, and the recorded calls."""

    images: set[str]
    broken: bool = False
    refuses_to_stop: bool = False
    containers: dict[str, Container] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def start(self, container_id: str) -> None:
        container = self.containers[container_id]
        ((binding,),) = container.wanted["HostConfig"]["PortBindings"].values()
        if not self.broken:
            container.server = ThreadingHTTPServer((binding["HostIp"], int(binding["HostPort"])), _Healthy)
            threading.Thread(target=container.server.serve_forever, daemon=True).start()

    def stop(self, container_id: str) -> None:
        server, self.containers[container_id].server = self.containers[container_id].server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def described(self, container_id: str) -> dict[str, Any]:
        container = self.containers[container_id]
        status = "running" if container.server else "exited"
        return {
            "Id": container_id,
            "Name": f"/{container.name}",
            "State": {"Status": status},
            "Config": {"Tty": False, "Image": container.wanted["Image"]},
            "Image": container.wanted["Image"],
            "HostConfig": {"LogConfig": {"Type": "json-file"}},
        }


class _Healthy(BaseHTTPRequestHandler):
    """The server in a container: it answers every request as healthy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _Interface(BaseHTTPRequestHandler):
    """The calls of an engine's interface."""

    engine: Engine
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_GET  # noqa: N815 - the names of the base class

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, query = urlsplit(self.path).path, unquote(urlsplit(self.path).query)
        words = [word for word in path.split("/") if word and not word.startswith("v1.")]
        self.engine.calls.append(f"{self.command} {' '.join(words)}")
        status, content = self._call(words, query, json.loads(body) if body else {})
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _call(self, words: list[str], query: str, body: dict[str, Any]) -> tuple[int, Any]:
        engine = self.engine
        match self.command, words:
            case "GET", ["version" | "_ping"]:
                return 200, API
            case "POST", ["images", "create"]:
                engine.images.add(query)
                return 200, {}
            case "GET", ["images", *name, "json"]:
                return 200, {"Id": "/".join(name)}
            case "POST", ["containers", "create"]:
                if not engine.images:
                    return 404, {"message": "No such image"}
                container_id = f"{len(engine.containers) + 1:064x}"
                engine.containers[container_id] = Container(query.partition("name=")[2], body)
                return 201, {"Id": container_id}
            case "GET", ["containers", "json"]:
                everything = "all=1" in query
                found = [one for one, container in engine.containers.items() if everything or container.server]
                return 200, [{"Id": one} for one in found]
        return self._call_container(words)

    def _call_container(self, words: list[str]) -> tuple[int, Any]:
        engine = self.engine
        container_id = words[1]
        if container_id not in engine.containers:
            return 404, {"message": f"No such container: {container_id}"}
        match self.command, words[2:]:
            case "GET", ["json"]:
                return 200, engine.described(container_id)
            case "GET", ["logs"]:
                return 200, b"".join(b"\1\0\0\0" + len(said).to_bytes(4) + said for said in SAID)
            case "POST", ["start"]:
                engine.start(container_id)
            case "POST", ["stop"] if engine.refuses_to_stop:
                return 500, {"message": "the container is stuck"}
            case "POST", ["stop"]:
                engine.stop(container_id)
            case "DELETE", []:
                engine.stop(container_id)
                del engine.containers[container_id]
            case call:
                raise AssertionError(f"no engine of this test's knows {call}")
        return 204, b""


class _SocketServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def docker_engine(directory: Path, engine: Engine) -> Iterator[str]:
    """Run an engine at a socket in a directory, and yield its address."""
    path = directory / "docker.sock"
    with _SocketServer(str(path), type("Interface", (_Interface,), {"engine": engine})) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"unix://{path}"
        finally:
            for container_id in list(engine.containers):
                engine.stop(container_id)
            server.shutdown()
