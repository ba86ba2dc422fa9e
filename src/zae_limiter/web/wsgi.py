"""Limit a WSGI application, without any framework.

A lease ends when the server closes the body. Servers do that after the last byte, and also if the client disconnects.
The lease is committed with the first byte, or when the body of the request cannot be read. From then on the client is
charged for what was used, whatever happens.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from zae_limiter.web.addresses import client_address
from zae_limiter.web.ask import Ask
from zae_limiter.web.calls import SyncCall, checked_ask
from zae_limiter.web.headers import merged_headers
from zae_limiter.web.limiters import SyncLimiter, SyncSource
from zae_limiter.web.refusals import Refusal

CALL = "zae_limiter.call"
"""The key of the limited call in ``environ``."""

LEASE = "zae_limiter.lease"
"""The key of the lease in ``environ``; absent if nothing was taken."""

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class WsgiRequest:
    """A request as a rule sees it. The body has not been read."""

    __slots__ = ("_headers", "environ")

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self.environ = environ
        self._headers: dict[str, str] | None = None

    @property
    def method(self) -> str:
        """The method."""
        method: str = self.environ["REQUEST_METHOD"]
        return method

    @property
    def path(self) -> str:
        """The path, without the query, with the part under which the application is mounted."""
        raw: str = self.environ.get("SCRIPT_NAME", "") + self.environ.get("PATH_INFO", "")
        # Servers hand over bytes as Latin-1.
        return raw.encode("latin-1").decode(errors="replace")

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by their names in lower case; servers join values of the same name with commas."""
        if self._headers is None:
            self._headers = {
                name.removeprefix("HTTP_").replace("_", "-").lower(): value
                for name, value in self.environ.items()
                if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
            }
        return self._headers

    @property
    def user(self) -> str | None:
        """The user whom the server or another middleware has found; None without one."""
        user: str | None = self.environ.get("REMOTE_USER")
        return user

    def client_address(self, *, trusted_hops: int = 0, ipv6_prefix: int = 64) -> str:
        """Return the address of the client as an entity id; see ``zae_limiter.web.client_address``."""
        peer, forwarded = self.environ.get("REMOTE_ADDR"), self.environ.get("HTTP_X_FORWARDED_FOR")
        return client_address(peer, forwarded, trusted_hops=trusted_hops, ipv6_prefix=ipv6_prefix)


WsgiRules = Callable[[WsgiRequest], Ask | None]


class RateLimitMiddleware:
    """Takes what a rule asks for before the application runs, and reports the limits in headers.

    Example:
        ```python
        application = RateLimitMiddleware(application, limiter="sqlite:///limits.db", rules=rules)
        ```

    The lease is ``environ["zae_limiter.lease"]``. A rejection is answered with 429, and a blocked entity with 403. A
    request that is larger than a capacity is answered with 413, and an unavailable store with 503. The same answers are
    sent if the application raises these errors before its first byte, for example from ``lease.consume``.

    The server's ``start_response`` is called with the first byte, so that an error before it can still be answered.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: SyncLimiter = None,
        rules: WsgiRules | None = None,
        *,
        skip_methods: Iterable[str] = ("HEAD", "OPTIONS"),
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            limiter: An open limiter, a function that returns it, or the URL of a store. If None, the default store is
                opened. A store is opened with the first request of each process.
            rules: Return what a request takes, or None if it is not limited. There is no router, so it names the
                resource. If None, only ``environ["zae_limiter.call"].take(...)`` takes.
            skip_methods: Methods that are not limited.
        """
        self._app = app
        self._source = SyncSource(limiter)
        self._rules = rules
        self._skipped = frozenset(skip_methods)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Run one call of the application."""
        call = SyncCall(self._source)
        response = _Response(call, start_response)
        environ[CALL] = call
        if environ.get("CONTENT_LENGTH", "0") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ:
            environ["wsgi.input"] = _Input(environ["wsgi.input"], call)
        try:
            self._take(call, environ)
            body = self._app(environ, response.start_response)
            return _limited(body, response, environ)
        except BaseException as error:
            refusal = response.fail(error)
            if refusal is None:
                raise
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [refusal.body]

    def _take(self, call: SyncCall, environ: WSGIEnvironment) -> None:
        if self._rules is None or environ["REQUEST_METHOD"] in self._skipped:
            return
        ask = checked_ask(self._rules(WsgiRequest(environ)))
        if ask is not None:
            environ[LEASE] = call.take(ask)


class _Input:
    """The body of a request. If it cannot be read, its client is to blame, and is charged for what was taken.

    Otherwise a client could send half a body and disconnect, which fails the application, and pay nothing.
    """

    __slots__ = ("_call", "_inner")

    def __init__(self, inner: Any, call: SyncCall) -> None:
        self._inner = inner
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        # Servers offer further methods, such as ``readinto``.
        return partial(self._read, found) if name.startswith("read") else found

    def _read(self, read: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except Exception:
            # Servers raise errors of their own, for a lost connection and for a malformed body.
            self._call.commit()
            raise


class _Response:
    """The response to one request. It reaches the server with the first byte."""

    __slots__ = ("_headers", "_server_start", "_server_write", "_status", "call", "sent")

    def __init__(self, call: SyncCall, server_start: StartResponse) -> None:
        self._server_start = server_start
        self._server_write: Callable[[bytes], object] | None = None
        self._status: str | None = None
        self._headers: list[tuple[str, str]] = []
        self.call = call
        self.sent = False

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: ExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        """Note what the application answers. Once the first byte is sent, the server raises what this would replace."""
        if self.sent:
            return self._server_start(status, headers, exc_info)
        if self._status is not None and exc_info is None:
            raise AssertionError("start_response was called a second time without exc_info")
        self._status, self._headers = status, headers
        return self.write

    def write(self, data: bytes) -> object:
        """Send a part of the body at once, for applications that do not return it."""
        self.send_headers()
        assert self._server_write is not None, "the application has called start_response to get this function"
        return self._server_write(data)

    def send_headers(self) -> None:
        """Hand status and headers to the server, and charge the client from here on."""
        if self.sent or self._status is None:
            return
        self.sent = True
        status = int(self._status[:3])
        headers = merged_headers(self._headers, self.call.start(status), status)
        try:
            self._server_write = self._server_start(self._status, headers)
        except BaseException as error:
            # Servers check headers, so nothing was sent.
            self.call.fail(error)
            raise
        self.call.commit()

    def fail(self, error: BaseException) -> Refusal | None:
        """End the leases, and answer an error of the limiter; None if the error is to be raised."""
        refusal = self.call.refuse(error)
        self.call.fail(error)
        self.call.end()
        if self.sent or refusal is None:
            return None
        self.sent = True
        self._server_start(refusal.status_line, refusal.headers)
        return refusal


class _Body:
    """The body of a response. Closing it ends the leases."""

    __slots__ = ("_chunks", "_inner", "_response")

    def __init__(self, inner: Iterable[bytes], response: _Response) -> None:
        self._inner = inner
        self._chunks = iter(inner)
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            self._response.send_headers()
            raise
        except BaseException as error:
            refusal = self._response.fail(error)
            if refusal is None:
                raise
            self._chunks = iter(())
            return refusal.body
        if not self._response.sent:
            self._response.send_headers()
        return chunk

    def close(self) -> None:
        """Close the body of the application, and end the leases."""
        _close(getattr(self._inner, "close", None), self._response.call)


class _SizedBody(_Body):
    """A body of a known number of chunks. Servers set ``Content-Length`` if there is one chunk."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type] # only bodies with a length become one of these


def _limited(body: Iterable[bytes], response: _Response, environ: WSGIEnvironment) -> Iterable[bytes]:
    """Return a body that ends the leases when it is closed."""
    file_wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(file_wrapper, type) and isinstance(body, file_wrapper) and hasattr(body, "__dict__"):
        # The server sends the file itself, without iterating, so the wrapper stays what it is.
        response.send_headers()
        vars(body)["close"] = partial(_close, getattr(body, "close", None), response.call)
        return body
    return _SizedBody(body, response) if hasattr(body, "__len__") else _Body(body, response)


def _close(close: Callable[[], object] | None, call: SyncCall) -> None:
    """Close the body of the application, which may adjust the lease, and then end the leases."""
    try:
        if close is not None:
            close()
    finally:
        call.end()
