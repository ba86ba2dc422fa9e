"""Money is a whole number of micro-units, and usage becomes consume amounts that are rounded up."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import consume_from_usage, money, usd
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.money import MAX_QUOTA, format_amount, format_share, format_with_unit, token_counts

AMOUNTS: list[tuple[Any, int]] = [
    ("12.50", 12_500_000),
    ("12.5", 12_500_000),
    ("0.000001", 1),
    ("007.10", 7_100_000),
    ("1.0000000000", 1_000_000),
    (12, 12_000_000),
    (0, 0),
    (Decimal("12.50"), 12_500_000),
    (Decimal("1E+3"), 1_000_000_000),
    (10**9, MAX_QUOTA),
]


@pytest.mark.parametrize(("amount", "micro"), AMOUNTS)
def test_money_is_converted_exactly(amount: Any, micro: int) -> None:
    """Text, whole numbers and decimals have an exact value."""
    assert micro == usd(amount) == money(amount, "EUR")


INVALID = ["1,5", "-1", "1e3", "", ".", "1.", ".5", " 1", "+1", "1_000", "\u0663", True, None, b"1", 10**10, -1]
INVALID += [Decimal("NaN"), Decimal("-1"), Decimal("Infinity"), "0.0000001", 10**5000, "1" * 5000]


@pytest.mark.parametrize(
    "amount", INVALID, ids=lambda one: f"{type(one).__name__} {one!s:.9}" if one != 10**5000 else ""
)
def test_money_of_another_form_is_refused(amount: Any) -> None:
    """An amount that could be read in two ways is an error."""
    with pytest.raises(ValidationError) as caught:
        usd(amount)

    assert "amount" == caught.value.field


@pytest.mark.parametrize(
    ("call", "line"), [(usd, 'usd("12.1")'), (lambda one: money(one, "EUR"), 'money("12.1", "EUR")')]
)
def test_float_is_refused_with_the_right_line(call: Any, line: str) -> None:
    """Most decimal numbers are no exact floats, so a budget would differ by a little."""
    with pytest.raises(ValidationError) as caught:
        call(12.1)

    assert str(caught.value).endswith(f"write {line}")


@pytest.mark.parametrize("currency", ["eur", "EURO", "", None, "E1R", "ÄÖÜ"])
def test_currency_has_three_capital_letters(currency: Any) -> None:
    """It is shown as it is."""
    with pytest.raises(ValidationError, match="currency"):
        money("1", currency)


@given(st.integers(0, MAX_QUOTA))
def test_money_is_read_back_from_its_text(micro: int) -> None:
    """What is shown is exact."""
    assert micro == usd(format_amount(micro, "USD"))


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (12_500_000, "USD", "12.50 USD"),
        (12_345_678, "USD", "12.345678 USD"),
        (-500_000, "EUR", "-0.50 EUR"),
        (500_000_000, "JPY", "500 JPY"),
        (500_100_000, "JPY", "500.1 JPY"),
        (1_000_000, "KWD", "1.000 KWD"),
        (1_000_000, "tokens", "1000000 tokens"),
        (1_000_000, None, "1000000"),
    ],
)
def test_amount_is_shown_with_its_unit(amount: int, unit: str | None, text: str) -> None:
    """Money has the decimals of its currency, and more if it needs them."""
    assert text == format_with_unit(amount, unit)


def test_part_of_a_whole_has_the_unit_once() -> None:
    """This is how a quota is shown."""
    assert "12.50 of 500.00 USD" == format_share(usd("12.50"), usd(500), "USD")
    assert "3 of 10" == format_share(3, 10)


COUNTS: dict[str, tuple[Any, tuple[int, int, int, int]]] = {
    "OpenAI": (
        {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 30}},
        (70, 20, 30, 0),
    ),
    "OpenAI without details": ({"prompt_tokens": 100, "completion_tokens": 20}, (100, 20, 0, 0)),
    "OpenAI embedding": ({"prompt_tokens": 100, "total_tokens": 100, "prompt_tokens_details": None}, (100, 0, 0, 0)),
    "OpenAI responses": (
        {"input_tokens": 100, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 30}},
        (70, 20, 30, 0),
    ),
    "Anthropic": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 40,
        },
        (100, 20, 30, 40),
    ),
    "Anthropic without caches": (
        {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": None},
        (1, 2, 0, 0),
    ),
    "Google": (
        {
            "prompt_token_count": 100,
            "candidates_token_count": 20,
            "thoughts_token_count": 5,
            "cached_content_token_count": 30,
        },
        (70, 25, 30, 0),
    ),
}


def as_objects(value: Any) -> Any:
    """Return nested dicts as objects."""
    return SimpleNamespace(**{k: as_objects(v) for k, v in value.items()}) if isinstance(value, dict) else value


@pytest.mark.parametrize("provider", COUNTS)
def test_usage_of_a_provider_is_counted_by_kind(provider: str) -> None:
    """Cached tokens are counted once, whether the provider includes them in the input or not."""
    usage, counts = COUNTS[provider]
    expected = dict(zip(("input", "output", "cache_read", "cache_write"), counts, strict=True))

    assert expected == token_counts(usage) == token_counts(as_objects(usage))


ANTHROPIC = COUNTS["Anthropic"][0]


@pytest.mark.parametrize(
    ("prices", "weights", "consume"),
    [
        (None, None, {"tpm": 190}),
        (None, {"input": 1, "output": 5, "cache_read": 0}, {"tpm": 240}),
        (None, {"input": 1, "output": 5, "cache_read": "0.1", "cache_write": 1.25}, {"tpm": 253}),
        ({"input": 3_000_000, "output": 15_000_000}, None, {"spend": 810}),
        ({"input": usd("0.01"), "output": usd("0.01")}, None, {"spend": 2}),
        ({"input": usd(3), "output": usd(15), "cache_read": usd("0.30")}, {"input": 1, "output": 1}, None),
        ({"budget": {"input": usd(1), "output": usd(1)}}, {"a": {"input": 1, "output": 0}}, {"a": 170, "budget": 190}),
    ],
)
def test_usage_becomes_amounts_that_are_rounded_up(prices: Any, weights: Any, consume: Any) -> None:
    """A kind of cached tokens without a price or weight counts like input."""
    expected = {"tpm": 190, "spend": 729} if consume is None else consume

    assert expected == consume_from_usage(ANTHROPIC, prices, weights)


@pytest.mark.parametrize(
    ("field", "usage", "prices", "weights"),
    [
        ("usage", {}, None, None),
        ("usage", None, None, None),
        ("usage.prompt_tokens", {"prompt_tokens": 1.5}, None, None),
        ("usage.prompt_tokens", {"prompt_tokens": -1}, None, None),
        ("usage.completion_tokens", {"prompt_tokens": 1, "completion_tokens": "2"}, None, None),
        ("weights", ANTHROPIC, None, {}),
        ("weights", ANTHROPIC, None, [1]),
        ("weights", ANTHROPIC, None, {"a b": {"input": 1, "output": 1}}),
        ("weights[tpm]", ANTHROPIC, None, {"input": 1}),
        ("weights[tpm]", ANTHROPIC, None, {"output": 1}),
        ("weights[tpm]", ANTHROPIC, None, {"input": 1, "output": 1, "cached": 0}),
        ("weights[tpm][input]", ANTHROPIC, None, {"input": -1, "output": 1}),
        ("weights[tpm][input]", ANTHROPIC, None, {"input": float("nan"), "output": 1}),
        ("prices[spend][input]", ANTHROPIC, {"input": "3.00", "output": 1}, None),
        ("prices[spend][input]", ANTHROPIC, {"input": 3.0, "output": 1}, None),
        ("prices", ANTHROPIC, {"a": {"input": 1, "output": 1}}, {"a": {"input": 1, "output": 1}}),
    ],
)
def test_usage_that_cannot_be_converted_names_the_part(field: str, usage: Any, prices: Any, weights: Any) -> None:
    """A missing price is an error, never a price of 0."""
    with pytest.raises(ValidationError) as caught:
        consume_from_usage(usage, prices, weights)

    assert field == caught.value.field
