"""Parse limits and amounts on the command line, and format stored limits."""

import re
from collections.abc import Callable, Sequence

from zae_limiter.cli._groups import closest
from zae_limiter.cli._output import Column, Grid
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit

LIMIT_FORM = "NAME:RATE[/PERIOD][:burst=N]"
SLOTS_FORM = "NAME:SLOTS/concurrent[:hold=60s]"
"""The form of a limit of concurrent use."""
SLOTS_HELP = f"At most so many at a time: {SLOTS_FORM}."
"""Limits of concurrent use, for the help."""
AMOUNT_FORM = "NAME:AMOUNT"
NUMBER_HELP = "Numbers may end in k, m or g: 10k is 10000, 1.5m is 1500000 (m is never minutes)."
"""The forms of a number, for the help."""
_COLUMNS = [Column("limit"), Column("capacity", True), Column("refill")]
LIMIT_KEYS = "LIMIT is {name, capacity, refill_amount, refill_period_seconds}, for slots also {hold_seconds}"
"""The JSON keys of a limit, for the help."""

_MAKERS: dict[str, Callable[[str, int, int | None], Limit]] = {
    **dict.fromkeys(("s", "sec", "second"), Limit.per_second),
    **dict.fromkeys(("min", "minute"), Limit.per_minute),
    **dict.fromkeys(("h", "hour"), Limit.per_hour),
    **dict.fromkeys(("d", "day"), Limit.per_day),
}
_CONCURRENT = "concurrent"
_HOLD_UNITS = {"s": 1, "min": 60, "h": 3600}
_OPTIONS = ("burst", "hold")
_PERIOD_NAMES = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
_SHORT_PERIODS = {1: "s", 60: "min", 3600: "h", 86400: "d"}

_MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
# No valid number has more digits, and longer ones need not be converted.
_NUMBER = r"-?[0-9](?:_?[0-9]){0,29}(?:\.[0-9]{1,30})?[kmgKMG]?"
_LIMIT = re.compile(
    rf"(?P<name>[^:]+):(?P<rate>{_NUMBER})(?:/(?P<period>[a-z]+))?(?P<options>(?::[a-z]{{1,20}}=[^:=/]{{1,70}})*)"
)
_BURST = re.compile(_NUMBER)
_HOLD = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>s|min|h)")
_AMOUNT = re.compile(rf"(?P<name>[^:]+):(?P<amount>{_NUMBER})")


def parse_limit(text: str) -> Limit:
    """Parse a limit; its period is a minute unless given, and the hold of slots 60 seconds.

    Example:
        >>> parse_limit("rpm:1000/min:burst=1500")
        Limit(name='rpm', capacity=1500, refill_amount=1000, refill_period_seconds=60)
        >>> parse_limit("slots:20/concurrent:hold=30s")
        Limit(name='slots', capacity=20, hold_seconds=30)

    Raises:
        ValidationError: The text has another form, or the limit is invalid.
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise _malformed(text)
    period = found["period"] or "min"
    if period != _CONCURRENT and period not in _MAKERS:
        raise ValidationError("limit", text, _unknown_period(period))
    options = _options_of(text, found["options"])
    try:
        rate = parse_number(found["rate"], "slots" if period == _CONCURRENT else "rate")
        if period == _CONCURRENT:
            return _slots(found["name"], rate, options)
        if "hold" in options:
            raise ValidationError("hold", options["hold"], f"only slots have one: {SLOTS_FORM}")
        burst = parse_number(options["burst"], "burst") if "burst" in options else None
        return _MAKERS[period](found["name"], rate, burst)
    except ValidationError as error:
        raise ValidationError("limit", text, f"{error.field}: {error.reason}") from error


def _malformed(text: str) -> ValidationError:
    reason = f"must be {LIMIT_FORM}, such as rpm:100, tps:50/s or tpm:10k/min:burst=15k"
    return ValidationError("limit", text, f"{reason}; or {SLOTS_FORM}, such as slots:20/concurrent")


def _unknown_period(period: str) -> str:
    """Return why a period is not valid, with the one that was probably meant."""
    minutes = "; minutes are min, because m is a million"
    hint = minutes if period == "m" else _similar(period, [*_MAKERS, _CONCURRENT])
    return f"the period must be one of {', '.join(_MAKERS)} or {_CONCURRENT}, not {period}{hint}"


def _similar(word: str, known: Sequence[str]) -> str:
    """Return a hint at the word that was probably meant, empty if none is similar."""
    return "".join(f"; did you mean {near}?" for near in closest(word, known)[:1])


def _options_of(text: str, written: str) -> dict[str, str]:
    """Return the options that follow a rate, by name.

    Raises:
        ValidationError: One is unknown, malformed or repeated.
    """
    pairs = [option.partition("=")[::2] for option in written.split(":")[1:]]
    options = dict(pairs)
    for name, value in pairs:
        if name not in _OPTIONS:
            reason = f"{name} is no option of a limit, which are burst and hold{_similar(name, _OPTIONS)}"
            raise ValidationError("limit", text, reason)
        if name == "burst" and _BURST.fullmatch(value) is None:
            raise _malformed(text)
    if len(options) < len(pairs):
        raise ValidationError("limit", text, "pass each option once")
    return options


def _slots(name: str, slots: int, options: dict[str, str]) -> Limit:
    """Return a limit of concurrent use.

    Raises:
        ValidationError: An option or a number is invalid.
    """
    if "burst" in options:
        raise ValidationError("burst", options["burst"], "slots have none: never more than this many are in use")
    if "hold" not in options:
        return Limit.concurrent(name, slots)
    found = _HOLD.fullmatch(options["hold"])
    if found is None:
        raise ValidationError("hold", options["hold"], "must be a whole number of s, min or h, such as 60s or 5min")
    return Limit.concurrent(name, slots, int(found["number"]) * _HOLD_UNITS[found["unit"]])


def parse_amount(text: str) -> tuple[str, int]:
    """Parse an amount to take of a limit.

    Raises:
        ValidationError: The text has another form.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValidationError("amount", text, f"must be {AMOUNT_FORM}, such as rpm:1 or tpm:1.5k")
    try:
        return found["name"], parse_number(found["amount"], "amount")
    except ValidationError as error:
        raise ValidationError("amount", text, error.reason) from error


def parse_amounts(text: str) -> dict[str, int]:
    """Parse amounts to take of several limits, separated by commas.

    Example:
        >>> parse_amounts("rpm:1,tpm:1.5k")
        {'rpm': 1, 'tpm': 1500}

    Raises:
        ValidationError: One has another form, or a limit is given twice.
    """
    return gather_amounts(tuple(parse_amount(one) for one in text.split(",")))


def parse_number(text: str, field: str) -> int:
    """Parse a whole number such as ``10000``, ``10_000``, ``10k``, ``1.5m`` or ``2g``.

    The suffixes k, m and g mean 10^3, 10^6 and 10^9.

    Example:
        >>> parse_number("1.5m", "rate")
        1500000

    Raises:
        ValidationError: The number is not whole.
    """
    suffix = text[-1].lower() if text[-1].isalpha() else ""
    whole, _, fraction = text[: len(text) - len(suffix)].partition(".")
    # Computed with integers, because a float would round large numbers.
    scale: int = 10 ** len(fraction)
    number, remainder = divmod(int(whole + fraction) * _MULTIPLES[suffix], scale)
    if remainder:
        raise ValidationError(field, text, f"{text} is not a whole number of tokens")
    return number


def gather_amounts(pairs: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Return amounts by limit name.

    Raises:
        ValidationError: A limit is given twice.
    """
    amounts = dict(pairs)
    if len(amounts) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationError("amount", twice, "appears twice; pass each limit once")
    return amounts


def describe_refill(limit: Limit) -> str:
    """Return how fast a limit refills: ``1000 per minute``, or how it is held: ``at a time, hold 60 s``."""
    if limit.is_concurrent:
        return describe_hold(limit.hold_seconds)
    return describe_rate(limit.refill_amount, limit.refill_period_seconds)


def describe_hold(seconds: int) -> str:
    """Return that the capacity of a limit is of slots, and how long a lost one is held: ``at a time, hold 60 s``."""
    return f"at a time, hold {seconds} s"


def describe_rate(amount: int, seconds: int) -> str:
    """Return an amount per period: ``1000 per minute``."""
    return f"{amount} per {_PERIOD_NAMES.get(seconds, f'{seconds} seconds')}"


def write_limit(limit: Limit) -> str:
    """Format a limit in the form that ``parse_limit`` accepts.

    A period without a name is written in seconds, which ``parse_limit`` does not accept.

    Example:
        >>> write_limit(Limit.per_minute("rpm", 1000, burst=1500))
        'rpm:1000/min:burst=1500'
        >>> write_limit(Limit.concurrent("slots", 20))
        'slots:20/concurrent:hold=60s'
    """
    if limit.is_concurrent:
        return f"{limit.name}:{limit.capacity}/{_CONCURRENT}:hold={limit.hold_seconds}s"
    seconds = limit.refill_period_seconds
    burst = "" if limit.capacity == limit.refill_amount else f":burst={limit.capacity}"
    return f"{limit.name}:{limit.refill_amount}/{_SHORT_PERIODS.get(seconds, f'{seconds} s')}{burst}"


def limits_grid(limits: Sequence[Limit]) -> Grid:
    """Return limits as a table."""
    return Grid(_COLUMNS, [(limit.name, str(limit.capacity), describe_refill(limit)) for limit in limits])


def limit_facts(limits: Sequence[Limit]) -> list[dict[str, object]]:
    """Return limits ready for JSON."""
    return [dict(limit.to_dict()) for limit in limits]
