"""Derive the names of a stack's resources from its name. Pure.

``core.names`` checks the name itself.
"""

import re
from collections.abc import Sequence

from zae_limiter.core.errors import ValidationError

LEGACY_PREFIX = "ZAEL-"
"""The prefix of stack names of older versions; such stacks are still found."""

ROLES = ("aggr", "app", "admin", "read")
POLICIES = ("acq", "full", "read", "ns-acq", "ns-full", "ns-read")

TAG_PREFIX = "zae-limiter:"
"""The prefix of the tags by which a stack is recognized."""

LONGEST_ROLE_NAME = 64
LONGEST_POLICY_NAME = 128
LONGEST_POLICY_FORMAT = 120

_PLACE = "{}"
_IAM_NAME = r"[A-Za-z0-9+=,.@_-]*"


def table_name(stack_name: str) -> str:
    """Return the name of the table."""
    return stack_name


def function_name(stack_name: str) -> str:
    """Return the name of the aggregator's function."""
    return f"{stack_name}-aggregator"


def role_name(stack_name: str, role: str, name_format: str = _PLACE) -> str:
    """Return the name of one of ``ROLES``."""
    return name_format.replace(_PLACE, f"{stack_name}-{role}")


def policy_name(stack_name: str, policy: str, name_format: str = _PLACE) -> str:
    """Return the name of one of ``POLICIES``."""
    return name_format.replace(_PLACE, f"{stack_name}-{policy}")


def user_name(stack_name: str) -> str:
    """Return the name that the user gave a stack."""
    return stack_name.removeprefix(LEGACY_PREFIX)


def split_format(field: str, name_format: object) -> tuple[str, str]:
    """Return the text before and after the ``{}`` of a format.

    Raises:
        ValidationError: It does not have exactly one ``{}``, or has characters that IAM does not accept.
    """
    if type(name_format) is not str or name_format.count(_PLACE) != 1:
        raise ValidationError(field, name_format, "must contain {} once, where the name goes, as in 'team-{}'")
    before, _, after = name_format.partition(_PLACE)
    if not (re.fullmatch(_IAM_NAME, before) and re.fullmatch(_IAM_NAME, after)):
        raise ValidationError(field, name_format, "must have letters, digits and + = , . @ _ - only around the {}")
    return before, after


def check_role_names(stack_name: str, name_format: str, roles: Sequence[str] = ROLES) -> None:
    """Require that IAM accepts the names of all roles.

    Raises:
        ValidationError: A name is too long.
    """
    longest = max((role_name(stack_name, role, name_format) for role in roles), key=len)
    _check_length("role_name_format", name_format, longest, LONGEST_ROLE_NAME)


def check_policy_names(stack_name: str, name_format: str) -> None:
    """Require that IAM accepts the names of all policies.

    Raises:
        ValidationError: A name is too long.
    """
    longest = max((policy_name(stack_name, policy, name_format) for policy in POLICIES), key=len)
    _check_length("policy_name_format", name_format, longest, LONGEST_POLICY_NAME)


def _check_length(field: str, name_format: str, longest: str, most: int) -> None:
    if len(longest) > most:
        reason = f"makes the name {longest!r} of {len(longest)} characters; IAM accepts at most {most}"
        raise ValidationError(field, name_format, reason)
