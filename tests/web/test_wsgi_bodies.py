"""Under WSGI: bodies of requests that cannot be read, and headers that a server refuses."""

import io
from operator import methodcaller

import pytest

from tests.web.sync_store import TAKEN, CutOff, Store
from tests.web.test_wsgi import PLAIN, Answer, by_path, environ_of, get
from zae_limiter.web.wsgi import RateLimitMiddleware


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.parametrize("body", [{"CONTENT_LENGTH": "9"}, {"HTTP_TRANSFER_ENCODING": "chunked"}])
@pytest.mark.parametrize("read", [methodcaller("read", 9), methodcaller("readline"), methodcaller("readlines"), list])
def test_client_whose_body_cannot_be_read_is_charged(store, body, read):
    """It has disconnected, or its body is malformed. Otherwise half a body would buy work for nothing."""

    def app(environ, start_response):
        read(environ["wsgi.input"])
        raise AssertionError("not reached")

    with pytest.raises(ConnectionResetError):
        get(store, app, **body, **{"wsgi.input": CutOff()})
    assert TAKEN == store.used("user-1", "chat")


def test_headers_that_the_server_refuses_give_back(store):
    """The application has failed before the first byte."""

    def app(environ, start_response):
        start_response("200 OK", [("X-Name", "line\nline")])
        return [b"never"]

    def refusing(status, headers, exc_info=None):
        raise ValueError(headers)

    body = RateLimitMiddleware(app, store.limiter, by_path)(environ_of(), refusing)
    with pytest.raises(ValueError, match="X-Name"):
        next(iter(body))
    body.close()

    assert {"rpm": 0, "tpm": 0} == store.used("user-1", "chat")


def test_body_is_read_as_the_server_offers_it(store):
    """Applications read it in any way, and use what else a server offers."""

    def app(environ, start_response):
        found = environ["wsgi.input"]
        parts = [found.read(2), found.readline(), *found.readlines(1), *found, str(found.seekable()).encode()]
        start_response("200 OK", PLAIN)
        return [b"|".join(parts)]

    body = {"CONTENT_LENGTH": "9", "wsgi.input": io.BytesIO(b"ab1\nc\nd\ne")}
    limited = RateLimitMiddleware(app, store.limiter, by_path)

    # Not below the checks of wsgiref, which offer nothing else.
    assert b"ab|1\n|c\n|d\n|e|True" == Answer(limited, environ_of(**body)).read()
