"""A batch's report as lines of JSON: what is logged, and what CloudWatch turns into metrics."""

import json

import pytest

from zae_limiter_aggregator.batch_processor import BatchReport, Trouble
from zae_limiter_aggregator.report_lines import ReportLines

NOW_MS = 1_763_273_987_519
REPORT = BatchReport(3, 2, 1, 0, 4, 0, 0, 0, [Trouble("usage of user-1", TimeoutError("late"), again=True)], "100")


def written(environment: dict[str, str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in ReportLines.of(environment).lines(REPORT, "request-1", NOW_MS)]


def test_report_of_a_failure_is_an_error_line_with_what_failed():
    """An operator finds the record, the error and the request."""
    failure, _, _ = written({"POWERTOOLS_SERVICE_NAME": "my-app"})

    assert {
        "level": "ERROR",
        "message": "usage of user-1",
        "timestamp": "2025-11-16T06:19:47.519+00:00",
        "service": "my-app",
        "error": "TimeoutError('late')",
        "delivered_again": True,
        "request_id": "request-1",
    } == failure


def test_report_of_a_batch_is_an_info_line_with_its_counts():
    """The line also names the request."""
    _, batch, _ = written({})

    assert ("INFO", "batch", "zae-limiter", "request-1") == tuple(
        batch[name] for name in ("level", "message", "service", "request_id")
    )
    assert REPORT.counts().items() <= batch.items()


def test_report_metrics_are_in_the_embedded_metric_format():
    """CloudWatch finds namespace, dimension and unit under ``_aws``, and each value under its name."""
    environment = {"POWERTOOLS_SERVICE_NAME": "my-app", "POWERTOOLS_METRICS_NAMESPACE": "limits"}
    *_, metrics = written(environment)

    described = {
        "Namespace": "limits",
        "Dimensions": [["service"]],
        "Metrics": [{"Name": name, "Unit": "Count"} for name in REPORT.counts()],
    }
    assert {"Timestamp": NOW_MS, "CloudWatchMetrics": [described]} == metrics.pop("_aws")
    assert {"service": "my-app", **REPORT.counts()} == metrics


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("debug", ["ERROR", "INFO"]),
        ("WARNING", ["ERROR"]),
        ("CRITICAL", []),
        ("", ["ERROR", "INFO"]),
        ("LOUD", ["ERROR", "INFO"]),
    ],
)
def test_report_leaves_out_lines_below_the_log_level(level, logged):
    """Metrics are always written; an unknown level is INFO."""
    *lines, metrics = written({"POWERTOOLS_LOG_LEVEL": level})

    assert (logged, True) == ([line["level"] for line in lines], "_aws" in metrics)
