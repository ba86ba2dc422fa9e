"""Parse limits and amounts on the command line, and format stored limits."""

import re
from collections.abc import Callable, Sequence

from zae_limiter.cli._output import Column, Grid
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit

LIMIT_FORM = "NAME:RATE[/PERIOD][:burst=N]"
AMOUNT_FORM = "NAME:AMOUNT"
NUMBER_HELP = "Numbers may end in k, m or g: 10k is 10000, 1.5m is 1500000 (m is never minutes)."
"""The forms of a number, for the help."""
_COLUMNS = [Column("limit"), Column("capacity", True), Column("refill")]
LIMIT_KEYS = "LIMIT is {name, capacity, refill_amount, refill_period_seconds}"
"""The JSON keys of a limit, for the help."""

_MAKERS: dict[str, Callable[[str, int, int | None], Limit]] = {
    **dict.fromkeys(("s", "sec", "second"), Limit.per_second),
    **dict.fromkeys(("min", "minute"), Limit.per_minute),
    **dict.fromkeys(("h", "hour"), Limit.per_hour),
    **dict.fromkeys(("d", "day"), Limit.per_day),
}
_PERIOD_NAMES = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
_SHORT_PERIODS = {1: "s", 60: "min", 3600: "h", 86400: "d"}

_MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
# No valid number has more digits, and longer ones need not be converted.
_NUMBER = r"-?[0-9](?:_?[0-9]){0,29}(?:\.[0-9]{1,30})?[kmgKMG]?"
_LIMIT = re.compile(rf"(?P<name>[^:]+):(?P<rate>{_NUMBER})(?:/(?P<period>[a-z]+))?(?::burst=(?P<burst>{_NUMBER}))?")
_AMOUNT = re.compile(rf"(?P<name>[^:]+):(?P<amount>{_NUMBER})")


def parse_limit(text: str) -> Limit:
    """Parse a limit; its period is a minute unless given.

    Example:
        >>> parse_limit("rpm:1000/min:burst=1500")
        Limit(name='rpm', capacity=1500, refill_amount=1000, refill_period_seconds=60)

    Raises:
        ValidationError: The text has another form, or the limit is invalid.
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        reason = f"must be {LIMIT_FORM}, such as rpm:100, tps:50/s or tpm:10k/min:burst=15k"
        raise ValidationError("limit", text, reason)
    period = found["period"] or "min"
    if period not in _MAKERS:
        minutes = "; minutes are min, because m is a million" if period == "m" else ""
        raise ValidationError("limit", text, f"the period must be one of {', '.join(_MAKERS)}, not {period}{minutes}")
    try:
        burst = None if found["burst"] is None else parse_number(found["burst"], "burst")
        return _MAKERS[period](found["name"], parse_number(found["rate"], "rate"), burst)
    except ValidationError as error:
        raise ValidationError("limit", text, f"{error.field}: {error.reason}") from error


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
    """Return how fast a limit refills: ``1000 per minute``."""
    return describe_rate(limit.refill_amount, limit.refill_period_seconds)


def describe_rate(amount: int, seconds: int) -> str:
    """Return an amount per period: ``1000 per minute``."""
    return f"{amount} per {_PERIOD_NAMES.get(seconds, f'{seconds} seconds')}"


def write_limit(limit: Limit) -> str:
    """Format a limit in the form that ``parse_limit`` accepts.

    A period without a name is written in seconds, which ``parse_limit`` does not accept.

    Example:
        >>> write_limit(Limit.per_minute("rpm", 1000, burst=1500))
        'rpm:1000/min:burst=1500'
    """
    seconds = limit.refill_period_seconds
    burst = "" if limit.capacity == limit.refill_amount else f":burst={limit.capacity}"
    return f"{limit.name}:{limit.refill_amount}/{_SHORT_PERIODS.get(seconds, f'{seconds} s')}{burst}"


def limits_grid(limits: Sequence[Limit]) -> Grid:
    """Return limits as a table."""
    return Grid(_COLUMNS, [(limit.name, str(limit.capacity), describe_refill(limit)) for limit in limits])


def limit_facts(limits: Sequence[Limit]) -> list[dict[str, object]]:
    """Return limits ready for JSON."""
    return [dict(limit.to_dict()) for limit in limits]
