"""Define limits: how many tokens a bucket holds, and how fast they refill."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from zae_limiter.core.calendar import CalendarSchedule, schedule_of
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, fields
from zae_limiter.core.names import MAX_AMOUNT, MAX_QUOTA, check_limit_name, check_whole_number

MAX_LIMITS = 32
"""The largest number of limits in one bucket; more would exceed what one DynamoDB write can carry."""

MAX_PERIOD_SECONDS = 10 * 366 * 86_400
"""Ten years. A longer period is almost certainly a mistake of units."""

SHORTEST_HOLD_SECONDS = 5
"""A slot is renewed twice per hold. A shorter hold would be lost in a pause of a few seconds."""

LONGEST_HOLD_SECONDS = 86_400
"""One day. A slot of a process that crashed is not free again before the end of its hold."""

MOST_WARNINGS = 4
"""The largest number of thresholds of one limit."""

_LONGEST_UNIT = 12
_OPTIONAL = ("hold_seconds", "schedule", "unit", "enforce", "warn_at")
_SCHEDULE_KEYS = ("every", "tz", "starts")


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
    A quota has a ``schedule``: its full capacity is available at the start of each period, and nothing is refilled in
    between. A limit with ``enforce=False`` is *soft*: it counts, and never rejects. ``warn_at`` are the used parts of
    the capacity at which a warning is sent, such as ``(0.8, 1.0)``.

    Example:
        ```python
        >>> Limit.per_minute("rpm", 100).refill_period_seconds
        60
        >>> Limit.per_minute("rpm", 100, burst=150).capacity
        150
        >>> Limit.concurrent("slots", 20).hold_seconds
        60
        >>> Limit.quota("tokens", 1_000_000, every="day").schedule.text
        'd 0000 UTC'

        ```

    Raises:
        ValidationError: The name, a number or an option is invalid.
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int
    hold_seconds: int = 0
    schedule: CalendarSchedule | None = None
    unit: str | None = None
    enforce: bool = True
    warn_at: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        if self.schedule is not None or self.unit is not None or self.warn_at or self.enforce is not True:
            self._check_options()
            # A list is accepted, but a frozen value needs a tuple.
            object.__setattr__(self, "warn_at", _thresholds(self.warn_at))
        if self.schedule is not None:
            return self._check_quota()
        check_whole_number("capacity", self.capacity, 1, MAX_AMOUNT)
        if self.hold_seconds != 0 or type(self.hold_seconds) is not int:
            return self._check_slots()
        check_whole_number("refill_amount", self.refill_amount, 1, MAX_AMOUNT)
        check_whole_number("refill_period_seconds", self.refill_period_seconds, 1, MAX_PERIOD_SECONDS)
        return None

    def _check_slots(self) -> None:
        check_whole_number("hold_seconds", self.hold_seconds, SHORTEST_HOLD_SECONDS, LONGEST_HOLD_SECONDS)
        self._check_no_refill("slots are returned and not refilled; use Limit.concurrent(name, capacity)")

    def _check_quota(self) -> None:
        if type(self.schedule) is not CalendarSchedule:
            raise ValidationError("schedule", self.schedule, "must be made by Limit.quota(name, amount, every=...)")
        check_whole_number("amount", self.capacity, 1, MAX_QUOTA)
        if self.hold_seconds:
            raise ValidationError("hold_seconds", self.hold_seconds, "must be 0, as a quota has no slots")
        self._check_no_refill("a quota is full at the start of each period; use Limit.quota(name, amount)")

    def _check_no_refill(self, reason: str) -> None:
        if self.refill_amount or self.refill_period_seconds:
            numbers = self.refill_amount, self.refill_period_seconds
            raise ValidationError("refill_amount", numbers, f"must be 0, as {reason}")

    def _check_options(self) -> None:
        if type(self.enforce) is not bool:
            raise ValidationError("enforce", self.enforce, "must be True, or False for a limit that only counts")
        unit = self.unit
        valid = type(unit) is str and unit.isascii() and unit.isalpha() and len(unit) <= _LONGEST_UNIT
        if unit is not None and not valid:
            reason = f'must be at most {_LONGEST_UNIT} letters, such as "USD" or "tokens"'
            raise ValidationError("unit", unit, reason)

    def __repr__(self) -> str:
        numbers = f"refill_amount={self.refill_amount}, refill_period_seconds={self.refill_period_seconds}"
        numbers = f"hold_seconds={self.hold_seconds}" if self.hold_seconds else numbers
        numbers = f"schedule={self.schedule.text!r}" if self.schedule is not None else numbers
        unit = f", unit={self.unit!r}" if self.unit is not None else ""
        soft = "" if self.enforce else ", enforce=False"
        warnings = f", warn_at={self.warn_at}" if self.warn_at else ""
        return f"{type(self).__name__}(name={self.name!r}, capacity={self.capacity}, {numbers}{unit}{soft}{warnings})"

    @classmethod
    def per_second(
        cls, name: str, rate: int, burst: int | None = None, *, enforce: bool = True, warn_at: Sequence[float] = ()
    ) -> Self:
        """Make a limit of ``rate`` tokens per second. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 1, enforce, warn_at)

    @classmethod
    def per_minute(
        cls, name: str, rate: int, burst: int | None = None, *, enforce: bool = True, warn_at: Sequence[float] = ()
    ) -> Self:
        """Make a limit of ``rate`` tokens per minute. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 60, enforce, warn_at)

    @classmethod
    def per_hour(
        cls, name: str, rate: int, burst: int | None = None, *, enforce: bool = True, warn_at: Sequence[float] = ()
    ) -> Self:
        """Make a limit of ``rate`` tokens per hour. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 3_600, enforce, warn_at)

    @classmethod
    def per_day(
        cls, name: str, rate: int, burst: int | None = None, *, enforce: bool = True, warn_at: Sequence[float] = ()
    ) -> Self:
        """Make a limit of ``rate`` tokens per day. Its capacity is ``burst``, or ``rate`` if that is None."""
        return cls._at_rate(name, rate, burst, 86_400, enforce, warn_at)

    @classmethod
    def custom(
        cls,
        name: str,
        capacity: int,
        refill_amount: int,
        refill_period_seconds: int,
        *,
        enforce: bool = True,
        warn_at: Sequence[float] = (),
    ) -> Self:
        """Make a limit with any combination of numbers; it may take more or less than one period to fill."""
        return cls(name, capacity, refill_amount, refill_period_seconds, enforce=enforce, warn_at=_as_tuple(warn_at))

    @classmethod
    def concurrent(
        cls, name: str, capacity: int, hold_seconds: int = 60, *, enforce: bool = True, warn_at: Sequence[float] = ()
    ) -> Self:
        """Make a limit of concurrent use: at most ``capacity`` slots are in use at a time.

        A slot is returned when its lease ends. While the lease is open, the client renews the slot in the background.
        If a process crashes or pauses, its slots are free again after ``hold_seconds``, and at most half as long more.
        """
        return cls(name, capacity, 0, 0, hold_seconds, enforce=enforce, warn_at=_as_tuple(warn_at))

    @classmethod
    def quota(  # noqa: PLR0913 - each argument is one word of the public API
        cls,
        name: str,
        amount: int,
        every: str = "month",
        tz: str = "UTC",
        starts: object = None,
        unit: str | None = None,
        *,
        enforce: bool = True,
        warn_at: Sequence[float] = (),
    ) -> Self:
        """Make a quota: ``amount`` is available at the start of each period, and nothing is refilled in between.

        What is left at the end of a period is lost, and so is an overdraft.

        Args:
            name: The name of the limit.
            amount: The amount of one period, such as ``usd("500")``, at most 10^15.
            every: ``"month"``, ``"week"``, ``"day"`` or ``"hour"``.
            tz: The time zone of the local times, such as ``"Europe/Berlin"``.
            starts: When a period begins, in local time. For a month it is ``(15, "06:00")``, and for a week
                ``("mon", "06:00")``. For a day it is ``"06:00"``, and for an hour a minute such as ``30``. None is
                midnight of the first day, or the full hour.
            unit: The unit that amounts are shown with. Three capital letters are a currency, in micro-units.
            enforce: False for a quota that only counts.
            warn_at: The used parts of the amount at which a warning is sent.
        """
        schedule = schedule_of(every, tz, starts)
        return cls(name, amount, 0, 0, 0, schedule, unit, enforce, _as_tuple(warn_at))

    @classmethod
    def _at_rate(
        cls, name: str, rate: int, burst: int | None, period_seconds: int, enforce: bool, warn_at: Sequence[float]
    ) -> Self:
        check_limit_name(name)
        check_whole_number("rate", rate, 1, MAX_AMOUNT)
        if burst is None:
            return cls(name, rate, rate, period_seconds, enforce=enforce, warn_at=_as_tuple(warn_at))
        check_whole_number("burst", burst, 1, MAX_AMOUNT)
        if burst < rate:
            raise ValidationError("burst", burst, f"must be at least the rate, {rate}")
        return cls(name, burst, rate, period_seconds, enforce=enforce, warn_at=_as_tuple(warn_at))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a limit from the result of ``to_dict``, or from an audit event, in which thresholds are texts.

        Raises:
            ValidationError: A field is missing, unknown or invalid.
        """
        if not isinstance(data, Mapping):
            raise ValidationError("limit", data, f"must be a mapping, not {type(data).__name__}")
        required = [entry.name for entry in fields(cls) if entry.name not in _OPTIONAL]
        optional = {*_OPTIONAL, *_SCHEDULE_KEYS} - {"schedule"}
        if data.keys() - optional != set(required):
            raise ValidationError("limit", dict(data), f"must have exactly the fields {', '.join(sorted(required))}")
        given = {name: value for name, value in data.items() if name not in _SCHEDULE_KEYS}
        if "warn_at" in given:
            given["warn_at"] = _read_parts(given["warn_at"])
        if data.keys() & set(_SCHEDULE_KEYS):
            given["schedule"] = schedule_of(*(data.get(name) for name in _SCHEDULE_KEYS))
        return cls(**given)

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
        if self.hold_seconds:
            data["hold_seconds"] = self.hold_seconds
        if self.schedule is not None:
            data |= {"every": self.schedule.every, "tz": self.schedule.tz, "starts": self.schedule.starts}
        if self.unit is not None:
            data["unit"] = self.unit
        if not self.enforce:
            data["enforce"] = False
        if self.warn_at:
            data["warn_at"] = list(self.warn_at)
        return data

    @property
    def is_quota(self) -> bool:
        """Whether this is a quota, whose full amount is available at the start of each period."""
        return self.schedule is not None

    @property
    def kind(self) -> str:
        """The kind of the limit: ``rate``, ``slots`` or ``quota``."""
        if self.schedule is not None:
            return "quota"
        return "slots" if self.hold_seconds else "rate"

    @property
    def is_concurrent(self) -> bool:
        """Whether this is a limit of concurrent use, which has slots instead of tokens."""
        return self.hold_seconds > 0

    @property
    def refill_rate(self) -> float:
        """The refill rate in tokens per second, 0 for a limit that is not refilled."""
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

        For a limit of concurrent use, these are the milliseconds until the slots of a lost holder are free. For a
        quota, they are those of its longest period.
        """
        if self.schedule is not None:
            return self.schedule.longest_s * 1000
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


def _as_tuple(warn_at: Sequence[float]) -> tuple[float, ...]:
    """Return thresholds as a tuple; any other value is left to the check of the limit."""
    return tuple(warn_at) if isinstance(warn_at, list) else warn_at  # type: ignore[return-value] # checked later


def _read_parts(warn_at: Any) -> Any:
    """Return thresholds with texts as numbers; anything else is left to the check of the limit."""
    try:
        return [float(part) if type(part) is str else part for part in warn_at]
    except (TypeError, ValueError):
        return warn_at


def _thresholds(warn_at: object) -> tuple[float, ...]:
    """Return thresholds, checked, and rounded to thousandths as they are stored."""
    if not isinstance(warn_at, tuple | list) or len(warn_at) > MOST_WARNINGS:
        raise ValidationError(
            "warn_at", warn_at, f"must be a tuple of at most {MOST_WARNINGS} numbers, such as (0.8, 1.0)"
        )
    for part in warn_at:
        if type(part) not in (int, float) or not 0.001 <= part <= 10:
            raise ValidationError("warn_at", warn_at, "must be parts of the capacity from 0.001 to 10, such as 0.8")
    found = tuple([round(float(part), 3) for part in warn_at])
    if list(found) != sorted(set(found)):
        raise ValidationError("warn_at", warn_at, "must be in rising order, without repeats")
    return found


SLOTS_KIND = "slots"
"""The kind of items with limits of concurrent use, which older code would take for rate limits that never refill."""

QUOTAS_KIND = "quotas"
"""The kind of items with quotas, which older code would not see at all."""

SOFT_KIND = "soft"
"""The kind of items with soft limits, which older code would enforce."""


def kinds_of_limits(limits: Sequence[Limit]) -> list[str]:
    """Return the kinds of items that a table must allow before it stores these limits."""
    used = {
        SLOTS_KIND: any(limit.hold_seconds for limit in limits),
        QUOTAS_KIND: any(limit.is_quota for limit in limits),
        SOFT_KIND: not all(limit.enforce for limit in limits),
    }
    return [kind for kind, is_used in used.items() if is_used]


def digest(limits: Sequence[Limit]) -> str:
    """Return a short text that depends on the limits but not on their order."""
    # Imported here: it loads OpenSSL, and only limits that are passed to a call have a digest.
    from hashlib import blake2b

    lines = sorted(_line(one) for one in limits)
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def _line(limit: Limit) -> str:
    """Return the text of a limit in a digest; that of a rate limit is the same as in earlier versions."""
    line = f"{limit.name} {limit.capacity} {limit.refill_amount} {limit.refill_period_seconds}"
    if limit.hold_seconds:
        line = f"{line} {limit.hold_seconds}"
    if limit.schedule is not None:
        line = f"{line} {limit.schedule.text}"
    if limit.unit is None and limit.enforce and not limit.warn_at:
        return line
    return f"{line} {limit.unit} {limit.enforce} {limit.warn_at}"
