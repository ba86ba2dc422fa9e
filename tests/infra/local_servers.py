"""Servers in the place of ministack that behave badly, and a local AWS that is stopped whatever happens."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.dynamodb.engines import free_port
from zae_limiter.infra.local import LocalAws, Wanted

BROKEN = 'raise SystemExit("no such luck")\n'

# Answers everything, has a child, and neither ends by itself nor lets its child end.
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


# Lives, says so, and never answers.
SILENT = """
import asyncio
async def app(scope, receive, send):
    print("waiting for something", flush=True)
    await asyncio.sleep(1000)
"""


def in_place_of_ministack(directory: Path, source: str) -> str:
    """A directory for PYTHONPATH in which ministack is something else."""
    package = directory / "instead" / "ministack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(source)
    return str(package.parent)


@contextmanager
def stopped_in_the_end(directory: Path) -> Iterator[LocalAws]:
    """A local AWS in a directory; its process is gone afterwards, by force if need be."""
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
    """A local AWS on a port that is free."""
    return Wanted(port=free_port())
