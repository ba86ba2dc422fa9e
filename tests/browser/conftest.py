"""A browser for all tests of a process, and a server for folders of pages."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.browser.browser import Browser, Serve, missing


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return a headless Chromium; without one the test is skipped."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as environment:
        # The driver's path is given; Selenium's own manager would look for one on the network.
        environment.setenv("SE_OFFLINE", "true")
        environment.setenv("SE_AVOID_STATS", "true")
        window = Browser()
        try:
            yield window
        finally:
            window.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a folder on this machine, and return its address, which ends in a slash."""
    servers: list[ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: the browser keeps what it requested."""
