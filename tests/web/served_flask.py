"""A Flask application with the routes of the Django project, for real servers."""

import os

from flask import Flask, Request, Response, g, request

from tests.web.sync_store import CHUNK, PER_CHUNK, TAKEN, also_of
from zae_limiter.web import Ask
from zae_limiter.web.flask import RateLimits

application = Flask(__name__)


def rules(request: Request) -> Ask | None:
    user = request.headers["x-user"]
    return Ask(user, None, dict(TAKEN), also=also_of(user))


RateLimits(application, os.environ.get("ZAE_LIMITER_URL"), rules)


@application.get("/items/<int:item>")
def item(item: int) -> str:
    return str(item)


@application.get("/fail")
def fail() -> str:
    raise ZeroDivisionError


@application.post("/upload")
def upload() -> str:
    try:
        return str(len(request.get_data()))
    finally:
        g.lease.adjust(tpm=PER_CHUNK)


@application.get("/stream")
def stream() -> Response:
    lease, count = g.lease, request.args.get("chunks", 10, int)

    def chunks():
        produced = 0
        try:
            for _ in range(count):
                produced += PER_CHUNK
                yield CHUNK
        finally:
            lease.adjust(tpm=produced - TAKEN["tpm"])

    return Response(chunks())
