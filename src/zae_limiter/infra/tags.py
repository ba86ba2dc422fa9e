"""The tags that a stack of this package is recognized by, and what they say of it. Pure."""

from collections.abc import Iterable, Mapping

from zae_limiter.core.version import SCHEMA_VERSION
from zae_limiter.infra.naming import LEGACY_PREFIX, TAG_PREFIX

NAME = f"{TAG_PREFIX}name"
TYPE = f"{TAG_PREFIX}type"
VERSION = f"{TAG_PREFIX}version"
LAMBDA_VERSION = f"{TAG_PREFIX}lambda-version"
SCHEMA = f"{TAG_PREFIX}schema-version"

LIMITER = "limiter"
"""The type of a stack that holds limits; load tests have stacks of another."""

_DESCRIPTION = "zae-limiter:"


def limiter_tags(name: str, version: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return all tags of a stack: an operator's own, and those it is found by."""
    own = {key: value for key, value in chosen.items() if not key.startswith(TAG_PREFIX)}
    return {
        **own,
        NAME: name,
        TYPE: LIMITER,
        VERSION: version,
        LAMBDA_VERSION: version,
        SCHEMA: SCHEMA_VERSION,
    }


def stack_type(name: str, said: Mapping[str, str], description: str) -> str | None:
    """Return what a stack is to this package, None if it is somebody else's.

    It is known by its tags, by the prefix of old, or, where the template was deployed by other means, by what it says.
    """
    if TYPE in said:
        return said[TYPE]
    known = name.startswith(LEGACY_PREFIX) or description.startswith(_DESCRIPTION)
    return LIMITER if known else None


def from_list(told: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return tags as AWS tells them by key."""
    return {tag["Key"]: tag["Value"] for tag in told}


def to_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as AWS is told them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
