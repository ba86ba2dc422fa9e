"""Limit the routes of a FastAPI application by dependencies. They can use everything that FastAPI has parsed.

Add ``RateLimitMiddleware`` to the application: it ends leases, sets headers, and answers rejections.
"""

from collections.abc import Callable
from typing import Annotated, Any

try:
    from fastapi import Depends
    from starlette.requests import HTTPConnection
except ImportError as missing:
    from zae_limiter.installation import missing_extra

    raise missing_extra("fastapi", "fastapi") from missing

from zae_limiter._async.limiter.lease import Lease
from zae_limiter.core.errors import ValidationError
from zae_limiter.web.asgi import CALL, LimitedCall, RateLimitMiddleware
from zae_limiter.web.ask import Ask

__all__ = ["Ask", "Lease", "RateLimitMiddleware", "Taken"]


def Taken(rule: Callable[..., Any]) -> Any:  # noqa: N802 - it stands where FastAPI has Depends
    """Return a dependency that takes what a rule asks for, and injects the lease.

    Example:
        ```python
        def cost(question: Question, user: Annotated[User, Depends(current_user)]) -> Ask:
            return Ask(user.id, "chat", {"rpm": 1, "tpm": question.estimate})


        @app.post("/chat")
        async def chat(question: Question, lease: Annotated[Lease, Taken(cost)]): ...
        ```

    The rule is a dependency itself: its parameters are resolved by FastAPI. If it returns None, nothing is taken, and
    None is injected.
    """

    async def take(connection: HTTPConnection, ask: Annotated[Ask | None, Depends(rule)]) -> Lease | None:
        call = connection.scope.get(CALL)
        if not isinstance(call, LimitedCall):
            raise ValidationError(
                "middleware", None, "is missing: app.add_middleware(RateLimitMiddleware, limiter=...)"
            )
        if ask is None:
            return None
        return await call.take(ask, None if ask.resource is not None else call.template())

    return Depends(take)
