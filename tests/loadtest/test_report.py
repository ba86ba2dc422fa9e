"""The report of a load test, as values, in words and as JSON."""

import json
from random import Random

import pytest

from tests.loadtest.true_bucket import Demand, TrueBucket, run
from zae_limiter.core.limit import Limit
from zae_limiter.loadtest.measurements import LimitKey, Measurements, Second
from zae_limiter.loadtest.report import LatencyBasis, LoadReport, most_shards, report_of
from zae_limiter.loadtest.report_text import (
    headline,
    in_time,
    latency_note,
    latency_table,
    limits_table,
    store_lines,
    summary_lines,
)

PER_SECOND = Limit.per_second("tps", 1000)


def measured_from(taken_of_10_000: int = 10_000, duration_s: float = 30) -> Measurements:
    """Return the measurements of one bucket under demand."""
    tally = run(TrueBucket(PER_SECOND, Random(1), taken_of_10_000=taken_of_10_000), Demand(400, duration_s, 10))
    started_s = 1_000_000.0
    measured = Measurements(started_s, started_s + duration_s, admitted=9000, rejected=3000, limits={tally.key: tally})
    for number in range(int(duration_s)):
        second = Second(admitted=300, rejected=100)
        second.latencies.add(5.0)
        measured.seconds[1_000_000 + number] = second
        measured.latencies_of("ACQUIRE").add(5.0)
    return measured


def report_from(taken_of_10_000: int = 10_000) -> LoadReport:
    return report_of(measured_from(taken_of_10_000))


def test_report_of_a_good_test_says_that_the_promise_held() -> None:
    """The first sentence is the answer."""
    report = report_from()

    assert report.held
    assert "The promise held: 1 limit checked, 1 with enough demand to judge the share." == headline(report)
    assert "held" == limits_table(report).rows[0][-1]


def test_report_of_too_much_names_the_excess_and_its_window() -> None:
    """Times count from the start of the test."""
    report = report_from(9_800)
    words = limits_table(report).rows[0][-1]

    assert not report.held
    assert headline(report).startswith("The promise did not hold for 1 limit: ")
    assert words.startswith("EXCEEDED by ")
    assert ", from 0.0 to " in words


def test_report_of_too_little_names_the_share() -> None:
    """The share is in its own column."""
    row = limits_table(report_from(10_526)).rows[0]

    assert row[-1].startswith("BELOW 98.0 % of the refill, from ")
    assert 93 < float(row[-2].removesuffix(" %")) < 97


def test_report_rates_are_over_the_time_from_the_first_call_to_the_last() -> None:
    """Starting and stopping is no part of the test."""
    report = report_from()

    assert 400.0 == report.calls_per_s
    assert summary_lines(report)[:2] == [
        "12,000 calls in 30.0 s: 400 per second, 300 admitted per second",
        "admitted 9,000, rejected 3,000, errors 0",
    ]
    assert ["ACQUIRE", "30", "5.00 ms", "5.00 ms", "5.00 ms", "5.00 ms"] == latency_table(report).rows[0]


@pytest.mark.parametrize(
    ("scheduled", "basis"),
    [(0, LatencyBasis.SERVICE), (6000, LatencyBasis.BOTH), (12_000, LatencyBasis.SCHEDULED)],
)
def test_report_says_from_when_latencies_count(scheduled: int, basis: LatencyBasis) -> None:
    """Paced users and others may call in the same test."""
    measured = measured_from()
    measured.scheduled = scheduled

    report = report_of(measured)

    assert basis == report.latency_basis
    assert latency_note(report).startswith("Latencies count ")


def test_report_warns_of_what_distorts_it() -> None:
    """Unsent calls, calls without limiting, and calls that can never be admitted."""
    measured = measured_from()
    measured.unsent, measured.degraded, measured.never = 1, 2, 3

    warnings = summary_lines(report_of(measured))[2:]

    assert warnings == [
        "3 calls can never be admitted: the amount is above the capacity",
        "1 call could not be sent in time: the driver is at its limit",
        "2 calls admitted without limiting: the store was unavailable",
    ]


def test_report_of_dynamodb_has_units_price_and_throttles() -> None:
    """A refused write is billed, and the report says how it is counted."""
    measured = measured_from()
    measured.calls.update({"UpdateItem": 12_000})
    measured.write_units, measured.refused_write_units, measured.read_units = 11_000, 1_000, 0.5
    measured.throttles["TableWriteKeyRangeThroughputExceeded"] = 7
    measured.shards = {"user api": {1_000_003: 2, 1_000_009: 4}}

    lines = store_lines(report_of(measured))

    assert lines == [
        "DynamoDB units: 11,000 write, 1,000 refused write, 0.5 read; USD 0.0075, USD 0.63 per million calls",
        "DynamoDB bills refused writes but does not report them; each counts as one unit.",
        "throttles: TableWriteKeyRangeThroughputExceeded 7",
        "shards: a bucket had up to 4",
    ]


def test_report_of_another_store_has_no_price() -> None:
    """A file costs nothing."""
    report = report_from()

    assert report.cost is None
    assert [] == store_lines(report)


def test_report_is_json() -> None:
    """A program reads the verdict and the figures."""
    found = json.loads(json.dumps(report_from(9_800).to_dict()))

    assert found["promise_held"] is False
    assert "exceeded" == found["limits"][0]["verdict"]
    assert found["limits"][0]["window"]["excess"] > 0
    assert 12_000 == found["calls"]


def test_report_without_calls_does_not_hold_and_divides_by_nothing() -> None:
    """A test that did nothing proves nothing."""
    report = report_of(Measurements())

    assert not report.held
    assert "No call was made." == headline(report)
    assert 0.0 == report.calls_per_s


def test_report_whose_limits_are_unknown_does_not_hold() -> None:
    """All requests were above the capacity, say, so nothing was ever taken, and nothing could be checked."""
    measured = Measurements(100.0, 101.0, rejected=1)
    measured.tally_of(LimitKey("user", "api", "rps"), is_ancestor=False)

    report = report_of(measured)

    assert (False, 0) == (report.held, report.checked)
    assert headline(report).startswith("No limit was checked")


def test_limit_that_is_unknown_is_not_counted_as_checked() -> None:
    """The report still lists it."""
    measured = measured_from()
    measured.tally_of(LimitKey("user", "api", "rps"), is_ancestor=False)

    report = report_of(measured)

    assert headline(report).startswith("The promise held: 1 limit checked")
    assert 2 == len(report.limits)


def test_report_of_more_limits_than_are_kept_says_how_they_were_chosen() -> None:
    """A sample must not look like everything."""
    measured = measured_from()
    for number in range(100):
        tally = measured.tally_of(LimitKey(f"user-{number}", "api", "tps"), is_ancestor=False)
        if tally is not None:
            tally.limits.add(PER_SECOND)
            tally.take(1, 1_000_000.0, 1_000_000.1)

    assert "of more limits, these 64 were chosen by a hash of their names" in headline(report_of(measured))


def test_most_shards_of_a_bucket_is_its_highest_sample() -> None:
    """More shards leave more tokens behind when a request is rejected."""
    assert {("user", "api"): 4} == most_shards({"user api": {1: 2, 5: 4, 9: 1}})


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.0312, "0.031 ms"), (1.234, "1.23 ms"), (12.34, "12.3 ms"), (345.6, "346 ms"), (1234.0, "1.23 s")],
)
def test_duration_has_three_digits(milliseconds: float, text: str) -> None:
    """More would not be exact."""
    assert text == in_time(milliseconds)
