"""Render the statuses of limits as HTTP headers, in three dialects. Everything here is pure.

A limit can occur in several buckets of one request, for example in those of a key and of its project. The bucket that
has the least left is reported, because no request can take more than that.

Soft limits are never reported. A client that slows down for one would spoil the trial, and none of them rejects.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from http import HTTPStatus
from typing import TypeVar

from zae_limiter.core.calendar import period_at
from zae_limiter.core.errors import RateLimitExceeded
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import LimitStatus
from zae_limiter.web.ask import Ask, Dialect, Role

Header = tuple[str, str]
Text = TypeVar("Text", bound=str | bytes)

LARGEST_INTEGER = 10**15 - 1
"""The largest integer of a structured field (RFC 9651)."""

SLOTS_AFTER_S = 1
"""Slots of a limit of concurrent use are returned at any time, so clients are told to come back after one second."""

LONGEST_RETRY_S = 120
"""The longest wait in seconds that is left to SDKs. That of Anthropic would sleep for weeks, and its caller with it."""

LONGEST_DURATION_MS = (2**63 - 1) // 10**6
"""The longest duration of Go, which has 63 bits for nanoseconds."""

ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("rps", "rpm", "rph", "rpd", "requests"), "requests"),
    **dict.fromkeys(("tps", "tpm", "tph", "tpd", "tokens"), "tokens"),
    "itpm": "input-tokens",
    "otpm": "output-tokens",
}
"""What limits with the usual names count."""


def ietf(statuses: Sequence[LimitStatus], roles: Mapping[str, Role] | None, now_s: float) -> list[Header]:
    """Return ``RateLimit-Policy`` and ``RateLimit``, as in draft-ietf-httpapi-ratelimit-headers-10.

    ``q`` is the capacity, and ``w`` the seconds to fill from empty. ``r`` is what is left. ``t`` is the seconds until
    more is available, absent if the bucket is full. ``pk`` is a hash of entity and resource.

    A limit of concurrent use has the quota unit ``concurrent-requests`` and no ``w``, and ``t`` is 1. For a quota,
    ``w`` is the seconds of its period, and ``t`` those until it ends.
    """
    policies, states = [], []
    for status in _least(statuses, _name_of):
        limit, left = status.limit, status.available
        # Not the limit itself: its hash is a method in Python, and the cache would call it for every response.
        rate = limit.refill_amount, limit.refill_period_seconds
        if status.resets_at is not None:
            rate = 0, _period_s(status)
        policy, key = _policy(limit.name, limit.capacity, rate, status.entity_id, status.resource)
        policies.append(policy)
        state = f'"{limit.name}";r={min(max(left, 0), LARGEST_INTEGER)}'
        if left < limit.capacity:
            state = f"{state};t={_more_after_s(status, now_s)}"
        states.append(state + key)
    return [("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(states))] if states else []


def openai(statuses: Sequence[LimitStatus], roles: Mapping[str, Role] | None, now_s: float) -> list[Header]:
    """Return ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``; reset is the duration until it is full."""
    headers = []
    for role, status in _by_role(statuses, roles):
        headers += [
            (f"x-ratelimit-limit-{role}", str(status.limit.capacity)),
            (f"x-ratelimit-remaining-{role}", str(max(0, status.available))),
            (f"x-ratelimit-reset-{role}", duration(_full_after_ms(status, now_s))),
        ]
    return headers


def anthropic(statuses: Sequence[LimitStatus], roles: Mapping[str, Role] | None, now_s: float) -> list[Header]:
    """Return ``anthropic-ratelimit-{requests,tokens,...}-{limit,remaining,reset}``; reset is the time it is full."""
    headers = []
    for role, status in _by_role(statuses, roles):
        # Rounded up, so that nothing is missing at the time that is reported.
        full_s = math.ceil(now_s + _full_after_ms(status, now_s) / 1000)
        if status.resets_at is not None and status.available < status.limit.capacity:
            # The clock of this machine may be wrong, and the edge is known.
            full_s = status.resets_at
        headers += [
            (f"anthropic-ratelimit-{role}-limit", str(status.limit.capacity)),
            (f"anthropic-ratelimit-{role}-remaining", str(max(0, status.available))),
            (f"anthropic-ratelimit-{role}-reset", rfc3339(full_s)),
        ]
    return headers


_DIALECTS: Mapping[Dialect, Callable[[Sequence[LimitStatus], Mapping[str, Role] | None, float], list[Header]]] = {
    "ietf": ietf,
    "openai": openai,
    "anthropic": anthropic,
}


def limit_headers(
    statuses: Sequence[LimitStatus], dialects: Iterable[Dialect], roles: Mapping[str, Role] | None, now_s: float
) -> list[Header]:
    """Return the headers of several dialects; soft limits are left out."""
    statuses = [status for status in statuses if status.limit.enforce]
    headers: list[Header] = []
    for dialect in dialects:
        headers += _DIALECTS[dialect](statuses, roles, now_s)
    return headers


def headers_of_asks(asks: Sequence[Ask], statuses: Sequence[LimitStatus], now_s: float) -> list[Header]:
    """Return the headers of a response, from what was asked for and the statuses of all buckets.

    A limit that only an entity above has is left out: the request takes nothing from it, and it is internal.
    """
    if len(asks) == 1 and not asks[0].also and all(one.entity_id == asks[0].entity for one in statuses):
        # The usual response has only limits of its own entity, so none is left out.
        return limit_headers(statuses, dict.fromkeys(asks[0].dialects), asks[0].roles, now_s)
    own, names = set[str](), set[str]()
    for ask in asks:
        own.update((ask.entity, *(one.entity_id for one in ask.also or ())))
        names.update(ask.consume, *(one.consume for one in ask.also or ()))
    names.update(status.limit_name for status in statuses if status.entity_id in own)
    dialects = dict.fromkeys(dialect for ask in asks for dialect in ask.dialects)
    roles = {name: role for ask in asks for name, role in (ask.roles or {}).items()}
    return limit_headers([one for one in statuses if one.limit_name in names], dialects, roles, now_s)


def merged_headers(
    own: Iterable[tuple[Text, Text]], added: Sequence[tuple[Text, Text]], status: int
) -> list[tuple[Text, Text]]:
    """Return the headers of a response with those that report limits, so that no name of the latter occurs twice.

    A gateway may have copied headers of another server. They are replaced, unless they explain a rejection.
    """
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        own = list(own)
        names = {name.lower() for name, _ in own}
        return [*own, *(one for one in added if one[0].lower() not in names)]
    names = {name.lower() for name, _ in added}
    return [*(one for one in own if one[0].lower() not in names), *added]


def retry_headers(exceeded: RateLimitExceeded) -> list[Header]:
    """Return ``Retry-After`` in whole seconds, rounded up, and ``retry-after-ms``, which SDKs read first.

    If only limits of concurrent use are exceeded, they are at most one second. A wait of more than two minutes, such as
    that for the next month, has ``x-should-retry: false``: then SDKs raise an error instead of waiting.
    """
    wait_s = exceeded.next_try_seconds
    found = [("Retry-After", exceeded.retry_after_header), ("retry-after-ms", str(max(1, _ceil_ms(wait_s))))]
    return found if wait_s <= LONGEST_RETRY_S else [*found, ("x-should-retry", "false")]


def partition_key(entity_id: str, resource: str) -> str:
    """Return a short hash of a bucket, in Base64. Names cannot contain the separator."""
    return b64encode(blake2b(f"{entity_id}#{resource}".encode(), digest_size=8).digest()).decode()


def duration(milliseconds: int) -> str:
    """Return a duration as OpenAI's API writes it: ``12ms``, ``8.64s``, ``6m0s`` or ``1h0m30s``.

    A longer one than Go can parse, which is 292 years, is cut.
    """
    milliseconds = min(milliseconds, LONGEST_DURATION_MS)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest_ms = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, fraction = divmod(rest_ms, 1000)
    seconds = f"{whole}.{fraction:03d}".rstrip("0").rstrip(".") if fraction else str(whole)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def rfc3339(seconds: int) -> str:
    """Return a time in UTC, in whole seconds."""
    # The year 9999 is the last one that can be written.
    return datetime.fromtimestamp(min(seconds, 253_402_300_799), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def _policy(name: str, capacity: int, rate: tuple[int, int], entity_id: str, resource: str) -> tuple[str, str]:
    """Return the policy of a limit, and the parameter with the key of its bucket.

    ``rate`` are the amount and the seconds of its refill, both 0 for a limit of concurrent use. For a quota, they are 0
    and the seconds of its period.
    """
    key, quota = f";pk=:{partition_key(entity_id, resource)}:", min(capacity, LARGEST_INTEGER)
    if not rate[0]:
        if rate[1]:
            return f'"{name}";q={quota};w={rate[1]}{key}', key
        return f'"{name}";q={quota};qu="concurrent-requests"{key}', key
    limit = Limit(name, capacity, *rate)
    window_s = min(-(-limit.fill_time_ms // 1000), LARGEST_INTEGER)
    return f'"{limit.name}";q={quota};w={window_s}{key}', key


def _by_role(statuses: Sequence[LimitStatus], roles: Mapping[str, Role] | None) -> list[tuple[Role, LimitStatus]]:
    """Return the status of every role; limits without one are left out."""
    known = {**ROLES, **(roles or {})}
    counted = [status for status in statuses if status.limit_name in known]
    return [(known[one.limit_name], one) for one in _least(counted, lambda status: known[status.limit_name])]


def _least(statuses: Sequence[LimitStatus], group_of: Callable[[LimitStatus], str]) -> Iterable[LimitStatus]:
    """Return the status of each group that has the least left, in the order in which groups occur.

    Of equal ones, that of the largest capacity is returned: it has the smallest part left.
    """
    found: dict[str, LimitStatus] = {}
    for status in statuses:
        group = group_of(status)
        other = found.get(group)
        if other is None or _order(status) < _order(other):
            found[group] = status
    return found.values()


def _order(status: LimitStatus) -> tuple[int, int]:
    return status.available, -status.limit.capacity


def _name_of(status: LimitStatus) -> str:
    return status.limit_name


def _more_after_s(status: LimitStatus, now_s: float) -> int:
    """Return the seconds until more is available, rounded up.

    The status of a request that was admitted has no parts of tokens, so the time for a whole token is returned.
    """
    limit = status.limit
    if limit.is_concurrent:
        return SLOTS_AFTER_S
    if status.resets_at is not None:
        return max(1, math.ceil(_resets_after_s(status, now_s)))
    seconds = -(-(1 - min(status.available, 0)) * limit.refill_period_seconds // limit.refill_amount)
    if status.exceeded:
        seconds = min(seconds, max(1, math.ceil(status.retry_after_seconds)))
    return min(seconds, LARGEST_INTEGER)


def _full_after_ms(status: LimitStatus, now_s: float) -> int:
    limit = status.limit
    if limit.is_concurrent:
        return SLOTS_AFTER_S * 1000 if status.available < limit.capacity else 0
    if status.resets_at is not None:
        return _ceil_ms(_resets_after_s(status, now_s)) if status.available < limit.capacity else 0
    return max(0, -(-(limit.capacity - status.available) * limit.refill_period_ms // limit.refill_amount))


def _resets_after_s(status: LimitStatus, now_s: float) -> float:
    """Return the seconds until a quota is full again, at least 0.

    The wait of a rejection is by the clock of the server, so it is preferred to that of this machine.
    """
    assert status.resets_at is not None, "a quota has a reset"
    return status.retry_after_seconds if status.exceeded else max(0.0, status.resets_at - now_s)


def _period_s(status: LimitStatus) -> int:
    """Return the length of the period that a quota is in, in seconds."""
    schedule, ends_s = status.limit.schedule, status.resets_at
    assert schedule is not None, "a quota has a schedule"
    assert ends_s is not None, "a quota has a reset"
    return ends_s - period_at(schedule, ends_s - 1)[0]


def _ceil_ms(seconds: float) -> int:
    # Rounded first: 4.035 s is 4035.0000000000005 ms as a float, which would become 4036.
    return math.ceil(round(seconds * 1000, 6))
