"""Make botocore clients of the services that a stack uses. Blocking."""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import botocore.exceptions
import botocore.parsers
from botocore.config import Config

from zae_limiter.aws.account import NO_CREDENTIALS, botocore_session, region_of
from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.core.location import check_place

_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 4}, user_agent_extra="zae-limiter")

# An endpoint that does not have a service may return anything.
FAILURES = (
    botocore.exceptions.ClientError,
    botocore.exceptions.BotoCoreError,
    botocore.parsers.ResponseParserError,
)
"""The errors that a call of a client may raise."""

_NO_SUCH_SERVICE = "the endpoint does not have this AWS service; use another endpoint, or none"


class Clients:
    """Clients of AWS, or of the server at ``endpoint_url``, for one identity and region."""

    def __init__(self, region: str | None = None, endpoint_url: str | None = None, session: Any = None) -> None:
        """Prepare clients; ``session`` is the caller's botocore or boto3 session, None for a new one.

        Raises:
            ValidationError: The session is neither botocore's nor boto3's, or the region or the endpoint is not text.
        """
        check_place(region, endpoint_url)
        self._region = region
        self._endpoint_url = endpoint_url
        self._session = botocore_session(session)
        self._made: dict[str, Any] = {}

    def of(self, service: str) -> Any:
        """Return the client of a service.

        Raises:
            ValidationError: No region is configured.
            StorageError: There are no credentials, or the configuration is unusable.
        """
        if service not in self._made:
            self._made[service] = self._make(service)
        return self._made[service]

    def is_local(self, service: str) -> bool:
        """Return whether the endpoint of a service is on this machine or in a private network, not on AWS.

        Raises:
            ValidationError: No region is configured.
            StorageError: There are no credentials, or the configuration is unusable.
        """
        return is_local(str(self.of(service).meta.endpoint_url))

    @property
    def region(self) -> str:
        """The region, as passed or as configured."""
        return str(self.of("cloudformation").meta.region_name)

    def _make(self, service: str) -> Any:
        try:
            if self._session.get_credentials() is None:
                raise StorageError(service, NO_CREDENTIALS)
            region = region_of(self._session, self._region)
            return self._session.create_client(
                service, region_name=region, endpoint_url=self._endpoint_url, config=_CONFIG
            )
        except botocore.exceptions.NoRegionError:
            reason = "no region is configured: pass one, or set AWS_REGION or AWS_DEFAULT_REGION"
            raise ValidationError("region", self._region, reason) from None
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise StorageError(service, str(error)) from None


def reason_of(failure: Exception) -> str:
    """Return why a call failed: the message of AWS, or the error that prevented the call."""
    if isinstance(failure, botocore.exceptions.ClientError):
        said = failure.response.get("Error")
        return f"{said.get('Code', '')}: {said.get('Message', '')}" if said else _NO_SUCH_SERVICE
    return _NO_SUCH_SERVICE if isinstance(failure, botocore.parsers.ResponseParserError) else str(failure)


def is_local(endpoint_url: str) -> bool:
    """Return whether an endpoint is on this machine or in a private network."""
    host = urlsplit(endpoint_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        # A host name without a dot is that of a container.
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".localstack.cloud"))
