"""The Django middleware under WSGI, through Django's own test client."""

import json
import math
import pickle
from wsgiref.util import FileWrapper, setup_testing_defaults

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.test import Client, RequestFactory, override_settings
from django.urls import resolve

from tests.web.django_ready import RULES
from tests.web.django_urls import adjust
from tests.web.sync_store import PER_CHUNK, TAKEN, CutOff, Store, fields
from zae_limiter import RateLimiter, Repository, ValidationError
from zae_limiter.web import Ask
from zae_limiter.web.django import RateLimitMiddleware

NOTHING = {"rpm": 0, "tpm": 0}


@pytest.fixture
def store():
    store = Store()
    with override_settings(ZAE_LIMITER={"limiter": store.limiter, "rules": RULES}):
        yield store


def get(path: str, method: str = "get", **options):
    """Send a request; the client reads and closes the response."""
    answer = getattr(Client(raise_request_exception=False), method)(path, **options)
    if answer.streaming:
        answer.read = b"".join(answer.streaming_content)
    return answer


class TestRoutes:
    def test_resource_is_the_route_and_the_user_is_authenticated(self, store):
        """The rule runs after all middleware, and different paths of one route share a bucket."""
        answers = [get(f"/items/{item}", headers={"x-user": "ann"}) for item in (1, 2)]

        assert [b"1", b"2"] == [answer.content for answer in answers]
        assert [2, 1] == [fields(answer.headers)["rpm"]["r"] for answer in answers]
        assert ["items/:item"] == store.buckets("ann")

    def test_unknown_path_creates_no_bucket(self, store):
        """A scanner could otherwise create any number of them."""
        assert 404 == get("/unknown").status_code
        assert [] == store.buckets("user-1")

    @pytest.mark.parametrize("method", ["head", "options"])
    def test_skipped_method_creates_no_bucket(self, store, method):
        """Preflights and checks cost nothing."""
        assert 200 == get("/items/1", method).status_code
        assert [] == store.buckets("user-1")

    def test_setting_chooses_skipped_methods(self, store):
        """A service may want to skip others."""
        options = {"limiter": store.limiter, "rules": RULES, "skip_methods": ["GET"]}
        with override_settings(ZAE_LIMITER=options):
            get("/items/1")

        assert [] == store.buckets("user-1")


class TestAnswers:
    def test_rejected_request_reports_every_limit(self, store):
        """The view does not run."""
        for _ in range(3):
            get("/adjust")

        answer = get("/adjust")
        problem = json.loads(answer.content)

        assert 429 == answer.status_code
        assert "application/problem+json" == answer.headers["Content-Type"]
        assert [0, 550] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
        assert str(math.ceil(problem["retry_after_seconds"])) == answer.headers["Retry-After"]
        assert ["rpm", "tpm"] == [limit["limit"] for limit in problem["limits"]]

    def test_error_of_the_limiter_in_a_view_is_answered_and_gives_back(self, store):
        """For example from ``lease.consume``."""
        answer = get("/more")

        assert 429 == answer.status_code
        assert ["tpm"] == json.loads(answer.content)["violated-policies"]
        assert NOTHING == store.used("user-1", "more")

    def test_request_above_the_capacity_is_answered_with_413(self, store):
        """No wait would help, so it is not a 429."""
        options = {"limiter": store.limiter, "rules": lambda request: Ask("user-1", None, {"tpm": 1001})}
        with override_settings(ZAE_LIMITER=options):
            assert 413 == get("/items/1").status_code


class TestLease:
    def test_lease_is_settled_when_the_response_is_closed(self, store):
        """The view adjusts what it used."""
        get("/adjust")

        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "adjust")

    def test_stream_is_charged_for_what_it_produced(self, store):
        """The lease is held until the last chunk."""
        get("/stream?chunks=3")

        assert {"rpm": 1, "tpm": 3 * PER_CHUNK} == store.used("user-1", "stream")

    def test_stream_that_is_closed_early_charges_what_was_used(self, store):
        """A server closes the response if its client disconnects."""
        answer = Client().get("/stream")
        chunks = iter(answer.streaming_content)
        next(chunks)
        next(chunks)
        # The client closes the response when its wrapper of the content is closed.
        answer.close()

        assert {"rpm": 1, "tpm": 2 * PER_CHUNK} == store.used("user-1", "stream")

    def test_stream_that_raises_before_its_first_chunk_gives_back(self, store):
        """The server has sent nothing yet."""
        answer = Client().get("/stream-fail")
        with pytest.raises(ZeroDivisionError):
            next(iter(answer.streaming_content))
        answer.close()

        assert NOTHING == store.used("user-1", "stream-fail")

    def test_file_is_charged_and_still_sent_by_the_server(self, store):
        """Django hands the file itself to a server that can send it."""
        environ = {"PATH_INFO": "/file", "wsgi.file_wrapper": FileWrapper}
        setup_testing_defaults(environ)
        body = WSGIHandler()(environ, lambda *_: None)
        body.close()

        assert isinstance(body, FileWrapper)
        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "file")

    def test_view_that_raises_gives_back(self, store):
        """Django answers 500."""
        assert 500 == get("/fail").status_code
        assert NOTHING == store.used("user-1", "fail")

    def test_client_that_disconnects_while_it_sends_the_body_is_charged(self, store):
        """The view fails, but not by a fault of its own."""
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/upload", "CONTENT_LENGTH": "9", "wsgi.input": CutOff()}
        setup_testing_defaults(environ)
        body = WSGIHandler()(environ, lambda *_: None)
        body.close()

        assert 500 == body.status_code
        assert {"rpm": 1, "tpm": 107} == store.used("user-1", "upload")

    def test_mistake_of_the_client_is_charged(self, store):
        """The view has done its work, although Django reports Http404 as an exception."""
        assert 404 == get("/gone").status_code
        assert TAKEN == store.used("user-1", "gone")

    def test_copy_of_a_response_in_a_cache_ends_nothing(self, store):
        """Django's cache pickles the response, perhaps in middleware above this one."""
        request = RequestFactory().get("/adjust")
        request.user, request.resolver_match = "user-1", resolve("/adjust")

        def run_view(request):
            middleware.process_view(request)
            return adjust(request)

        middleware = RateLimitMiddleware(run_view)
        response = middleware(request)
        pickle.loads(pickle.dumps(response)).close()
        before = store.used("user-1", "adjust")
        response.close()

        assert TAKEN == before
        assert {"rpm": 1, "tpm": 150} == store.used("user-1", "adjust")


class TestSetting:
    @pytest.mark.parametrize("value", [{"rule": None}, "memory://"])
    def test_unknown_key_is_a_named_error(self, value):
        """A typing mistake would otherwise leave the project unlimited."""
        with override_settings(ZAE_LIMITER=value), pytest.raises(ValidationError, match="limiter, rules, skip_methods"):
            get("/items/1")

    async def test_async_limiter_under_wsgi_is_a_named_error(self):
        """Its acquire would return something that is never awaited."""
        limiter = RateLimiter(await Repository.open("memory://"))
        with override_settings(ZAE_LIMITER={"limiter": limiter}), pytest.raises(ValidationError, match="is async"):
            RateLimitMiddleware(lambda request: None)
