"""Convert money and token usage to whole numbers, and show amounts with their unit.

An amount of money is a whole number of micro-units: 12.50 USD are 12,500,000. So it can be a limit,
and sums are exact.
"""

from collections.abc import Callable, Mapping
from typing import Any

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.names import MAX_QUOTA, check_limit_name

MICRO = 1_000_000
"""Micro-units in one unit of a currency."""

_DECIMALS = 6
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# Currencies whose amounts are not written with two decimals.
_NO_DECIMALS = frozenset(
    ["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"]
)
_THREE_DECIMALS = frozenset(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"])

TOKENS_LIMIT = "tpm"
"""The limit that weighted tokens are counted on, unless the caller names another one."""

MONEY_LIMIT = "spend"
"""The limit that the cost is counted on, unless the caller names another one."""

TokenTable = Mapping[str, Any]
"""Prices or weights by kind of token: ``input``, ``output``, ``cache_read`` and ``cache_write``."""


def usd(amount: object) -> int:
    """Return an amount of US dollars in micro-units.

    Example:
        ```python
        >>> usd("12.50")
        12500000

        ```

    Args:
        amount: Dollars, as a ``str``, an ``int`` or a ``Decimal``. A float is refused, because 0.1 is no exact float.

    Raises:
        ValidationError: The amount is of another type, negative, too large, or has more than 6 decimals.
    """
    return money(amount, "USD")


def money(amount: object, currency: str) -> int:
    """Return an amount of money in micro-units of its currency.

    Example:
        ```python
        >>> money("12.50", "EUR")
        12500000

        ```

    Args:
        amount: The amount, as a ``str``, an ``int`` or a ``Decimal``. A float is refused.
        currency: The three letters of the currency. All currencies have the same number of micro-units.

    Raises:
        ValidationError: The amount or the currency is invalid.
    """
    if not is_currency(currency):
        raise ValidationError("currency", currency, 'must be three capital letters, such as "EUR"')
    if isinstance(amount, float):
        call = f'usd("{amount!r}")' if currency == "USD" else f'money("{amount!r}", "{currency}")'
        raise ValidationError("amount", amount, f"must not be a float, because most floats are not exact: write {call}")
    return _scaled("amount", amount)


def is_currency(unit: object) -> bool:
    """Return whether a unit is a currency, so that amounts are micro-units: three capital letters."""
    return type(unit) is str and len(unit) == 3 and _LETTERS.issuperset(unit)


def format_amount(amount: int, unit: str | None = None) -> str:
    """Return an amount as text, without its unit; an amount of money has its decimals.

    Example:
        ```python
        >>> format_amount(12_500_000, "USD")
        '12.50'
        >>> format_amount(12_500_000, "tokens")
        '12500000'

        ```
    """
    if not is_currency(unit):
        return str(amount)
    least = 0 if unit in _NO_DECIMALS else 3 if unit in _THREE_DECIMALS else 2
    whole, micro = divmod(abs(amount), MICRO)
    decimals = f"{micro:06}".rstrip("0").ljust(least, "0")
    return f"{'-' if amount < 0 else ''}{whole}{'.' if decimals else ''}{decimals}"


def format_with_unit(amount: int, unit: str | None = None) -> str:
    """Return an amount with its unit, such as ``12.50 USD``."""
    return f"{format_amount(amount, unit)} {unit}" if unit else format_amount(amount)


def format_share(amount: int, whole: int, unit: str | None = None) -> str:
    """Return a part of a whole, such as ``12.50 of 500.00 USD``."""
    return f"{format_amount(amount, unit)} of {format_with_unit(whole, unit)}"


def consume_from_usage(
    usage: object, prices: TokenTable | None = None, weights: TokenTable | None = None
) -> dict[str, int]:
    """Return what to consume for the token usage that a provider reports, rounded up.

    Example:
        ```python
        >>> usage = {"prompt_tokens": 1200, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1000}}
        >>> consume_from_usage(usage, prices={"input": usd("3"), "output": usd("15"), "cache_read": usd("0.30")})
        {'spend': 5400}
        >>> consume_from_usage(usage, weights={"input": 1, "output": 5, "cache_read": 0})
        {'tpm': 1700}

        ```

    Args:
        usage: The usage of an answer, as a dict or an object. The names of OpenAI, Anthropic and Google are known.
        prices: Money for one million tokens of each kind, from ``usd`` or ``money``: ``input``, ``output``,
            ``cache_read`` and ``cache_write``. The cost is returned as ``spend``.
        weights: What one token of each kind counts. The sum is returned as ``tpm``. If neither is given, each token
            counts 1.

    Kinds of cached tokens that are left out count like ``input``. For other names of limits, pass tables by name:
    ``prices={"budget": {...}}``.

    Raises:
        ValidationError: The usage is of an unknown form, or a price or a weight is invalid or missing.
    """
    tokens = token_counts(usage)
    consume: dict[str, int] = {}
    if prices is None and weights is None:
        weights = {"input": 1, "output": 1}
    for field, tables, limit, read in (
        ("weights", weights, TOKENS_LIMIT, _weight),
        ("prices", prices, MONEY_LIMIT, _price),
    ):
        for name, table in _by_limit(field, tables, limit):
            if name in consume:
                raise ValidationError(field, tables, f"has the limit {name}, which has weights already")
            consume[name] = _weighted(tokens, table, f"{field}[{name}]", read)
    return consume


def token_counts(usage: object) -> dict[str, int]:
    """Return the tokens of a provider's usage by kind: those read from a cache are not counted as ``input``.

    Raises:
        ValidationError: The usage is of an unknown form, or a number in it is invalid.
    """
    for names in _FORMS:
        if _get(usage, names.input) is not None and (names.total is None or _get(usage, names.total) is not None):
            return names.counts(usage)
    reason = "must have the token counts of OpenAI, Anthropic or Google, such as prompt_tokens or input_tokens"
    raise ValidationError("usage", usage, reason)


class _Form:
    """The names that a provider uses. ``total`` is a field that tells it from others, None if any will do.

    ``includes``: the input counts the tokens that were read from a cache too.
    """

    __slots__ = ("cache_read", "cache_write", "includes", "input", "output", "total")

    def __init__(
        self, input: str, output: tuple[str, ...], cache_read: str, cache_write: str = "", *, includes: bool = True
    ) -> None:
        self.input = input
        self.output = output
        self.cache_read = cache_read
        self.cache_write = cache_write
        self.includes = includes
        self.total = cache_read.partition(".")[0] if input == "input_tokens" and includes else None

    def counts(self, usage: object) -> dict[str, int]:
        read, write = _count(usage, self.cache_read), _count(usage, self.cache_write)
        given = _count(usage, self.input)
        return {
            "input": max(0, given - read) if self.includes else given,
            "output": sum(_count(usage, name) for name in self.output),
            "cache_read": min(read, given) if self.includes else read,
            "cache_write": write,
        }


_FORMS = (
    _Form("prompt_tokens", ("completion_tokens",), "prompt_tokens_details.cached_tokens"),
    # The responses of OpenAI have the names of Anthropic, and the details too.
    _Form("input_tokens", ("output_tokens",), "input_tokens_details.cached_tokens"),
    _Form(
        "input_tokens",
        ("output_tokens",),
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        includes=False,
    ),
    _Form("prompt_token_count", ("candidates_token_count", "thoughts_token_count"), "cached_content_token_count"),
)


def _get(usage: object, name: str) -> object:
    """Return a field of a dict or an object, None if it is absent; dots lead to fields of fields."""
    found: Any = usage
    for part in name.split(".") if name else ():
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
        if found is None:
            return None
    return found if name else None


def _count(usage: object, name: str) -> int:
    found = _get(usage, name)
    if found is None:
        return 0
    if type(found) is not int or not 0 <= found <= MAX_QUOTA:
        raise ValidationError(f"usage.{name}", found, "must be a number of tokens")
    return found


def _by_limit(field: str, tables: object, limit: str) -> list[tuple[str, TokenTable]]:
    if tables is None:
        return []
    if not isinstance(tables, Mapping) or not tables:
        raise ValidationError(field, tables, 'must be a dict such as {"input": ..., "output": ...}')
    if not all(isinstance(table, Mapping) for table in tables.values()):
        return [(limit, tables)]
    for name in tables:
        check_limit_name(name, field)
    return list(tables.items())


def _weighted(tokens: Mapping[str, int], table: TokenTable, field: str, read: Callable[[str, object], int]) -> int:
    """Return the weighted sum of tokens, whose weights are scaled by a million, rounded up."""
    if unknown := table.keys() - tokens.keys():
        raise ValidationError(field, sorted(map(str, unknown)), f"must only have {', '.join(tokens)}")
    micro = 0
    for kind, count in tokens.items():
        known = kind if kind in table or kind == "output" else "input"
        if known not in table:
            raise ValidationError(field, dict(table), f"must have {known}")
        micro += count * read(f"{field}[{known}]", table[known])
    return -(-micro // MICRO)


def _price(field: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_QUOTA:
        raise ValidationError(field, value, 'must be money for a million tokens, such as usd("3.00")')
    return value


def _weight(field: str, value: object) -> int:
    # The shortest text of a float is what its author wrote.
    return _scaled(field, repr(value) if type(value) is float else value)


def _scaled(field: str, value: object) -> int:
    """Return a decimal number times a million. It must not have more than 6 decimals."""
    if type(value) is not int and type(value) is not str and not _is_decimal(value):
        raise ValidationError(field, value, f"must be a str, an int or a Decimal, not {type(value).__name__}")
    if type(value) is int and abs(value) > MAX_QUOTA:
        # Not as text: Python refuses to print a number of thousands of digits.
        value = MAX_QUOTA if value > 0 else -1
    text = f"{value:f}" if _is_decimal(value) else str(value)
    whole, point, decimals = text.partition(".")
    digits = whole + decimals
    if not digits.isascii() or not digits.isdecimal() or not whole or (point and not decimals) or len(digits) > 100:
        raise ValidationError(field, value, "must be a number that is not negative, such as 12.50")
    decimals = decimals.rstrip("0")
    if len(decimals) > _DECIMALS:
        raise ValidationError(field, value, f"must have at most {_DECIMALS} decimals")
    scaled = int(whole) * MICRO + int(decimals.ljust(_DECIMALS, "0"))
    if scaled > MAX_QUOTA:
        raise ValidationError(field, value, f"must be at most {MAX_QUOTA // MICRO:,}")
    return scaled


def _is_decimal(value: object) -> bool:
    # Not imported here: it would slow down every program that uses money only as text.
    return type(value).__module__ in ("decimal", "_decimal", "_pydecimal") and type(value).__name__ == "Decimal"
