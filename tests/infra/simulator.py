"""Decide as IAM does whether a policy allows a request: effects, actions, resources and the conditions in use here.

An unknown part of a policy raises an error, so that it is never ignored.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KNOWN_PARTS = {"Sid", "Effect", "Action", "Resource", "Condition"}
LEADING_KEYS = "dynamodb:LeadingKeys"
PRINCIPAL_TAG = re.compile(r"\$\{aws:PrincipalTag/([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Request:
    """An action on a resource and on items of these partitions; None if the request has no keys."""

    action: str
    resource: str
    leading_keys: frozenset[str] | None


def allows(document: Mapping[str, Any], request: Request, tags: Mapping[str, str]) -> bool:
    """Return whether a policy allows a request of a principal with these tags; the default is denied."""
    effects = [statement["Effect"] for statement in document["Statement"] if _applies_to(statement, request, tags)]
    return "Allow" in effects and "Deny" not in effects


def actions(document: Mapping[str, Any], resource: str) -> set[str]:
    """Return the actions that a policy lists for a resource."""
    return {
        action
        for statement in document["Statement"]
        if statement["Effect"] == "Allow" and _matches(_listed(statement["Resource"]), resource)
        for action in _listed(statement["Action"])
    }


def _applies_to(statement: Mapping[str, Any], request: Request, tags: Mapping[str, str]) -> bool:
    assert statement.keys() <= KNOWN_PARTS, statement.keys()
    return (
        _matches(_listed(statement["Action"]), request.action)
        and _matches(_listed(statement["Resource"]), request.resource)
        and all(
            _holds(operator, key, _listed(wanted), request, tags)
            for operator, conditions in statement.get("Condition", {}).items()
            for key, wanted in conditions.items()
        )
    )


def _holds(operator: str, key: str, wanted: list[str], request: Request, tags: Mapping[str, str]) -> bool:
    assert key == LEADING_KEYS, key
    match operator:
        case "ForAllValues:StringLike":
            patterns = [pattern for pattern in (_filled_in(one, tags) for one in wanted) if pattern is not None]
            # For a request without keys, this condition holds vacuously.
            return all(_matches(patterns, value) for value in request.leading_keys or ())
        case "ForAnyValue:StringLike":
            patterns = [pattern for pattern in (_filled_in(one, tags) for one in wanted) if pattern is not None]
            return any(_matches(patterns, value) for value in request.leading_keys or ())
        case "Null":
            return wanted == ["true" if request.leading_keys is None else "false"]
    raise AssertionError(f"{operator} is not known here")


def _filled_in(pattern: str, tags: Mapping[str, str]) -> str | None:
    """Return a pattern with the principal's tags inserted; None if one is missing, which matches nothing."""
    if any(name not in tags for name in PRINCIPAL_TAG.findall(pattern)):
        return None
    filled = PRINCIPAL_TAG.sub(lambda found: tags[found[1]], pattern)
    assert "${" not in filled, filled
    return filled


def _matches(patterns: Iterable[str], value: str) -> bool:
    return any(re.fullmatch(_expression(pattern), value, re.DOTALL) for pattern in patterns)


def _expression(pattern: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in pattern)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
