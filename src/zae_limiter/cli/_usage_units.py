"""Find the units of limits whose usage is shown, because snapshots do not contain them."""

from collections import defaultdict
from collections.abc import Iterable

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._usage_charts import limits_in_force
from zae_limiter.core.money import format_with_unit, is_currency
from zae_limiter.visualization.wording import whole_number

# Each costs a query.
_MOST_USES = 50


def units_of(limiter: SyncRateLimiter, uses: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the units of limits by name, by the first uses: pairs of an entity and a resource.

    A limit has none if it has different units in several uses.
    """
    found: dict[str, set[str | None]] = defaultdict(set)
    for use in list(dict.fromkeys(uses))[:_MOST_USES]:
        for limit in limits_in_force(limiter, *use):
            found[limit.name].add(limit.unit)
    return {name: unit for name, units in found.items() if len(units) == 1 and (unit := next(iter(units))) is not None}


def amount_words(amount: int, unit: str | None) -> str:
    """Return an amount in full, with its unit if it has one: ``1,234 tokens``, ``1,234.50 USD``.

    Example:
        >>> amount_words(1_234_500_000, "USD"), amount_words(1_234, None)
        ('1,234.50 USD', '1,234')
    """
    if not is_currency(unit):
        return f"{whole_number(amount)} {unit}" if unit else whole_number(amount)
    whole, point, rest = format_with_unit(abs(amount), unit).partition(".")
    digits, space, currency = whole.partition(" ")
    return f"{'-' if amount < 0 else ''}{int(digits):,}{space}{currency}{point}{rest}"
