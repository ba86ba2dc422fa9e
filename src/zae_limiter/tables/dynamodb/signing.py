"""Signs DynamoDB requests with AWS Signature Version 4. Pure: the time is an argument.

All requests are a POST of JSON to one path. The headers of a second and the signing key of a day are made once. So a
request costs two SHA-256 digests and one HMAC.
"""

import hmac
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

_ALGORITHM = "AWS4-HMAC-SHA256"
_CONTENT_TYPE = "application/x-amz-json-1.0"
_VISIBLE = re.compile(r"[!-~]*").fullmatch


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access keys at one time; their ``repr`` shows none of them."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    account_id: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a service, and the region and service name that a signature is valid for."""

    scheme: str
    host: str
    port: int
    path: str
    region: str
    service: str = "dynamodb"

    @property
    def authority(self) -> str:
        """The value of the Host header: the host, and the port unless it is the default of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"https": 443, "http": 80}[self.scheme] else f"{host}:{self.port}"


class _Day(NamedTuple):
    """The signing key and scope that all requests of a day share."""

    number: int
    scope: str
    key: bytes

    def __repr__(self) -> str:
        return f"_Day({self.number})"


class _Second(NamedTuple):
    """The text that all requests of a second share; immutable, because several threads sign at the same time."""

    now_s: int
    key: bytes
    canonical: bytes
    to_sign: bytes
    head: bytes
    authorization: bytes

    def __repr__(self) -> str:
        return f"_Second({self.now_s})"


class Signer:
    """Turns calls into complete HTTP requests, signed with one set of credentials for one endpoint."""

    __slots__ = ("_credentials", "_day", "_endpoint", "_path", "_second", "_signed", "_user_agent")

    def __init__(self, credentials: Credentials, endpoint: Endpoint, user_agent: str) -> None:
        """Prepare to sign.

        Raises:
            ValueError: The credentials or the endpoint contain characters that a header must not contain.
        """
        self._credentials = credentials
        self._endpoint = endpoint
        self._user_agent = user_agent
        self._path = _canonical_path(endpoint.path)
        self._day = _Day(-1, "", b"")
        self._second = _Second(-1, b"", b"", b"", b"", b"")
        names = ["content-type", "host", "x-amz-date", "x-amz-security-token", "x-amz-target"]
        if not credentials.token:
            names.remove("x-amz-security-token")
        self._signed = ";".join(names).encode()
        sent = (credentials.access_key, credentials.token or "", endpoint.authority, endpoint.path, user_agent)
        # The message does not quote the value, because it may be a secret.
        if not all(_VISIBLE(text) for text in sent):
            raise ValueError("the credentials or the endpoint have spaces, line ends or other characters not allowed")

    def __repr__(self) -> str:
        return f"Signer({self._endpoint!r})"

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint for which requests are signed."""
        return self._endpoint

    @property
    def account_id(self) -> str | None:
        """The id of the account that the credentials belong to, None if unknown."""
        return self._credentials.account_id

    def signs_with(self, credentials: Credentials) -> bool:
        """Return whether these are the credentials of this signer."""
        return self._credentials == credentials

    def request(self, call: DynamoDbCall, now_s: int) -> bytes:
        """Return the bytes of a request, signed with the time ``now_s``, in seconds since the epoch."""
        # Read once: another thread may replace it by that of another second.
        second = self._second
        if now_s != second.now_s:
            self._second = second = self._second_of(now_s)
        _, key, canonical, to_sign, head, authorization = second
        target, body = call.target.encode("ascii"), call.body
        digest = sha256(body).hexdigest().encode()
        whole = sha256(b"".join((canonical, target, b"\n\n", self._signed, b"\n", digest))).hexdigest()
        signature = hmac.digest(key, to_sign + whole.encode(), "sha256").hex().encode()
        length = b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        return b"".join((head, target, authorization, signature, length, body))

    def _second_of(self, now_s: int) -> _Second:
        """Return the text that all requests of a second share."""
        stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        day = self._day
        if now_s // 86_400 != day.number:
            self._day = day = self._day_of(now_s // 86_400, stamp[:8])
        endpoint, token = self._endpoint, self._credentials.token
        shown = f"x-amz-security-token:{token}\n" if token else ""
        sent = f"X-Amz-Security-Token: {token}\r\n" if token else ""
        canonical = (
            f"POST\n{self._path}\n\ncontent-type:{_CONTENT_TYPE}\nhost:{endpoint.authority}\n"
            f"x-amz-date:{stamp}\n{shown}x-amz-target:"
        )
        head = (
            f"POST {endpoint.path} HTTP/1.1\r\nHost: {endpoint.authority}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
            f"User-Agent: {self._user_agent}\r\nX-Amz-Date: {stamp}\r\n{sent}X-Amz-Target: "
        )
        authorization = (
            f"\r\nAuthorization: {_ALGORITHM} Credential={self._credentials.access_key}/{day.scope}, "
            f"SignedHeaders={self._signed.decode()}, Signature="
        )
        to_sign = f"{_ALGORITHM}\n{stamp}\n{day.scope}\n"
        return _Second(now_s, day.key, canonical.encode(), to_sign.encode(), head.encode(), authorization.encode())

    def _day_of(self, number: int, day: str) -> _Day:
        """Derive the signing key of a day."""
        parts = (day, self._endpoint.region, self._endpoint.service, "aws4_request")
        key = f"AWS4{self._credentials.secret_key}".encode()
        for part in parts:
            key = hmac.digest(key, part.encode(), "sha256")
        return _Day(number, "/".join(parts), key)


def _canonical_path(path: str) -> str:
    """Return the canonical form of a path: without dots and empty segments, and percent-encoded a second time."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            kept = kept[:-1]
        elif part not in ("", "."):
            kept.append(part)
    end = "/" if path.endswith("/") and kept else ""
    return quote("/" + "/".join(kept) + end, safe="/~")
