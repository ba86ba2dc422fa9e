"""WSGI, Flask and Django under gunicorn, and Django under uvicorn, with real clients that leave or read slowly."""

import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.web.reported import check_headers, rate_limits
from tests.web.sync_store import DAY_S, LIMITS, PER_CHUNK, TAKEN, buckets, fields, used
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

PATIENCE_S = 300
CLIENTS = 500
ADMITTED = 40
ITEMS = "items/:item"
NOTHING = {"rpm": 0, "tpm": 0}
SERVERS = [
    ("wsgi", "sync"),
    ("wsgi", "gthread"),
    ("flask", "sync"),
    ("flask", "gthread"),
    ("django", "sync"),
    ("django", "gthread"),
    ("django", "uvicorn"),
]


class Service(NamedTuple):
    """A running server, and its store as another process sees it."""

    port: int
    framework: str
    stream: str
    repository: SyncRepository
    limiter: SyncRateLimiter

    def get(self, path: str, user: str, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, headers={"x-user": user, "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def connected(self, path: str, user: str, method: str = "GET", header: str = "Accept: */*") -> socket.socket:
        """Return a connection on which a request was sent."""
        client = socket.socket()
        # A small window, so that the server has to wait for a client that does not read.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", self.port))
        client.sendall(
            "\r\n".join(
                [f"{method} {path} HTTP/1.1", "Host: test", f"x-user: {user}", "Connection: close", header, "", ""]
            ).encode()
        )
        return client

    def settled(self, user: str, resource: str, expected: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """Wait until what a bucket lacks is as expected, and return it. Leases end after the client has the answer."""
        patience = time.monotonic() + PATIENCE_S
        while not expected(found := used(self.limiter, user, resource)):
            assert time.monotonic() < patience, f"{user} has used {found} of {resource}"
            time.sleep(0.02)
        return found


def cut_off(client: socket.socket) -> None:
    """Reset a connection, as a process that is killed does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def command(framework: str, worker: str) -> list[str]:
    if worker == "uvicorn":
        return [
            "uvicorn",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--lifespan",
            "off",
            f"tests.web.served_{framework}:asgi",
        ]
    options = ["--workers", "2", "--threads", "1" if worker == "sync" else "4", "--timeout", str(PATIENCE_S)]
    return [
        "gunicorn",
        "--preload",
        "--bind",
        "127.0.0.1:0",
        "--worker-class",
        worker,
        *options,
        f"tests.web.served_{framework}",
    ]


@contextmanager
def started(arguments: list[str], environment: dict[str, str], log: Path) -> Iterator[int]:
    """Return the port of a server, once it listens. It logs to a file, because a full pipe would stop it."""
    with log.open("w") as errors:
        server = subprocess.Popen([sys.executable, "-m", *arguments], stderr=errors, env={**os.environ, **environment})
    try:
        while not (found := re.search(r"(?:Listening at:|running on) http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert server.poll() is None, log.read_text()
            time.sleep(0.02)
        yield int(found[1])
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


@pytest.fixture(scope="module", params=SERVERS, ids="-".join)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("store")
    url = f"sqlite:///{folder / 'limits.db'}"
    environment = {"DJANGO_SETTINGS_MODULE": "tests.web.django_settings", "ZAE_LIMITER_URL": url}
    crowd = [Limit.custom("rpm", ADMITTED, 1, DAY_S), Limit.custom("tpm", 10**6, 1, DAY_S)]
    # Under ASGI, Django reads all chunks of a sync generator before it sends the first one.
    stream = "stream-async" if "uvicorn" in request.param else "stream"
    with SyncRepository.open(url) as repository:
        repository.set_system_defaults(LIMITS)
        repository.set_limits("crowd", crowd, ITEMS)
        with started(command(*request.param), environment, folder / "errors.log") as port:
            yield Service(port, request.param[0], stream, repository, SyncRateLimiter(repository))


def test_two_limits_are_reported_on_200_and_429(service):
    """The fourth request is rejected, with all limits in headers and body."""
    answers = [service.get("/items/1", "ann") for _ in range(4)]
    last, problem = answers[-1]

    assert [200, 200, 200, 429] == [answer.status for answer, _ in answers]
    assert [2, 1, 0, 0] == [fields(dict(answer.getheaders()))["rpm"]["r"] for answer, _ in answers]
    assert [900, 800, 700, 700] == [fields(dict(answer.getheaders()))["tpm"]["r"] for answer, _ in answers]
    assert "application/problem+json" == last.headers["Content-Type"]
    assert ["rpm", "tpm"] == [limit["limit"] for limit in json.loads(problem)["limits"]]


def test_other_entity_that_lacks_the_tokens_rejects_and_nothing_is_taken(service):
    """Two users share a tool. The second request is one too many for it."""
    answers = [service.get("/items/1", user)[0] for user in ("pair-1", "pair-2")]

    assert [200, 429] == [answer.status for answer in answers]
    assert [1, 1] == [fields(dict(answer.getheaders()))["rpm"]["r"] for answer in answers]
    assert NOTHING == used(service.limiter, "pair-2", ITEMS)
    assert {"rpm": 2, "tpm": 0} == used(service.limiter, "tool", "search")


def test_blocked_entity_is_answered_with_403(service):
    """As problem details with the reason. Nothing is taken."""
    service.repository.create_entity("debtor")
    service.repository.block_entity("debtor", reason="unpaid")

    answer, body = service.get("/items/1", "debtor")

    assert (403, "unpaid") == (answer.status, json.loads(body)["reason"])
    assert "application/problem+json" == answer.headers["Content-Type"]
    assert [] == buckets(service.repository, "debtor")


def test_concurrent_requests_admit_exactly_the_capacity(service):
    """All are sent before the first answer is read."""
    clients = [service.connected("/items/1", "crowd") for _ in range(CLIENTS)]
    statuses = []
    for client in clients:
        statuses.append(int(client.makefile("rb").readline().split()[1]))
        client.close()

    assert {200: ADMITTED, 429: CLIENTS - ADMITTED} == {status: statuses.count(status) for status in set(statuses)}


def test_client_that_disconnects_in_mid_stream_is_charged_for_what_was_used(service):
    """The server notices when it sends, closes the response, and the generator settles what it has produced."""
    chunks = 4000
    client = service.connected(f"/{service.stream}?chunks={chunks}", "leaver")
    client.recv(1000)
    cut_off(client)

    found = service.settled("leaver", service.stream, lambda found: found["tpm"] not in (0, TAKEN["tpm"]))
    assert 1 == found["rpm"]
    assert 0 == found["tpm"] % PER_CHUNK
    assert 0 < found["tpm"] < chunks * PER_CHUNK


def test_client_that_disconnects_while_it_sends_the_body_is_charged(service):
    """The handler fails, but not by a fault of its own. Otherwise half a body would buy work for nothing."""
    if service.stream == "stream-async":
        pytest.skip("Django reads the body before it takes anything")
    client = service.connected("/upload", "uploader", "POST", "Content-Length: 1000")
    client.sendall(b"half")
    # The server has taken, and waits for the rest.
    service.settled("uploader", "upload", lambda found: found == TAKEN)
    cut_off(client)

    found = service.settled("uploader", "upload", lambda found: found != TAKEN)
    assert {"rpm": 1, "tpm": TAKEN["tpm"] + PER_CHUNK} == found


def test_slow_reader_holds_its_lease_until_the_last_byte(service):
    """The server waits for the client, and nothing is settled meanwhile."""
    chunks = 300
    client = service.connected(f"/{service.stream}?chunks={chunks}", "reader")
    client.recv(1000)
    before = service.settled("reader", service.stream, lambda found: found != NOTHING)
    while client.recv(1 << 20):
        pass
    client.close()

    assert TAKEN == before
    assert {"rpm": 1, "tpm": chunks * PER_CHUNK} == service.settled(
        "reader", service.stream, lambda found: found != TAKEN
    )


def test_handler_that_fails_gives_back(service):
    """The client gets a 500, and pays nothing."""
    answer, _ = service.get("/fail", "unlucky")

    assert 500 == answer.status
    assert NOTHING == service.settled("unlucky", "fail", lambda found: found == NOTHING)


def test_unmatched_and_skipped_requests_create_no_bucket(service):
    """Neither an unknown path, nor HEAD or OPTIONS."""
    answers = [service.get(path, "guest", method)[0] for path, method in REQUESTS_WITHOUT_A_BUCKET]

    assert [404, 200] == [answer.status for answer in answers[:2]]
    assert all("RateLimit" not in answer.headers for answer in answers)
    assert [] == buckets(service.repository, "guest")


def test_throttle_of_the_rest_framework_reports_two_limits_on_200_and_429(service):
    """The framework authenticates first. The fourth request gets the time to wait, and every limit."""
    if service.framework != "django":
        pytest.skip("the REST framework is part of Django's project")
    answers = [service.get("/drf/chat/1", "rest") for _ in range(4)]
    last, problem = answers[-1]
    headers = [check_headers(answer.getheaders()) for answer, _ in answers]

    assert [200, 200, 200, 429] == [answer.status for answer, _ in answers]
    assert [2, 1, 0, 0] == [rate_limits(found, "ratelimit")["rpm"]["r"] for found in headers]
    assert "application/problem+json" == last.headers["Content-Type"]
    assert ["rpm", "tpm"] == [limit["limit"] for limit in json.loads(problem)["limits"]]
    assert int(headers[-1]["retry-after-ms"]) <= 1000 * int(headers[-1]["retry-after"])
    assert {"rpm": 3, "tpm": 450} == service.settled("rest", "drf/chat/:item", lambda found: found["tpm"] == 450)


REQUESTS_WITHOUT_A_BUCKET = [("/unknown", "GET"), ("/items/1", "HEAD"), ("/items/1", "OPTIONS")]
