"""A process that opens a repository, forks, and lets its children use it: ``python -m tests.copies.worker``.

It prints one line of JSON: what each child was granted, or its error.
"""

import argparse
import asyncio
import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import Any

from tests.dynamodb.trees import session_for
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository

RESOURCE = "api"
LIMIT = Limit("rpm", 1_000, 1, 365 * 86_400)
CHILDREN = 4
SHARDS = 4
# A child that hangs is killed, and reported as one that printed nothing.
HANGS_S = 60
SETTINGS: dict[str, Any] = {"deadline_s": 60.0}


class Shared:
    """A limiter of either tree that was opened before the fork, behind blocking calls."""

    def __init__(self, kind: str, url: str, *, seeded: bool) -> None:
        chosen = {**SETTINGS, "random": Random(os.getpid())} if seeded else SETTINGS
        self.kind = kind
        opener: Any = Repository if kind == "async" else SyncRepository
        self.repo = self.run(opener.open(url, session=session_for(url), **chosen))
        self.run(self.repo.set_system_defaults([LIMIT]))
        made: Any = RateLimiter if kind == "async" else SyncRateLimiter
        self.limiter: Any = made(self.repo)
        self.lease: Any = None

    def run(self, result: Any) -> Any:
        """Run a call of the async tree in a loop of its own."""
        return asyncio.run(result) if self.kind == "async" and asyncio.iscoroutine(result) else result

    def take(self, entity_id: str, amount: int) -> int:
        """Take, and return how much was granted."""
        try:
            if self.kind == "async":
                asyncio.run(self._take(entity_id, amount))
            else:
                with self.limiter.acquire(entity_id, RESOURCE, {"rpm": amount}):
                    pass
        except RateLimitExceeded:
            return 0
        return amount

    async def _take(self, entity_id: str, amount: int) -> None:
        async with self.limiter.acquire(entity_id, RESOURCE, {"rpm": amount}):
            pass

    def split(self, entity_id: str) -> None:
        """Split an entity's bucket into several shards."""
        client, bucket = self.limiter._client, (entity_id, RESOURCE)
        self.run(self._grow(client, bucket) if self.kind == "async" else self._grow_sync(client, bucket))

    async def _grow(self, client: Any, bucket: tuple[str, str]) -> None:
        for shard in (0, 0, 1):
            view = await client.buckets.look((bucket, shard), None, client.until_s())
            await client.shards.split((bucket, shard), view, client.until_s())

    def _grow_sync(self, client: Any, bucket: tuple[str, str]) -> None:
        for shard in (0, 0, 1):
            view = client.buckets.look((bucket, shard), None, client.until_s())
            client.shards.split((bucket, shard), view, client.until_s())


def across(shared: Shared, number: int) -> int:
    """Take more than any shard has."""
    return shared.take("user-1", 400)


def plain(shared: Shared, number: int) -> int:
    """Take from one bucket."""
    return shared.take("user-1", 1)


def cascade(shared: Shared, number: int) -> int:
    """Take from a child and a parent that are not cached."""
    return shared.take(f"child-{number}", 1)


def configure(shared: Shared, number: int) -> int:
    """Change limits."""
    shared.run(shared.repo.set_limits(f"user-{number}", [LIMIT], RESOURCE))
    return 1


def prepare(shared: Shared, scene: str) -> None:
    """Do what the parent does before it forks."""
    if scene in ("across", "plain"):
        shared.take("user-1", 2)
    if scene == "across":
        shared.split("user-1")
    if scene in ("leave", "adjusted"):
        shared.take("user-1", 500)
        lease = shared.lease = shared.limiter.acquire("user-1", RESOURCE, {"rpm": 100})
        shared.run(lease.__aenter__() if shared.kind == "async" else lease.__enter__())
    if scene == "adjusted":
        shared.lease.adjust(rpm=20)
    if scene == "cascade":
        shared.run(shared.repo.create_entity("team"))
        for number in range(CHILDREN):
            shared.run(shared.repo.create_entity(f"child-{number}", parent_id="team", cascade=True))


def leave(shared: Shared, _: int) -> int:
    """Close the lease that was open at the fork, by an error and with an adjustment."""
    lease = shared.lease
    leaving = lease.__aexit__ if shared.kind == "async" else lease.__exit__
    shared.run(lease.release(rpm=10))
    shared.run(leaving(LookupError, LookupError(), None))
    return 1


def adjusted(shared: Shared, number: int) -> int:
    """Leave a lease that was adjusted before the fork. Every second process adjusts it again."""
    lease = shared.lease
    if number % 2:
        lease.adjust(rpm=1)
    shared.run((lease.__aexit__ if shared.kind == "async" else lease.__exit__)(None, None, None))
    return 1


SCENES: dict[str, Callable[[Shared, int], int]] = {
    "across": across,
    "plain": plain,
    "cascade": cascade,
    "configure": configure,
    "leave": leave,
    "adjusted": adjusted,
}


def _answer(act: Callable[[], int]) -> Any:
    signal.alarm(HANGS_S)
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - the test is to see it
        return repr(error)


def copied_unnoticed() -> int:
    """Fork without Python's fork hooks: the copy knows as little as one of a restored image."""
    child: int = ctypes.PyDLL(None).fork()
    return child


def restored(act: Callable[[], int]) -> int:
    """Run the restore hooks, as Lambda does in every copy of an image, and then act."""
    for hook in importlib.import_module("snapshot_restore_py").hooks:
        hook()
    return act()


def forked(acts: list[Callable[[], int]], *, in_turn: bool, fork: Callable[[], int] = os.fork) -> list[Any]:
    """Return what children print that each do one thing; ``in_turn``: one after the other."""
    answers, pipes = [], []
    for act in acts:
        reader, writer = os.pipe()
        child = fork()
        if not child:
            os.write(writer, json.dumps(_answer(act)).encode())
            os._exit(0)
        os.close(writer)
        pipes.append((child, reader))
        if in_turn:
            os.waitpid(child, 0)
    for child, reader in pipes:
        if not in_turn:
            os.waitpid(child, 0)
        with os.fdopen(reader) as output:
            answers.append(json.loads(output.read() or '"nothing"'))
    return answers


def multiprocessed(acts: list[Callable[[], int]]) -> list[Any]:
    """Return what children of multiprocessing print."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=lambda act=act: results.put(_answer(act))) for act in acts]
    for child in children:
        child.start()
    answers = [results.get(timeout=HANGS_S) for _ in children]
    for child in children:
        child.join()
    return answers


def copies(acts: list[Callable[[], int]], way: str) -> list[Any]:
    """Return what copies of this process print, made in one of the ways."""
    if way == "multiprocessing":
        return multiprocessed(acts)
    if way == "restore":
        return forked([lambda act=act: restored(act) for act in acts], in_turn=False, fork=copied_unnoticed)
    return forked(acts, in_turn=way == "in-turn")


def held(shared: Shared) -> list[Any]:
    """Fork while another thread holds every lock, and with upkeep running."""
    table, client = shared.repo.scope.table, shared.limiter._client
    blocking = getattr(table, "_table", None)
    locks = [getattr(blocking, "_lock", None), getattr(client, "lease_mutex", None)]
    turn = getattr(getattr(blocking, "_pool", None), "turn", None)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            if hasattr(lock, "acquire"):
                lock.acquire()
        if turn is not None:
            turn.begin()
        holding.set()
        done.wait()
        os._exit(0)

    threading.Thread(target=hold, daemon=True).start()
    holding.wait()
    # As while a thread of the parent sweeps or runs a checkpoint.
    table._upkeep_runs = True
    answers = forked([lambda: _after_fork(shared)], in_turn=True)
    sys.stdout.write(json.dumps(answers) + "\n")
    sys.stdout.flush()
    done.set()
    os._exit(0)


def _after_fork(shared: Shared) -> int:
    for _ in range(300):
        shared.take("user-1", 1)
    # A sweep was due from the start, and this child has to run it itself: on a thread, because it reads a file.
    while not shared.repo.scope.table._sweep_due_ms:
        threading.Event().wait(0.01)
    return 1


def main() -> None:
    """Fork as requested, and print what the children print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("url")
    parser.add_argument("scene")
    parser.add_argument("--way", default="fork")
    parser.add_argument("--seeded", action="store_true")
    chosen = parser.parse_args()
    if chosen.way == "restore":
        # The folder of the replacement for Lambda's module.
        sys.path.append(os.path.dirname(__file__))
    shared = Shared(chosen.kind, chosen.url, seeded=chosen.seeded)
    if chosen.scene == "held":
        shared.take("user-1", 1)
        held(shared)
    prepare(shared, chosen.scene)
    acts = [lambda number=number: SCENES[chosen.scene](shared, number) for number in range(CHILDREN)]
    answers = copies(acts, chosen.way)
    if chosen.scene in ("leave", "adjusted"):
        SCENES[chosen.scene](shared, 0)
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
