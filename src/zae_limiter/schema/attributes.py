"""Name the attributes of items, and parse the names that belong to one limit.

A field has at most two letters and no ``_``. So ``b_{limit}_{field}`` can be parsed, although the
name of a limit may contain ``_`` and ``.``. The only longer fields are those of cohorts, ``h`` and the
digits of their end.
"""

from functools import lru_cache
from typing import NamedTuple

from zae_limiter.core.limit import Limit

PK = "PK"
SK = "SK"
ENTITY_ID = "entity_id"
RESOURCE = "resource"
TTL = "ttl"

# Bucket, per limit: b_{limit}_{field}
TOKENS = "tk"
CAPACITY = "cp"
REFILL_AMOUNT = "ra"
REFILL_PERIOD = "rp"
TOTAL_CONSUMED = "tc"
DORMANT = "dm"
HIGHEST_CAPACITY = "hc"
HOLD = "hs"
QUOTA_BALANCE = "qk"
QUOTA_AMOUNT = "qa"
QUOTA_SCHEDULE = "qs"
SOFT = "sf"
UNIT = "un"
WARN_AT = "wa"
OPTIONS = (SOFT, UNIT, WARN_AT)
BUCKET_FIELDS = frozenset(
    {
        TOKENS,
        CAPACITY,
        REFILL_AMOUNT,
        REFILL_PERIOD,
        TOTAL_CONSUMED,
        DORMANT,
        HIGHEST_CAPACITY,
        HOLD,
        QUOTA_BALANCE,
        QUOTA_AMOUNT,
        QUOTA_SCHEDULE,
        *OPTIONS,
    }
)
COHORT = "h"

# Bucket, shared by all its limits
BASELINE = "rf"
SHARD_COUNT = "shard_count"
STAMP = "cv"
GENERATION = "gn"
BIRTH = "bi"
OWN_LIMITS_DIGEST = "ld"
FILL_TIME = "tf"
NONCE = "op"
CASCADE = "cascade"
PARENT_ID = "parent_id"
WRITE_COUNTER = "b_wcu_tc"

IN_USE_MARK = "~"
"""The prefix of a number of slots among the totals of an opening. No attribute of a bucket begins with it."""

# Config, per limit: l_{limit}_{field}
CONFIG_FIELDS = frozenset({CAPACITY, REFILL_AMOUNT, REFILL_PERIOD, HOLD, QUOTA_AMOUNT, QUOTA_SCHEDULE, *OPTIONS})
CONFIG_VERSION = "config_version"
ON_UNAVAILABLE = "on_unavailable"
DELETED = "deleted"
INHERIT = "inherit"

_BUCKET_PREFIX = "b_"
_CONFIG_PREFIX = "l_"
_REGISTRY_PREFIX = "r_"
_SEQUENCE_PREFIX = "s_"
_WARNED_PREFIX = "w_"
_TOTAL_SUFFIX = f"_{TOTAL_CONSUMED}"
_SHARD_DIGITS = 4
_PART_DIGITS = 5
_COHORT_DIGITS = 12
_COHORTS = 1024


class CohortAttribute(NamedTuple):
    """The parts of the attribute of a cohort: the limit, and its end in seconds since the epoch."""

    limit_name: str
    end_s: int


class WarnedAttribute(NamedTuple):
    """The parts of the attribute of a threshold: the limit, and the threshold in thousandths."""

    limit_name: str
    part: int


class LimitAttribute(NamedTuple):
    """The parts of an attribute that belongs to one limit."""

    limit_name: str
    field: str


def bucket_attribute(limit_name: str, field: str) -> str:
    """Return the name of a bucket attribute of one limit."""
    return f"{_BUCKET_PREFIX}{limit_name}_{field}"


def balance_attribute(limit: Limit) -> str:
    """Return the name of the attribute with the balance of a limit."""
    return bucket_attribute(limit.name, QUOTA_BALANCE if limit.is_quota else TOKENS)


def parse_bucket_attribute(name: str) -> LimitAttribute | None:
    """Return the parts of ``bucket_attribute``, None for another name."""
    return _parse(name, _BUCKET_PREFIX, BUCKET_FIELDS)


@lru_cache(_COHORTS)
def cohort_attribute(limit_name: str, end_s: int) -> str:
    """Return the name of the attribute with the slots of one limit that are in use until ``end_s``."""
    return f"{_BUCKET_PREFIX}{limit_name}_{COHORT}{end_s}"


def parse_cohort_attribute(name: str) -> CohortAttribute | None:
    """Return the parts of ``cohort_attribute``, None for another name."""
    if not name.startswith(_BUCKET_PREFIX):
        return None
    limit_name, _, field = name[len(_BUCKET_PREFIX) :].rpartition("_")
    digits = field[1:]
    # Check the length first: an attribute name may have 65,535 digits, and int() rejects that many.
    if not limit_name or field[:1] != COHORT or len(digits) > _COHORT_DIGITS:
        return None
    # Only the form that is written: "007" and "7" would be two names of one cohort.
    is_end = digits.isascii() and digits.isdigit() and digits[0] != "0"
    return CohortAttribute(limit_name, int(digits)) if is_end else None


def is_total(name: str) -> bool:
    """Return whether a bucket attribute is the total consumed of a limit, or the write counter."""
    return name.startswith(_BUCKET_PREFIX) and name.endswith(_TOTAL_SUFFIX)


def config_attribute(limit_name: str, field: str) -> str:
    """Return the name of a config attribute of one limit."""
    return f"{_CONFIG_PREFIX}{limit_name}_{field}"


def parse_config_attribute(name: str) -> LimitAttribute | None:
    """Return the parts of ``config_attribute``, None for another name."""
    return _parse(name, _CONFIG_PREFIX, CONFIG_FIELDS)


def registry_column(resource: str) -> str:
    """Return the name of a registry's counter of one resource."""
    return f"{_REGISTRY_PREFIX}{resource}"


def parse_registry_column(name: str) -> str | None:
    """Return the resource of ``registry_column``, None for another name."""
    return name.removeprefix(_REGISTRY_PREFIX) or None if name.startswith(_REGISTRY_PREFIX) else None


def sequence_attribute(shard_id: int) -> str:
    """Return the name of the marker in a usage record: the last change of one shard that it has counted."""
    return f"{_SEQUENCE_PREFIX}{shard_id}"


def parse_sequence_attribute(name: str) -> int | None:
    """Return the shard of ``sequence_attribute``, None for another name."""
    shard = name.removeprefix(_SEQUENCE_PREFIX) if name.startswith(_SEQUENCE_PREFIX) else ""
    # Check the length first: an attribute name may have 65,535 digits, and int() rejects that many.
    return int(shard) if shard.isascii() and shard.isdigit() and len(shard) <= _SHARD_DIGITS else None


def warned_attribute(limit_name: str, part: int) -> str:
    """Return the name of the attribute that says when a threshold of a limit was reached."""
    return f"{_WARNED_PREFIX}{limit_name}_{part}"


def parse_warned_attribute(name: str) -> WarnedAttribute | None:
    """Return the parts of ``warned_attribute``, None for another name."""
    if not name.startswith(_WARNED_PREFIX):
        return None
    limit_name, _, part = name[len(_WARNED_PREFIX) :].rpartition("_")
    # Check the length first: an attribute name may have 65,535 digits, and int() rejects that many.
    is_part = part.isascii() and part.isdigit() and len(part) <= _PART_DIGITS
    return WarnedAttribute(limit_name, int(part)) if limit_name and is_part else None


def _parse(name: str, prefix: str, fields: frozenset[str]) -> LimitAttribute | None:
    if not name.startswith(prefix):
        return None
    limit_name, _, field = name[len(prefix) :].rpartition("_")
    return LimitAttribute(limit_name, field) if limit_name and field in fields else None
