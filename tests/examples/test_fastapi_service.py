"""The FastAPI example as a real process of uvicorn, two workers on one file, called over HTTP."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.long_waits import LONG_DEADLINE
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fastapi_service"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
REQUESTS = 20
TOKENS = 1_000_000
# The refill is so slow that nothing is earned during a test.
LIMITS = [Limit.custom("rpm", REQUESTS, 1, 86_400), Limit.custom("tpm", TOKENS, 1, 86_400)]
PATIENCE_S = 600


@dataclass
class Service:
    """A running service, and the file with its limits."""

    process: subprocess.Popen[str]
    address: str
    url: str

    def call(self, path: str, body: Any = None, key: str = "key-of-alice") -> tuple[int, HTTPMessage, str]:
        request = urllib.request.Request(self.address + path, headers={"x-api-key": key})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with OPENER.open(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def left(self, caller: str) -> dict[str, int]:
        with SyncRepository.open(self.url, deadline_s=60) as repo:
            return SyncRateLimiter(repo).available(caller, "chat")

    def comes_to_have(self, caller: str, left: dict[str, int]) -> bool:
        """Return whether a caller has this much left at the end: a lease ends after its answer was sent."""
        for _ in range(600):
            if left == self.left(caller):
                return True
            threading.Event().wait(0.1)
        return False


@contextmanager
def served(folder: Path, workers: int) -> Iterator[Service]:
    """Start a service on a new file, with limits stored before; it must end when asked to."""
    url = f"sqlite:///{folder / 'limits.db'}"
    with SyncRepository.open(url) as repo:
        repo.set_resource_defaults("chat", LIMITS)
    options = ["--app-dir", str(FOLDER), "--port", "0", "--workers", str(workers)]
    # On a busy machine a worker may be slow to answer its supervisor, and would be killed for it.
    options += ["--timeout-worker-healthcheck", str(PATIENCE_S), "app:app"]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *options],
        env={**os.environ, "ZAE_LIMITER_URL": url, **LONG_DEADLINE},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    watchdog = threading.Timer(PATIENCE_S, process.kill)
    watchdog.start()
    try:
        yield Service(process, awaited_address(process, workers), url)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        watchdog.cancel()


def awaited_address(process: subprocess.Popen[str], workers: int) -> str:
    """Return the address of the service, once all its workers are up and one of them listens."""
    address, started = "", 0
    for line in process.stderr or ():
        if found := re.search(r"http://[\d.]+:\d+", line):
            address = found[0]
        started += "Application startup complete" in line
        if address and started == workers:
            await_listener(address)
            return address
    raise AssertionError(f"it ended with {process.wait()}")


def await_listener(address: str) -> None:
    """Return once a connection is accepted."""
    url = urlsplit(address)
    for _ in range(6_000):
        with socket.socket() as knock:
            if knock.connect_ex((url.hostname, url.port)) == 0:
                return
        threading.Event().wait(0.1)
    raise AssertionError(f"no listener at {address}")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("service"), workers=2) as service:
        yield service


def test_concurrent_callers_are_admitted_exactly_as_often_as_the_limit(service):
    """Two workers share one limit: of fifty requests at the same time, twenty are answered and thirty refused."""
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: service.call("/chat", {"prompt": "Hello?", "words": 1}), range(50)))

    statuses = [status for status, _, _ in answers]
    assert (REQUESTS, 50 - REQUESTS) == (statuses.count(200), statuses.count(429))
    assert service.comes_to_have("alice", {"rpm": 0, "tpm": TOKENS - 3 * REQUESTS})
    assert {"word-0 "} == {body for status, _, body in answers if status == 200}

    refused = next((headers, json.loads(body)) for status, headers, body in answers if status == 429)
    assert ["rpm"] == refused[1]["violated-policies"]
    assert ["rpm", "tpm"] == [limit["limit"] for limit in refused[1]["limits"]]
    assert "alice" not in json.dumps(refused[1])
    assert 0 <= int(refused[0]["retry-after"]) - refused[1]["retry_after_seconds"] < 1


def test_response_reports_both_limits_in_its_headers(service):
    """The headers come with the response that is charged, without another call."""
    before = service.left("bob")
    _, headers, _ = service.call("/chat", {"prompt": "Hello?", "words": 1}, "key-of-bob")

    # The next test must not begin before this lease ends.
    assert service.comes_to_have("bob", {"rpm": before["rpm"] - 1, "tpm": before["tpm"] - 3})
    assert f'"rpm";q={REQUESTS};w=' in headers["ratelimit-policy"]
    assert '"tpm";r=' in headers["ratelimit"]


def test_stream_is_charged_for_what_it_sent(service):
    """The estimate was 100 tokens, the answer cost 3 per word."""
    before = service.left("bob")
    status, _, body = service.call("/chat", {"prompt": "Hello?", "words": 200}, "key-of-bob")
    left = {"rpm": before["rpm"] - 1, "tpm": before["tpm"] - 600}

    assert (200, 200) == (status, len(body.split()))
    assert service.comes_to_have("bob", left)


def test_caller_that_disconnects_is_charged_for_what_was_sent(service):
    """Neither for the whole answer, nor for nothing."""
    before = service.left("bob")
    request = urllib.request.Request(f"{service.address}/chat", b'{"prompt": "Hello?", "words": 10000}')
    request.add_header("x-api-key", "key-of-bob")
    request.add_header("content-type", "application/json")
    with OPENER.open(request, timeout=PATIENCE_S) as answer:
        answer.read1(1)

    cost = charged(service, before)
    assert 0 < cost < 30_000
    assert service.comes_to_have("bob", {"rpm": before["rpm"] - 1, "tpm": before["tpm"] - cost})


def charged(service: Service, before: dict[str, int]) -> int:
    """Return the cost of a call, once the service has noticed the closed connection; never the estimate."""
    estimated = before["tpm"] - 100
    for _ in range(600):
        if (left := service.left("bob")["tpm"]) != estimated:
            return before["tpm"] - left
        threading.Event().wait(0.1)
    raise AssertionError("the lease never ended")


def test_request_with_an_invalid_body_takes_nothing(service):
    """FastAPI checks the body before the rule is called."""
    before = service.left("bob")
    status, _, _ = service.call("/chat", {"prompt": ""}, "key-of-bob")

    assert 422 == status
    assert service.comes_to_have("bob", before)


def test_request_with_an_unknown_key_is_refused_without_a_new_caller(service):
    """Otherwise invented keys would never be limited."""
    status, _, _ = service.call("/chat", {"prompt": "Hello?"}, "invented")

    assert 401 == status


def test_service_ends_when_asked_to(tmp_path):
    """The repository is closed with the service, and no error is logged."""
    with served(tmp_path, workers=1) as service:
        assert 200 == service.call("/chat", {"prompt": "Hello?"})[0]

        service.process.send_signal(signal.SIGTERM)
        _, said = service.process.communicate(timeout=PATIENCE_S)

    assert "Application shutdown complete" in said
    assert not re.search("Traceback|ERROR|Warning", said), said
    assert ["limits.db"] == [path.name for path in tmp_path.iterdir()]


def test_service_never_fails_while_limits_are_changed_with_inherit(service):
    """Raising one limit of a customer keeps the others, so no call names a limit that is not in force."""
    answers: list[int] = []
    changing = threading.Event()

    def call_until_changed() -> None:
        # The pause leaves the CPU to the commands.
        while not changing.wait(0.02):
            answers.append(service.call("/chat", {"prompt": "Hello?", "words": 1}, "key-of-alice")[0])

    with ThreadPoolExecutor(3) as callers:
        waiting = [callers.submit(call_until_changed) for _ in range(3)]
        try:
            for number in range(8):
                # Each acquire shows the running service that limits have changed, before its cache expires.
                zae_limiter(service, "entity", "set-limits", "alice", "-l", f"rpm:{600 + number}k", "--inherit")
                zae_limiter(service, "acquire", "alice", "chat", "-c", "rpm:1", "-c", "tpm:1")
        finally:
            changing.set()
        for one in waiting:
            one.result()

    assert 200 in answers
    assert set(answers) <= {200, 429}


def zae_limiter(service: Service, *words: str) -> None:
    """Run a command on the file of the service."""
    command = [sys.executable, "-m", "zae_limiter", *words, "--url", service.url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode in (0, 75), done.stderr
