"""The SDKs of OpenAI and Anthropic wait exactly as long as the headers of a rejection say, and then succeed."""

import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest

from tests.web.reported import check_headers, nanoseconds, rfc3339_time
from tests.web.servers import Server, running

_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running("uvicorn", "tests.web.provider:app") as started:
        yield started


class Sdk:
    """A client of a provider, with its waits and the responses it has seen."""

    def __init__(self, module: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = module
        self.port = server.port
        self.waits_s: list[float] = []
        self.responses: list[Any] = []
        # Only the sleep is replaced: it moves the clock of the server on by the same time.
        monkeypatch.setattr(module._base_client, "time", SimpleNamespace(**{**vars(time), "sleep": self.sleep}))
        hooks = {"response": [self.responses.append]}
        made = openai.OpenAI if module is openai else anthropic.Anthropic
        path = "/openai" if module is openai else ""
        self.client: Any = made(
            api_key=f"key-{next(_numbers)}",
            base_url=f"http://127.0.0.1:{server.port}{path}",
            http_client=module.DefaultHttpxClient(event_hooks=hooks, trust_env=False),
        )

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        milliseconds = round(seconds * 1000)
        assert milliseconds / 1000 == seconds
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/control/advance/{milliseconds}").close()

    def ask(self, cost: int = 10, *, raw: bool = False, spend: str = "0") -> Any:
        """Send a message."""
        sender = self.client.chat.completions if self.module is openai else self.client.messages
        create: Callable[..., Any] = sender.with_raw_response.create if raw else sender.create
        text = [{"role": "user", "content": "hi"}]
        return create(
            model="local", messages=text, max_tokens=10, extra_headers={"x-cost": str(cost), "x-spend": spend}
        )

    @property
    def codes(self) -> list[int]:
        return [response.status_code for response in self.responses]


@pytest.fixture(params=[openai, anthropic], ids=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sdk]:
    made = Sdk(request.param, server, monkeypatch)
    yield made
    made.client.close()


def test_sdk_waits_for_what_retry_after_ms_says_and_then_succeeds(sdk: Sdk):
    """The store's clock moves by that wait only, so that a millisecond less would be rejected again."""
    for _ in range(4):
        assert sdk.ask().id in ("chatcmpl-1", "msg_1")

    assert [200, 200, 200, 429, 200] == sdk.codes
    headers = check_headers(sdk.responses[3].headers.multi_items())
    assert [int(headers["retry-after-ms"]) / 1000] == sdk.waits_s
    assert "7778" == headers["retry-after-ms"]
    assert "8" == headers["retry-after"]


def test_sdk_does_not_repeat_a_request_that_is_larger_than_a_capacity(sdk: Sdk):
    """No wait helps, and the status says so."""
    with pytest.raises(sdk.module.APIStatusError) as refused:
        sdk.ask(1_001)

    assert 413 == refused.value.status_code
    assert [413] == sdk.codes
    assert [] == sdk.waits_s
    assert "Limit 'tpm' has a capacity of 1000" in refused.value.response.json()["detail"]


def test_sdk_that_gives_up_raises_its_own_error_for_rate_limits(sdk: Sdk):
    """The error has the headers of the last rejection."""
    sdk.client = sdk.client.with_options(max_retries=0)
    for _ in range(3):
        sdk.ask()

    with pytest.raises(sdk.module.RateLimitError) as rejected:
        sdk.ask()

    assert ["rpm"] == rejected.value.response.json()["violated-policies"]
    assert "retry-after-ms" in check_headers(rejected.value.response.headers.multi_items())


def test_raw_response_has_the_headers_of_the_provider(sdk: Sdk):
    """Programs that read them of the provider read ours."""
    raw = sdk.ask(400, raw=True)

    headers = check_headers(raw.headers.multi_items())
    if sdk.module is openai:
        assert "3" == headers["x-ratelimit-limit-requests"]
        assert "2" == headers["x-ratelimit-remaining-requests"]
        assert 7_778 * 10**6 == nanoseconds(headers["x-ratelimit-reset-requests"])
        assert "600" == headers["x-ratelimit-remaining-tokens"]
        assert "24s" == headers["x-ratelimit-reset-tokens"]
    else:
        assert "3" == headers["anthropic-ratelimit-requests-limit"]
        assert "2" == headers["anthropic-ratelimit-requests-remaining"]
        assert "600" == headers["anthropic-ratelimit-tokens-remaining"]
        until = rfc3339_time(headers["anthropic-ratelimit-tokens-reset"])
        assert until > rfc3339_time(headers["anthropic-ratelimit-requests-reset"])


def test_sdk_raises_immediately_if_the_wait_is_long_and_waits_for_an_edge_that_is_near(sdk: Sdk):
    """Some would sleep for weeks, until the next month begins."""
    sdk.ask(spend="2.50")
    with pytest.raises(sdk.module.RateLimitError) as rejected:
        sdk.ask(spend="0.51")
    headers = rejected.value.response.headers

    assert [200, 429] == sdk.codes
    assert [] == sdk.waits_s
    assert "false" == headers["x-should-retry"]
    assert "Limit 'spend': 0.50 available, 0.51 USD requested." in rejected.value.response.json()["detail"]

    sdk.sleep((int(headers["retry-after-ms"]) - 7_777) / 1000)
    assert sdk.ask(spend="3").id in ("chatcmpl-1", "msg_1")

    assert [200, 429, 429, 200] == sdk.codes
    assert 7.777 == sdk.waits_s[-1]
