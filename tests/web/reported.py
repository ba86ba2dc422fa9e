"""Check the headers of responses by the rules of their dialects, with an RFC 9651 parser that is not ours."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import http_sf
from http_sf.types import Token

_UNITS_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

Policies = dict[str, dict[str, int | bytes]]


def check_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Check every header that reports a limit, and return all headers by their names in lower case."""
    found: dict[str, str] = {}
    for name, value in headers:
        assert _HEADER_NAME.fullmatch(name), name
        assert _VALUE.fullmatch(value), (name, value)
        assert name.lower() not in found or "ratelimit" not in name.lower(), f"{name} occurs twice"
        found[name.lower()] = value
    policies, states = rate_limits(found, "ratelimit-policy"), rate_limits(found, "ratelimit")
    assert list(policies) == list(states)
    for name, state in states.items():
        policy = policies[name]
        # A limit of concurrent use has a unit and no window.
        assert policy.keys() in ({"q", "w", "pk"}, {"q", "qu", "pk"})
        assert {"r", "pk"} <= state.keys() <= {"r", "t", "pk"}
        assert policy["pk"] == state["pk"]
        assert isinstance(policy["pk"], bytes)
        assert whole(policy["q"]) >= max(1, whole(state["r"]))
        assert whole(policy.get("w", 1)) >= 1
        assert whole(state.get("t", 1)) >= 1
    for name, value in found.items():
        _check_dialect(name, value)
    return found


def _check_dialect(name: str, value: str) -> None:
    if name.startswith("x-ratelimit-reset-"):
        nanoseconds(value)
    elif name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
        rfc3339_time(value)
    elif name.startswith(("x-ratelimit-", "anthropic-ratelimit-", "retry-after")):
        assert value.isdecimal(), (name, value)


def rate_limits(headers: Mapping[str, str], name: str) -> Policies:
    """Return the parameters of every item of a List, by the name of the limit; nothing if the header is absent."""
    if name not in headers:
        return {}
    items: dict[str, dict[str, int | bytes]] = {}
    for limit, parameters in http_sf.parse(headers[name].encode(), tltype="list"):  # type: ignore[union-attr, misc, call-overload]  # a List of Items
        assert type(limit) is str
        assert not isinstance(limit, Token)
        assert limit not in items
        items[limit] = dict(parameters)
    return items


def whole(value: object) -> int:
    """Require an integer of a structured field."""
    assert type(value) is int
    assert 0 <= value < 10**15
    return value


def nanoseconds(text: str) -> int:
    """Parse a duration as Go does: numbers with units, the largest first, within 63 bits."""
    parts = _DURATION.findall(text)
    assert text == "".join(number + unit for number, unit in parts), text
    sizes = [_UNITS_NS[unit] for _, unit in parts]
    assert sizes == sorted(set(sizes), reverse=True), text
    total = 0
    for number, unit in parts:
        integer, _, fraction = number.partition(".")
        total += int(integer) * _UNITS_NS[unit] + (
            int(fraction) * _UNITS_NS[unit] // 10 ** len(fraction) if fraction else 0
        )
    assert parts
    assert total < 2**63
    return total


def rfc3339_time(text: str) -> datetime:
    """Parse a time in UTC, in whole seconds."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
