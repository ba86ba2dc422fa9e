"""The throttle class of Django REST framework, with the Django middleware."""

import json

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import AsyncClient, Client, override_settings

from tests.web.django_ready import RULES
from tests.web.django_urls import ByHeader
from tests.web.sync_store import StoppedClock, Store, fields
from zae_limiter import RateLimiter, Repository, ValidationError
from zae_limiter.web.drf import LimiterThrottle

CHAT = "drf/chat/:item"


@pytest.fixture
def store():
    store = Store()
    with override_settings(ZAE_LIMITER={"limiter": store.limiter, "rules": RULES}):
        yield store


def get(path: str = "/drf/chat/1", method: str = "get", **headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return getattr(Client(raise_request_exception=False), method)(path, headers=named)


def test_admitted_request_reports_two_limits_and_settles(store):
    """The lease is that of the request, and the route names the resource."""
    answer = get()

    assert {"item": 1} == answer.json()
    assert [2, 850] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
    assert {"rpm": 1, "tpm": 150} == store.used("user-1", CHAT)


def test_rejected_request_is_answered_with_every_limit(store):
    """The framework's own answer becomes problem details."""
    for _ in range(3):
        get()

    answer = get()
    problem = json.loads(answer.content)

    assert 429 == answer.status_code
    assert "application/problem+json" == answer.headers["Content-Type"]
    assert ["rpm", "tpm"] == [limit["limit"] for limit in problem["limits"]]
    assert [0, 550] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
    assert 0 < int(answer.headers["retry-after-ms"]) <= 1000 * int(answer.headers["Retry-After"])


def test_handler_of_the_project_keeps_its_answer_and_gets_headers(store):
    """A project may have its own format of errors, with an exception handler that returns a response of Django."""
    own = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": "tests.web.django_urls.own_answer"}
    with override_settings(REST_FRAMEWORK=own):
        for _ in range(3):
            get()
        answer = get()

    assert {"own": "Throttled"} == answer.json()
    assert 0 == fields(answer.headers)["rpm"]["r"]


def test_request_above_the_capacity_is_answered_with_413(store):
    """No wait would help, so it is not a 429."""
    answer = get(x_tpm="1001")

    assert 413 == answer.status_code
    assert ["tpm"] == json.loads(answer.content)["violated-policies"]
    assert "Retry-After" not in answer.headers


def test_rejection_by_one_throttle_gives_the_other_back(store):
    """The first has taken, the second rejects."""
    with store.limiter.acquire("team-1", "drf/both", {"rpm": 3}):
        answer = get("/drf/both")

    assert 429 == answer.status_code
    assert {"rpm": 0, "tpm": 0} == store.used("user-1", "drf/both")


def test_throttle_after_a_rejection_takes_nothing(store):
    """What it took would only be given back."""
    with store.limiter.acquire("user-1", "drf/both", {"rpm": 3}):
        assert 429 == get("/drf/both").status_code

    assert [] == store.buckets("team-1")


def test_view_that_raises_gives_back(store):
    """Django answers 500."""
    assert 500 == get(method="post").status_code
    assert {"rpm": 0, "tpm": 0} == store.used("user-1", CHAT)


@pytest.mark.parametrize("method", ["head", "options"])
def test_skipped_method_creates_no_bucket(store, method):
    """The framework answers OPTIONS with a description of the view."""
    assert 200 == get("/drf/both", method=method).status_code
    assert [] == store.buckets("user-1")


def test_wait_is_that_of_the_rejection(store):
    """The framework reports the longest wait of all throttles."""
    waits: list[float | None] = []

    class Recorded(ByHeader):
        def wait(self):
            waits.append(super().wait())
            return waits[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.web.django_urls.Chat.throttle_classes", (Recorded,))
        for _ in range(3):
            get()
        problem = json.loads(get().content)

    assert [problem["retry_after_seconds"]] == waits
    assert None is LimiterThrottle().wait()


@override_settings(MIDDLEWARE=[])
def test_missing_middleware_is_a_named_error(store):
    """Nothing would end the lease."""
    with pytest.raises(ValidationError, match=r"lacks zae_limiter\.web\.django\.RateLimitMiddleware: add it"):
        Client().get("/drf/chat/1")


def test_missing_rule_is_a_named_error(store):
    """The class that lacks it is named."""
    with pytest.raises(ValidationError, match="set it in WithoutRule, or define get_ask"):
        Client().get("/drf/unruled")


async def test_throttle_under_asgi_takes_from_the_async_limiter():
    """The framework is sync, so its views run in a thread, and the take runs on the event loop."""
    repository = await Repository.open("memory://", clock=StoppedClock())
    await repository.set_system_defaults((await sync_to_async(Store)()).repository.get_system_defaults()[0])
    limiter = RateLimiter(repository)
    with override_settings(ZAE_LIMITER={"limiter": limiter}):
        statuses = [(await AsyncClient().get("/drf/chat/1")).status_code for _ in range(4)]

    assert [200, 200, 200, 429] == statuses
    assert {"rpm": 0, "tpm": 550} == await limiter.available("user-1", CHAT)
    await repository.close()
