"""The choice of a formatter, by name or as an object."""

from enum import StrEnum

import pytest

from tests.visualization.snapshots import snapshot
from zae_limiter import CsvFormatter, HtmlFormatter, PlotFormatter, TableFormatter, ValidationError, visualization
from zae_limiter.visualization import SnapshotFormatter, UsageFormatter, format_usage_snapshots, make_formatter

HOUR = [snapshot("2026-01-15T08:00Z", {"rpm": 5})]
KINDS = {
    UsageFormatter.TABLE: TableFormatter,
    UsageFormatter.PLOT: PlotFormatter,
    UsageFormatter.CSV: CsvFormatter,
    UsageFormatter.HTML: HtmlFormatter,
}


@pytest.mark.parametrize("name", UsageFormatter)
def test_formatter_is_chosen_by_a_member_or_by_its_text(name):
    """Both forms of a name select the same formatter, with its default options."""
    member, text = make_formatter(name), make_formatter(name.value)

    assert (KINDS[name], KINDS[name]) == (type(member), type(text))
    assert isinstance(member, SnapshotFormatter)


def test_formatter_of_usage_is_the_one_that_was_named():
    """The text is that of the formatter."""
    assert CsvFormatter().format(HOUR) == format_usage_snapshots(HOUR, UsageFormatter.CSV)
    assert HtmlFormatter().format(HOUR) == format_usage_snapshots(HOUR, "html")
    assert TableFormatter().format(HOUR) == format_usage_snapshots(HOUR)


def test_formatter_that_is_an_object_is_used_with_its_options():
    """An object is returned as it is."""
    page = HtmlFormatter("The board")

    assert page is make_formatter(page)


class Other(StrEnum):
    XML = "xml"


@pytest.mark.parametrize("value", ["xml", "", "{}", "TABLE", Other.XML, None, 5, CsvFormatter, object()])
def test_formatter_that_does_not_exist_raises_and_lists_those_that_do(value):
    """A text with a method `format` is a name, never a formatter; a class is not an object of it."""
    with pytest.raises(ValidationError, match=r"table, plot, csv, html, or an object") as raised:
        format_usage_snapshots(HOUR, value)

    assert "formatter" == raised.value.field


def test_formatter_names_are_exported_from_the_visualization_package():
    """The specified place of the enumeration and of the function."""
    assert {"UsageFormatter", "format_usage_snapshots"} <= set(visualization.__all__)
