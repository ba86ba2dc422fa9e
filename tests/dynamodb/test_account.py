"""Who calls and where is what botocore finds: regions, profiles, endpoints, credentials."""

from pathlib import Path
from typing import Any

import botocore.config
import botocore.session
import pytest

from tests.dynamodb.issuer import TABLE, Issuer, account_of, bare, fresh_session, session_of
from zae_limiter.aws.account import Account, EndpointOptions, Freshness
from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.infra.clients import Clients

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "secret"}
REGION = {"AWS_DEFAULT_REGION": "eu-west-1"}


def account(region: str | None = None, endpoint_url: str | None = None, session: Any = None) -> Account:
    return Account(EndpointOptions(TABLE, region, endpoint_url, 0.5), session or fresh_session())


def url_of(found: Account) -> str:
    endpoint = found.signer.endpoint
    return f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}"


def botocores_url(region: str | None = None) -> str:
    """Where a client of botocore's own sends a read."""
    client = fresh_session().create_client("dynamodb", region_name=region)
    seen = []

    def stop(request: Any, **_: Any) -> None:
        seen.append(request.url)
        raise InterruptedError

    client.meta.events.register("before-send", stop)
    with pytest.raises(InterruptedError):
        client.get_item(TableName=TABLE, Key={"PK": {"S": "-"}, "SK": {"S": "-"}})
    return seen[0]


class TestPlaces:
    @pytest.mark.parametrize(
        "variables",
        [
            {},
            {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8123/some/path"},
            {"AWS_ENDPOINT_URL": "https://example.invalid:8443/"},
            {"AWS_ENDPOINT_URL": "http://a.invalid/", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_DEFAULT_REGION": "us-west-2"},
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            {"AWS_DEFAULT_REGION": "cn-north-1"},
            {"AWS_DEFAULT_REGION": "us-gov-west-1"},
            {"AWS_ACCOUNT_ID": "123456789012"},
            {"AWS_ACCOUNT_ID": "123456789012", "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled"},
        ],
        ids=lambda variables: " ".join(variables) or "plain",
    )
    def test_calls_go_where_botocore_would_send_them(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str]
    ):
        """Whatever the environment says of endpoints."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION | variables)

        assert botocores_url() == url_of(account())

    def test_a_profile_brings_region_and_endpoint(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """And keys."""
        bare(monkeypatch, tmp_path, AWS_PROFILE="work")
        (tmp_path / "config").write_text("[profile work]\nregion = eu-north-1\nuse_fips_endpoint = false\n")
        (tmp_path / "credentials").write_text("[work]\naws_access_key_id = A\naws_secret_access_key = s\n")
        found = account()

        assert (botocores_url(), "eu-north-1") == (url_of(found), found.region)

    def test_a_region_that_is_named_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Before that of the environment, for the endpoint and for the signature."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION)
        found = account("ap-south-1")

        assert (botocores_url("ap-south-1"), "ap-south-1") == (url_of(found), found.signer.endpoint.region)

    def test_an_endpoint_that_is_named_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Before that of the environment."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION, AWS_ENDPOINT_URL="http://other.invalid")

        assert "http://127.0.0.1:1234/" == url_of(account(endpoint_url="http://127.0.0.1:1234"))

    def test_an_account_has_an_endpoint_of_its_own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Found again when renewed keys belong to another account, and only then."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        issuer.account_ids = ["111111111111", "111111111111", "222222222222"]
        found = account_of(issuer, None)
        places = [found.signer.endpoint]
        for _ in range(2):
            issuer.leave(60)
            found.renew().result(60)
            places.append(found.signer.endpoint)

        assert [f"{account_id}.ddb.us-east-1.amazonaws.com" for account_id in issuer.account_ids] == [
            place.host for place in places
        ]
        assert places[0] is places[1]

    def test_keys_found_anew_bring_their_own_accounts_endpoint(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Though the client of the session still has the old ones."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        issuer.account_ids = ["111111111111", "222222222222"]
        found = account_of(issuer, None)
        found.replace(found.signer).result(60)

        assert "222222222222.ddb.us-east-1.amazonaws.com" == found.signer.endpoint.host


class TestRegion:
    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({"AWS_REGION": "eu-west-1"}, "eu-west-1"),
            ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
        ],
    )
    def test_it_is_found_in_either_variable(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], expected: str
    ):
        """What botocore goes by counts more, so that all clients of a process are in one region."""
        bare(monkeypatch, tmp_path, **KEYS, **variables)

        assert expected == account().region
        assert expected == Clients().region


class TestMisuse:
    @pytest.mark.parametrize("endpoint_url", [None, "http://127.0.0.1:8000"])
    def test_without_a_region_there_is_no_account(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, endpoint_url: str | None
    ):
        """The error says what to set."""
        bare(monkeypatch, tmp_path, **KEYS)
        with pytest.raises(ValidationError, match="AWS_REGION or AWS_DEFAULT_REGION"):
            account(endpoint_url=endpoint_url)

    def test_without_credentials_there_is_no_account(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """The error says where they are looked for."""
        bare(monkeypatch, tmp_path, **REGION)
        with pytest.raises(StorageError, match="no credentials were found: set AWS_ACCESS_KEY_ID"):
            account()

    @pytest.mark.parametrize(
        ("variables", "said"),
        [
            ({"AWS_PROFILE": "nobody"}, "nobody"),
            ({"AWS_CA_BUNDLE": "/nowhere/bundle.pem"}, "/nowhere/bundle.pem"),
            ({"AWS_SESSION_TOKEN": "token\nX-Forged: 1"}, "characters not allowed"),
            ({"AWS_ENDPOINT_URL": "ftp://example.invalid"}, "http:// or https://"),
            ({"AWS_ENDPOINT_URL": "not a url"}, "Invalid endpoint"),
        ],
    )
    def test_what_cannot_be_used_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], said: str
    ):
        """As an error of ours, and without what is secret."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION, **variables)
        with pytest.raises(StorageError, match=said) as caught:
            account()

        assert "Forged" not in str(caught.value)

    def test_a_role_that_is_refused_is_no_raw_error(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Getting keys may itself be refused by AWS."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        issuer.failure = botocore.exceptions.ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")
        with pytest.raises(StorageError, match="AccessDenied"):
            account_of(issuer)

    def test_a_session_of_aiobotocore_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """It cannot do what is asked of it here."""
        aiobotocore = pytest.importorskip("aiobotocore.session")
        bare(monkeypatch, tmp_path, **KEYS, **REGION)
        with pytest.raises(ValidationError, match="botocore or boto3"):
            account(session=aiobotocore.get_session())


class TestSessions:
    def test_without_a_session_a_new_one_is_made(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Which reads the environment."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION)

        assert "eu-west-1" == Account(EndpointOptions(TABLE, None, None, 0.5)).region

    def test_a_session_of_the_callers_is_used(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """With its keys and its configuration."""
        bare(monkeypatch, tmp_path)
        session = fresh_session()
        session.set_credentials("AKIDOWN", "secret", "token")
        session.set_config_variable("region", "sa-east-1")
        session.set_default_client_config(botocore.config.Config(use_dualstack_endpoint=True))

        assert "https://dynamodb.sa-east-1.api.aws/" == url_of(account(session=session))

    def test_a_session_of_boto3_is_used(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Its own handlers are no reason to be slow."""
        boto3 = pytest.importorskip("boto3")
        bare(monkeypatch, tmp_path)
        session = boto3.Session("AKIDBOTO", "secret", region_name="us-west-1")
        found = account(session=session)

        assert ("https://dynamodb.us-west-1.amazonaws.com/", None) == (url_of(found), found.reason_to_carry)


class TestFreshness:
    @pytest.mark.parametrize(
        ("left_s", "expected"),
        [
            (3600, Freshness.FRESH),
            (901, Freshness.FRESH),
            (899, Freshness.AGING),
            (601, Freshness.AGING),
            (599, Freshness.STALE),
            (1, Freshness.STALE),
            (-1, Freshness.EXPIRED),
        ],
    )
    def test_keys_age(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left_s: int, expected: Freshness):
        """As with botocore: renewed from 15 minutes before they expire, and waited for from 10."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        issuer.leave(left_s)

        assert expected is found.freshness()

    def test_keys_that_never_expire_are_fresh(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """And never change."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION)
        found = account()
        before = found.signer
        found.replace(before).result(60)

        assert (Freshness.FRESH, False, True) == (found.freshness(), found.changes, found.signer is before)

    def test_keys_that_cannot_be_renewed_stay_while_they_are_good(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        """It is logged, without the provider's words."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        before, issuer.failure = found.signer, RuntimeError("the words of the provider")
        issuer.leave(300)
        found.renew().result(60)
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("zae_limiter")]

        assert found.signer is before
        assert ["Could not renew credentials (RuntimeError); using the current ones until they expire"] == ours

    def test_keys_that_have_expired_and_cannot_be_renewed_are_a_failure(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """That of the provider."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        issuer.failure = LookupError("no keys")
        issuer.leave(-1)
        with pytest.raises(LookupError, match="no keys"):
            found.renew().result(60)

    def test_many_who_renew_at_once_ask_the_provider_once(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """They share one renewal."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        issuer.leave(-1)
        issuer.open.clear()
        renewals = [found.renew() for _ in range(50)]
        issuer.open.set()
        for renewal in renewals:
            renewal.result(60)

        assert (2, 1) == (issuer.issued, len(set(renewals)))

    def test_keys_that_somebody_else_has_renewed_are_taken_over(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Through the same session, without asking for more."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        session = session_of(issuer)
        found = account("us-east-1", "http://127.0.0.1:9", session)
        before = found.signer
        issuer.leave(300)
        session.get_credentials().get_frozen_credentials()
        found.renew().result(60)

        assert (2, False) == (issuer.issued, found.signer is before)
