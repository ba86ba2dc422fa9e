"""A WSGI service that opens its limiter when it is imported, as under ``gunicorn --preload``, before the fork.

The first request of each worker waits until every worker has one, so no worker can serve them all.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.copies.worker import CHILDREN, HANGS_S, RESOURCE, Shared
from zae_limiter import RateLimitExceeded

_shared = Shared("sync", os.environ["ZAE_LIMITER_URL"], seeded=False)
_shared.take("user-1", 2)
_shared.split("user-1")
_all_workers = multiprocessing.get_context("fork").Barrier(CHILDREN)
_workers_that_met: set[int] = set()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Take the amount in the path, and answer with what was granted and by which process."""
    amount = int(environ["PATH_INFO"].strip("/"))
    if os.getpid() not in _workers_that_met:
        _workers_that_met.add(os.getpid())
        _all_workers.wait(HANGS_S)
    try:
        with _shared.limiter.acquire("user-1", RESOURCE, {"rpm": amount}):
            granted = amount
    except RateLimitExceeded:
        granted = 0
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([os.getpid(), granted]).encode()]
