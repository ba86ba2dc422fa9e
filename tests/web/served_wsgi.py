"""A WSGI application with the routes of the Django project, for real servers."""

import os
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

from tests.web.sync_store import CHUNK, PER_CHUNK, TAKEN, also_of
from zae_limiter.web import Ask
from zae_limiter.web.wsgi import RateLimitMiddleware, WsgiRequest

TEXT = [("Content-Type", "text/plain")]


def rules(request: WsgiRequest) -> Ask | None:
    name = request.path.strip("/")
    if name == "unknown":
        return None
    user = request.headers["x-user"]
    resource = "items/:item" if name.startswith("items") else name
    return Ask(user, resource, dict(TAKEN), also=also_of(user))


def routed(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/fail":
        raise ZeroDivisionError
    if path == "/unknown":
        start_response("404 Not Found", TEXT)
        return [b"unknown"]
    if path == "/upload":
        try:
            environ["wsgi.input"].read()
        finally:
            environ["zae_limiter.lease"].adjust(tpm=PER_CHUNK)
    start_response("200 OK", TEXT)
    return chunks(environ) if path == "/stream" else [b"1"]


def chunks(environ: dict[str, Any]) -> Iterator[bytes]:
    produced = 0
    try:
        for _ in range(int(parse_qs(environ["QUERY_STRING"])["chunks"][0])):
            produced += PER_CHUNK
            yield CHUNK
    finally:
        environ["zae_limiter.lease"].adjust(tpm=produced - TAKEN["tpm"])


application = RateLimitMiddleware(routed, os.environ.get("ZAE_LIMITER_URL"), rules)
