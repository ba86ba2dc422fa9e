"""Make single DynamoDB calls with the keys and the endpoint of botocore, which every Lambda has.

Calls use one persistent connection. Signing and sending with botocore's client takes several times
as long, and Lambda is billed by time. Botocore's client makes the calls only where it is needed,
such as through a proxy.
"""

import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from select import select
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from zlib import crc32

from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.utils import get_environ_proxies

from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.json import dumps, loads
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Credentials, Endpoint, Signer

_CONNECT_S = 2
_READ_S = 3
_IDLE_S = 1.0
_USER_AGENT = "zae-limiter-aggregator"
_PORTS = {"http": 80, "https": 443}


class TransportAnswer(NamedTuple):
    """The response to one call; ``date`` is its Date header."""

    status: int
    body: bytes
    error_type: str | None
    date: str | None


class AggregatorTransport(Protocol):
    """Make one call, without retries."""

    def call(self, call: DynamoDbCall, now_s: int) -> TransportAnswer | Unavailable:
        """Make a call that is signed at ``now_s`` seconds since the epoch."""

    @property
    def connection(self) -> int:
        """The number of the connection that the last call used."""

    def reconnect(self) -> None:
        """Make the next call on a new connection."""


def caller_of(session: Any, environment: Mapping[str, str]) -> AggregatorTransport:
    """Return a transport with the keys of a botocore session, for the endpoint that its client would use."""
    region = session.get_config_variable("region")
    url = environment.get("AWS_ENDPOINT_URL_DYNAMODB") or environment.get("AWS_ENDPOINT_URL") or _url(session, region)
    if url is None or get_environ_proxies(url).get(urlsplit(url).scheme):
        # The requester decides about retries: a write that may have been applied must not be sent
        # again.
        config = Config(retries={"total_max_attempts": 1}, connect_timeout=_CONNECT_S, read_timeout=_READ_S)
        return Carried(session.create_client("dynamodb", config=config))
    return Direct(_endpoint(url, region), _keys_of(session), _tls_of(session))


class Direct:
    """Make calls over one persistent connection."""

    def __init__(self, endpoint: Endpoint, keys: Callable[[], Credentials], tls: Callable[[], ssl.SSLContext]) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._signer: Signer | None = None
        self._socket: socket.socket | None = None
        self._used_s = 0.0
        self.connection = 0

    def call(self, call: DynamoDbCall, now_s: int) -> TransportAnswer | Unavailable:
        """Make a call that is signed at ``now_s`` seconds since the epoch."""
        try:
            request = self._signed(call, now_s)
            connected = self._connected()
        except (BotoCoreError, OSError) as error:
            return Unavailable(error, ambiguous=False)
        response = HTTPResponse(connected, method="POST")
        try:
            connected.sendall(request)
            response.begin()
            body = response.read()
        except (OSError, HTTPException) as error:
            response.close()
            self.close()
            return Unavailable(error, ambiguous=True)
        self._used_s = time.monotonic()
        if response.will_close:
            self.close()
        checksum = response.headers.get("x-amz-crc32")
        if checksum is not None and checksum != str(crc32(body)):
            return Unavailable(OSError("the checksum of a response does not match"), ambiguous=True)
        return TransportAnswer(
            response.status, body, response.headers.get("x-amzn-errortype"), response.headers.get("date")
        )

    def reconnect(self) -> None:
        """Make the next call on a new connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _signed(self, call: DynamoDbCall, now_s: int) -> bytes:
        keys = self._keys()
        if self._signer is None or not self._signer.signs_with(keys):
            self._signer = Signer(keys, self._endpoint, _USER_AGENT)
        return self._signer.request(call, now_s)

    def _connected(self) -> socket.socket:
        """Return the connection, a new one if the server has closed the old one while it was idle."""
        if self._socket is not None and time.monotonic() - self._used_s > _IDLE_S:
            # No request is open, so a connection that is readable was closed by the server.
            ended, _, _ = select([self._socket], [], [], 0)
            if ended:
                self.close()
        if self._socket is None:
            self._socket = self._connect()
            self.connection += 1
        return self._socket

    def _connect(self) -> socket.socket:
        endpoint = self._endpoint
        made = socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.scheme == "https":
                if self._context is None:
                    self._context = self._tls()
                made = self._context.wrap_socket(made, server_hostname=endpoint.host)
            made.settimeout(_READ_S)
        except OSError:
            made.close()
            raise
        return made


class Carried:
    """Make calls with botocore's client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.connection = 0

    def reconnect(self) -> None:
        """Close the connections of the client; it makes new ones."""
        self._client.close()
        self.connection += 1

    def call(self, call: DynamoDbCall, now_s: int) -> TransportAnswer | Unavailable:
        """Make a call; the client signs it by its own clock."""
        method = getattr(self._client, xform_name(call.target.rpartition(".")[2]))
        try:
            response = method(**loads(call.body))
        except ClientError as refused:
            response = refused.response
        except BotoCoreError as lost:
            # The call may have been sent, so the requester has to find out.
            return Unavailable(lost, ambiguous=True)
        metadata = response.pop("ResponseMetadata", {})
        error = response.pop("Error", None)
        if error is not None:
            response = {**response, "__type": error.get("Code", ""), "message": error.get("Message", "")}
        date = metadata.get("HTTPHeaders", {}).get("date")
        return TransportAnswer(metadata.get("HTTPStatusCode", 500), dumps(response), None, date)


def _url(session: Any, region: str | None) -> str | None:
    """Return the URL of DynamoDB in a region, in any partition; None if only a client can find it.

    Making a client takes a quarter of a cold start, and most containers do not need one.
    """
    if region is None or any(session.get_config_variable(f"use_{kind}_endpoint") for kind in ("fips", "dualstack")):
        return None
    for partition in session.get_data("partitions")["partitions"]:
        if re.fullmatch(partition["regionRegex"], region):
            return f"https://dynamodb.{region}.{partition['outputs']['dnsSuffix']}"
    return None


def _endpoint(url: str, region: str) -> Endpoint:
    parts = urlsplit(url)
    return Endpoint(parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme], parts.path or "/", region)


def _keys_of(session: Any) -> Callable[[], Credentials]:
    """Return a function that returns the keys of a session, and renews them before they expire."""

    def found() -> Credentials:
        keys = session.get_credentials()
        if keys is None:
            raise ConnectionError("no credentials were found; assign a role to the function")
        frozen = keys.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    return found


def _tls_of(session: Any) -> Callable[[], ssl.SSLContext]:
    return lambda: ssl.create_default_context(cafile=session.get_config_variable("ca_bundle"))
