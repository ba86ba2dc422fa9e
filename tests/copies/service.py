"""A WSGI service that opens its limiter when it is imported, as ``gunicorn --preload`` does before it forks."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.copies.worker import RESOURCE, Shared
from zae_limiter import RateLimitExceeded

_shared = Shared("sync", os.environ["ZAE_LIMITER_URL"], seeded=False)
_shared.take("user-1", 2)
_shared.split("user-1")


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Take as much as the path says, and answer with what was granted and by which process."""
    amount = int(environ["PATH_INFO"].strip("/"))
    try:
        with _shared.limiter.acquire("user-1", RESOURCE, {"rpm": amount}):
            granted = amount
    except RateLimitExceeded:
        granted = 0
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([os.getpid(), granted]).encode()]
