"""The page of a report."""

import re

from tests.loadtest.test_report import measured_from
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.report import report_of
from zae_limiter.loadtest.report_page import ReportPage, TimeSpan, shards_chart


def page_of(measured: Measurements) -> str:
    return ReportPage("sqlite:///load.db", "2026-11-18 06:00 UTC").format(report_of(measured))


def test_page_has_a_bar_for_every_second() -> None:
    """Admitted and rejected calls are stacked."""
    page = page_of(measured_from())

    calls = page[page.index("<h2>Calls per second</h2>") : page.index("<h2>Latency</h2>")]
    assert 30 == calls.count('<g class="col"')
    assert 30 == len(re.findall(r'<rect class="c0"[^>]* data-amount="300"', calls))
    assert 30 == len(re.findall(r'<rect class="c1"[^>]* data-amount="100"', calls))


def test_page_of_a_short_latency_is_in_microseconds() -> None:
    """Bars have whole numbers, and 0.4 ms would be no bar."""
    measured = measured_from()
    for second in measured.seconds.values():
        second.latencies.counts.clear()
        second.latencies.add(0.4)

    assert "Of admitted calls, in µs, service time" in page_of(measured)


def test_one_slow_second_does_not_hide_the_latency_of_the_others() -> None:
    """A column is cut at ten times the median one, and its readout keeps its value."""
    measured = measured_from()
    for number, second in enumerate(measured.seconds.values()):
        second.latencies.counts.clear()
        second.latencies.add(800.0 if number == 0 else 0.2)

    page = page_of(measured)
    latency = page[page.index("<h2>Latency</h2>") : page.index("<h2>Limits")]

    assert "in µs, service time. Columns are cut at 2.0" in latency
    assert 30 == len(re.findall(r'<rect class="c0"[^>]* data-amount="[1-9]', latency))
    assert "0 s: p50 80" in latency


def test_latencies_that_are_alike_are_not_cut() -> None:
    """The note appears only if a column is cut."""
    assert "Columns are cut" not in page_of(measured_from())


def test_page_shows_the_limits_first_if_one_broke_the_promise() -> None:
    """That is what a reader looks for."""
    good, bad = page_of(measured_from()), page_of(measured_from(9_800))

    assert good.index("<h2>Calls per second") < good.index("<h2>Limits")
    assert bad.index("<h2>Limits") < bad.index("<h2>Calls per second")
    assert '<td class="held"><span>held</span></td>' in good
    assert '<td class="broken"><span>EXCEEDED by ' in bad


def test_page_escapes_names_and_messages() -> None:
    """They come from users."""
    measured = measured_from()
    measured.errors["ACQUIRE Error"] = 1
    measured.error_examples["ACQUIRE Error"] = "<script>alert(1)</script>"

    page = ReportPage("<b>", None).format(report_of(measured))

    assert 1 == page.count("<script>")
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;b&gt;" in page


def test_page_without_calls_has_no_charts() -> None:
    """An empty chart says nothing."""
    page = page_of(Measurements())

    assert "<figure" not in page
    assert page.endswith("</html>")


def test_time_span_of_a_long_test_joins_seconds() -> None:
    """Half an hour is 120 columns of 15 s, labelled at round times."""
    span = TimeSpan.of(Measurements(started_s=1000.0, ended_s=2800.0))

    assert (15, 120) == (span.step_s, span.count)
    assert ["0 s", "300 s", "600 s", "900 s", "1200 s", "1500 s"] == [tick.label for tick in span.ticks]


def test_shards_chart_keeps_the_last_sample_until_the_next() -> None:
    """A bucket has one shard before its first sample."""
    measured = Measurements(1000.0, 1005.5, shards={"user api": {1002: 2, 1004: 4}, "idle api": {1001: 1}})

    chart = shards_chart(measured, TimeSpan.of(measured))

    assert chart is not None
    assert [[1, 1, 2, 2, 4, 4]] == [list(part.amounts) for part in chart.chart.parts]
    assert [(0, "user api, up to 4")] == chart.legend


def test_shards_chart_of_unsplit_buckets_is_left_out() -> None:
    """Its columns would all be 1."""
    measured = Measurements(1000.0, 1005.5)

    assert shards_chart(measured, TimeSpan.of(measured)) is None
