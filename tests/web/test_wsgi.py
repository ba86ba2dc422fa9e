"""The WSGI middleware, driven as PEP 3333 demands of a server, with the checks of wsgiref on both of its sides."""

import io
import json
import math
import tempfile
from typing import Any
from wsgiref.util import FileWrapper, setup_testing_defaults
from wsgiref.validate import validator

import pytest

from tests.web.reported import check_headers
from tests.web.sync_store import DAY_S, TAKEN, Store, fields
from zae_limiter import RateLimiter, RateLimiterUnavailable, Repository, SyncRateLimiter, ValidationError
from zae_limiter.web import Ask
from zae_limiter.web.wsgi import RateLimitMiddleware, WsgiRequest

PLAIN = [("Content-Type", "text/plain")]


@pytest.fixture
def store() -> Store:
    return Store()


def by_path(request: WsgiRequest) -> Ask | None:
    return Ask("user-1", request.path.strip("/"), dict(TAKEN))


class Answer:
    """What a server got for one request, up to the first chunks that it read."""

    def __init__(self, app: Any, environ: dict[str, Any]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.written: list[bytes] = []
        self.body = app(environ, self.start_response)
        self.chunks = iter(self.body)

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        if exc_info is not None and self.written:
            raise exc_info[1]
        self.status, self.headers = int(status[:3]), dict(headers)
        return self.written.append

    def read(self) -> bytes:
        for chunk in self.chunks:
            assert self.status, "start_response is called before the first chunk"
            self.written.append(chunk)
        self.body.close()
        return b"".join(self.written)


def environ_of(path: str = "/chat", method: str = "GET", **more: Any) -> dict[str, Any]:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    return {**environ, **more}


def get(store: Store, app: Any, path: str = "/chat", method: str = "GET", rules: Any = by_path, **more: Any) -> Answer:
    """Send a request through the middleware, with a validator on both sides."""
    limited = RateLimitMiddleware(validator(app), store.limiter, rules)
    return Answer(validator(limited), environ_of(path, method, **more))


def hello(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", PLAIN)
    return [b"hello"]


def failing(status: str) -> Any:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response(status, PLAIN)
        return [b"no"]

    return app


class TestHeaders:
    def test_admitted_request_reports_two_limits(self, store):
        """Both limits are in both headers, with what is left after the take."""
        answer = get(store, hello)

        assert b"hello" == answer.read()
        assert 200 == answer.status
        limits = fields(answer.headers)
        assert (3, 2, DAY_S) == tuple(limits["rpm"][key] for key in "qrt")
        assert (1000, 900) == tuple(limits["tpm"][key] for key in "qr")

    def test_headers_of_another_server_are_replaced(self, store):
        """A gateway may copy those of the server that it calls."""
        found: list[tuple[str, str]] = []

        def gateway(environ: dict[str, Any], start_response: Any) -> list[bytes]:
            start_response("200 OK", [*PLAIN, ("RateLimit", '"theirs";r=1')])
            return [b"hello"]

        limited = RateLimitMiddleware(gateway, store.limiter, by_path)
        for _ in limited(environ_of(), lambda status, headers: found.extend(headers)):
            pass

        assert "theirs" not in check_headers(found)["ratelimit"]

    def test_rejected_request_reports_every_limit(self, store):
        """A rejection has the headers of all limits, and says when to come back."""
        for _ in range(3):
            get(store, hello).read()

        answer = get(store, hello)
        problem = json.loads(answer.read())

        assert 429 == answer.status
        assert "application/problem+json" == answer.headers["Content-Type"]
        assert [0, 700] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
        assert str(math.ceil(problem["retry_after_seconds"])) == answer.headers["Retry-After"]
        assert ["rpm"] == problem["violated-policies"]
        assert ["rpm", "tpm"] == [limit["limit"] for limit in problem["limits"]]

    def test_request_above_the_capacity_is_answered_with_413(self, store):
        """No wait would help, so it is not a 429."""
        answer = get(store, hello, rules=lambda request: Ask("user-1", "chat", {"tpm": 1001}))
        problem = json.loads(answer.read())

        assert 413 == answer.status
        assert ["tpm"] == problem["violated-policies"]

    def test_closed_repository_is_an_error_of_the_application(self, store):
        """Only errors that a client can act on are answered; others reach the server."""
        store.repository.close()

        with pytest.raises(Exception, match="closed"):
            get(store, hello)


class TestLease:
    def test_lease_is_in_the_environment(self, store):
        """The application adjusts what it used, and that is written when the server closes the body."""

        def app(environ, start_response):
            environ["zae_limiter.lease"].adjust(tpm=50)
            return hello(environ, start_response)

        get(store, app).read()

        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "chat")

    def test_stream_that_is_closed_early_charges_what_was_used(self, store):
        """A server closes the body if its client disconnects; the generator then settles what it has produced."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            produced = 0
            try:
                for _ in range(10):
                    produced += 70
                    yield b"chunk"
            finally:
                environ["zae_limiter.lease"].adjust(tpm=produced - TAKEN["tpm"])

        answer = get(store, app)
        next(answer.chunks)
        next(answer.chunks)
        answer.body.close()

        assert {"rpm": 1, "tpm": 140} == store.used("user-1", "chat")

    def test_lease_is_held_until_the_body_is_closed(self, store):
        """The handler has returned, but the stream still uses the lease."""
        leases = []

        def app(environ, start_response):
            leases.append(environ["zae_limiter.lease"])
            return hello(environ, start_response)

        answer = get(store, app)
        leases[0].adjust(tpm=1)
        answer.read()

        with pytest.raises(Exception, match="ended"):
            leases[0].adjust(tpm=1)
        assert {"rpm": 1, "tpm": 101} == store.used("user-1", "chat")

    def test_body_that_is_closed_twice_settles_once(self, store):
        """Servers and other middleware may both close it."""

        def app(environ, start_response):
            environ["zae_limiter.lease"].adjust(tpm=50)
            return hello(environ, start_response)

        body = RateLimitMiddleware(app, store.limiter, by_path)(environ_of(), lambda *_: lambda data: None)
        list(body)
        body.close()
        body.close()

        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "chat")


class TestFailures:
    def test_application_that_raises_gives_back(self, store):
        """Nothing was sent, so nothing is charged."""

        def app(environ, start_response):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            get(store, app)
        assert {"rpm": 0, "tpm": 0} == store.used("user-1", "chat")

    def test_generator_that_raises_before_its_first_chunk_gives_back(self, store):
        """It has called start_response, but the server has sent nothing yet."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            raise ZeroDivisionError
            yield b""

        answer = get(store, app)
        with pytest.raises(ZeroDivisionError):
            next(answer.chunks)
        answer.body.close()

        assert {"rpm": 0, "tpm": 0} == store.used("user-1", "chat")

    def test_generator_that_raises_after_its_first_chunk_is_charged(self, store):
        """The client has got something."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            yield b"first"
            raise ZeroDivisionError

        answer = get(store, app)
        next(answer.chunks)
        with pytest.raises(ZeroDivisionError):
            next(answer.chunks)
        answer.body.close()

        assert TAKEN == store.used("user-1", "chat")

    @pytest.mark.parametrize(
        ("status", "expected"), [("404 Not Found", TAKEN), ("500 Internal Server Error", {"rpm": 0, "tpm": 0})]
    )
    def test_answer_of_the_application_decides_what_is_charged(self, store, status, expected):
        """A failure of the server gives back; a mistake of the client is charged."""
        get(store, failing(status)).read()

        assert expected == store.used("user-1", "chat")

    def test_rule_that_keeps_on_errors_charges_a_failure(self, store):
        """``on_error`` is chosen per rule."""
        keep = Ask("user-1", "chat", dict(TAKEN), on_error="keep")

        get(store, failing("500 Internal Server Error"), rules=lambda request: keep).read()

        assert TAKEN == store.used("user-1", "chat")

    def test_consume_beyond_the_limit_inside_a_generator_is_answered(self, store):
        """start_response reaches the server with the first byte, so that an error before it becomes the answer."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            environ["zae_limiter.lease"].consume(tpm=901)
            yield b"never"

        answer = get(store, app)
        problem = json.loads(answer.read())

        assert 429 == answer.status
        assert ["tpm"] == problem["violated-policies"]
        assert {"rpm": 0, "tpm": 0} == store.used("user-1", "chat")


class TestProtocol:
    def test_write_callable_sends_and_commits(self, store):
        """Old applications write, and then fail."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)(b"written")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            get(store, app)
        assert TAKEN == store.used("user-1", "chat")

    def test_start_response_with_exc_info_replaces_the_answer(self, store):
        """An application may find an error before anything was sent."""

        def app(environ, start_response):
            import sys

            start_response("200 OK", PLAIN)
            try:
                raise ZeroDivisionError
            except ZeroDivisionError:
                start_response("500 Internal Server Error", PLAIN, sys.exc_info())
            return [b"failed"]

        answer = get(store, app)
        answer.read()

        assert 500 == answer.status
        assert {"rpm": 0, "tpm": 0} == store.used("user-1", "chat")

    def test_second_start_response_without_exc_info_is_an_error(self, store):
        """PEP 3333 demands it of servers."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            return hello(environ, start_response)

        with pytest.raises(AssertionError, match="without exc_info"):
            RateLimitMiddleware(app, store.limiter, by_path)(environ_of(), lambda *_: lambda data: None)

    def test_empty_body_sends_its_headers(self, store):
        """There is no first byte."""

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            return []

        answer = get(store, app)
        answer.read()

        assert 200 == answer.status
        assert 2 == fields(answer.headers)["rpm"]["r"]

    def test_body_of_a_known_length_keeps_it(self, store):
        """Servers set Content-Length for one chunk."""
        sent: list[Any] = []
        body = RateLimitMiddleware(hello, store.limiter, by_path)(environ_of(), lambda *_: sent.append)

        assert 1 == len(body)
        list(body)
        body.close()

    def test_file_wrapper_reaches_the_server_and_ends_the_lease(self, store):
        """A server sends such a file itself, without iterating over it."""
        file = io.BytesIO(b"file")

        def app(environ, start_response):
            environ["zae_limiter.lease"].adjust(tpm=50)
            start_response("200 OK", PLAIN)
            return environ["wsgi.file_wrapper"](file)

        sent: list[Any] = []
        limited = RateLimitMiddleware(app, store.limiter, by_path)
        body = limited(
            environ_of(**{"wsgi.file_wrapper": FileWrapper}), lambda *given: sent.append(given) or (lambda data: None)
        )
        before = store.used("user-1", "chat")
        body.close()

        assert isinstance(body, FileWrapper)
        assert "200 OK" == sent[0][0]
        assert TAKEN == before
        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "chat")
        assert file.closed


class TestRules:
    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
    def test_skipped_method_creates_no_bucket(self, store, method):
        """Preflights and checks cost nothing."""

        def app(environ, start_response):
            start_response("200 OK", [*PLAIN, ("Content-Length", "0")])
            return []

        answer = get(store, app, method=method)
        answer.read()

        assert "RateLimit" not in answer.headers
        assert [] == store.buckets("user-1")

    def test_rule_that_returns_none_creates_no_bucket(self, store):
        """Health checks, for example."""
        get(store, hello, rules=lambda request: None).read()

        assert [] == store.buckets("user-1")

    def test_missing_resource_is_a_named_error(self, store):
        """Plain WSGI has no router that could name it."""
        with pytest.raises(ValidationError, match="Invalid resource None: is missing"):
            get(store, hello, rules=lambda request: Ask("user-1", None, {"rpm": 1}))

    def test_rule_that_is_a_coroutine_function_is_a_named_error(self, store):
        """A coroutine would be true, and never run."""

        async def rule(request):
            return None

        with pytest.raises(ValidationError, match="must return an Ask or None"):
            get(store, hello, rules=rule)

    async def test_async_limiter_is_a_named_error(self):
        """Its acquire would return something that is never awaited."""
        limiter = RateLimiter(await Repository.open("memory://"))

        with pytest.raises(ValidationError, match="pass a SyncRateLimiter"):
            RateLimitMiddleware(hello, limiter, by_path)

    def test_invalid_entity_from_a_header_is_answered_with_400(self, store):
        """The client sent it."""
        answer = get(
            store, hello, rules=lambda request: Ask(request.headers["x-user"], "chat", {"rpm": 1}), HTTP_X_USER="#"
        )
        answer.read()

        assert 400 == answer.status

    def test_url_opens_the_store_with_the_first_request(self, store):
        """The store is opened once, and keeps what was used."""
        with tempfile.TemporaryDirectory() as folder:
            limits = store.repository.get_system_defaults()[0]
            rules = lambda request: Ask("user-1", "chat", {"rpm": 3}, limits=limits)  # noqa: E731 - a rule in place
            limited = RateLimitMiddleware(hello, f"sqlite:///{folder}/limits.db", rules)
            statuses = []
            for _ in range(2):
                answer = Answer(limited, environ_of())
                answer.read() if answer.status != 429 else None
                statuses.append(answer.status)
            limited._source.stop()

        assert [200, 429] == statuses


class TestUnavailableStore:
    @staticmethod
    def unavailable() -> SyncRateLimiter:
        raise RateLimiterUnavailable(TimeoutError("no answer"))

    def test_request_is_answered_with_503(self, store):
        """It may be repeated."""
        limited = RateLimitMiddleware(hello, self.unavailable, by_path)
        answer = Answer(limited, environ_of())

        assert 503 == answer.status
        assert "1" == answer.headers["Retry-After"]

    def test_rule_that_allows_lets_the_request_pass_without_headers(self, store):
        """The choice is made per rule, and nothing is known of the limits."""
        allow = Ask("user-1", "chat", dict(TAKEN), on_unavailable="allow")
        answer = Answer(RateLimitMiddleware(hello, self.unavailable, lambda request: allow), environ_of())

        assert b"hello" == answer.read()
        assert (200, dict(PLAIN)) == (answer.status, answer.headers)


class TestRequest:
    def test_request_shows_method_path_headers_and_user(self):
        """Names of headers are in lower case, and the path includes where the application is mounted."""
        request = WsgiRequest(
            environ_of(
                "/caf\xc3\xa9",
                "POST",
                SCRIPT_NAME="/api",
                CONTENT_TYPE="text/plain",
                HTTP_X_USER="u",
                REMOTE_USER="ann",
            )
        )

        assert ("POST", "/api/café", "ann") == (request.method, request.path, request.user)
        assert ("u", "text/plain") == (request.headers["x-user"], request.headers["content-type"])

    def test_client_address_counts_trusted_hops_from_the_right(self):
        """What a client sends in the header is not trusted."""
        request = WsgiRequest(environ_of(REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR="1.1.1.1, 2.2.2.2"))

        assert "10.0.0.1" == request.client_address()
        assert "2.2.2.2" == request.client_address(trusted_hops=1)
