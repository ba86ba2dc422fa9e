"""Servers that misbehave in place of ministack, and a local AWS that is always stopped after the test."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.dynamodb.engines import free_port
from zae_limiter.infra.local import LocalAws, Wanted

BROKEN = 'raise SystemExit("no such luck")\n'

# Answers every request and has a child process; neither ends by itself.
STUBBORN = """
import asyncio, os, subprocess
from pathlib import Path
child = subprocess.Popen(["sleep", "1000"])
Path(os.environ["STATE_DIR"]).mkdir(parents=True, exist_ok=True)
Path(os.environ["STATE_DIR"], "child").write_text(str(child.pid))
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        print("asked to end", flush=True)
        await asyncio.sleep(1000)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
"""


# Runs, says so, and never answers.
SILENT = """
import asyncio
async def app(scope, receive, send):
    print("waiting for something", flush=True)
    await asyncio.sleep(1000)
"""


def in_place_of_ministack(directory: Path, source: str) -> str:
    """Return a directory for PYTHONPATH in which ministack is this program."""
    package = directory / "instead" / "ministack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(source)
    return str(package.parent)


@contextmanager
def always_stopped(directory: Path) -> Iterator[LocalAws]:
    """Yield a local AWS in a directory; its process is ended afterwards, by force if necessary."""
    aws = LocalAws(directory)
    try:
        yield aws
    finally:
        try:
            aws.down()
        finally:
            with suppress(OSError, ValueError):
                if aws._files.lives():
                    os.kill(int(aws._files.pid_file.read_text()), signal.SIGKILL)


def anywhere() -> Wanted:
    """Return settings of a local AWS on a free port."""
    return Wanted(port=free_port())
