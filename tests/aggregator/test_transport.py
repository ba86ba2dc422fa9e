"""Requests use one persistent connection to the endpoint that botocore's client would use."""

import json
import ssl
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pytest

from tests.dynamodb import certificate
from tests.dynamodb.engines import running
from tests.dynamodb.faults import Half, WrongChecksum
from tests.dynamodb.proxy import Proxy
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Credentials, Endpoint
from zae_limiter_aggregator import transport as caller_module
from zae_limiter_aggregator.transport import Carried, Direct, TransportAnswer, caller_of

NOW_S = 1_700_000_000
LIST = DynamoDbCall("DynamoDB_20120810.ListTables", b"{}")
REGIONS = ["us-east-1", "cn-north-1", "us-gov-west-1", "us-iso-east-1", "eu-central-2"]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(running().url) as started:
        yield started


def direct(url: str, tls: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> Direct:
    parts = urlsplit(url)
    endpoint = Endpoint(parts.scheme, parts.hostname or "", parts.port or 80, "/", "us-east-1")
    return Direct(endpoint, lambda: Credentials("engine", "secret"), tls)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session as in a function: keys and region come from the environment."""
    for name in ("AWS_ENDPOINT_URL", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "engine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    return botocore.session.Session()


def test_one_connection_serves_many_calls(proxy: Proxy):
    """The connection is kept alive."""
    calling = direct(proxy.url)
    answers = [calling.call(LIST, NOW_S) for _ in range(5)]

    assert {200} == {answer.status for answer in answers if isinstance(answer, TransportAnswer)}
    assert 1 == len({seen.connection for seen in proxy.seen})
    assert all("TableNames" in json.loads(answer.body) for answer in answers if isinstance(answer, TransportAnswer))
    calling.close()


def test_a_connection_closed_while_idle_is_replaced(proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    """This happens whenever a function was frozen for some time."""
    monkeypatch.setattr(caller_module, "_IDLE_S", -1.0)
    calling = direct(proxy.url)
    calling.call(LIST, NOW_S)
    proxy.close_idle()
    proxy.wait_for_connections(0)
    answer = calling.call(LIST, NOW_S)

    assert isinstance(answer, TransportAnswer)
    assert [200, 2] == [answer.status, len({seen.connection for seen in proxy.seen})]
    calling.close()


class Closing(BaseHTTPRequestHandler):
    """Answer, and close the connection as announced."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_connection_that_the_server_closes_is_not_reused():
    """The answer announces it."""
    server = HTTPServer(("127.0.0.1", 0), Closing)
    served = Thread(target=server.serve_forever)
    served.start()
    calling = direct(f"http://127.0.0.1:{server.server_port}")
    answers = [calling.call(LIST, NOW_S) for _ in range(3)]
    server.shutdown()
    served.join()
    server.server_close()

    assert [b"{}"] * 3 == [answer.body for answer in answers if isinstance(answer, TransportAnswer)]


@pytest.mark.parametrize("fault", [Half(True), WrongChecksum()])
def test_a_truncated_answer_is_an_unknown_outcome(proxy: Proxy, fault: Any):
    """The next call uses another connection."""
    calling = direct(proxy.url)
    proxy.next(fault)
    lost = calling.call(LIST, NOW_S)
    answer = calling.call(LIST, NOW_S)
    calling.close()

    assert isinstance(lost, Unavailable)
    assert lost.ambiguous
    assert isinstance(answer, TransportAnswer)


def test_a_refused_connection_is_a_definite_failure(session: Any):
    """Nothing was sent."""
    outcome = direct("http://127.0.0.1:9").call(LIST, NOW_S)

    assert isinstance(outcome, Unavailable)
    assert not outcome.ambiguous


def test_calls_are_signed_with_the_newest_keys(proxy: Proxy):
    """A session renews its keys."""
    keys = [Credentials("older", "secret", "token-1"), Credentials("newer", "secret", "token-2")]
    parts = urlsplit(proxy.url)
    endpoint = Endpoint("http", parts.hostname or "", parts.port or 80, "/", "us-east-1")
    calling = Direct(endpoint, lambda: keys[0], ssl.create_default_context)
    calling.call(LIST, NOW_S)
    keys.pop(0)
    calling.call(LIST, NOW_S)
    calling.close()

    assert ["token-1", "token-2"] == [seen.request.header("x-amz-security-token") for seen in proxy.seen]
    assert "newer" in (proxy.seen[1].request.header("authorization") or "")


@pytest.mark.skipif(not certificate.available(), reason="openssl is not installed")
def test_tls_certificates_are_verified(tmp_path: Any):
    """Only a server with a certificate of a known root is called."""
    made = certificate.make(tmp_path)
    with Proxy(running().url, tls=made) as secured:
        stranger = direct(secured.url).call(LIST, NOW_S)
        known = direct(secured.url, tls=lambda: ssl.create_default_context(cafile=str(made.certificate)))
        answer = known.call(LIST, NOW_S)
        known.close()

    assert isinstance(stranger, Unavailable)
    assert not stranger.ambiguous
    assert isinstance(answer, TransportAnswer)


@pytest.mark.parametrize("region", REGIONS)
def test_calls_go_to_the_endpoint_of_a_botocore_client(session: Any, region: str):
    """This holds in every partition, and no client is created to find it."""
    session.set_config_variable("region", region)
    found = caller_of(session, {})
    url = session.create_client("dynamodb").meta.endpoint_url

    assert isinstance(found, Direct)
    assert url == f"https://{found._endpoint.host}"
    assert region == found._endpoint.region


def test_an_endpoint_in_the_environment_takes_precedence(session: Any, proxy: Proxy):
    """This is the behaviour of every client."""
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_DYNAMODB": proxy.url}
    calling = caller_of(session, environment)
    answer = calling.call(LIST, NOW_S)

    assert isinstance(answer, TransportAnswer)
    assert ["token"] == [seen.request.header("x-amz-security-token") for seen in proxy.seen]
    assert isinstance(calling, Direct)
    calling.close()


def test_calls_through_a_proxy_use_the_botocore_client(session: Any, monkeypatch: pytest.MonkeyPatch):
    """Only botocore supports proxies."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")

    assert isinstance(caller_of(session, {}), Carried)


def test_a_call_without_keys_raises_an_error(session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    """The error says what to do."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    outcome = caller_of(session, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}).call(LIST, NOW_S)

    assert isinstance(outcome, Unavailable)
    assert "assign a role to the function" in str(outcome.cause)
