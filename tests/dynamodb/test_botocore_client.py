"""Calls that the lean transport does not support go through botocore, with the same outcomes."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.config
import botocore.exceptions
import botocore.session
import pytest

from tests.dynamodb import certificate, engines, faults
from tests.dynamodb.callers import KINDS, Caller
from tests.dynamodb.echo import Echo, ask
from tests.dynamodb.forwarder import Forwarder
from tests.dynamodb.issuer import TABLE, Issuer, bare, fresh_session, session_of
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.trees import wait_for_time
from zae_limiter._async.botocore_transport import BotocoreTransport
from zae_limiter._sync.botocore_transport import BotocoreTransport as SyncCarriedTransport
from zae_limiter._sync.dynamodb_table import DynamoTable, Patience
from zae_limiter.aws.account import Account, EndpointOptions
from zae_limiter.core.errors import InfrastructureNotFoundError, StorageError
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Missing, Refused, Throttled, Unavailable
from zae_limiter.schema.operations import AtLeast, ItemExists, Key, Put, Query, Update
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import Calls, DynamoDbCall
from zae_limiter.transport.aio import Transport
from zae_limiter.transport.threads import Transport as SyncTransport

URL = "http://127.0.0.1:8123"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare(monkeypatch, tmp_path)


def session_with(config: botocore.config.Config | None = None) -> botocore.session.Session:
    session = fresh_session()
    session.set_credentials("AKIDEXAMPLE", "secret-of-a-test", "token-of-a-test")
    if config is not None:
        session.set_default_client_config(config)
    return session


def account(session: Any = None, url: str = URL, attempt_s: float = 60.0) -> Account:
    return Account(EndpointOptions(TABLE, "us-east-1", url, attempt_s), session or session_with())


class CustomSignature(botocore.auth.SigV4Auth):
    """A signature version that only the test knows."""

    def add_auth(self, request: Any) -> None:
        request.headers["X-CustomSignature"] = "please"


class TestReasons:
    def test_the_default_session_uses_the_lean_transport(self):
        """The handlers of botocore and boto3 are not a reason for botocore."""
        assert None is account().reason_to_carry

    @pytest.mark.parametrize(
        ("variables", "url", "reason"),
        [
            ({"HTTPS_PROXY": "http://127.0.0.1:1"}, "https://example.invalid", "a proxy is configured"),
            ({"https_proxy": "http://127.0.0.1:1"}, "https://example.invalid", "a proxy is configured"),
            ({"HTTP_PROXY": "http://127.0.0.1:1"}, "http://example.invalid", "a proxy is configured"),
            ({"HTTPS_PROXY": "http://127.0.0.1:1"}, "http://example.invalid", None),
            ({"HTTP_PROXY": "http://127.0.0.1:1"}, "https://example.invalid", None),
            ({"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "example.invalid"}, "https://example.invalid", None),
            ({"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "*"}, "https://example.invalid", None),
        ],
    )
    def test_a_proxy_in_the_environment_selects_botocore(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, reason: str | None
    ):
        """It applies to its scheme, unless the host is exempt."""
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

        assert reason == account(url=url).reason_to_carry

    def test_a_proxy_in_the_configuration_selects_botocore(self, monkeypatch: pytest.MonkeyPatch):
        """The configuration takes precedence over the environment; an empty one means no proxy."""
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        some = session_with(botocore.config.Config(proxies={"http": "http://127.0.0.1:2"}))
        none = session_with(botocore.config.Config(proxies={}))

        assert ("a proxy is configured", None) == (account(some).reason_to_carry, account(none).reason_to_carry)

    @pytest.mark.parametrize(
        "event",
        [
            "before-send",
            "before-send.dynamodb",
            "before-send.*.Query",
            "before-sign.dynamodb.TransactWriteItems",
            "before-call.dynamodb.UpdateItem",
            "after-call.dynamodb.BatchGetItem",
            "provide-client-params.dynamodb.*",
            "before-parameter-build.dynamodb.GetItem",
            "before-endpoint-resolution.dynamodb",
            "request-created.dynamodb",
            "choose-signer.dynamodb",
            "response-received.dynamodb",
            "needs-retry.dynamodb",
        ],
    )
    def test_an_event_hook_of_the_session_selects_botocore(self, event: str):
        """A hook on any event of a DynamoDB call has to be called."""
        session = session_with()
        session.register(event, lambda **_: None)

        assert f"the session has a custom event hook: {event.partition('.')[0]}: {__name__}" == (
            account(session).reason_to_carry
        )

    @pytest.mark.parametrize("event", ["before-send.s3", "before-call.dynamodb.ListBackups", "creating-client-class"])
    def test_hooks_on_other_operations_do_not_select_botocore(self, event: str):
        """They would not be called."""
        session = session_with()
        session.register(event, lambda **_: None)

        assert None is account(session).reason_to_carry

    def test_unsigned_calls_select_botocore(self):
        """They need no credentials."""
        session = fresh_session()
        session.set_default_client_config(botocore.config.Config(signature_version=botocore.UNSIGNED))

        assert "not version 4" in str(account(session).reason_to_carry)

    def test_another_signature_version_selects_botocore(self, monkeypatch: pytest.MonkeyPatch):
        """It is registered with botocore."""
        monkeypatch.setitem(botocore.auth.AUTH_TYPE_MAPS, "shout", CustomSignature)
        found = account(session_with(botocore.config.Config(signature_version="shout")))

        assert "calls have the signature 'shout', not version 4" == found.reason_to_carry

    def test_a_client_certificate_selects_botocore(self):
        """The lean transport does not support client certificates."""
        found = account(session_with(botocore.config.Config(client_cert="/somewhere/cert.pem")))

        assert "a client certificate is configured" == found.reason_to_carry

    def test_the_reason_selects_the_transport_in_both_apis(self):
        """Async and sync select the same kind."""
        carried = account(session_with(botocore.config.Config(proxies={"http": "http://127.0.0.1:2"})))
        chosen = [type(Caller(kind, found).transport) for found in (account(), carried) for kind in KINDS]

        assert [Transport, SyncTransport, BotocoreTransport, SyncCarriedTransport] == chosen


@pytest.fixture
def proxied() -> Iterator[Proxy]:
    with Proxy(engines.running().url) as started:
        yield started


def nothing(**_: Any) -> None:
    """A hook that makes calls go through botocore."""


@pytest.fixture(params=["lean", "carried"])
def table(request: pytest.FixtureRequest, proxied: Proxy) -> Iterator[DynamoTable]:
    session = session_with()
    if request.param == "carried":
        session.register("before-send.dynamodb", nothing)
    with Caller("sync", account(session, proxied.url)) as caller:
        made = DynamoTable(
            engines.fresh_table_name(), caller.transport, caller.server, Patience(caller.clock, 60.0, lambda: 0.5)
        )
        made.create()
        assert (request.param == "carried") == isinstance(caller.transport, SyncCarriedTransport)
        yield made


KEY = Key("pk", "sk")
ITEM = {"PK": "pk", "SK": "sk", "n": 5, "s": "ü"}


class TestOutcomes:
    """Each rule holds for the lean transport and for botocore."""

    def test_an_applied_write_returns_the_new_item(self, table: DynamoTable):
        """The result is the same with both transports."""
        table.write(Put(ITEM))

        assert Applied({**ITEM, "n": 7}) == table.write(Update(KEY, add={"n": 2}))
        assert {**ITEM, "n": 7} == table.get(KEY)

    def test_a_refused_write_returns_the_stored_item(self, table: DynamoTable):
        """The failed condition returns the item."""
        table.write(Put(ITEM))

        assert Refused(ITEM) == table.write(Update(KEY, add={"n": 1}, when=(AtLeast("n", 6),)))

    def test_a_refused_write_of_a_missing_item_returns_missing(self, table: DynamoTable):
        """There is no item to return."""
        assert Missing() == table.write(Update(KEY, add={"n": 1}, when=(ItemExists(),)))
        assert None is table.get(KEY)

    def test_a_transaction_is_committed_or_cancelled_with_reasons(self, table: DynamoTable):
        """Every operation has a reason."""
        other = {**ITEM, "SK": "other"}
        committed = table.transact((Put(ITEM), Put(other)), f"1-{table._name}")
        refusing = (Put(other), Update(KEY, add={"n": 1}, when=(AtLeast("n", 6),)))

        assert Committed() == committed
        assert Cancelled((None, Refused(ITEM))) == table.transact(refusing, f"2-{table._name}")

    def test_batch_and_query_reads_return_their_items(self, table: DynamoTable):
        """Both kinds of reads are made."""
        table.write(Put(ITEM))

        assert [ITEM, None] == table.batch_get((KEY, Key("none", "none")))
        assert [ITEM] == table.query(Query("pk")).items

    def test_a_missing_table_raises_an_error_that_names_it(self, table: DynamoTable):
        """The error is the same with both transports."""
        table._calls = Calls("limiter-none-such")
        with pytest.raises(InfrastructureNotFoundError):
            table.get(KEY)
        with pytest.raises(InfrastructureNotFoundError):
            table.write(Put(ITEM))

    def test_a_throttle_is_returned_without_retries(self, table: DynamoTable, proxied: Proxy):
        """botocore's own retries are disabled."""
        proxied.forget()
        proxied.next(faults.throttled())

        assert Throttled() == table.write(Put(ITEM))
        assert ["PutItem"] == proxied.targets

    @pytest.mark.parametrize(
        "fault",
        [
            faults.Drop(applied=True),
            faults.Drop(applied=False, reset=False),
            faults.Half(),
            faults.WrongChecksum(),
            faults.Garbage(),
            faults.server_error(applied=True),
        ],
        ids=repr,
    )
    def test_a_lost_answer_leaves_an_unknown_outcome(self, table: DynamoTable, proxied: Proxy, fault: faults.Fault):
        """The write is sent once, whether or not it was applied."""
        proxied.forget()
        proxied.next(fault)
        outcome = table.write(Update(KEY, add={"n": 1}))

        assert isinstance(outcome, Unavailable)
        assert (True, ["UpdateItem"]) == (outcome.ambiguous, proxied.targets)

    @pytest.mark.parametrize("body", [b"<html>Please log in</html>", b""])
    def test_an_html_page_is_not_a_valid_answer(self, table: DynamoTable, proxied: Proxy, body: bytes):
        """A proxy with a login page answers so."""
        proxied.next(faults.Rewrite(lambda _: body))
        with pytest.raises(StorageError, match="Check the endpoint"):
            table.write(Update(KEY, add={"n": 1}))

    def test_the_server_time_is_learned_with_both_transports(self, table: DynamoTable, proxied: Proxy):
        """It takes the dates of two responses on two connections."""
        proxied.settings.date_s = lambda: 1_700_000_000
        table.get(KEY)
        wait_for_time(table)
        low, high = table.now()

        assert 1_700_000_000_000 - 10_000 < low <= high < 1_700_000_000_000 + 10_000

    def test_a_single_wrong_date_is_ignored_with_both_transports(self, table: DynamoTable, proxied: Proxy):
        """All connections of botocore count as one source, so a new client confirms or refutes the date."""
        table.get(KEY)
        before = table.now()
        proxied.next(faults.Misdated(3600))
        table.get(KEY)
        wait_for_time(table)
        low, high = table.now()

        assert before[0] <= low <= high <= before[1] + 600_000


def carried_account(url: str, attempt_s: float = 60.0, **settings: Any) -> Account:
    session = session_with(botocore.config.Config(**settings))
    session.register("before-send.dynamodb", nothing)
    return account(session, url, attempt_s)


class TestProxies:
    @pytest.mark.parametrize("kind", KINDS)
    def test_calls_go_through_the_proxy_of_the_environment(self, kind: str, monkeypatch: pytest.MonkeyPatch):
        """The proxy sees the request."""
        engine = engines.running()
        with Forwarder() as forwarder:
            monkeypatch.setenv("HTTP_PROXY", forwarder.url)
            with Caller(kind, account(url=engine.url)) as caller:
                answer = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"))

        assert isinstance(answer, HttpResponse)
        assert (200, [f"POST {engine.url}/ HTTP/1.1"]) == (answer.status, forwarder.seen)

    @pytest.mark.skipif(not certificate.available(), reason="no openssl, so no certificate to listen with")
    @pytest.mark.parametrize("kind", KINDS)
    def test_calls_with_tls_go_through_a_tunnel(self, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """The proxy does not see the content."""
        made = certificate.make(tmp_path)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made.certificate))
        with Forwarder() as forwarder, Proxy(engines.running().url, tls=made) as server:
            monkeypatch.setenv("HTTPS_PROXY", forwarder.url)
            with Caller(kind, account(url=server.url)) as caller:
                answer = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"))
            targets = server.targets

        assert isinstance(answer, HttpResponse)
        assert (200, ["ListTables"]) == (answer.status, targets)
        assert [f"CONNECT {server.url.removeprefix('https://')} HTTP/1.1"] == [
            line.replace("HTTP/1.0", "HTTP/1.1") for line in forwarder.seen
        ]

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_unavailable_proxy_is_a_definite_failure(self, kind: str):
        """The error does not contain the proxy password."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            proxy_url = f"http://user:pass-word@127.0.0.1:{closed.getsockname()[1]}"
        with Caller(kind, account(session_with(botocore.config.Config(proxies={"http": proxy_url})))) as caller:
            outcome = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"))

        assert isinstance(outcome, Unavailable)
        assert not outcome.ambiguous
        assert "pass-word" not in f"{outcome!r} {outcome.cause} {outcome.cause.args}"


@pytest.mark.parametrize("kind", KINDS)
class TestFailures:
    def test_an_unavailable_endpoint_is_a_definite_failure(self, kind: str):
        """No server listens at the port."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with Caller(kind, carried_account(url)) as caller:
            outcome = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"))

        assert isinstance(outcome, Unavailable)
        assert not outcome.ambiguous

    def test_a_silent_server_leaves_an_unknown_outcome_at_the_deadline(self, kind: str, proxied: Proxy):
        """botocore's own timeouts make no difference."""
        proxied.always(faults.Stall(applied=False))
        with Caller(kind, carried_account(proxied.url)) as caller:
            outcome = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b'{"Limit": 1}'), within_s=1)
            sent = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"), within_s=0)

        assert isinstance(outcome, Unavailable)
        assert isinstance(sent, Unavailable)
        assert (True, False) == (outcome.ambiguous, sent.ambiguous)

    def test_a_hook_that_raises_is_a_failed_call(self, kind: str):
        """The type of the exception makes no difference."""

        def fail(**_: Any) -> None:
            raise LookupError("the hook has failed")

        with Echo() as echo:
            found = carried_account(echo.url)
            found.client.meta.events.register("before-call.dynamodb", fail)
            with Caller(kind, found) as caller:
                outcome = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"))

        assert isinstance(outcome, Unavailable)
        assert LookupError is type(outcome.cause)

    def test_a_failure_to_load_keys_is_not_an_answer_of_dynamodb(self, kind: str):
        """A role may be refused: no call was made."""
        issuer = Issuer()
        session = session_of(issuer)
        session.register("before-send.dynamodb", nothing)
        found = account(session)
        issuer.leave(-1)
        issuer.failure = botocore.exceptions.ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")
        with Caller(kind, found) as caller:
            outcome = caller.call(ask())
            listed = caller.call(DynamoDbCall("DynamoDB_20120810.ListTables", b"{}"))

        assert isinstance(outcome, Unavailable)
        assert isinstance(listed, Unavailable)
        assert (False, issuer.failure) == (listed.ambiguous, listed.cause)
