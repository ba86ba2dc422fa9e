"""A process whose settlements wait, and that ends in one of several ways: ``python -m tests.copies.deferring_worker``.

Every lease takes 10 tokens and is charged 100 more. The process prints a line once all leases have ended.
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.dynamodb.trees import session_for
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

RESOURCE = "api"
LIMIT = Limit("rpm", 10_000, 1, 365 * 86_400)
TAKEN, CHARGED = 10, 100
ENTITIES = 3
WAYS = ("end", "kill", "wait", "close in a child", "end a child")


def fork(run: Callable[[], object]) -> int:
    """Run a function in a forked child, which then ends without running the exit of the interpreter."""
    if child := os.fork():
        return child
    run()
    os._exit(0)


def close_in_child(close: Callable[[], object]) -> None:
    """Close the repository in a forked child, and wait for it."""
    os.waitpid(fork(close), 0)


def end_child() -> None:
    """Let SIGTERM end a forked child that waits, and print the signal that ended it; 0 if none did."""
    ready, begun = os.pipe()
    child = fork(lambda: (os.write(begun, b"."), threading.Event().wait()))
    # Python drops a signal that arrives during the fork.
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    sys.stdout.write(f"{os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}\n")


def said_ended(way: str) -> None:
    """Print that all leases have ended; then end at once if the process is to be killed."""
    sys.stdout.write("ended\n")
    sys.stdout.flush()
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def sync_program(url: str, way: str, chosen: dict[str, Any]) -> None:
    """Take and charge, and end without closing the repository."""
    repo = SyncRepository.open(url, session=session_for(url), **chosen)
    repo.set_system_defaults([LIMIT])
    limiter = SyncRateLimiter(repo)
    for number in range(ENTITIES):
        with limiter.acquire(f"user-{number}", RESOURCE, {"rpm": TAKEN}) as lease:
            lease.adjust(rpm=CHARGED)
    if way == "close in a child":
        close_in_child(repo.close)
    if way == "end a child":
        end_child()
    said_ended(way)
    if way == "wait":
        threading.Event().wait()


async def async_program(url: str, way: str, chosen: dict[str, Any]) -> None:
    """Do the same with the async tree."""
    repo = await Repository.open(url, session=session_for(url), **chosen)
    await repo.set_system_defaults([LIMIT])
    limiter = RateLimiter(repo)
    for number in range(ENTITIES):
        async with limiter.acquire(f"user-{number}", RESOURCE, {"rpm": TAKEN}) as lease:
            await lease.adjust(rpm=CHARGED)
    if way == "close in a child":
        close_in_child(lambda: asyncio.run(repo.close()))
    if way == "end a child":
        end_child()
    said_ended(way)
    if way == "wait":
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("async", "sync"))
    parser.add_argument("url")
    parser.add_argument("within", type=float)
    parser.add_argument("way", choices=WAYS)
    options = parser.parse_args()
    chosen = {"settle_within": options.within, "deadline_s": 60.0}
    if options.kind == "async":
        asyncio.run(async_program(options.url, options.way, chosen))
    else:
        sync_program(options.url, options.way, chosen)


if __name__ == "__main__":
    main()
