"""Limit the views of Django REST framework by throttle classes. They see the user whom the framework has authenticated.

Add ``zae_limiter.web.django.RateLimitMiddleware`` to the project: it ends leases, sets headers, and answers rejections.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

try:
    from rest_framework.throttling import BaseThrottle
except ImportError as missing:
    from zae_limiter.installation import missing_extra

    raise missing_extra("drf", "djangorestframework") from missing

from asgiref.sync import async_to_sync

from zae_limiter.core.errors import RateLimitExceeded, ValidationError
from zae_limiter.web.ask import Ask
from zae_limiter.web.calls import SyncCall, checked_ask
from zae_limiter.web.django import call_of

__all__ = ["Ask", "LimiterThrottle"]


class LimiterThrottle(BaseThrottle):  # type: ignore[misc] # the framework has no types
    """A throttle that takes what a rule asks for. Subclass it, and set ``rule`` or define ``get_ask``.

    Example:
        ```python
        class PerUser(LimiterThrottle):
            def get_ask(self, request, view):
                return Ask(str(request.user.pk), None, {"rpm": 1})


        class Chat(APIView):
            throttle_classes = [PerUser]
        ```

    The lease is ``request.lease``. A rejection is answered with 429 and every limit, and a blocked entity with 403,
    as problem details.

    Attributes:
        rule: Returns what a request takes, or None if it is not limited.
        skip_methods: Methods that are not limited.
    """

    rule: ClassVar[Callable[[Any], Ask | None] | None] = None
    skip_methods: ClassVar[Iterable[str]] = ("HEAD", "OPTIONS")

    _exceeded: RateLimitExceeded | None = None

    def get_ask(self, request: Any, view: Any) -> Ask | None:
        """Return what a request takes, or None if it is not limited. Without a resource, the route of the URL names it.

        Raises:
            ValidationError: Neither this method nor ``rule`` is defined.
        """
        # Read from the class: a function would otherwise become a method.
        rule = type(self).rule
        if rule is None:
            raise ValidationError("rule", None, f"is missing: set it in {type(self).__name__}, or define get_ask")
        return rule(request)

    def allow_request(self, request: Any, view: Any) -> bool:
        """Take, and return True; False if the request is rejected.

        Raises:
            ValidationError: The middleware is missing, or the rule or a name is invalid.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
            RateLimiterUnavailable: The store is unavailable.
        """
        call = call_of(request)
        if request.method in self.skip_methods:
            return True
        if call.failure is not None:
            # Another throttle has rejected the request. What is taken now would only be given back.
            return False
        ask = checked_ask(self.get_ask(request, view))
        if ask is None:
            return True
        take = call.take if isinstance(call, SyncCall) else async_to_sync(call.take)
        try:
            lease = take(ask, request.resolver_match.route)
        except RateLimitExceeded as error:
            self._exceeded = error
            call.refuse(error)
            return False
        request._request.lease = lease  # noqa: SLF001 - the framework documents it as Django's own request
        return True

    def wait(self) -> float | None:
        """Return the seconds until the request would be admitted; None if it never would be, or was not rejected."""
        if self._exceeded is None or self._exceeded.never:
            return None
        return self._exceeded.next_try_seconds
