"""Find credentials, endpoint and root certificates through botocore, and renew the credentials.

Making an account may block (on a file, a metadata service), so async callers make it on a thread.
Afterwards nothing here blocks: keys are renewed on their own thread. Meanwhile callers read
``signer``, which is replaced as a whole.
"""

import logging
import os
import ssl
from enum import Enum
from typing import Any, Protocol
from urllib.parse import urlsplit

import botocore.credentials
import botocore.exceptions
import botocore.httpsession
import botocore.session
from botocore.config import Config

from zae_limiter.aws.botocore_client import BotocoreClient, reason_to_carry
from zae_limiter.aws.endpoint_probe import probe_endpoint
from zae_limiter.aws.shared_call import SharedCall, SharedResult, done
from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.tables.dynamodb.signing import Credentials, Endpoint, Signer

_RENEW_AHEAD_S = 15 * 60
_RENEW_FIRST_S = 10 * 60
_USER_AGENT = "zae-limiter"
NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, set AWS_PROFILE, "
    "or run with a role that provides them"
)

_log = logging.getLogger("zae_limiter")


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """A table, its location, and the maximum duration of one attempt to reach it."""

    table: str
    region: str | None
    endpoint_url: str | None
    attempt_s: float


class Freshness(Enum):
    """The age of keys: no renewal needed, renew while in use, renew soon, or renew before the next call."""

    FRESH = "fresh"
    AGING = "aging"
    STALE = "stale"
    EXPIRED = "expired"


class _Found(Protocol):
    """Credentials as botocore finds them."""

    def get_frozen_credentials(self) -> Any:
        """Return the current keys, renewed if necessary."""


class Account:
    """The credentials and the endpoint for one table."""

    def __init__(self, place: EndpointOptions, session: Any = None) -> None:
        """Find credentials and endpoint, through the caller's session (of botocore or boto3) or a new one.

        Raises:
            ValidationError: No region is configured, or the session is neither botocore's nor boto3's.
            StorageError: There are no credentials, or the configuration is unusable.
        """
        self._place = place
        self._session = botocore_session(session)
        self._renewal = SharedCall(self._renew)
        self._replacement = SharedCall(self._replace)
        try:
            self.client = self._make_client(None)
            self._found: _Found | None = self._session.get_credentials()
            self.signer = self._first_signer()
            self.reason_to_carry = self._reason_to_carry()
            self.tls = self._make_tls() if self.reason_to_carry is None else None
        except botocore.exceptions.NoRegionError:
            reason = "no region is configured: pass one, or set AWS_REGION or AWS_DEFAULT_REGION"
            raise ValidationError("region", place.region, reason) from None
        except botocore.exceptions.NoCredentialsError:
            raise self._unusable(NO_CREDENTIALS) from None
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, OSError, ValueError) as error:
            raise self._unusable(str(error)) from None

    def __repr__(self) -> str:
        return f"Account({self._place!r})"

    def botocore_client(self) -> BotocoreClient:
        """Return the client for all calls if ``reason_to_carry`` is not None."""
        return BotocoreClient(self.client)

    def new_botocore_client(self) -> BotocoreClient:
        """Return such a client with its own connections."""
        return BotocoreClient(self._make_client(None))

    @property
    def region(self) -> str:
        """The region, as passed or as configured."""
        return str(self.client.meta.region_name)

    def freshness(self) -> Freshness:
        """Return whether the keys need to be renewed. Does not block."""
        needs = getattr(self._found, "refresh_needed", None)
        if needs is None or not needs(_RENEW_AHEAD_S):
            return Freshness.FRESH
        if needs(0):
            return Freshness.EXPIRED
        return Freshness.STALE if needs(_RENEW_FIRST_S) else Freshness.AGING

    @property
    def changes(self) -> bool:
        """Whether the keys can ever change."""
        return type(self._found) is not botocore.credentials.Credentials

    def renew(self) -> SharedResult[None]:
        """Start to replace ``signer`` with newer keys, and return the result to wait for.

        If there are no newer keys yet and the old ones are still valid, they stay. Keys that other
        code renewed through the same session are used too. The result raises any error of the
        credential provider.
        """
        return self._renewal.begin()

    def replace(self, refused: Signer) -> SharedResult[None]:
        """Start to find keys again, after the server refused those of a signer. Keys that never expire stay.

        The result raises any error of the credential provider.
        """
        # Another caller may have replaced the signer meanwhile. Then there is nothing to do.
        if refused is self.signer and hasattr(self._found, "refresh_needed"):
            return self._replacement.begin()
        return done()

    def _renew(self) -> None:
        try:
            self._take_over(self._found)
        except Exception as error:  # a provider may raise anything
            if self.freshness() is Freshness.EXPIRED:
                raise
            # Log only the type of the error: the text comes from the provider and may contain
            # secrets.
            kind = type(error).__name__
            _log.warning("Could not renew credentials (%s); using the current ones until they expire", kind)

    def _replace(self) -> None:
        found = self._session.get_component("credential_provider").load_credentials()
        self._take_over(found)
        self._found = found

    def _take_over(self, found: _Found | None) -> None:
        if found is None:
            raise botocore.exceptions.NoCredentialsError
        self.signer = self._make_signer(_frozen(found), self.signer)

    def _make_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections, None if the endpoint has no TLS.

        The root certificates are those of ``AWS_CA_BUNDLE`` (or ``ca_bundle`` of the profile), else
        the system's. A system without any uses botocore's.
        """
        if self.signer.endpoint.scheme != "https":
            return None
        bundle = self._session.get_config_variable("ca_bundle")
        try:
            context = ssl.create_default_context(cafile=bundle)
        except OSError as error:
            raise ValueError(f"cannot read the certificates of AWS_CA_BUNDLE {bundle!r}: {error}") from None
        # The certificates of a directory are loaded on demand. So an empty list does not mean that
        # the system has none.
        if bundle is None and not context.get_ca_certs() and not any(_system_roots()):
            context.load_verify_locations(cafile=botocore.httpsession.get_cert_path(True))
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _make_client(self, keys: Credentials | None) -> Any:
        """Return a client with these keys, or with those of the session if ``keys`` is None."""
        config = Config(
            # Only this retry mode checks the checksum of a response.
            retries={"total_max_attempts": 1, "mode": "legacy"},
            connect_timeout=self._place.attempt_s,
            read_timeout=self._place.attempt_s,
            user_agent_extra=_USER_AGENT,
        )
        place = self._place
        named = {} if keys is None else _named(keys)
        region = region_of(self._session, place.region)
        return self._session.create_client(
            "dynamodb", region_name=region, endpoint_url=place.endpoint_url, config=config, **named
        )

    def _first_signer(self) -> Signer:
        """Return a signer with the current keys, which may be empty if calls are not signed."""
        endpoint = self._find_endpoint(self.client)
        keys = Credentials("", "") if self._found is None else _frozen(self._found)
        return Signer(keys, endpoint, _USER_AGENT)

    def _make_signer(self, keys: Credentials, before: Signer) -> Signer:
        """Return a signer with these keys. The endpoint is found again only if the account differs."""
        if before.signs_with(keys):
            return before
        if before.account_id == keys.account_id:
            return Signer(keys, before.endpoint, _USER_AGENT)
        client = self._make_client(keys)
        try:
            return Signer(keys, self._find_endpoint(client), _USER_AGENT)
        finally:
            client.close()

    def _reason_to_carry(self) -> str | None:
        endpoint = self.signer.endpoint
        url = f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}"
        return reason_to_carry(self.client, url, signed=bool(endpoint.region))

    def _find_endpoint(self, client: Any) -> Endpoint:
        """Let botocore prepare a call, and return its URL, region and service."""
        probed = probe_endpoint(client, self._place.table)
        parts = urlsplit(probed.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the endpoint must be an http:// or https:// URL")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return Endpoint(parts.scheme, parts.hostname, port, parts.path or "/", probed.region, probed.service)

    def _unusable(self, reason: str) -> StorageError:
        return StorageError(f"dynamodb://{self._place.table}", reason)


_loads: dict[tuple[EndpointOptions, int], SharedCall[Account]] = {}
"""Loads of accounts that no caller has used yet, by place and session. A load keeps its session alive."""


def load_account(place: EndpointOptions, session: Any = None) -> SharedResult[Account]:
    """Start to find credentials and endpoint, or join the load in flight for the same place.

    The result is that of ``Account``. A caller that uses it must call ``loaded``.
    """
    key = (place, id(session))
    # ``setdefault`` is atomic, so concurrent callers share one load.
    return _loads.setdefault(key, SharedCall(lambda: Account(place, session))).first()


def loaded(place: EndpointOptions, session: Any = None) -> None:
    """Forget a load whose result is in use; the next caller starts another."""
    _loads.pop((place, id(session)), None)


def botocore_session(session: Any) -> Any:
    """Return the botocore session of a botocore or boto3 session, a new one if it is None."""
    if session is None:
        return botocore.session.get_session()
    found = getattr(session, "_session", session)
    homes = {kind.__module__.partition(".")[0] for kind in type(found).__mro__}
    if not isinstance(found, botocore.session.Session) or "aiobotocore" in homes:
        reason = "must be a botocore or boto3 session, also in async code"
        raise ValidationError("session", type(session).__name__, reason)
    return found


def region_of(session: Any, named: str | None) -> str | None:
    """Return the region that was passed, else the configured one. Botocore ignores ``AWS_REGION``."""
    return named or session.get_config_variable("region") or os.environ.get("AWS_REGION") or None


def _named(keys: Credentials) -> dict[str, str | None]:
    """Return keys as arguments of a botocore client."""
    named = {
        "aws_access_key_id": keys.access_key,
        "aws_secret_access_key": keys.secret_key,
        "aws_session_token": keys.token,
    }
    # An older botocore has no such argument, and never finds an account id either.
    return named if keys.account_id is None else {**named, "aws_account_id": keys.account_id}


def _frozen(found: _Found) -> Credentials:
    keys = found.get_frozen_credentials()
    return Credentials(keys.access_key, keys.secret_key, keys.token, getattr(keys, "account_id", None))


def _system_roots() -> tuple[str | None, str | None]:
    """Return the file and the directory of the system's root certificates; None for one that does not exist."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile, paths.capath
