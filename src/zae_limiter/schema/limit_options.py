"""Convert the options of a limit to attributes and back: its unit, whether it is soft, and when it warns."""

from collections.abc import Callable
from typing import Any, NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, fields


class StoredOptions(NamedTuple):
    """What any kind of limit may have. ``warn_at`` is as stored: thousandths, separated by spaces."""

    unit: str | None
    soft: bool
    warn_at: str | None

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The used parts of the capacity at which a warning is sent.

        Raises:
            ValidationError: The stored text is damaged.
        """
        parts = (self.warn_at or "").split()
        # Check the length first: a forged text may have any number of digits.
        if not all(part.isascii() and part.isdigit() and len(part) <= 5 for part in parts):
            raise ValidationError("warn_at", self.warn_at, "must be thousandths, separated by spaces")
        return tuple([int(part) / 1000 for part in parts])


NO_OPTIONS = StoredOptions(None, False, None)


def stored_options(limit: Limit) -> dict[str, Any]:
    """Return the options that a limit has, by field."""
    if limit.enforce and limit.unit is None and not limit.warn_at:
        return {}
    warn_at = " ".join(str(round(part * 1000)) for part in limit.warn_at)
    found = {
        attributes.UNIT: limit.unit,
        attributes.SOFT: True if not limit.enforce else None,
        attributes.WARN_AT: warn_at or None,
    }
    return {field: value for field, value in found.items() if value is not None}


def limit_fields(limit: Limit) -> list[str]:
    """Return the fields that a bucket stores of a limit; some of them may be absent."""
    if limit.schedule is not None:
        own = [attributes.QUOTA_BALANCE, attributes.QUOTA_AMOUNT, attributes.QUOTA_SCHEDULE]
    elif limit.hold_seconds:
        own = [attributes.TOKENS, attributes.CAPACITY, attributes.HIGHEST_CAPACITY, attributes.HOLD]
    else:
        rate = [attributes.REFILL_AMOUNT, attributes.REFILL_PERIOD]
        own = [attributes.TOKENS, attributes.CAPACITY, attributes.HIGHEST_CAPACITY, *rate]
    return [*own, attributes.TOTAL_CONSUMED, attributes.DORMANT, *stored_options(limit)]


def options_of(item: Item, name_of: Callable[[str], str]) -> StoredOptions:
    """Return the options of a limit; ``name_of`` returns the attribute of a field.

    Raises:
        CorruptItemError: An attribute has another type.
    """
    unit = fields.optional_text(item, name_of(attributes.UNIT))
    soft = fields.flag(item, name_of(attributes.SOFT))
    return StoredOptions(unit, soft, fields.optional_text(item, name_of(attributes.WARN_AT)))
