"""Regions, profiles, endpoints and credentials are those that botocore finds."""

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
    """Return the URL to which a botocore client sends a read."""
    client = fresh_session().create_client("dynamodb", region_name=region)
    seen = []

    def stop(request: Any, **_: Any) -> None:
        seen.append(request.url)
        raise InterruptedError

    client.meta.events.register("before-send", stop)
    with pytest.raises(InterruptedError):
        client.get_item(TableName=TABLE, Key={"PK": {"S": "-"}, "SK": {"S": "-"}})
    return seen[0]


class TestEndpoints:
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
    def test_calls_go_to_the_endpoint_that_botocore_would_use(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str]
    ):
        """The environment may configure endpoints in any way."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION | variables)

        assert botocores_url() == url_of(account())

    def test_a_profile_provides_region_endpoint_and_keys(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """All three come from the configuration file."""
        bare(monkeypatch, tmp_path, AWS_PROFILE="work")
        (tmp_path / "config").write_text("[profile work]\nregion = eu-north-1\nuse_fips_endpoint = false\n")
        (tmp_path / "credentials").write_text("[work]\naws_access_key_id = A\naws_secret_access_key = s\n")
        found = account()

        assert (botocores_url(), "eu-north-1") == (url_of(found), found.region)

    def test_a_given_region_takes_precedence_over_the_environment(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """This applies to the endpoint and to the signature."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION)
        found = account("ap-south-1")

        assert (botocores_url("ap-south-1"), "ap-south-1") == (url_of(found), found.signer.endpoint.region)

    def test_a_given_endpoint_takes_precedence_over_the_environment(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """The environment names another endpoint."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION, AWS_ENDPOINT_URL="http://other.invalid")

        assert "http://127.0.0.1:1234/" == url_of(account(endpoint_url="http://127.0.0.1:1234"))

    def test_an_account_endpoint_is_resolved_again_for_keys_of_another_account(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """It is resolved again only if the account differs."""
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

    def test_replaced_keys_use_the_endpoint_of_their_account(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """The session's client still has the old keys."""
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
    def test_the_region_is_found_in_either_variable(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], expected: str
    ):
        """The variable that botocore reads takes precedence, so that all clients of a process use one region."""
        bare(monkeypatch, tmp_path, **KEYS, **variables)

        assert expected == account().region
        assert expected == Clients().region


class TestInvalidConfiguration:
    @pytest.mark.parametrize("endpoint_url", [None, "http://127.0.0.1:8000"])
    def test_an_account_without_a_region_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, endpoint_url: str | None
    ):
        """The error says what to set."""
        bare(monkeypatch, tmp_path, **KEYS)
        with pytest.raises(ValidationError, match="AWS_REGION or AWS_DEFAULT_REGION"):
            account(endpoint_url=endpoint_url)

    def test_an_account_without_credentials_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """The error says where they are searched for."""
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
    def test_an_invalid_configuration_raises_a_package_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], said: str
    ):
        """The error names the cause and contains no secret."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION, **variables)
        with pytest.raises(StorageError, match=said) as caught:
            account()

        assert "Forged" not in str(caught.value)

    def test_a_refused_role_raises_a_package_error(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """AWS may refuse the request for keys."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        issuer.failure = botocore.exceptions.ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")
        with pytest.raises(StorageError, match="AccessDenied"):
            account_of(issuer)

    def test_a_session_of_aiobotocore_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """It does not support the required calls."""
        aiobotocore = pytest.importorskip("aiobotocore.session")
        bare(monkeypatch, tmp_path, **KEYS, **REGION)
        with pytest.raises(ValidationError, match="botocore or boto3"):
            account(session=aiobotocore.get_session())


class TestSessions:
    def test_without_a_session_a_new_one_is_created(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """It reads the environment."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION)

        assert "eu-west-1" == Account(EndpointOptions(TABLE, None, None, 0.5)).region

    def test_a_given_session_is_used(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Its keys and its configuration apply."""
        bare(monkeypatch, tmp_path)
        session = fresh_session()
        session.set_credentials("AKIDOWN", "secret", "token")
        session.set_config_variable("region", "sa-east-1")
        session.set_default_client_config(botocore.config.Config(use_dualstack_endpoint=True))

        assert "https://dynamodb.sa-east-1.api.aws/" == url_of(account(session=session))

    def test_a_session_of_boto3_is_used(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """Its own handlers do not select the slower transport."""
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
    def test_keys_are_renewed_before_they_expire(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left_s: int, expected: Freshness
    ):
        """As in botocore, they are renewed from 15 minutes before they expire; calls wait from 10 minutes before."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        issuer.leave(left_s)

        assert expected is found.freshness()

    def test_keys_that_never_expire_are_always_fresh(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        """They never change."""
        bare(monkeypatch, tmp_path, **KEYS, **REGION)
        found = account()
        before = found.signer
        found.replace(before).result(60)

        assert (Freshness.FRESH, False, True) == (found.freshness(), found.changes, found.signer is before)

    def test_valid_keys_that_cannot_be_renewed_are_kept(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        """The failure is logged without the text of the provider."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        before, issuer.failure = found.signer, RuntimeError("the words of the provider")
        issuer.leave(300)
        found.renew().result(60)
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("zae_limiter")]

        assert found.signer is before
        assert ["Could not renew credentials (RuntimeError); using the current ones until they expire"] == ours

    def test_expired_keys_that_cannot_be_renewed_raise_the_providers_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """The error is that of the provider."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        found = account_of(issuer)
        issuer.failure = LookupError("no keys")
        issuer.leave(-1)
        with pytest.raises(LookupError, match="no keys"):
            found.renew().result(60)

    def test_concurrent_renewals_ask_the_provider_once(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
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

    def test_keys_renewed_by_another_client_of_the_session_are_used(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """The provider is not asked again."""
        bare(monkeypatch, tmp_path)
        issuer = Issuer()
        session = session_of(issuer)
        found = account("us-east-1", "http://127.0.0.1:9", session)
        before = found.signer
        issuer.leave(300)
        session.get_credentials().get_frozen_credentials()
        found.renew().result(60)

        assert (2, False) == (issuer.issued, found.signer is before)
