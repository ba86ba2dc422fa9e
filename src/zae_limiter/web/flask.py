"""Limit the routes of a Flask application.

The extension wraps ``app.wsgi_app``, which sees the whole response: files, streams, and clients that disconnect.
"""

from collections.abc import Callable, Iterable

try:
    from flask import Flask, Request, Response, g, request
except ImportError as missing:
    from zae_limiter.installation import missing_extra

    raise missing_extra("flask", "flask") from missing

from zae_limiter._sync.limiter.lease import SyncLease
from zae_limiter.core.errors import (
    EntityBlockedError,
    InvalidIdentifierError,
    InvalidNameError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TooManyBucketsError,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.web.ask import Ask
from zae_limiter.web.calls import SyncCall, checked_ask
from zae_limiter.web.limiters import SyncLimiter, SyncSource
from zae_limiter.web.wsgi import CALL, LEASE, RateLimitMiddleware

__all__ = ["Ask", "RateLimits", "SyncLease"]

FlaskRules = Callable[[Request], Ask | None]

_ANSWERED = (
    RateLimitExceeded,
    EntityBlockedError,
    RateLimiterUnavailable,
    InvalidIdentifierError,
    InvalidNameError,
    TooManyBucketsError,
)
"""The errors that become an answer. Others are left to the application."""


class RateLimits:
    """An extension that takes what a rule asks for before a view runs, and reports the limits in headers.

    Example:
        ```python
        def rules(request):
            return Ask(request.headers["x-user"], None, {"rpm": 1})


        RateLimits(app, limiter="sqlite:///limits.db", rules=rules)
        ```

    The lease is ``flask.g.lease``. It ends when the body has ended, or when the client disconnects. A rejection is
    answered with 429, and a blocked entity with 403. A request that is larger than a capacity is answered with 413, and
    an unavailable store with 503. The same answers are sent if a view raises these errors, unless the application has a
    handler for them.
    """

    def __init__(
        self,
        app: Flask | None = None,
        limiter: SyncLimiter = None,
        rules: FlaskRules | None = None,
        *,
        skip_methods: Iterable[str] = ("HEAD", "OPTIONS"),
    ) -> None:
        """Make the extension, and add it to an application.

        Args:
            app: The application. If None, call ``init_app`` later.
            limiter: An open limiter, a function that returns it, or the URL of a store. If None, the default store is
                opened. A store is opened with the first request of each process.
            rules: Return what a request takes, or None if it is not limited. Without a resource, the rule of the route
                names it. If None, only ``take`` takes.
            skip_methods: Methods that are not limited.
        """
        self._source = SyncSource(limiter)
        self._rules = rules
        self._skipped = frozenset(skip_methods)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Add the extension to an application. Functions that authenticate are registered before this call.

        Raises:
            ValidationError: The application has the extension already, and would take twice.
        """
        if "zae_limiter" in app.extensions:
            raise ValidationError("app", app.name, "has this extension already: use one, and decide in its rules")
        app.extensions["zae_limiter"] = self
        middleware = RateLimitMiddleware(app.wsgi_app, self._source.get)
        app.wsgi_app = middleware  # type: ignore[method-assign] # Flask documents that middleware is added so
        app.before_request(self._take_by_rules)
        handled = app.error_handler_spec[None][None]
        for kind in _ANSWERED:
            if kind not in handled:
                app.register_error_handler(kind, self._refuse)

    def take(self, ask: Ask) -> SyncLease:
        """Take more for the current request, inside a view. The lease becomes ``flask.g.lease``.

        Example:
            ```python
            @app.post("/chat")
            def chat():
                lease = limits.take(Ask(current_user.id, "chat", {"rpm": 1, "tpm": estimate(request.json)}))
            ```

        Raises:
            RateLimitExceeded: A limit lacks the tokens.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
            ValidationError: A name or an amount is invalid, or the request did not come through ``app.wsgi_app``.
            RateLimiterUnavailable: The store is unavailable.
        """
        call = request.environ.get(CALL)
        if not isinstance(call, SyncCall):
            raise ValidationError("app", None, "did not receive this request: call init_app, and use app.wsgi_app")
        lease = call.take(ask, None if request.url_rule is None else request.url_rule.rule)
        g.lease = request.environ[LEASE] = lease
        return lease

    def _take_by_rules(self) -> None:
        # An application context that a test has pushed is shared by its requests.
        g.pop("lease", None)
        if self._rules is None or request.url_rule is None or request.method in self._skipped:
            return
        ask = checked_ask(self._rules(request))
        if ask is not None:
            self.take(ask)

    def _refuse(self, error: ZAELimiterError) -> Response:
        call = request.environ.get(CALL) or SyncCall(self._source)
        refusal = call.refuse(error)
        if refusal is None:
            raise error
        return Response(refusal.body, refusal.status, refusal.headers)
