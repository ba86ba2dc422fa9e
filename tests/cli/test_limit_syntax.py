"""The syntax of limits and amounts on the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.cli._amount_syntax import WrittenAmount, gather_amounts, parse_amount, parse_number
from zae_limiter.cli._limit_syntax import parse_limit, write_limit
from zae_limiter.cli._limit_words import describe_refill
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit


class TestLimits:
    def test_a_limit_without_a_period_is_per_minute(self):
        """The name and the capacity are enough."""
        assert Limit.per_minute("rpm", 1000) == parse_limit("rpm:1000")

    @pytest.mark.parametrize(
        ("period", "seconds"),
        [(name, 1) for name in ("s", "sec", "second")]
        + [(name, 60) for name in ("min", "minute")]
        + [(name, 3600) for name in ("h", "hour")]
        + [(name, 86400) for name in ("d", "day")],
    )
    def test_a_limit_period_may_be_named(self, period, seconds):
        """Every period has a short and a long name."""
        assert Limit("x", 5, 5, seconds) == parse_limit(f"x:5/{period}")

    @pytest.mark.parametrize("text", ["rpm:1000/min:burst=1500", "rpm:1000:burst=1500"])
    def test_a_limit_with_a_burst_has_the_burst_as_capacity(self, text):
        """A burst makes the bucket larger than the refill of one period."""
        assert Limit.per_minute("rpm", 1000, burst=1500) == parse_limit(text)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "rpm",
            "rpm:",
            ":5",
            "rpm:x",
            "rpm:.5k",
            "rpm:1.k",
            "rpm:1e3",
            "rpm:10kk",
            "rpm:10kb",
            "rpm:10 k",
            "rpm:k",
            "rpm:_1",
            "rpm:1_",
            "rpm:1__0",
            "rpm:1,000",
            "rpm:nan",
            "rpm:5/",
            "rpm:5:",
            "rpm:5:7",
            "rpm:5:burst=",
            "rpm:5:burst=7/min",
            "rpm:5 ",
            "rpm:\u0665",
            "rpm:" + "9" * 5000,
        ],
    )
    def test_a_malformed_limit_raises_an_error_that_shows_the_syntax(self, text):
        """The error shows how a limit is written."""
        with pytest.raises(ValidationError, match=r"NAME:RATE\[/PERIOD\]\[:burst=N\], such as rpm:100"):
            parse_limit(text)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("rpm:5/fortnight", "the period must be one of s, sec"),
            ("rpm:5/m", "not m; minutes are min, because m is a million"),
            ("rpm:1.5", "rate: 1.5 is not a whole number of tokens"),
            ("rpm:1.0005k", "rate: 1.0005k is not a whole number of tokens; money has a currency, such as 0.05usd"),
            ("rpm:1:burst=1.5", "burst: 1.5 is not a whole number of tokens"),
            ("rpm:-1.5k", "rate: must be at least 1"),
            ("rpm:0", "rate: must be at least 1"),
            ("rpm:-3", "rate: must be at least 1"),
            ("rpm:9999999999999999999", "rate: must be at most"),
            ("rpm:5:burst=4", "burst: must be at least the rate, 5"),
            ("r#m:5", "limit name: a limit starts with a letter"),
            ("wcu:5", "limit name: this name is reserved"),
            ("slots:5/concurrent:burst=7", "burst: slots have none: never more than this many are in use"),
            ("slots:5/concurrent:hold=60", "hold: must be a whole number of s, min or h, such as 60s or 5min"),
            ("slots:5/concurrent:hold=1m", "hold: must be a whole number of s, min or h"),
            ("slots:5/concurrent:hold=4s", "hold_seconds: must be at least 5"),
            ("slots:0/concurrent", "capacity: must be at least 1"),
            ("slots:1.5/concurrent", "slots: 1.5 is not a whole number"),
            ("slots:5/concurent", "not concurent; did you mean concurrent?"),
            ("rpm:5/hours", "did you mean hour?"),
            ("rpm:5:hold=60s", r"hold: only slots have one: NAME:SLOTS/concurrent\[:hold=60s\]"),
            (
                "rpm:5:bust=7",
                "bust is no option of a limit, which are burst, capacity, .* unit and warn; did you mean burst?",
            ),
            ("rpm:5:burst=7:burst=8", "pass each option once"),
        ],
    )
    def test_an_invalid_limit_raises_an_error_with_the_text_and_the_reason(self, text, reason):
        """The message contains the text as typed."""
        with pytest.raises(ValidationError, match=reason) as caught:
            parse_limit(text)

        assert text == caught.value.value

    @pytest.mark.parametrize(
        ("text", "hold_seconds"),
        [
            ("slots:20/concurrent", 60),
            ("slots:20/concurrent:hold=30s", 30),
            ("slots:20/concurrent:hold=5min", 300),
            ("slots:20/concurrent:hold=1h", 3600),
        ],
    )
    def test_a_limit_of_concurrent_use_has_slots_and_a_hold(self, text, hold_seconds):
        """The hold is a minute unless given. The written form can be parsed again."""
        limit = parse_limit(text)

        assert Limit.concurrent("slots", 20, hold_seconds) == limit == parse_limit(write_limit(limit))
        assert f"at a time, hold {hold_seconds} s" == describe_refill(limit)

    @given(st.text(max_size=30) | st.from_regex(r"[a-z]{1,3}:[0-9]{1,3}(/[a-z]{1,10})?(:[a-z]{1,5}=[0-9a-z]{1,4})*"))
    def test_any_text_is_either_a_limit_or_a_validation_error(self, text):
        """No text raises another error."""
        try:
            found = parse_limit(text)
        except ValidationError:
            return

        assert found.name == text.partition(":")[0]

    @pytest.mark.parametrize(
        ("limit", "text"),
        [(Limit.per_minute("x", 1000), "1000 per minute"), (Limit("x", 9, 5, 90), "5 per 90 seconds")],
    )
    def test_the_refill_rate_is_described_in_words(self, limit, text):
        """Common periods have a name; others are given in seconds."""
        assert text == describe_refill(limit)


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("10_000", 10_000),
            ("1_0_0", 100),
            ("10k", 10_000),
            ("10K", 10_000),
            ("1.5m", 1_500_000),
            ("2g", 2_000_000_000),
            ("2.0", 2),
            ("0.001k", 1),
            ("1_000.5k", 1_000_500),
            ("1.234567891g", 1_234_567_891),
            ("9007199254740993", 9007199254740993),
            ("9007199.254740993g", 9007199254740993),
            ("-1.5k", -1500),
        ],
    )
    def test_a_number_may_have_underscores_a_fraction_and_a_suffix(self, text, number):
        """The suffixes are powers of 1000. Large numbers are exact."""
        assert number == parse_number(text, "rate")

    def test_a_suffix_applies_to_the_rate_the_burst_and_the_amount(self):
        """The suffix m is a million, and min is the period."""
        assert Limit.per_minute("tpm", 1_000_000, burst=1_500_000) == parse_limit("tpm:1m/min:burst=1.5m")
        assert WrittenAmount("tpm", 2500) == parse_amount("tpm:2.5k")

    @given(st.integers(0, 10**15), st.sampled_from(["", "k", "m", "g"]))
    def test_a_number_with_a_suffix_is_that_many_times_larger(self, number, suffix):
        """Nothing is rounded."""
        assert number * 1000 ** ["", "k", "m", "g"].index(suffix) == parse_number(f"{number:_}{suffix}", "rate")


class TestAmounts:
    def test_an_amount_is_parsed_from_a_name_and_a_number(self):
        """An amount has no other parts."""
        assert WrittenAmount("tpm", 500) == parse_amount("tpm:500")

    @pytest.mark.parametrize("text", ["", "tpm", "tpm:", ":5", "tpm:x", "tpm:5/min", "tpm:" + "9" * 5000])
    def test_a_malformed_amount_raises_an_error_that_shows_the_syntax(self, text):
        """The error shows how an amount is written."""
        with pytest.raises(ValidationError, match="NAME:AMOUNT, such as rpm:1"):
            parse_amount(text)

    def test_an_amount_that_is_not_whole_raises_an_error(self):
        """The error shows the text as typed."""
        with pytest.raises(ValidationError, match=r"'tpm:1\.5': 1\.5 is not a whole number of tokens"):
            parse_amount("tpm:1.5")

    def test_an_amount_given_twice_for_one_limit_raises_an_error(self):
        """Two amounts for one limit are ambiguous."""
        with pytest.raises(ValidationError, match="'rpm': appears twice"):
            gather_amounts([parse_amount(text) for text in ("rpm:1", "tpm:5", "rpm:2")])


class TestWriting:
    @pytest.mark.parametrize("text", ["rpm:1000/min", "rps:5/s:burst=9", "rph:5/h", "rpd:5/d:burst=6"])
    def test_a_limit_is_formatted_in_the_syntax_it_is_parsed_from(self, text):
        """The audit prints limits that can be given to a command again."""
        assert text == write_limit(parse_limit(text))

    def test_a_period_without_a_name_is_formatted_in_seconds(self):
        """Any number of seconds can be parsed."""
        limit = Limit.custom("x", 9, 5, 90)

        assert "x:5/90s:burst=9" == write_limit(limit)
        assert limit == parse_limit("x:5/90s:burst=9")
        assert Limit.custom("x", 5, 5, 600) == parse_limit("x:5/10min")

    def test_a_capacity_below_the_rate_is_not_written_as_a_burst(self):
        """A burst below the rate is a mistake, so such a limit has an option of its own."""
        limit = Limit.custom("x", 3, 5, 60)

        assert "x:5/min:capacity=3" == write_limit(limit)
        assert limit == parse_limit("x:5/min:capacity=3")
