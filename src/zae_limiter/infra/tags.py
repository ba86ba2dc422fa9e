"""Make and read the tags by which a stack of this package is recognized. Pure."""

from collections.abc import Iterable, Mapping

from zae_limiter.core.version import SCHEMA_VERSION
from zae_limiter.infra.naming import LEGACY_PREFIX, TAG_PREFIX

NAME = f"{TAG_PREFIX}name"
TYPE = f"{TAG_PREFIX}type"
VERSION = f"{TAG_PREFIX}version"
LAMBDA_VERSION = f"{TAG_PREFIX}lambda-version"
SCHEMA = f"{TAG_PREFIX}schema-version"

LIMITER = "limiter"
"""The type of a stack with limits."""

LOAD_TEST = "load-test"
"""The type of a stack that runs load tests of a limiter."""

_DESCRIPTION = "zae-limiter:"


def limiter_tags(name: str, version: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return all tags of a stack: those of the operator, and those by which it is found."""
    own = {key: value for key, value in chosen.items() if not key.startswith(TAG_PREFIX)}
    return {
        **own,
        NAME: name,
        TYPE: LIMITER,
        VERSION: version,
        LAMBDA_VERSION: version,
        SCHEMA: SCHEMA_VERSION,
    }


def load_test_tags(limiter_name: str, version: str) -> dict[str, str]:
    """Return the tags of a stack that tests the limiter with this name."""
    return {NAME: limiter_name, TYPE: LOAD_TEST, VERSION: version}


def stack_type(name: str, said: Mapping[str, str], description: str) -> str | None:
    """Return the type of a stack of this package, None for any other stack.

    It is recognized by its tags, by the prefix of older versions, or, if other tools deployed the
    template, by its description.
    """
    if TYPE in said:
        return said[TYPE]
    known = name.startswith(LEGACY_PREFIX) or description.startswith(_DESCRIPTION)
    return LIMITER if known else None


def from_list(told: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return tags as a dictionary, from the format of AWS."""
    return {tag["Key"]: tag["Value"] for tag in told}


def to_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the format of AWS."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
