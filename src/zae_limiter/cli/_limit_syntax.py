"""Parse limits on the command line, and write limits in the same form."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from zae_limiter.cli._amount_syntax import QUANTITY, Quantity, parse_quantity, write_quantity
from zae_limiter.cli._groups import closest
from zae_limiter.cli._help import section
from zae_limiter.core.calendar import CalendarSchedule, schedule_of
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import is_currency
from zae_limiter.core.names import MAX_AMOUNT, check_limit_name, check_whole_number

LIMIT_FORM = "NAME:RATE[/PERIOD][:burst=N]"
SLOTS_FORM = "NAME:SLOTS/concurrent[:hold=60s]"
"""The form of a limit of concurrent use."""
QUOTA_FORM = "NAME:AMOUNT/PERIOD@ZONE[:starts=...]"
"""The form of a quota."""
FORMS = section(
    "Limits",
    "rpm:1000                                a rate per minute",
    "tpm:10k/min:burst=15k                   also per s, h, d, or 90s and 5min",
    "slots:20/concurrent:hold=60s            at most 20 at a time",
    "spend:500usd/month@Europe/Berlin        a quota, full again each month",
    "spend:9.99eur/month:starts=15T06:00     a month or week is UTC without @ZONE",
    "calls:5k/week@Asia/Tokyo:starts=monT06:00",
    "tokens:1m/day@UTC:starts=06:00          a quota, because of @ZONE;",
    "tokens:1m/day                           a rate, because it has none",
    "calls:500/hour@UTC:starts=30            from minute 30",
    "",
    f"Forms: {LIMIT_FORM}, {SLOTS_FORM},",
    f"{QUOTA_FORM}. Each may end in :soft, to count and",
    "never reject, :warn=0.8,1, to warn at these parts, and :unit=tokens.",
)
"""Every form of a limit, for the help."""

_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86_400),
}
_CONCURRENT = "concurrent"
_QUOTA_PERIODS = {"h": "hour", "hour": "hour", "d": "day", "day": "day", "week": "week", "month": "month"}
_ALWAYS_QUOTAS = ("week", "month")
_PERIODS = (*_SECONDS, *_ALWAYS_QUOTAS, _CONCURRENT)
_OPTIONS = ("burst", "capacity", "hold", "soft", "starts", "unit", "warn")
_SHORT_PERIODS = {1: "s", 60: "min", 3600: "h", 86400: "d"}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_LIMIT = re.compile(
    rf"(?P<name>[^:]+):(?P<amount>{QUANTITY})(?:/(?P<count>[0-9]{{1,9}})?(?P<period>[a-z]+)(?:@(?P<zone>[\w+/-]{{1,64}}))?)?"
    r"(?P<options>(?::[a-z]{1,20}(?:=[^:=/]{1,70}(?::[0-9]{2})?)?)*)",
    re.ASCII,
)
_OPTION = re.compile(r":([a-z]+)(?:=([^:=/]+(?::[0-9]{2})?))?", re.ASCII)
_QUANTITY = re.compile(QUANTITY)
_HOLD = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>s|min|h)", re.ASCII)
_HOLD_UNITS = {"s": 1, "min": 60, "h": 3600}
_PART = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3})?")
_CLOCK = "[0-9]{2}:[0-9]{2}"
_STARTS = {
    "month": (re.compile(rf"(?P<day>[0-9]{{1,2}})(?:T(?P<clock>{_CLOCK}))?"), "a day and a time, such as 15T06:00"),
    "week": (re.compile(rf"(?P<day>[1-7]|[A-Za-z]+)(?:T(?P<clock>{_CLOCK}))?"), "a weekday and a time: monT06:00"),
    "day": (re.compile(rf"(?P<clock>{_CLOCK})"), "a time, such as 06:00"),
    "hour": (re.compile(r"(?P<minute>[0-9]{1,2})"), "a minute, such as 30"),
}


@dataclass(frozen=True, slots=True)
class _WrittenLimit:
    """A limit as it was typed. ``count`` is how many periods, and ``zone`` is a time zone, both None if missing."""

    name: str
    quantity: Quantity
    count: int | None
    period: str
    zone: str | None
    options: dict[str, str]

    @property
    def is_quota(self) -> bool:
        """Whether the amount is a quota: it has a time zone, or its period is always one of the calendar."""
        return self.zone is not None or self.period in _ALWAYS_QUOTAS

    @property
    def shared(self) -> dict[str, Any]:
        """The options of every kind of limit, as arguments."""
        unit = self.options.get("unit", self.quantity.currency)
        return {"unit": unit, "enforce": "soft" not in self.options, "warn_at": _parts(self.options.get("warn"))}


def parse_limit(text: str) -> Limit:
    """Parse a limit; its period is a minute unless given, the hold of slots 60 seconds, and the zone of a quota UTC.

    Example:
        >>> parse_limit("rpm:1000/min:burst=1500")
        Limit(name='rpm', capacity=1500, refill_amount=1000, refill_period_seconds=60)
        >>> parse_limit("slots:20/concurrent:hold=30s")
        Limit(name='slots', capacity=20, hold_seconds=30)
        >>> parse_limit("tokens:1m/day@UTC:soft")
        Limit(name='tokens', capacity=1000000, schedule='d 0000 UTC', enforce=False)

    Raises:
        ValidationError: The text has another form, or the limit is invalid.
    """
    try:
        return _limit_of(_written(text))
    except ValidationError as error:
        reason = error.reason if error.field == "limit" else f"{error.field}: {error.reason}"
        raise ValidationError("limit", text, reason) from error


def _malformed(text: str) -> ValidationError:
    reason = f"must be {LIMIT_FORM}, such as rpm:100, tps:50/s or tpm:10k/min:burst=15k"
    slots = f"{SLOTS_FORM}, such as slots:20/concurrent"
    quota = f"{QUOTA_FORM}, such as spend:500usd/month@Europe/Berlin"
    return ValidationError("limit", text, f"{reason}; or {slots}; or {quota}")


def _written(text: str) -> _WrittenLimit:
    """Return the parts of a text.

    Raises:
        ValidationError: The text has another form, or a part is unknown.
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise _malformed(text)
    period = found["period"] or "min"
    if period not in _PERIODS:
        raise ValidationError("limit", text, _unknown_period(period))
    options = _options_of(text, found["options"])
    is_quota = period in _ALWAYS_QUOTAS or found["zone"] is not None
    quantity = parse_quantity(found["amount"], "amount" if is_quota else "slots" if period == _CONCURRENT else "rate")
    if quantity.currency is not None and found["period"] is None:
        raise ValidationError("limit", text, f"money needs a period, such as {found['amount']}/month or /min")
    _check_unit(quantity, options)
    count = found["count"]
    return _WrittenLimit(found["name"], quantity, None if count is None else int(count), period, found["zone"], options)


def _unknown_period(period: str) -> str:
    """Return why a period is not valid, with the one that was probably meant."""
    minutes = "; minutes are min, because m is a million"
    hint = minutes if period == "m" else _similar(period, _PERIODS)
    return f"the period must be one of {', '.join(_PERIODS[:-1])} or {_CONCURRENT}, not {period}{hint}"


def _similar(word: str, known: Sequence[str]) -> str:
    """Return a hint at the word that was probably meant, empty if none is similar."""
    return "".join(f"; did you mean {near}?" for near in closest(word, known)[:1])


def _options_of(text: str, written: str) -> dict[str, str]:
    """Return the options that follow an amount, by name; ``soft`` has the empty value.

    Raises:
        ValidationError: One is unknown, malformed or repeated.
    """
    pairs = _OPTION.findall(written)
    for name, value in pairs:
        if name not in _OPTIONS:
            known = f"{', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]}"
            reason = f"{name} is no option of a limit, which are {known}{_similar(name, _OPTIONS)}"
            raise ValidationError("limit", text, reason)
        if (name == "soft") == bool(value):
            reason = "soft has no value" if value else f"{name} needs a value: {name}=..."
            raise ValidationError("limit", text, reason)
        if name in ("burst", "capacity") and _QUANTITY.fullmatch(value) is None:
            raise _malformed(text)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ValidationError("limit", text, "pass each option once")
    return options


def _check_unit(quantity: Quantity, options: dict[str, str]) -> None:
    """Require that a limit of money has no other unit, and that no other unit looks like money.

    Raises:
        ValidationError: The amount would be taken for micro-units, or the other way round.
    """
    unit = options.get("unit")
    if unit is not None and quantity.currency is not None:
        raise ValidationError("unit", unit, f"the amount is in {quantity.currency} already")
    if is_currency(unit):
        raise ValidationError("unit", unit, f"three capital letters are money: write the amount as 500{unit}")


def _limit_of(written: _WrittenLimit) -> Limit:
    check_limit_name(written.name)
    if written.is_quota:
        return _quota(written)
    if "starts" in written.options:
        reason = "only quotas have one; a quota of a day or an hour needs its time zone: tokens:1m/day@UTC"
        raise ValidationError("starts", written.options["starts"], reason)
    return _slots(written) if written.period == _CONCURRENT else _rate(written)


def _refuse(written: _WrittenLimit, reasons: dict[str, str]) -> None:
    """Raise if an option was given that this kind of limit does not have; ``reasons`` say why."""
    for name, reason in reasons.items():
        if name in written.options:
            raise ValidationError(name, written.options[name], reason)


def _rate(written: _WrittenLimit) -> Limit:
    _refuse(written, {"hold": f"only slots have one: {SLOTS_FORM}"})
    rate, options = written.quantity.amount, written.options
    check_whole_number("rate", rate, 1, MAX_AMOUNT)
    if "burst" in options and "capacity" in options:
        raise ValidationError("burst", options["burst"], "pass burst or capacity, not both")
    given = [name for name in ("burst", "capacity") if name in options]
    if not given and written.quantity.currency and written.count is None and written.period in _QUOTA_PERIODS:
        amount = write_quantity(*written.quantity)
        quota, steady = f"{amount}/{written.period}@UTC", f"{amount}/{written.period}:burst={amount}"
        reason = f"a quota is written {quota}, with its time zone; a budget that refills all the time is {steady}"
        raise ValidationError("limit", amount, reason)
    capacity = _same_unit(written, given[0]) if given else rate
    if given == ["burst"] and capacity < rate:
        raise ValidationError("burst", capacity, f"must be at least the rate, {rate}")
    seconds = _SECONDS[written.period] * (1 if written.count is None else written.count)
    return Limit(written.name, capacity, rate, seconds, **written.shared)


def _same_unit(written: _WrittenLimit, option: str) -> int:
    """Return the amount of an option, which has the currency of the rate."""
    found, currency = parse_quantity(written.options[option], option), written.quantity.currency
    if found.currency != currency:
        needed = "must be a plain number, as the rate is" if currency is None else f"must be in {currency}, as the rate"
        raise ValidationError(option, written.options[option], needed)
    return found.amount


def _slots(written: _WrittenLimit) -> Limit:
    reason = "slots have none: never more than this many are in use"
    _refuse(written, {"burst": reason, "capacity": reason})
    if written.count is not None:
        raise ValidationError("limit", written.count, f"must be {SLOTS_FORM}")
    hold = written.options.get("hold", "60s")
    found = _HOLD.fullmatch(hold)
    if found is None:
        raise ValidationError("hold", hold, "must be a whole number of s, min or h, such as 60s or 5min")
    seconds = int(found["number"]) * _HOLD_UNITS[found["unit"]]
    return Limit(written.name, written.quantity.amount, 0, 0, seconds, **written.shared)


def _quota(written: _WrittenLimit) -> Limit:
    reason = "a quota has none: its amount is available at the start of each period"
    _refuse(written, {"burst": reason, "capacity": reason, "hold": f"only slots have one: {SLOTS_FORM}"})
    every = _QUOTA_PERIODS.get(written.period)
    if every is None or written.count is not None:
        period = f"{written.count or ''}{written.period}"
        raise ValidationError("limit", period, f"the period of a quota is month, week, day or hour, not {period}")
    zone = "UTC" if written.zone is None else written.zone
    schedule = schedule_of(every, zone, _starts_of(every, written.options.get("starts")))
    return Limit(written.name, written.quantity.amount, 0, 0, 0, schedule, **written.shared)


def _starts_of(every: str, text: str | None) -> object:
    """Return when a period begins, in the form of ``schedule_of``; None if it was not given.

    Raises:
        ValidationError: The text has another form.
    """
    if text is None:
        return None
    pattern, form = _STARTS[every]
    found = pattern.fullmatch(text)
    if found is None:
        raise ValidationError("starts", text, f"must be {form}")
    parts = found.groupdict()
    if every == "hour":
        return int(parts["minute"])
    clock = parts["clock"] or "00:00"
    if every == "day":
        return clock
    return int(parts["day"]) if parts["day"].isdigit() else parts["day"], clock


def _parts(text: str | None) -> tuple[float, ...]:
    """Return the thresholds of warnings.

    Raises:
        ValidationError: One is no number.
    """
    if text is None:
        return ()
    words = text.split(",")
    if not all(_PART.fullmatch(word) for word in words):
        raise ValidationError("warn", text, "must be parts of the capacity, such as 0.8 or 0.8,1")
    return tuple([float(word) for word in words])


def write_limit(limit: Limit) -> str:
    """Format a limit in the form that ``parse_limit`` accepts.

    Example:
        >>> write_limit(Limit.per_minute("rpm", 1000, burst=1500))
        'rpm:1000/min:burst=1500'
        >>> write_limit(Limit.concurrent("slots", 20))
        'slots:20/concurrent:hold=60s'
        >>> write_limit(Limit.quota("spend", 500_000_000, tz="Europe/Berlin", starts=(15, "06:00"), unit="USD"))
        'spend:500usd/month@Europe/Berlin:starts=15T06:00'
    """
    write = {"rate": _write_rate, "slots": _write_slots, "quota": _write_quota}[limit.kind]
    unit = f":unit={limit.unit}" if limit.unit is not None and not is_currency(limit.unit) else ""
    soft = "" if limit.enforce else ":soft"
    warn = f":warn={','.join(f'{part:g}' for part in limit.warn_at)}" if limit.warn_at else ""
    return f"{limit.name}:{write(limit)}{unit}{soft}{warn}"


def _write_rate(limit: Limit) -> str:
    rate, capacity, seconds = limit.refill_amount, limit.capacity, limit.refill_period_seconds
    text = f"{write_quantity(rate, limit.unit)}/{_SHORT_PERIODS.get(seconds, f'{seconds}s')}"
    # Without a burst, money for a day or an hour could be a quota.
    if capacity == rate and not (is_currency(limit.unit) and seconds in (3600, 86_400)):
        return text
    return f"{text}:{'burst' if capacity >= rate else 'capacity'}={write_quantity(capacity, limit.unit)}"


def _write_slots(limit: Limit) -> str:
    return f"{write_quantity(limit.capacity, limit.unit)}/{_CONCURRENT}:hold={limit.hold_seconds}s"


def _write_quota(limit: Limit) -> str:
    schedule = limit.schedule
    assert schedule is not None, "a quota has a schedule"
    starts = write_starts(schedule)
    text = f"{write_quantity(limit.capacity, limit.unit)}/{schedule.every}@{schedule.tz}"
    return f"{text}:starts={starts}" if starts else text


def write_starts(schedule: CalendarSchedule) -> str:
    """Format when a period begins, such as ``15T06:00``; empty for midnight of the first day, or the full hour."""
    if (max(schedule.day, 1), schedule.minute) == (1, 0):
        return ""
    hour, minute = divmod(schedule.minute, 60)
    clock = f"{hour:02}:{minute:02}"
    forms: dict[str, Callable[[], str]] = {
        "month": lambda: f"{schedule.day}T{clock}",
        "week": lambda: f"{_WEEKDAYS[schedule.day - 1]}T{clock}",
        "day": lambda: clock,
        "hour": lambda: str(schedule.minute),
    }
    return forms[schedule.every]()
