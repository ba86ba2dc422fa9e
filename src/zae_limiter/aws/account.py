"""Who calls and where, as botocore finds it: credentials and their renewal, the endpoint, the roots of trust.

Everything here may wait (for a file, a metadata service, a lock), so async callers ask on a thread. What is read in
between, ``signer``, is a plain attribute that is replaced whole.
"""

import logging
import ssl
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol
from urllib.parse import urlsplit

import botocore.exceptions
import botocore.httpsession
import botocore.session
from botocore.config import Config

from zae_limiter.aws.carrier import Carrier, reason_to_carry
from zae_limiter.aws.rehearsal import rehearse
from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.tables.dynamodb.signing import Credentials, Endpoint, Signer

_RENEW_AHEAD_S = 15 * 60
_RENEW_FIRST_S = 10 * 60
_USER_AGENT = "zae-limiter"

_log = logging.getLogger("zae_limiter")


@dataclass(frozen=True, slots=True)
class Place:
    """A table, where it is, and how long one try to reach it may take."""

    table: str
    region: str | None
    endpoint_url: str | None
    attempt_s: float


class Freshness(Enum):
    """Whether keys can be used as they are, should be renewed while they are used, or must be renewed first."""

    FRESH = "fresh"
    AGING = "aging"
    STALE = "stale"


class _Found(Protocol):
    """Credentials as botocore finds them."""

    def get_frozen_credentials(self) -> Any:
        """Return the keys as of now, renewed where they must be."""


class Account:
    """The credentials and the endpoint for one table."""

    def __init__(self, place: Place, session: Any = None) -> None:
        """Find credentials and endpoint, through a session of the caller's (botocore's or boto3's) or a new one.

        Raises:
            ValidationError: No region is configured.
            StorageError: There are no credentials, or the configuration cannot be used.
        """
        self._place = place
        self._session = botocore.session.get_session() if session is None else getattr(session, "_session", session)
        self._renewing = threading.Lock()
        try:
            self.client = self._make_client()
            self._found: _Found | None = self._session.get_credentials()
            if self._found is None:
                raise botocore.exceptions.NoCredentialsError
            self.signer = self._make_signer(_frozen(self._found), None)
            self.reason_to_carry = self._reason_to_carry()
        except botocore.exceptions.NoRegionError:
            reason = "no region is configured: name one, or set AWS_REGION or AWS_DEFAULT_REGION"
            raise ValidationError("region", place.region, reason) from None
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise StorageError(f"dynamodb://{place.table}", str(error)) from None

    def carrier(self) -> Carrier:
        """Return what carries calls where ``reason_to_carry`` names a reason not to use the lean transport."""
        return Carrier(self.client)

    @property
    def region(self) -> str:
        """The region, as configured or as named."""
        return str(self.client.meta.region_name)

    def freshness(self) -> Freshness:
        """Say whether the keys need to be renewed. It does not wait."""
        needs = getattr(self._found, "refresh_needed", None)
        if needs is None or not needs(_RENEW_AHEAD_S):
            return Freshness.FRESH
        return Freshness.STALE if needs(_RENEW_FIRST_S) else Freshness.AGING

    def renew(self) -> None:
        """Replace ``signer`` with newer keys; where there are none yet, and the old ones are still good, keep it.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        with self._renewing:
            try:
                self._take_over()
            except Exception:  # a provider may raise anything
                needs = getattr(self._found, "refresh_needed", None)
                if needs is None or needs(0):
                    raise
                _log.warning("Keys could not be renewed; those at hand are used while they are good")

    def replace(self, refused: Signer) -> None:
        """Find keys anew, after the server no longer took those of a signer; keys that never expire stay.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        with self._renewing:
            if refused is self.signer and hasattr(self._found, "refresh_needed"):
                self._found = self._session.get_component("credential_provider").load_credentials()
                self._take_over()

    def adopt(self) -> None:
        """Use the keys that somebody else has renewed through the same session. It does not wait."""
        if self._renewing.acquire(blocking=False):
            try:
                self._take_over()
            finally:
                self._renewing.release()

    def _take_over(self) -> None:
        if self._found is None:
            raise botocore.exceptions.NoCredentialsError
        self.signer = self._make_signer(_frozen(self._found), self.signer)

    def tls(self) -> ssl.SSLContext | None:
        """Return what TLS connections are checked by, None where the endpoint has no TLS.

        The roots are those of ``AWS_CA_BUNDLE`` (or ``ca_bundle`` of the profile), else the system's; a system
        without any gets botocore's.
        """
        if self.signer.endpoint.scheme != "https":
            return None
        bundle = self._session.get_config_variable("ca_bundle")
        context = ssl.create_default_context(cafile=bundle)
        if bundle is None and not context.get_ca_certs() and not any(_system_roots()):
            context.load_verify_locations(cafile=botocore.httpsession.get_cert_path(True))
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _make_client(self) -> Any:
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=self._place.attempt_s,
            read_timeout=self._place.attempt_s,
            user_agent_extra=_USER_AGENT,
        )
        place = self._place
        return self._session.create_client(
            "dynamodb", region_name=place.region, endpoint_url=place.endpoint_url, config=config
        )

    def _make_signer(self, keys: Credentials, before: Signer | None) -> Signer:
        """Return a signer with these keys; the endpoint is found again only where the account is another."""
        if before is not None and before.signs_with(keys):
            return before
        if before is not None and before.account_id == keys.account_id:
            return Signer(keys, before.endpoint, _USER_AGENT)
        return Signer(keys, self._find_endpoint(), _USER_AGENT)

    def _reason_to_carry(self) -> str | None:
        endpoint = self.signer.endpoint
        url = f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}"
        return reason_to_carry(self.client, url, signed=bool(endpoint.region))

    def _find_endpoint(self) -> Endpoint:
        """Let botocore prepare a call, and read off where it would go and what it is signed for."""
        rehearsed = rehearse(self.client, self._place.table)
        parts = urlsplit(rehearsed.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return Endpoint(
            parts.scheme, parts.hostname or "", port, parts.path or "/", rehearsed.region, rehearsed.service
        )


def _frozen(found: _Found) -> Credentials:
    keys = found.get_frozen_credentials()
    return Credentials(keys.access_key, keys.secret_key, keys.token, getattr(keys, "account_id", None))


def _system_roots() -> tuple[str | None, str | None]:
    """Return the file and the directory of the system's roots, where there are any."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile, paths.capath
