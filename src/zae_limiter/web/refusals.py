"""Decide how a request that was not admitted is answered: status, headers, and problem details (RFC 9457)."""

import logging
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson

from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    EntityBlockedError,
    InvalidIdentifierError,
    InvalidNameError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TooManyBucketsError,
)
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.money import format_amount, format_with_unit
from zae_limiter.core.status import LimitStatus
from zae_limiter.web.ask import Ask
from zae_limiter.web.headers import Header, headers_of_asks, limit_headers, partition_key, retry_headers

_log = logging.getLogger("zae_limiter")

PROBLEM_JSON = "application/problem+json"

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"

_RETRY_SOON = [("Retry-After", "1"), ("retry-after-ms", "1000")]
_LEAST_INTEGER = -(2**63)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that was not admitted."""

    status: int
    headers: list[Header]
    body: bytes

    @property
    def phrase(self) -> str:
        """The standard words for the status."""
        return HTTPStatus(self.status).phrase

    @property
    def status_line(self) -> str:
        """The status with its phrase, as WSGI wants it."""
        return f"{self.status} {self.phrase}"


def refusal_of(error: BaseException, ask: Ask | None, now_s: float) -> Refusal | None:
    """Return the answer to a request that failed with an error of the limiter; None for any other error.

    ``ask`` is what was asked for; None if unknown.
    """
    match error:
        case AmountExceedsCapacityError():
            return _too_large(error, ask, now_s)
        case RateLimitExceeded():
            return _exceeded(error, ask, now_s)
        case EntityBlockedError():
            return _blocked(error, ask, now_s)
        case RateLimiterUnavailable():
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, _RETRY_SOON, "The rate limiter is unavailable.")
        case InvalidIdentifierError() | InvalidNameError():
            # The entity or resource came with the request, for example as a header.
            return _refusal(HTTPStatus.BAD_REQUEST, [], f"The {error.field} is invalid: {error.reason}.")
        case TooManyBucketsError():
            # The stored parents or the rule are to blame, and the client cannot know them.
            _log.error("Not admitted: %s", error)
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, [], "The request takes from too many rate limits.")
        case _:
            return None


def _exceeded(error: RateLimitExceeded, ask: Ask | None, now_s: float) -> Refusal:
    violations = error.violations
    headers = retry_headers(error) + _headers_of(error.statuses, ask, now_s)
    # Without a missing token, the request would have to wait behind others.
    detail = f"Other requests wait for the same tokens. Retry after {error.next_try_seconds:.3f} s."
    if violations:
        worst = max(violations, key=lambda status: status.retry_after_seconds)
        used = "" if worst.in_use is None else f" and {worst.in_use} in use"
        unit = worst.limit.unit
        # As the header: slots may be returned before the wait of the limit ends.
        wait_s = worst.retry_after_seconds if worst.exact else error.next_try_seconds
        detail = (
            f"Limit {worst.limit_name!r}: {format_amount(worst.available, unit)} available{used}, "
            f"{format_with_unit(worst.requested, unit)} requested. "
            f"Retry after {wait_s:.3f} s."
        )
    members = {
        "type": QUOTA_EXCEEDED,
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "violated-policies": _names(violations),
        "retry_after_seconds": error.next_try_seconds,
        "limits": [_member(status) for status in _enforced(error.statuses)],
    }
    return _refusal(HTTPStatus.TOO_MANY_REQUESTS, headers, detail, members)


def _too_large(error: AmountExceedsCapacityError, ask: Ask | None, now_s: float) -> Refusal:
    """Answer a request that no wait can help; without ``Retry-After``, so that it is not repeated."""
    beyond = [one for one in _enforced(error.statuses) if one.requested > one.limit.capacity]
    detail = "; ".join(
        f"limit {one.limit_name!r} has a capacity of {format_amount(one.limit.capacity, one.limit.unit)}, "
        f"and {format_with_unit(one.requested, one.limit.unit)} were requested"
        for one in beyond
    )
    members = {
        "violated-policies": _names(beyond),
        "limits": [_member(status) for status in _enforced(error.statuses)],
    }
    headers = _headers_of(error.statuses, ask, now_s)
    sentence = _sentence(detail or f"the amount {error.reason}")
    return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, headers, sentence, members)


def _blocked(error: EntityBlockedError, ask: Ask | None, now_s: float) -> Refusal:
    """Answer a request of a blocked entity; with ``Retry-After`` only if the block has an end."""
    until = None if error.until is None else error.until.isoformat()
    ending = "" if until is None else f" until {until}"
    reason = "" if error.reason is None else f": {error.reason.rstrip('.')}"
    members = {"reason": error.reason, "resource": error.resource, "until": until}
    if ask is not None and error.entity_id == ask.entity:
        # An entity above may be blocked, and its id may be secret.
        members["blocked_entity"] = error.entity_id
    wait_s = 0 if error.until is None else max(1, math.ceil(error.until.timestamp() - now_s))
    headers = [("Retry-After", str(wait_s))] if wait_s else []
    return _refusal(HTTPStatus.FORBIDDEN, headers, f"Requests are blocked{ending}{reason}.", members)


def _enforced(statuses: Sequence[LimitStatus]) -> list[LimitStatus]:
    """Return statuses without those of soft limits, which reject nothing and are no concern of clients."""
    return [status for status in statuses if status.limit.enforce]


def _names(statuses: Sequence[LimitStatus]) -> list[str]:
    return list(dict.fromkeys(status.limit_name for status in statuses))


def _headers_of(statuses: Sequence[LimitStatus], ask: Ask | None, now_s: float) -> list[Header]:
    if ask is None:
        return limit_headers(statuses, ("ietf",), None, now_s)
    return headers_of_asks([ask], statuses, now_s)


def _member(status: LimitStatus) -> dict[str, Any]:
    """Return a limit for the body. The ids of entities stay inside: a parent's id may be secret."""
    member = {
        "limit": status.limit_name,
        "pk": partition_key(status.entity_id, status.resource),
        "capacity": status.limit.capacity,
        "refill_amount": status.limit.refill_amount,
        "refill_period_seconds": status.limit.refill_period_seconds,
        # A debt may exceed 64 bits, which JSON libraries do not read.
        "available": max(status.available, _LEAST_INTEGER),
        "requested": status.requested,
        "exceeded": status.exceeded,
        "retry_after_seconds": status.retry_after_seconds,
    }
    if status.limit.unit is not None:
        member["unit"] = status.limit.unit
    if status.resets_at is not None:
        return member | {"resets_at": status.resets_at, "period": status.limit.schedule and status.limit.schedule.every}
    if status.in_use is None:
        return member
    return member | {"hold_seconds": status.limit.hold_seconds, "in_use": status.in_use, "exact": status.exact}


def _refusal(status: HTTPStatus, headers: list[Header], detail: str, members: dict[str, Any] | None = None) -> Refusal:
    problem = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail}
    body = orjson.dumps({**problem, **(members or {})})
    framing = [("Content-Type", PROBLEM_JSON), ("Content-Length", str(len(body)))]
    return Refusal(int(status), [*framing, *headers], body)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
