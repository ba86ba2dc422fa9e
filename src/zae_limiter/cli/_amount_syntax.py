"""Parse numbers, money and the amounts of limits on the command line."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.money import MICRO, format_amount, is_currency

AMOUNT_FORM = "NAME:AMOUNT"
NUMBER_HELP = "Numbers may end in k, m or g: 10k is 10000, 1.5m is 1500000 (m is never minutes)."
"""The forms of a number, for the help."""

NUMBER = r"-?[0-9](?:_?[0-9]){0,29}(?:\.[0-9]{1,30})?"
"""A number without its suffix. No valid number has more digits, and longer ones need not be converted."""

QUANTITY = rf"{NUMBER}(?:[A-Za-z]{{3}}|[kmgKMG](?:[A-Za-z]{{3}})?)?"
"""A number with its suffix, and with a currency: ``500``, ``10k``, ``12.50usd`` or ``1kusd``."""

_MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_AMOUNT = re.compile(rf"(?P<name>[^:]+):(?P<amount>{QUANTITY})")
_QUANTITY = re.compile(rf"(?P<number>{NUMBER})(?P<suffix>[kmgKMG])??(?P<letters>[A-Za-z]{{3}})?")

# Other words, such as "min", "sec" or "img", are more likely a mistake than a currency.
_CURRENCIES = (
    "AED|AFN|ALL|AMD|ANG|AOA|ARS|AUD|AWG|AZN|BAM|BBD|BDT|BGN|BHD|BIF|BMD|BND|BOB|BRL|BSD|BTN|BWP|BYN|BZD|CAD|CDF|CHF|"
    "CLP|CNY|COP|CRC|CUP|CVE|CZK|DJF|DKK|DOP|DZD|EGP|ERN|ETB|EUR|FJD|FKP|GBP|GEL|GHS|GIP|GMD|GNF|GTQ|GYD|HKD|HNL|HTG|"
    "HUF|IDR|ILS|INR|IQD|IRR|ISK|JMD|JOD|JPY|KES|KGS|KHR|KMF|KPW|KRW|KWD|KYD|KZT|LAK|LBP|LKR|LRD|LSL|LYD|MAD|MDL|MGA|"
    "MKD|MMK|MNT|MOP|MRU|MUR|MVR|MWK|MXN|MYR|MZN|NAD|NGN|NIO|NOK|NPR|NZD|OMR|PAB|PEN|PGK|PHP|PKR|PLN|PYG|QAR|RON|RSD|"
    "RUB|RWF|SAR|SBD|SCR|SDG|SEK|SGD|SHP|SLE|SOS|SRD|SSP|STN|SVC|SYP|SZL|THB|TJS|TMT|TND|TOP|TRY|TTD|TWD|TZS|UAH|UGX|"
    "USD|UYU|UZS|VES|VND|VUV|WST|XAF|XCD|XCG|XOF|XPF|YER|ZAR|ZMW|ZWG"
)


class Quantity(NamedTuple):
    """A whole number, and its currency if it is money in micro-units; None if it is not."""

    amount: int
    currency: str | None


class WrittenAmount(NamedTuple):
    """An amount of a limit as it was typed; money has a currency, and is in micro-units."""

    limit_name: str
    amount: int
    currency: str | None = None


def parse_amount(text: str) -> WrittenAmount:
    """Parse an amount to take of a limit, such as ``rpm:1``, ``tpm:1.5k`` or ``spend:0.05usd``.

    Raises:
        ValidationError: The text has another form.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValidationError("amount", text, f"must be {AMOUNT_FORM}, such as rpm:1, tpm:1.5k or spend:0.05usd")
    try:
        return WrittenAmount(found["name"], *parse_quantity(found["amount"], "amount"))
    except ValidationError as error:
        raise ValidationError("amount", text, error.reason) from error


def parse_amounts(text: str) -> tuple[WrittenAmount, ...]:
    """Parse amounts to take of several limits, separated by commas.

    Raises:
        ValidationError: One has another form, or a limit is given twice.
    """
    found = tuple(parse_amount(one) for one in text.split(","))
    gather_amounts(found)
    return found


def gather_amounts(written: Sequence[WrittenAmount]) -> dict[str, int]:
    """Return amounts by limit name.

    Raises:
        ValidationError: A limit is given twice.
    """
    names = [one.limit_name for one in written]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationError("amount", twice, "appears twice; pass each limit once")
    return {one.limit_name: one.amount for one in written}


def check_currencies(written: Sequence[WrittenAmount], units: Mapping[str, str | None]) -> None:
    """Require that amounts of money limits are in their currency, and that only these are money.

    Without a currency, 5 would be 5 micro-units. ``units`` are those of the known limits, by their names.

    Raises:
        ValidationError: One is in another unit.
    """
    for one in written:
        unit = units.get(one.limit_name)
        needed = unit if is_currency(unit) else None
        if one.limit_name not in units or one.currency == needed or (one.amount == 0 and one.currency is None):
            continue
        shown = f"{one.limit_name}:{write_quantity(one.amount, one.currency)}"
        if needed is None:
            raise ValidationError("amount", shown, f"limit {one.limit_name!r} is not money; pass a plain number")
        example = f"{one.limit_name}:0.05{_written(needed)}"
        reason = f"limit {one.limit_name!r} is in {needed}; write the currency, such as {example}"
        raise ValidationError("amount", shown, reason)


def parse_quantity(text: str, field: str) -> Quantity:
    """Parse a number, or money with its currency.

    Small letters are a known currency. Capital letters may be any, as ``Limit.quota`` allows them.

    Example:
        >>> parse_quantity("12.50usd", "amount")
        Quantity(amount=12500000, currency='USD')
        >>> parse_quantity("1.5m", "amount")
        Quantity(amount=1500000, currency=None)

    Raises:
        ValidationError: The number is not whole, has too many decimals, or the currency is unknown.
    """
    found = _QUANTITY.fullmatch(text)
    assert found is not None, "the caller has matched it"
    letters = found["letters"]
    if letters is None:
        return Quantity(parse_number(text, field), None)
    currency = letters.upper()
    if currency != letters and currency not in _CURRENCIES:
        reason = (
            f"{letters} is no known currency; money is 12.50usd, a period is /min, and another unit is :unit={letters}"
        )
        raise ValidationError(field, text, reason)
    amount, remainder = _scaled(found["number"], (found["suffix"] or "").lower(), MICRO)
    if remainder:
        raise ValidationError(field, text, "money has at most 6 decimals")
    return Quantity(amount, currency)


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
    number, remainder = _scaled(text[: len(text) - len(suffix)], suffix, 1)
    if remainder:
        reason = f"{text} is not a whole number of tokens; money has a currency, such as 0.05usd"
        raise ValidationError(field, text, reason)
    return number


def _scaled(number: str, suffix: str, scale: int) -> tuple[int, int]:
    """Return a number as a multiple of ``1 / scale``, and what is left over."""
    whole, _, fraction = number.partition(".")
    # Computed with integers, because a float would round large numbers.
    places: int = 10 ** len(fraction)
    return divmod(int(whole + fraction) * _MULTIPLES[suffix] * scale, places)


def write_quantity(amount: int, unit: str | None) -> str:
    """Format an amount in the form that ``parse_quantity`` accepts; a unit that is no currency is left out.

    Example:
        >>> write_quantity(12_500_000, "USD"), write_quantity(1000, "tokens")
        ('12.50usd', '1000')
    """
    if unit is None or not is_currency(unit):
        return str(amount)
    return f"{format_amount(amount, unit).removesuffix('.00').removesuffix('.000')}{_written(unit)}"


def _written(currency: str) -> str:
    """Return a currency in small letters if these are known as one."""
    return currency.lower() if currency in _CURRENCIES else currency
