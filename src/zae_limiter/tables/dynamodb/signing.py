"""Signature version 4 for DynamoDB's one kind of request: a POST of JSON to a fixed path. Pure: the time is handed in.

What is the same for all requests of a second (date, scope, the canonical headers up to the target) and of a day (the
signing key) is made once; a request costs two digests and one keyed digest.
"""

import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from zae_limiter.tables.dynamodb.calls import Call

_ALGORITHM = b"AWS4-HMAC-SHA256"
_CONTENT_TYPE = "application/x-amz-json-1.0"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys as of one moment; nothing of them is shown."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    account_id: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where calls go, and what a signature is good for."""

    scheme: str
    host: str
    port: int
    path: str
    region: str
    service: str = "dynamodb"

    @property
    def authority(self) -> str:
        """The host as the Host header names it: with its port unless that is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"https": 443, "http": 80}[self.scheme] else f"{host}:{self.port}"


class Signer:
    """Turns calls into whole HTTP requests, signed with one set of keys for one endpoint."""

    __slots__ = (
        "_authorization",
        "_canonical",
        "_credentials",
        "_day",
        "_endpoint",
        "_head",
        "_key",
        "_scope",
        "_second",
        "_signed",
        "_to_sign",
        "_user_agent",
    )

    def __init__(self, credentials: Credentials, endpoint: Endpoint, user_agent: str) -> None:
        self._credentials = credentials
        self._endpoint = endpoint
        self._user_agent = user_agent
        self._second = self._day = -1
        names = ["content-type", "host", "x-amz-date", "x-amz-security-token", "x-amz-target"]
        if credentials.token is None:
            names.remove("x-amz-security-token")
        self._signed = ";".join(names).encode()

    def __repr__(self) -> str:
        return f"Signer({self._endpoint!r})"

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint requests are signed for."""
        return self._endpoint

    @property
    def account_id(self) -> str | None:
        """The account the keys belong to, where that is known."""
        return self._credentials.account_id

    def signs_with(self, credentials: Credentials) -> bool:
        """Say whether these are the keys of this signer."""
        return self._credentials == credentials

    def request(self, call: Call, now_s: int) -> bytes:
        """Return a call as the bytes of a request, signed at ``now_s`` seconds since the epoch."""
        if now_s != self._second:
            self._turn(now_s)
        target, body = call.target.encode("ascii"), call.body
        canonical = b"".join((self._canonical, target, b"\n\n", self._signed, b"\n", sha256(body).hexdigest().encode()))
        to_sign = self._to_sign + sha256(canonical).hexdigest().encode()
        signature = hmac.digest(self._key, to_sign, "sha256").hex().encode()
        return b"".join(
            (
                self._head,
                target,
                self._authorization,
                signature,
                b"\r\nContent-Length: ",
                b"%d" % len(body),
                b"\r\n\r\n",
                body,
            )
        )

    def _turn(self, now_s: int) -> None:
        """Make ready for the requests of another second."""
        stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        if now_s // 86_400 != self._day:
            self._turn_day(stamp[:8])
            self._day = now_s // 86_400
        endpoint, token = self._endpoint, self._credentials.token
        shown = "" if token is None else f"x-amz-security-token:{token}\n"
        sent = "" if token is None else f"X-Amz-Security-Token: {token}\r\n"
        self._canonical = (
            f"POST\n{endpoint.path}\n\ncontent-type:{_CONTENT_TYPE}\nhost:{endpoint.authority}\n"
            f"x-amz-date:{stamp}\n{shown}x-amz-target:"
        ).encode()
        self._to_sign = b"\n".join((_ALGORITHM, stamp.encode(), self._scope.encode(), b""))
        self._head = (
            f"POST {endpoint.path} HTTP/1.1\r\nHost: {endpoint.authority}\r\nContent-Type: {_CONTENT_TYPE}\r\n"
            f"User-Agent: {self._user_agent}\r\nX-Amz-Date: {stamp}\r\n{sent}X-Amz-Target: "
        ).encode()
        self._authorization = (
            f"\r\nAuthorization: {_ALGORITHM.decode()} Credential={self._credentials.access_key}/{self._scope}, "
            f"SignedHeaders={self._signed.decode()}, Signature="
        ).encode()
        self._second = now_s

    def _turn_day(self, day: str) -> None:
        """Derive the signing key of another day."""
        key = f"AWS4{self._credentials.secret_key}".encode()
        for part in (day, self._endpoint.region, self._endpoint.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key
        self._scope = f"{day}/{self._endpoint.region}/{self._endpoint.service}/aws4_request"
