"""Secrets are never shown, TLS is verified, and the sizes of requests and responses are bounded."""

import logging
import socket
import ssl
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dynamodb import certificate, engines, faults
from tests.dynamodb.callers import KINDS, Caller, account_at
from tests.dynamodb.certificate import Certificate
from tests.dynamodb.echo import Echo, ask, number_of
from tests.dynamodb.issuer import TABLE, bare, fresh_session
from tests.dynamodb.proxy import Proxy
from zae_limiter._sync.dynamodb_table import DynamoTable, Patience
from zae_limiter.aws import lookup
from zae_limiter.aws.account import Account, EndpointOptions
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError, ZAELimiterError
from zae_limiter.core.outcome import Unavailable
from zae_limiter.schema.operations import Key, Put
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

SECRET, TOKEN = "secret-of-a-test", "token-of-a-test"
SECRETS = (SECRET, TOKEN, "Signature=", "AWS4-HMAC")
KEY = Key("pk", "sk")
LIST = DynamoDbCall("DynamoDB_20120810.ListTables", b"{}")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare(monkeypatch, tmp_path)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["lean", "carried"])
def carried(request: pytest.FixtureRequest) -> bool:
    return request.param == "carried"


def account(url: str, *, carried: bool) -> Account:
    session = fresh_session()
    session.set_credentials("AKIDEXAMPLE", SECRET, TOKEN)
    if carried:
        session.register("before-send.dynamodb", lambda **_: None)
    return Account(EndpointOptions(TABLE, "us-east-1", url, 2.0), session)


def shown(thing: Any, depth: int = 4) -> str:
    """Return what an object shows of itself and its parts; for an error, also its arguments and causes."""
    texts = [repr(thing), str(thing)]
    if isinstance(thing, BaseException):
        texts += [repr(thing.args), "".join(traceback.format_exception(thing))]
    if depth:
        parts = list(getattr(thing, "__dict__", {}).values())
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        # Objects of botocore and raw values are not part of this package.
        parts += [getattr(thing, name, None) for name in slots]
        ours = [part for part in parts if type(part).__module__.startswith("zae_limiter")]
        texts += [shown(part, depth - 1) for part in (*ours, *[p for p in parts if isinstance(p, BaseException)])]
    return "\n".join(texts)


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


class TestSecrets:
    def test_no_object_shows_secrets_in_its_repr(self, kind: str, carried: bool):
        """This includes the account, the transport, its connections and the signer."""
        with Echo() as echo, Caller(kind, account(echo.url, carried=carried)) as caller:
            caller.call(ask(1))
            text = shown(caller.transport) + shown(caller.transport.signer) + shown(caller.transport._account)
            pool = getattr(caller.transport, "_pool", None)
            text += "" if pool is None else shown(next(iter(pool._idle)))

        assert [] == leaked(text)

    @pytest.mark.parametrize(
        "fault",
        [
            faults.Drop(applied=False),
            faults.Garbage(),
            faults.Stall(applied=False),
            faults.server_error(applied=False),
            faults.throttled(),
            faults.Refuse(
                400,
                "InvalidSignatureException",
                f"The signature does not match.\n\nThe Canonical String was 'x-amz-security-token:{TOKEN}'",
            ),
            faults.Refuse(403, "IncompleteSignatureException", f"Bad. Authorization=AWS4-HMAC-SHA256 {TOKEN}"),
        ],
        ids=lambda fault: type(fault).__name__ + getattr(fault, "code", ""),
    )
    def test_no_error_and_no_log_contains_secrets(
        self, fault: faults.Fault, carried: bool, caplog: pytest.LogCaptureFixture
    ):
        """The server itself may repeat them in its responses."""
        caplog.set_level(logging.DEBUG, "zae_limiter")
        messages = []
        with Proxy(engines.running().url) as proxy:
            proxy.always(fault)
            with Caller("sync", account(proxy.url, carried=carried)) as caller:
                table = DynamoTable(TABLE, caller.transport, caller.server, Patience(caller.clock, 0.3, lambda: 0.5))
                with pytest.raises(RateLimiterUnavailable) as caught:
                    table.get(KEY)
                messages += [shown(caught.value), shown(table.write(Put({"PK": "pk", "SK": "sk"})))]
            proxy.clear_faults()
        logged = [repr(vars(record)) for record in caplog.records if record.name.startswith("zae_limiter")]

        assert [] == leaked("\n".join(messages + logged))

    def test_no_error_on_opening_contains_secrets(self, monkeypatch: pytest.MonkeyPatch):
        """Keys that cannot be sent are refused without being repeated."""
        for name, value in {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": SECRET}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_SESSION_TOKEN", f"{TOKEN}\n")
        with pytest.raises(ZAELimiterError) as caught:
            Account(EndpointOptions(TABLE, "us-east-1", None, 1.0), fresh_session())

        assert [] == leaked(shown(caught.value))


@pytest.mark.skipif(not certificate.available(), reason="no openssl, so no certificate to listen with")
class TestTls:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Certificate:
        return certificate.make(tmp_path)

    @pytest.fixture
    def echo(self, made: Certificate) -> Iterator[Echo]:
        with Echo(made) as started:
            yield started

    def test_a_certificate_of_an_unknown_authority_is_refused(self, echo: Echo, kind: str, carried: bool):
        """Nothing was sent, and the error says what is wrong."""
        with Caller(kind, account(echo.url, carried=carried)) as caller:
            outcome = caller.call(LIST)

        assert isinstance(outcome, Unavailable)
        assert (False, []) == (outcome.ambiguous, echo.counts.numbers)
        assert "certificate" in str(outcome.cause).lower()

    def test_a_certificate_authority_in_the_environment_is_trusted(
        self, made: Certificate, echo: Echo, kind: str, monkeypatch: pytest.MonkeyPatch
    ):
        """It is named by AWS_CA_BUNDLE. Connections are kept as without TLS."""
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made.certificate))
        with Caller(kind, account(echo.url, carried=False)) as caller:
            found = [number_of(answer.body) for answer in map(caller.call, map(ask, range(5)))]

        assert (list(range(5)), 1) == (found, echo.counts.accepted)

    def test_a_certificate_for_another_name_is_refused(
        self, made: Certificate, echo: Echo, kind: str, monkeypatch: pytest.MonkeyPatch
    ):
        """Its authority is trusted."""
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made.certificate))
        there = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", echo.port))]
        monkeypatch.setattr(lookup.socket, "getaddrinfo", lambda *_, **__: there)
        with Caller(kind, account(f"https://other.invalid:{echo.port}", carried=False)) as caller:
            outcome = caller.call(ask())

        assert isinstance(outcome, Unavailable)
        assert (False, ssl.SSLCertVerificationError) == (outcome.ambiguous, type(outcome.cause))
        assert "other.invalid" in str(outcome.cause)

    def test_tls_is_verified_and_recent_by_default(self, echo: Echo):
        """The roots are those of the system."""
        context = account(echo.url, carried=False).tls
        assert context is not None

        assert (ssl.CERT_REQUIRED, True) == (context.verify_mode, context.check_hostname)
        assert ssl.TLSVersion.TLSv1_2 <= context.minimum_version

    @pytest.mark.parametrize("wishes", [{"delay_ms": 60_000}, {"hang": True}])
    def test_a_deadline_applies_with_tls(
        self, made: Certificate, echo: Echo, kind: str, monkeypatch: pytest.MonkeyPatch, wishes: dict[str, Any]
    ):
        """The next call is answered on another connection."""
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made.certificate))
        with Caller(kind, account(echo.url, carried=False)) as caller:
            caller.call(ask(0))
            late = caller.call(ask(1, **wishes), within_s=2)
            found = caller.call(ask(2))

        assert isinstance(late, Unavailable)
        assert late.ambiguous
        assert isinstance(found, HttpResponse)
        assert 2 == number_of(found.body)

    def test_a_server_that_never_completes_the_handshake_ends_at_the_deadline(self, kind: str):
        """Nothing was sent."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"https://127.0.0.1:{silent.getsockname()[1]}"
            with Caller(kind, account(url, carried=False)) as caller:
                outcome = caller.call(ask(), within_s=0.2)

        assert isinstance(outcome, Unavailable)
        assert (False, TimeoutError) == (outcome.ambiguous, type(outcome.cause))

    def test_close_ends_calls_in_flight_with_tls(
        self, made: Certificate, echo: Echo, kind: str, monkeypatch: pytest.MonkeyPatch
    ):
        """Their outcome is unknown."""
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made.certificate))
        with Caller(kind, account(echo.url, carried=False)) as caller:
            begun = [caller.begin(ask(number, hang=True), within_s=30) for number in range(5)]
            echo.wait_for(5)
            caller.close()
            outcomes = [future.result(20) for future in begun]

        assert [True] * 5 == [outcome.ambiguous for outcome in outcomes if isinstance(outcome, Unavailable)]


class TestSizes:
    @pytest.mark.parametrize("place", ["length", "chunks", "header"])
    def test_an_endless_response_is_given_up(self, kind: str, place: Any):
        """This happens long before the deadline, and the next call is answered."""
        with Proxy(engines.running().url) as proxy, Caller(kind, account_at(proxy.url)) as caller:
            proxy.next(faults.Endless(place))
            outcome = caller.call(ask(), within_s=60)
            answer = caller.call(LIST)

        assert isinstance(outcome, Unavailable)
        assert "too large" in str(outcome.cause)
        assert isinstance(answer, HttpResponse)
        assert 200 == answer.status

    def test_a_request_larger_than_dynamodb_allows_is_not_sent(self):
        """The limit is 16 MiB."""
        with Echo() as echo, Caller("sync", account_at(echo.url)) as caller:
            table = DynamoTable(TABLE, caller.transport, caller.server, Patience(caller.clock, 1.0, lambda: 0.5))
            with pytest.raises(ValidationError):
                table.write(Put({"PK": "pk", "SK": "sk", "s": "x" * (16 << 20)}))

            assert [] == echo.counts.numbers
