"""Usage of quotas and soft limits: money as money, percentages of whole periods only, and use beyond a soft limit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.visualization.snapshots import snapshot
from tests.visualization.test_page import Tags
from zae_limiter import CsvFormatter, HtmlFormatter, Limit, PlotFormatter, TableFormatter, UsageSnapshot, usd
from zae_limiter.core.names import MAX_QUOTA
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import window_at
from zae_limiter.visualization.columns import Bars, ColumnChart, ColumnLabel, draw_columns
from zae_limiter.visualization.series import units_of, window_limit, window_share_of
from zae_limiter.visualization.summary import sums_of
from zae_limiter.visualization.wording import number_of, per_period, rounded, short_amount

SPEND = Limit.quota("spend", usd("500"), unit="USD")
BERLIN = Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD")
TRIAL = Limit.quota("spend", usd("125"), unit="USD", enforce=False)
USED = ("90", "130.25", "143", "99", "160", "20.000125")


def months(amounts: tuple[str, ...] = USED) -> list[UsageSnapshot]:
    """Return the spending of months from June 2026 on."""
    return [snapshot(f"2026-{6 + n:02}-01", {"spend": usd(one)}, kind="monthly") for n, one in enumerate(amounts)]


def page(limit: Limit, shown: list[UsageSnapshot], *, summed: bool = False) -> Tags:
    """Return the page of snapshots whose bucket has one limit."""
    return Tags(HtmlFormatter(summed=summed, limits={("user-1", "gpt-4"): [limit]}).format(shown))


class TestWindows:
    @pytest.mark.parametrize(
        ("limit", "kind", "amount", "of"),
        [
            (SPEND, "monthly", usd("500"), usd("500")),
            (SPEND, "daily", usd("500"), None),
            (SPEND, "hourly", usd("500"), None),
            (BERLIN, "monthly", None, None),
            (Limit.quota("a", 9, "day"), "daily", 9, 9),
            (Limit.quota("a", 9, "day"), "monthly", None, None),
            (Limit.quota("a", 9, "day", starts="06:00"), "daily", None, None),
            (Limit.quota("a", 9, "hour"), "hourly", 9, 9),
            (Limit.quota("a", 9, "week"), "daily", 9, None),
            (Limit.concurrent("a", 9), "hourly", None, None),
        ],
    )
    def test_amount_of_a_quota_is_compared_with_whole_periods_only(
        self, limit: Limit, kind: str, amount: int | None, of: int | None
    ):
        """A part of a period may use all of it, but is no percentage. Parts of two periods have no amount."""
        window = window_at(kind, ms_from_iso("2026-07-09T12:00Z"))

        assert (amount, of) == (window_limit(limit, window), window_share_of(limit, window))

    def test_day_in_which_a_period_begins_has_no_amount(self):
        """It may use what is left of the old month, and all of the new one."""
        limits = [window_limit(BERLIN, window_at("daily", ms_from_iso(f"2026-07-{day}T00:00Z"))) for day in (30, 31)]

        assert [usd("500"), None] == limits


class TestPage:
    def test_money_is_shown_in_its_currency_and_never_in_micro_units(self):
        """The full amount is a tooltip, if it has parts of a cent."""
        shown = page(SPEND, months(), summed=True)

        for part in ("Spend per month in USD", "642.25 USD", "160.00 USD", "107.04 USD", "500.00 USD per month"):
            assert part in re.sub(r"\s+", " ", shown.text)
        assert "642.250125" in [tag.get("title") for _, tag in shown.tags]
        assert "20.000125" in shown.text
        assert not re.search(r"130,?250,?000|160,?000,?000|642,?250,?125", shown.text)

    def test_month_of_a_monthly_quota_has_a_line_and_percentages(self):
        """Windows are in UTC, and so are the periods."""
        shown = page(SPEND, months())

        assert ["limit"] == [tag["class"] for name, tag in shown.tags if name == "path"]
        assert "limit 500" in shown.text
        assert "2026-10: 160.00 USD, 32 % of the limit" in shown.text
        assert "32 % in the busiest month" in shown.text

    def test_month_of_a_local_quota_has_neither(self):
        """Its first hours belong to the period before. The amount and the start of a period are shown."""
        shown = page(BERLIN, months())

        assert "path" not in [name for name, _ in shown.tags]
        assert "of the limit" not in shown.text
        assert "per month, from day 1, 00:00 Europe/Berlin" in shown.text
        assert "The periods of this limit are not these windows, so it is not drawn." in shown.text

    def test_soft_limit_is_drawn_differently_and_what_exceeds_it_is_marked(self):
        """Enforced limits have a mark for neither."""
        soft, hard = page(TRIAL, months()), page(SPEND, months())

        assert ["limit soft"] == [tag["class"] for name, tag in soft.tags if name == "path"]
        assert 3 == len([tag for _, tag in soft.tags if tag.get("class") == "beyond"])
        assert 0 == len([tag for _, tag in hard.tags if tag.get("class") == "beyond"])
        for part in ("soft limit 125", "Soft limit", "128 % in the busiest month", "58.25 USD in 3 months"):
            assert part in soft.text
        assert "2026-10: 160.00 USD, 128 % of the soft limit, 35.00 USD beyond it" in soft.text

    def test_few_months_mark_what_exceeds_a_soft_limit_too(self):
        """One row for each; the mark begins at the limit and ends with the bar."""
        shown = page(TRIAL, months(("250", "100")))

        assert ["left:50%;width:50%"] == [tag["style"] for name, tag in shown.tags if name == "u"]
        assert ["soft", "soft"] == [tag.get("class") for name, tag in shown.tags if name == "b"]
        assert "250.00 USD 200 % of the soft limit, 125.00 USD beyond it" in shown.text

    def test_soft_rate_limit_names_what_exceeds_it(self):
        """60 per minute are 3,600 per hour."""
        hours = [snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 1_000 * hour}) for hour in range(6)]

        shown = page(Limit.per_minute("rpm", 60, enforce=False), hours)

        assert "139 % of the soft limit, 1,400 requests beyond it" in shown.text
        assert "1,800 in 2 hours" in shown.text

    def test_legend_compares_each_customer_with_its_own_quota(self):
        """Only if the windows are periods."""
        shown = [snapshot("2026-06-01", {"spend": usd("250")}, kind="monthly", entity_id=name) for name in ("a", "b")]
        limits = {("a", "gpt-4"): [SPEND], ("b", "gpt-4"): [TRIAL]}
        local = {("a", "gpt-4"): [BERLIN], ("b", "gpt-4"): [BERLIN]}

        text, without = (Tags(HtmlFormatter(limits=known).format(shown)).text for known in (limits, local))

        assert "a 250.00, 50 % of all, at most 50 % of its limit" in text
        assert "b 250.00, 50 % of all, at most 200 % of its soft limit" in text
        assert "of its" not in without

    def test_unit_that_is_no_currency_is_what_the_chart_counts(self):
        """Amounts are whole."""
        quota = Limit.quota("daily", 1_000, "day", unit="pages")

        shown = page(quota, [snapshot("2026-01-15", {"daily": 400}, kind="daily")])

        for part in ("Pages per day", "400 pages 40 % of the limit", "daily pages"):
            assert part in shown.text


class TestText:
    def test_table_and_sums_show_money_if_they_know_the_unit(self):
        """Snapshots do not contain units."""
        lines = TableFormatter({"spend": "USD"}).format(months(("1234.5", "0.000125"))).splitlines()

        assert lines[0].split()[-3:] == ["spend", "(USD)", "writes"]
        assert ["1,234.50", "0.000125"] == [line.split()[-2] for line in lines[1:]]
        (sums,) = sums_of(months(("1234.5", "0.000125")), {"spend": "USD"})
        assert [("spend", "1,234.500125", "617.25")] == sums.rows

    def test_csv_has_micro_units(self):
        """Programs add them up."""
        assert CsvFormatter().format(months(("12.5",))).splitlines()[1].endswith(",12500000,1")

    def test_plot_shows_money_if_it_knows_the_unit(self):
        """The axis has dollars."""
        text = PlotFormatter(height=4, units={"spend": "USD"}).format(months())

        assert "total 642.250125 USD, most 160.00 USD in 2026-10" in text
        assert re.search(r"^ *150 ", text, re.MULTILINE)

    def test_units_of_a_name_that_differ_are_left_out(self):
        """Neither would be true for the sum."""
        eur = Limit.quota("spend", 5, unit="EUR")
        rpm = Limit.per_minute("rpm", 5)

        assert {"spend": "USD"} == units_of({("a", "x"): [SPEND, rpm], ("b", "x"): [SPEND]})
        assert {} == units_of({("a", "x"): [SPEND], ("b", "x"): [eur]})


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (SPEND, "500.00 USD per month"),
        (BERLIN, "500.00 USD per month, from day 1, 00:00 Europe/Berlin"),
        (Limit.quota("a", 9, "month", starts=(31, "06:00")), "9 per month, from day 31, 06:00 UTC"),
        (Limit.quota("a", 9, "week"), "9 per week"),
        (Limit.quota("a", 9, "week", starts=("sun", "06:00")), "9 per week, from Sunday, 06:00 UTC"),
        (Limit.quota("a", 9_000, "day", "Asia/Tokyo", unit="tokens"), "9,000 tokens per day, from 00:00 Asia/Tokyo"),
        (Limit.quota("a", 9, "hour", starts=30), "9 per hour, from minute 30"),
    ],
)
def test_quota_is_worded_by_its_amount_and_its_period(limit: Limit, text: str):
    """The start is left out if it is midnight in UTC of the first day."""
    assert text == per_period(limit)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (5, "0.000005"), (50_000, "0.05"), (12_500_000, "12.5"), (-2_340_000, "-2.34"), (2_500 * 10**6, "2.5K")],
)
def test_short_money_is_exact_in_small_amounts(amount: int, text: str):
    """The steps of an axis may be parts of a cent."""
    assert text == short_amount(amount, "USD")


@given(st.integers(-MAX_QUOTA, MAX_QUOTA))
def test_money_as_text_is_the_same_number(amount: int):
    """Signs and groups of digits lose nothing. A headline is at most half a cent off."""
    assert round(float(number_of(amount, "USD").replace(",", "")) * 10**6) == pytest.approx(amount, rel=1e-15)
    assert abs(rounded(amount, "USD") - amount) <= 5_000


def test_line_has_a_gap_where_a_column_has_no_limit():
    """It begins again after the gap."""
    labels = [ColumnLabel(f"day {number}", "") for number in range(4)]

    drawn = "\n".join(draw_columns(ColumnChart(labels, [Bars(0, [1, 2, 3, 4])], [], [None, 4, None, 4])))

    assert 'd="M10 0 V0 H20 M30 0 V0 H40"' in drawn
