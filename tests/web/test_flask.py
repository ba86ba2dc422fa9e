"""The Flask extension, through Flask's own test client."""

import io
import math

import pytest
from flask import Blueprint, Flask, Response, abort, g, request, send_file, stream_with_context
from werkzeug.test import TestResponse

from tests.web.sync_store import TAKEN, CutOff, Store, fields
from zae_limiter import EntityNotFoundError, RateLimitExceeded, ValidationError
from zae_limiter.web import Ask
from zae_limiter.web.flask import RateLimits

NOTHING = {"rpm": 0, "tpm": 0}


@pytest.fixture
def store() -> Store:
    return Store()


def add_streams(app: Flask) -> None:
    @app.get("/file")
    def file() -> Response:
        g.lease.adjust(tpm=50)
        return send_file(io.BytesIO(b"file"), "text/plain")

    @app.get("/stream")
    def stream() -> Response:
        @stream_with_context
        def chunks():
            produced = 0
            try:
                for _ in range(10):
                    produced += 70
                    yield b"chunk"
            finally:
                g.lease.adjust(tpm=produced - TAKEN["tpm"])

        return Response(chunks())


@pytest.fixture
def app() -> Flask:
    app = Flask(__name__)

    @app.get("/items/<int:item>")
    def item(item: int) -> str:
        return str(item)

    @app.get("/adjust")
    def adjust() -> str:
        g.lease.adjust(tpm=50)
        return "adjusted"

    @app.get("/fail")
    def fail() -> str:
        raise ZeroDivisionError

    @app.get("/more")
    def more() -> str:
        g.lease.consume(tpm=901)
        return "never"

    @app.get("/missing")
    def missing() -> str:
        raise EntityNotFoundError("user-1")

    @app.get("/gone")
    def gone() -> str:
        abort(410)

    add_streams(app)
    return app


def get(app: Flask, path: str) -> TestResponse:
    """Send a request, and close the response, as a server does."""
    answer = app.test_client().get(path)
    answer.get_data()
    answer.close()
    return answer


def for_user(request):
    return Ask("user-1", None, dict(TAKEN))


def limited(app: Flask, store: Store, rules=for_user, **options) -> RateLimits:
    return RateLimits(app, store.limiter, rules, **options)


class TestRoutes:
    def test_resource_is_the_rule_of_the_route(self, app, store):
        """Different paths of one route share a bucket."""
        limited(app, store)
        answers = [get(app, f"/items/{item}") for item in (1, 2)]

        assert [b"1", b"2"] == [answer.data for answer in answers]
        assert [2, 1] == [fields(answer.headers)["rpm"]["r"] for answer in answers]
        assert ["items/:item"] == store.buckets("user-1")

    def test_unknown_path_creates_no_bucket(self, app, store):
        """A scanner could otherwise create any number of them."""
        limited(app, store)

        assert 404 == get(app, "/unknown").status_code
        assert 405 == app.test_client().post("/adjust").status_code
        assert [] == store.buckets("user-1")

    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
    def test_skipped_method_creates_no_bucket(self, app, store, method):
        """Preflights and checks cost nothing."""
        limited(app, store)

        assert 200 == app.test_client().open("/items/1", method=method).status_code
        assert [] == store.buckets("user-1")

    def test_skipped_methods_can_be_chosen(self, app, store):
        """A service may want to limit them all."""
        limited(app, store, skip_methods=())
        app.test_client().head("/items/1")

        assert {"rpm": 1, "tpm": 100} == store.used("user-1", "items/:item")

    def test_rule_that_returns_none_creates_no_bucket(self, app, store):
        """And there is no lease, not even that of a request before it in the same application context."""
        limited(app, store, lambda request: None if request.path == "/items/1" else for_user(request))
        with app.app_context():
            get(app, "/adjust")
            get(app, "/items/1")

            assert "lease" not in g
        assert ["adjust"] == store.buckets("user-1")


class TestAnswers:
    def test_rejected_request_reports_every_limit(self, app, store):
        """The view does not run."""
        limited(app, store)
        client = app.test_client()
        for _ in range(3):
            client.get("/items/1")

        answer = client.get("/items/1")

        assert 429 == answer.status_code
        assert "application/problem+json" == answer.content_type
        assert [0, 700] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
        assert str(math.ceil(answer.json["retry_after_seconds"])) == answer.headers["Retry-After"]
        assert ["rpm", "tpm"] == [limit["limit"] for limit in answer.json["limits"]]

    def test_error_of_the_limiter_in_a_view_is_answered_and_gives_back(self, app, store):
        """For example from ``lease.consume``."""
        limited(app, store)
        answer = get(app, "/more")

        assert 429 == answer.status_code
        assert ["tpm"] == answer.json["violated-policies"]
        assert 1 == len(answer.headers.getlist("RateLimit"))
        assert NOTHING == store.used("user-1", "more")

    def test_request_above_the_capacity_is_answered_with_413(self, app, store):
        """No wait would help, so it is not a 429."""
        limited(app, store, lambda request: Ask("user-1", None, {"tpm": 1001}))

        assert 413 == get(app, "/items/1").status_code

    def test_other_errors_of_the_package_are_left_to_the_application(self, app, store):
        """A handler of the application for all exceptions gets them."""
        limited(app, store)
        app.register_error_handler(Exception, lambda error: (type(error).__name__, 418))
        answer = get(app, "/missing")

        assert (418, b"EntityNotFoundError") == (answer.status_code, answer.data)

    def test_handler_of_the_application_is_kept(self, app, store):
        """It was registered before the extension was added."""
        app.register_error_handler(RateLimitExceeded, lambda error: ("own", 429))
        limited(app, store)

        assert b"own" == get(app, "/more").data

    def test_headers_are_on_responses_that_another_function_has_replaced(self, app, store):
        """They are added when the response reaches the server."""
        limited(app, store)
        app.after_request(lambda response: Response("replaced"))
        answer = get(app, "/adjust")

        assert b"replaced" == answer.data
        assert 2 == fields(answer.headers)["rpm"]["r"]
        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "adjust")


class TestLease:
    def test_lease_is_in_g_and_settles_when_the_response_is_closed(self, app, store):
        """The view adjusts what it used."""
        limited(app, store)
        get(app, "/adjust")

        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "adjust")

    def test_stream_that_is_closed_early_charges_what_was_used(self, app, store):
        """A server closes the response if its client disconnects."""
        limited(app, store)
        answer = app.test_client().get("/stream", buffered=False)
        chunks = answer.iter_encoded()
        next(chunks)
        next(chunks)
        answer.close()

        assert {"rpm": 1, "tpm": 140} == store.used("user-1", "stream")

    def test_file_is_charged(self, app, store):
        """Flask hands files to the server without a response around them."""
        limited(app, store)
        answer = get(app, "/file")

        assert b"file" == answer.data
        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "file")

    @pytest.mark.parametrize("testing", [True, False])
    def test_view_that_raises_gives_back(self, app, store, testing):
        """Flask answers 500; in tests the exception itself reaches the server."""
        app.testing = testing
        limited(app, store)
        try:
            status = get(app, "/fail").status_code
        except ZeroDivisionError:
            status = 0

        assert status == (0 if testing else 500)
        assert NOTHING == store.used("user-1", "fail")

    def test_client_that_disconnects_while_it_sends_the_body_is_charged(self, app, store):
        """Below gunicorn, Flask passes on the error of the connection, and answers 500."""

        @app.post("/upload")
        def upload() -> str:
            return str(len(request.get_data()))

        limited(app, store)
        cut_off = {"CONTENT_LENGTH": "9", "wsgi.input": CutOff(), "wsgi.input_terminated": True}
        answer = app.test_client().post("/upload", environ_overrides=cut_off)
        answer.close()

        assert 500 == answer.status_code
        assert TAKEN == store.used("user-1", "upload")

    def test_mistake_of_the_client_is_charged(self, app, store):
        """The view has done its work."""
        limited(app, store)

        assert 410 == get(app, "/gone").status_code
        assert TAKEN == store.used("user-1", "gone")


class TestTake:
    def test_view_takes_what_it_has_parsed(self, store):
        """Both leases are settled, and the headers report the tightest bucket of each limit."""
        app, limits = Flask(__name__), RateLimits(limiter=store.limiter, rules=for_user)
        views = Blueprint("views", __name__, url_prefix="/v1")

        @views.get("/chat")
        def chat() -> str:
            limits.take(Ask("team-1", None, {"tpm": 500})).adjust(tpm=-100)
            return "done"

        app.register_blueprint(views)
        limits.init_app(app)
        answer = get(app, "/v1/chat")

        assert 600 == fields(answer.headers)["tpm"]["r"]
        assert TAKEN == store.used("user-1", "v1/chat")
        assert {"rpm": 0, "tpm": 400} == store.used("team-1", "v1/chat")

    def test_rejection_of_a_second_take_gives_the_first_back(self, app, store):
        """The request was not served."""
        limits = limited(app, store)

        @app.get("/both")
        def both() -> str:
            limits.take(Ask("team-1", "both", {"rpm": 4}))
            return "never"

        assert 413 == get(app, "/both").status_code
        assert NOTHING == store.used("user-1", "both")

    def test_take_outside_of_the_extension_is_a_named_error(self, app, store):
        """Nothing would end the lease."""
        limits = RateLimits(limiter=store.limiter)
        with app.test_request_context("/items/1"), pytest.raises(ValidationError, match="call init_app"):
            limits.take(Ask("user-1", "chat", {"rpm": 1}))

    def test_extension_that_is_added_twice_is_a_named_error(self, app, store):
        """Every request would be charged twice."""
        limited(app, store)
        with pytest.raises(ValidationError, match="has this extension already"):
            limited(app, store)
