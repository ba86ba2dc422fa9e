"""Charts in a terminal draw what was used."""

import sys

import pytest

from tests.visualization.snapshots import snapshot
from zae_limiter import MissingExtraError, PlotFormatter, ValidationError, format_usage_snapshots
from zae_limiter.installation import missing_extra

HOURS = {8: 1_000, 9: 3_000, 10: 2_000, 12: 3_000}
DAY = [snapshot(f"2026-01-15T{hour:02}:00Z", {"tpm": amount}) for hour, amount in HOURS.items()]


def test_chart_shows_every_hour_with_amounts_and_times():
    """An hour without usage is at zero; labels are short and the axis has times."""
    expected = """\
tokens per hour (tpm): user-1 · gpt-4
2026-01-15 08:00 to 2026-01-15 12:00 UTC
total 9,000, most 3,000 at 2026-01-15 09:00

 3K ┤        ╭───────╮               ╭───────
 2K ┤        │       ╰───────╮       │
 1K ┤────────╯               │       │
  0 ┤                        ╰───────╯
    └┬───────┬───────┬───────┬───────┬───────
     08:00   09:00   10:00   11:00   12:00"""

    assert expected == PlotFormatter(width=80, height=4).format(DAY)


def test_plot_has_one_chart_per_limit():
    """Requests and tokens have different sizes, and are drawn separately."""
    text = PlotFormatter().format([snapshot("2026-01-15T08:00Z", {"rpm": 5, "tpm": 5_000})])

    assert [
        "requests per hour (rpm): user-1 · gpt-4",
        "tokens per hour (tpm): user-1 · gpt-4",
    ] == [line for line in text.splitlines() if " per hour" in line]


@pytest.mark.parametrize("width", [40, 80, 133])
@pytest.mark.parametrize("hours", [1, 30, 700])
def test_chart_fits_the_terminal(width, hours):
    """However many hours there are, no line is wider than requested."""
    shown = [
        snapshot(f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00Z", {"tpm": (hour * 37) % 1_000 * 1_000})
        for hour in range(hours)
    ]

    assert width >= max(map(len, PlotFormatter(width=width).format(shown).splitlines()[3:]))


def test_chart_column_for_several_hours_shows_their_maximum():
    """A peak is never averaged away, and the chart says what a column is."""
    amounts = [9_000 if hour == 77 else 10 for hour in range(150)]
    shown = [
        snapshot(f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00Z", {"tpm": amount})
        for hour, amount in enumerate(amounts)
    ]

    lines = PlotFormatter(width=60).format(shown).splitlines()

    assert "Each column is the maximum of 3 hours." == lines[-1]
    assert "9K" == next(line for line in lines if "╭" in line).split()[0]


def test_chart_draws_negative_usage_below_the_axis():
    """A credit in a later hour than its take makes that hour negative."""
    text = PlotFormatter(height=4).format(
        [snapshot("2026-01-15T08:00Z", {"tpm": 2_000}), snapshot("2026-01-15T09:00Z", {"tpm": -1_000})]
    )

    assert ["2K", "1K", "0", "-1K"] == [line.split()[0] for line in text.splitlines()[4:8]]


def test_chart_of_several_entities_draws_their_sum():
    """One line for all, with their number."""
    text = PlotFormatter().format([snapshot("2026-01-15", {"rpm": 3}, kind="daily", entity_id=name) for name in "ab"])

    assert text.startswith(
        "requests per day (rpm): 2 entities · gpt-4\n2026-01-15 UTC\ntotal 6, most 6 on 2026-01-15\n"
    )


def test_plot_without_its_extra_names_what_to_install(monkeypatch):
    """The package for charts is not installed with the limiter."""
    monkeypatch.setitem(sys.modules, "asciichartpy", None)

    with pytest.raises(MissingExtraError) as caught:
        format_usage_snapshots(DAY, PlotFormatter())

    assert str(missing_extra("plot", "asciichartpy")) == str(caught.value)


def test_plot_without_usage_says_so():
    """An empty chart would look like a fault."""
    assert "There is no usage." == PlotFormatter().format([])


@pytest.mark.parametrize("sizes", [{"width": 39}, {"height": 1}])
def test_chart_without_room_is_refused(sizes):
    """A name and a bar must fit."""
    with pytest.raises(ValidationError):
        PlotFormatter(**sizes)
