"""Define limits: how many tokens a bucket holds, and how fast they refill."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, fields
from zae_limiter.core.names import MAX_AMOUNT, check_limit_name, check_whole_number

MAX_LIMITS = 32
"""The largest number of limits in one bucket; more would exceed what one DynamoDB write can carry."""

MAX_PERIOD_SECONDS = 10 * 366 * 86_400
"""Ten years. A longer period is almost certainly a mistake of units."""

SHORTEST_HOLD_SECONDS = 5
"""A slot is renewed twice per hold. A shorter hold would be lost in a pause of a few seconds."""

LONGEST_HOLD_SECONDS = 86_400
"""One day. A slot of a process that crashed is not free again before the end of its hold."""


class LimitName:
    """Common names of limits. Each is a plain ``str``, and any other name is allowed too.

    Example:
        ```python
        >>> Limit.per_minute(LimitName.RPM, 100).name
        'rpm'

        ```
    """

    RPS: Final = "rps"
    """Requests per second."""
    RPM: Final = "rpm"
    """Requests per minute."""
    RPH: Final = "rph"
    """Requests per hour."""
    RPD: Final = "rpd"
    """Requests per day."""
    TPS: Final = "tps"
    """Tokens per second."""
    TPM: Final = "tpm"
    """Tokens per minute."""
    TPH: Final = "tph"
    """Tokens per hour."""
    TPD: Final = "tpd"
    """Tokens per day."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The capacity and refill of a token bucket: every period adds ``refill_amount`` tokens, up to ``capacity``.

    A limit of concurrent use has slots instead of tokens. Its ``hold_seconds`` is more than 0, and nothing is refilled.

    Example:
        ```python
        >>> Limit.per_minute("rpm", 100).refill_period_seconds
        60
        >>> Limit.per_minute("rpm", 100, burst=150).capacity
        150
        >>> Limit.concurrent("slots", 20).hold_seconds
        60

        ```

    Raises:
        ValidationError: The name or a number is invalid.
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int
    hold_seconds: int = 0

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        check_whole_number("capacity", self.capacity, 1, MAX_AMOUNT)
        if self.hold_seconds != 0 or type(self.hold_seconds) is not int:
            return self._check_slots()
        check_whole_number("refill_amount", self.refill_amount, 1, MAX_AMOUNT)
        check_whole_number("refill_period_seconds", self.refill_period_seconds, 1, MAX_PERIOD_SECONDS)
        return None

    def _check_slots(self) -> None:
        check_whole_number("hold_seconds", self.hold_seconds, SHORTEST_HOLD_SECONDS, LONGEST_HOLD_SECONDS)
        if self.refill_amount or self.refill_period_seconds:
            reason = "must be 0, as slots are returned and not refilled; use Limit.concurrent(name, capacity)"
            raise ValidationError("refill_amount", (self.refill_amount, self.refill_period_seconds), reason)

    def __repr__(self) -> str:
        numbers = f"refill_amount={self.refill_amount}, refill_period_seconds={self.refill_period_seconds}"
        numbers = f"hold_seconds={self.hold_seconds}" if self.hold_seconds else numbers
        return f"{type(self).__name__}(name={self.name!r}, capacity={self.capacity}, {numbers})"

    @classmethod
    def per_second(cls, name: str, rate: int, burst: int | None = None) -> Self:
        """Make a limit of ``rate`` tokens per second. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 1)

    @classmethod
    def per_minute(cls, name: str, rate: int, burst: int | None = None) -> Self:
        """Make a limit of ``rate`` tokens per minute. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 60)

    @classmethod
    def per_hour(cls, name: str, rate: int, burst: int | None = None) -> Self:
        """Make a limit of ``rate`` tokens per hour. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 3_600)

    @classmethod
    def per_day(cls, name: str, rate: int, burst: int | None = None) -> Self:
        """Make a limit of ``rate`` tokens per day. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 86_400)

    @classmethod
    def custom(cls, name: str, capacity: int, refill_amount: int, refill_period_seconds: int) -> Self:
        """Make a limit with any combination of numbers; it may take more or less than one period to fill."""
        return cls(name, capacity, refill_amount, refill_period_seconds)

    @classmethod
    def concurrent(cls, name: str, capacity: int, hold_seconds: int = 60) -> Self:
        """Make a limit of concurrent use: at most ``capacity`` slots are in use at a time.

        A slot is returned when its lease ends. While the lease is open, the client renews the slot in the background.
        If a process crashes or pauses, its slots are free again after ``hold_seconds``, and at most half as long more.
        """
        return cls(name, capacity, 0, 0, hold_seconds)

    @classmethod
    def _at_rate(cls, name: str, rate: int, burst: int | None, period_seconds: int) -> Self:
        check_limit_name(name)
        check_whole_number("rate", rate, 1, MAX_AMOUNT)
        if burst is None:
            return cls(name, rate, rate, period_seconds)
        check_whole_number("burst", burst, 1, MAX_AMOUNT)
        if burst < rate:
            raise ValidationError("burst", burst, f"must be at least the rate, {rate}")
        return cls(name, burst, rate, period_seconds)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a limit from the result of ``to_dict``.

        Raises:
            ValidationError: A field is missing, unknown or invalid.
        """
        if not isinstance(data, Mapping):
            raise ValidationError("limit", data, f"must be a mapping, not {type(data).__name__}")
        required = [entry.name for entry in fields(cls) if entry.name != "hold_seconds"]
        if data.keys() - {"hold_seconds"} != set(required):
            raise ValidationError("limit", dict(data), f"must have exactly the fields {', '.join(sorted(required))}")
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as a dictionary, ready for JSON."""
        # Not `asdict`, which imports the dataclasses of the standard library.
        data: dict[str, Any] = {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
        }
        # Only where it says something: programs compare the dictionaries of rate limits.
        return data | {"hold_seconds": self.hold_seconds} if self.hold_seconds else data

    @property
    def is_concurrent(self) -> bool:
        """Whether this is a limit of concurrent use, which has slots instead of tokens."""
        return self.hold_seconds > 0

    @property
    def refill_rate(self) -> float:
        """The refill rate in tokens per second, 0 for a limit of concurrent use."""
        return self.refill_amount / self.refill_period_seconds if self.refill_period_seconds else 0.0

    @property
    def capacity_milli(self) -> int:
        """The capacity in millitokens."""
        return self.capacity * 1000

    @property
    def refill_amount_milli(self) -> int:
        """The refill per period in millitokens."""
        return self.refill_amount * 1000

    @property
    def refill_period_ms(self) -> int:
        """The period in milliseconds."""
        return self.refill_period_seconds * 1000

    @property
    def fill_time_ms(self) -> int:
        """The milliseconds that an empty bucket takes to fill, rounded up.

        For a limit of concurrent use, these are the milliseconds until the slots of a lost holder are free.
        """
        if self.hold_seconds:
            return (self.hold_seconds + self.cohort_seconds) * 1000
        return -(-self.capacity * self.refill_period_ms // self.refill_amount)

    @property
    def cohort_seconds(self) -> int:
        """The seconds between the ends of two cohorts: slots that are taken within this time are returned together."""
        return -(-self.hold_seconds // 2)


def check_limits(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """Require limits that can be used together in one bucket, and return them as a tuple.

    Raises:
        ValidationError: The value is not a list or tuple of limits, is empty or too long, or repeats a name.
    """
    if not isinstance(limits, list | tuple):
        raise ValidationError("limits", limits, f"must be a list of Limit, not {type(limits).__name__}")
    # Check the copy that is used: a subclass of list could return other elements each time.
    checked = tuple(limits)
    if not checked:
        raise ValidationError("limits", limits, "must not be empty")
    if len(checked) > MAX_LIMITS:
        raise ValidationError("limits", limits, f"must be at most {MAX_LIMITS} limits, not {len(checked)}")
    seen: set[str] = set()
    for limit in checked:
        if type(limit) is not Limit:
            raise ValidationError("limits", limit, f"must hold only Limit, not {type(limit).__name__}")
        if limit.name in seen:
            raise ValidationError("limits", limit.name, "appears twice; give each limit its own name")
        seen.add(limit.name)
    return checked


SLOTS_KIND = "slots"
"""The kind of items with limits of concurrent use, which older code would take for rate limits that never refill."""


def kinds_of_limits(limits: Sequence[Limit]) -> list[str]:
    """Return the kinds of items that a table must allow before it stores these limits."""
    return [SLOTS_KIND] if any(limit.hold_seconds for limit in limits) else []


def digest(limits: Sequence[Limit]) -> str:
    """Return a short text that depends on the limits but not on their order."""
    # Imported here: it loads OpenSSL, and only limits that are passed to a call have a digest.
    from hashlib import blake2b

    lines = sorted(_line(one) for one in limits)
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def _line(limit: Limit) -> str:
    """Return the text of a limit in a digest; that of a rate limit is the same as in earlier versions."""
    line = f"{limit.name} {limit.capacity} {limit.refill_amount} {limit.refill_period_seconds}"
    return f"{line} {limit.hold_seconds}" if limit.hold_seconds else line
