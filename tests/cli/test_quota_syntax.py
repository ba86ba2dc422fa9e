"""The syntax of quotas, money, soft limits and warnings on the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from zae_limiter.cli._amount_syntax import WrittenAmount, check_currencies, parse_amount, parse_quantity, write_quantity
from zae_limiter.cli._limit_syntax import FORMS, parse_limit, write_limit
from zae_limiter.cli._limit_words import describe_refill
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import MAX_PERIOD_SECONDS, Limit
from zae_limiter.core.money import money, usd
from zae_limiter.core.names import MAX_AMOUNT, MAX_QUOTA

ZONES = ["UTC", "Europe/Berlin", "Etc/GMT+5", "America/Port-au-Prince", "EST5EDT", "America/Argentina/Buenos_Aires"]
CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
STARTS = {
    "month": st.none() | st.tuples(st.integers(1, 31), CLOCKS),
    "week": st.none() | st.tuples(st.integers(1, 7), CLOCKS),
    "day": st.none() | CLOCKS,
    "hour": st.none() | st.integers(0, 59),
}
UNITS = st.none() | st.text("abcXYZ", min_size=1, max_size=12) | st.sampled_from(["USD", "EUR", "JPY", "KWD", "usd"])
OPTIONS = st.fixed_dictionaries(
    {
        "unit": UNITS,
        "enforce": st.booleans(),
        "warn_at": st.lists(st.integers(1, 10_000), max_size=4, unique=True).map(
            lambda parts: tuple(part / 1000 for part in sorted(parts))
        ),
    }
)


@st.composite
def quotas(draw):
    every = draw(st.sampled_from(list(STARTS)))
    tz = "UTC" if every == "hour" else draw(st.sampled_from(ZONES))
    amount = draw(st.integers(1, MAX_QUOTA))
    return Limit.quota(draw(strategies.limit_names), amount, every, tz, draw(STARTS[every]), **draw(OPTIONS))


@st.composite
def rates(draw):
    numbers = st.integers(1, 20) | st.integers(1, MAX_AMOUNT)
    period = st.sampled_from([1, 60, 3600, 86_400]) | st.integers(1, MAX_PERIOD_SECONDS)
    return Limit(draw(strategies.limit_names), draw(numbers), draw(numbers), draw(period), **draw(OPTIONS))


@st.composite
def slots(draw):
    held = draw(st.integers(5, 86_400))
    return Limit(draw(strategies.limit_names), draw(st.integers(1, MAX_AMOUNT)), 0, 0, held, **draw(OPTIONS))


@given(quotas() | rates() | slots())
def test_a_written_limit_can_be_parsed_again(limit):
    """Every limit that the library allows has a form, and nothing of it is lost."""
    assert limit == parse_limit(write_limit(limit))


class TestQuotas:
    @pytest.mark.parametrize(
        ("text", "limit"),
        [
            (
                "spend:500usd/month@Europe/Berlin",
                Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD"),
            ),
            ("spend:500usd/month", Limit.quota("spend", usd("500"), unit="USD")),
            ("spend:12.50EUR/month", Limit.quota("spend", money("12.50", "EUR"), unit="EUR")),
            ("spend:1.5kusd/week", Limit.quota("spend", usd("1500"), "week", unit="USD")),
            ("spend:500jpy/month", Limit.quota("spend", money("500", "JPY"), unit="JPY")),
            ("tokens:1m/day@Europe/Berlin", Limit.quota("tokens", 1_000_000, "day", "Europe/Berlin")),
            ("tokens:1m/d@UTC:starts=06:00", Limit.quota("tokens", 1_000_000, "day", starts="06:00")),
            ("t:5/month:starts=15T06:00", Limit.quota("t", 5, starts=(15, "06:00"))),
            ("t:5/month:starts=15", Limit.quota("t", 5, starts=(15, "00:00"))),
            ("t:5/week@Asia/Tokyo:starts=monT06:00", Limit.quota("t", 5, "week", "Asia/Tokyo", ("mon", "06:00"))),
            ("t:5/week:starts=sunday", Limit.quota("t", 5, "week", starts=("sun", "00:00"))),
            ("t:5/hour@UTC:starts=30", Limit.quota("t", 5, "hour", starts=30)),
            ("t:5/month:unit=images", Limit.quota("t", 5, unit="images")),
            ("t:5/month:soft:warn=0.8,1.0", Limit.quota("t", 5, enforce=False, warn_at=(0.8, 1.0))),
        ],
    )
    def test_a_quota_is_parsed_with_its_schedule_and_options(self, text, limit):
        """A month or week is always a quota; a day or hour is one if it has a time zone."""
        assert limit == parse_limit(text)

    @pytest.mark.parametrize("text", ["tokens:1m/day", "tokens:1m/d", "tokens:1m/hour", "tokens:1m/h"])
    def test_a_day_or_an_hour_without_a_time_zone_is_a_rate(self, text):
        """The same text had this meaning before there were quotas."""
        assert "rate" == parse_limit(text).kind

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("spend:5usd/day", r"a quota is written 5usd/day@UTC, with its time zone; .* is 5usd/day:burst=5usd"),
            ("spend:5usd/h", "a quota is written 5usd/h@UTC"),
            ("spend:5usd", "money needs a period, such as 5usd/month"),
            ("spend:5usd/min:burst=9", "burst: must be in USD"),
            ("tpm:5/min:burst=9usd", "burst: must be a plain number"),
            ("spend:0.0000001usd/month", "amount: money has at most 6 decimals"),
            ("rpm:5min", "min is no known currency; money is 12.50usd, a period is /min"),
            ("x:5img/day@UTC", "img is no known currency; .* another unit is :unit=img"),
            ("x:5usd/month:unit=tokens", "unit: the amount is in USD already"),
            ("x:5/month:unit=USD", "unit: three capital letters are money: write the amount as 500USD"),
            ("x:5/month:unit=t0k", "unit: must be at most 12 letters"),
            ("x:5/day:starts=06:00", "starts: only quotas have one; .* needs its time zone: tokens:1m/day@UTC"),
            ("x:5/min@UTC", "the period of a quota is month, week, day or hour, not min"),
            ("x:5/2d@UTC", "the period of a quota is month, week, day or hour, not 2d"),
            ("x:5/concurrent@UTC", "the period of a quota is month, week, day or hour, not concurrent"),
            ("x:5/2concurrent", "must be NAME:SLOTS/concurrent"),
            ("x:5/month@Europe/Nowhere", "tz: is not in the time zone data of this machine"),
            ("x:5/hour@Europe/Berlin", 'tz: must be "UTC" for hourly quotas'),
            ("x:5/month:burst=9", "burst: a quota has none"),
            ("x:5/month:hold=9s", "hold: only slots have one"),
            ("x:5/month:starts=06:00", "starts: must be a day and a time, such as 15T06:00"),
            ("x:5/month:starts=32", "starts: must have a day from 1 to 31"),
            ("x:5/week:starts=8", "starts: must be a weekday and a time: monT06:00"),
            ("x:5/week:starts=payday", "starts: must have a weekday"),
            ("x:5/day@UTC:starts=24:00", "starts: must have a local time"),
            ("x:5/hour@UTC:starts=06:00", "starts: must be a minute, such as 30"),
            ("x:2000000g/month", "amount: must be at most"),
            ("x:5/moth", "did you mean month?"),
            ("x:5:soft=yes", "soft has no value"),
            ("x:5:warn", "warn needs a value"),
            ("x:5:warn=80%", "warn: must be parts of the capacity, such as 0.8 or 0.8,1"),
            ("x:5:warn=1,0.8", "warn_at: must be in rising order"),
            ("x:5:burst=9:capacity=3", "burst: pass burst or capacity, not both"),
            ("x", "or NAME:AMOUNT/PERIOD@ZONE.*such as spend:500usd/month@Europe/Berlin"),
        ],
    )
    def test_an_invalid_or_ambiguous_text_raises_an_error_that_says_how_to_write_it(self, text, reason):
        """Money for a day could be a quota or a rate, so the error shows both forms."""
        with pytest.raises(ValidationError, match=reason) as caught:
            parse_limit(text)

        assert text == caught.value.value

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("spend:500usd/month@Europe/Berlin", "each month Europe/Berlin"),
            ("spend:500usd/month@Europe/Berlin:starts=15T06:00:soft", "each month from 15T06:00 Europe/Berlin, soft"),
            ("t:5/hour@UTC:starts=30", "each hour from minute 30 UTC"),
            ("spend:5usd/min:warn=0.8,1", "5.00 USD per minute, warns at 80 % and 100 %"),
            ("tpm:5/90s:unit=tokens", "5 tokens per 90 seconds"),
            ("slots:5/concurrent:soft", "at a time, hold 60 s, soft"),
        ],
    )
    def test_the_refill_is_described_with_unit_schedule_and_options(self, text, words):
        """The same words are in every table of limits."""
        assert words == describe_refill(parse_limit(text))


def test_the_examples_in_the_help_can_be_parsed():
    """Each line has a limit in its first column."""
    shown = [line.split()[0] for line in FORMS.partition("\n  \n")[0].splitlines()[2:]]

    assert ["rate"] * 2 + ["slots"] + ["quota"] * 4 + ["rate", "quota"] == [parse_limit(text).kind for text in shown]


class TestMoney:
    def test_an_amount_of_money_is_in_micro_units(self):
        """The currency is kept, so that it can be compared with that of the limit."""
        assert WrittenAmount("spend", 50_000, "USD") == parse_amount("spend:0.05usd")

    @given(st.integers(0, MAX_QUOTA), st.sampled_from(["USD", "JPY", "KWD", "XBT"]))
    def test_a_written_amount_of_money_can_be_parsed_again(self, amount, currency):
        """Nothing is rounded, in any currency."""
        assert (amount, currency) == parse_quantity(write_quantity(amount, currency), "amount")

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("spend:5", "limit 'spend' is in USD; write the currency, such as spend:0.05usd"),
            ("spend:5eur", "limit 'spend' is in USD"),
            ("tpm:5usd", "limit 'tpm' is not money; pass a plain number"),
        ],
    )
    def test_an_amount_in_another_unit_than_its_limit_is_refused(self, text, reason):
        """5 would be 5 micro-dollars."""
        with pytest.raises(ValidationError, match=reason):
            check_currencies([parse_amount(text)], {"spend": "USD", "tpm": "tokens"})

    @pytest.mark.parametrize("text", ["spend:5usd", "spend:0", "tpm:5", "other:5"])
    def test_an_amount_in_the_unit_of_its_limit_is_accepted(self, text):
        """0 is the same in every unit. Unknown limits are refused elsewhere."""
        check_currencies([parse_amount(text)], {"spend": "USD", "tpm": "tokens"})
