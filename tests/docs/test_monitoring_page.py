"""Metrics, alarms, log lines and dashboard of the monitoring page are those of the code."""

import ast
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.operator_pages import DOCS, rows, text
from tests.infra.resolved import Resolved
from zae_limiter.core.limit import Limit
from zae_limiter.core.warnings import LimitWarning
from zae_limiter.infra import naming
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter_aggregator.batch_processor import BatchReport

SRC = DOCS.parent / "src"
MONITORING = text("monitoring.md")
DASHBOARD = json.loads(text("dashboard.json"))
STACK = Resolved("my-app", template_parameters("my-app", StackOptions(create_iam_roles=True)))
WARNING = LimitWarning("default", "user-1", "gpt-4", Limit.per_minute("rpm", 10, warn_at=(0.8,)), 0.8, 8, 0)
COUNTS = BatchReport(0, 0, 0, 0, 0, 0, 0, 0, [], None, slots_in_use=0, warnings=[WARNING]).counts()

# The metrics of AWS, with their dimensions.
OF_AWS = {
    "AWS/DynamoDB": {
        "ConsumedWriteCapacityUnits": ["TableName"],
        "ConsumedReadCapacityUnits": ["TableName"],
        "WriteThrottleEvents": ["TableName"],
        "ReadThrottleEvents": ["TableName"],
        "ConditionalCheckFailedRequests": ["TableName"],
        "TransactionConflict": ["TableName"],
        "SuccessfulRequestLatency": ["TableName", "Operation"],
        "SystemErrors": ["TableName", "Operation"],
    },
    "AWS/Lambda": {
        "Invocations": ["FunctionName"],
        "Errors": ["FunctionName"],
        "Throttles": ["FunctionName"],
        "Duration": ["FunctionName"],
        "IteratorAge": ["FunctionName"],
    },
    "AWS/SQS": {"ApproximateNumberOfMessagesVisible": ["QueueName"]},
}
OWN_NAMESPACE = "zae-limiter"
NAMES = {
    "TableName": naming.table_name("my-app"),
    "FunctionName": naming.function_name("my-app"),
    "QueueName": "my-app-aggregator-dlq",
    "service": "my-app",
}
A_BATCH = """
from types import SimpleNamespace
import zae_limiter_aggregator.handler as handler
from zae_limiter_aggregator.batch_processor import BatchReport, Trouble
trouble = Trouble("usage of user-1 gpt-4", TimeoutError("no time is left"), again=True)
from zae_limiter.core.limit import Limit
from zae_limiter.core.warnings import LimitWarning
warning = LimitWarning("default", "user-1", "gpt-4", Limit.per_minute("rpm", 10, warn_at=(0.8,)), 0.8, 8, 0)
report = BatchReport(1, 1, 0, 0, 2, 0, 0, 0, [trouble], "100", slots_in_use=12, warnings=[warning])
handler._tell(report, SimpleNamespace(aws_request_id="7c7b8c70"))
"""


def metrics_of(widget: dict[str, Any]) -> list[tuple[str, str, dict[str, str]]]:
    """Return namespace, name and dimensions of what a widget shows."""
    shown = []
    for line in widget["properties"]["metrics"]:
        namespace, name, *rest = [part for part in line if isinstance(part, str)]
        shown.append((namespace, name, dict(zip(rest[::2], rest[1::2], strict=True))))
    return shown


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    """Return the lines that the function logs for a batch with a failure."""
    environment = {"POWERTOOLS_SERVICE_NAME": "my-app", "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", A_BATCH], env=environment, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


class TestMetrics:
    """The metrics of the page exist, with their dimensions."""

    def test_metrics_of_the_aggregator_on_the_page_are_those_it_reports(self) -> None:
        """No more and no less."""
        assert COUNTS.keys() == rows("monitoring.md", "## Metrics of the aggregator").keys()

    def test_metrics_of_the_aggregator_have_the_namespace_and_dimension_of_the_page(
        self, said: list[dict[str, Any]]
    ) -> None:
        """One namespace, and the name of the stack."""
        (filed,) = [line["_aws"]["CloudWatchMetrics"][0] for line in said if "_aws" in line]
        variables = STACK.properties("AggregatorFunction")["Environment"]["Variables"]

        assert [["service"]] == filed["Dimensions"]
        assert COUNTS.keys() == {one["Name"] for one in filed["Metrics"]}
        assert (OWN_NAMESPACE, "my-app") == (
            variables["POWERTOOLS_METRICS_NAMESPACE"],
            variables["POWERTOOLS_SERVICE_NAME"],
        )

    def test_metrics_of_aws_on_the_page_have_their_dimensions(self) -> None:
        """Each row has metrics of one namespace."""
        _, _, table = MONITORING.partition("## Metrics of AWS")
        documented = re.findall(r"^\| `(AWS/\w+)` \| ([^|]+) \| ([^|]+) \|", table, re.MULTILINE)

        assert documented
        for namespace, names, dimensions in documented:
            for name in re.findall(r"`(\w+)`", names):
                assert OF_AWS[namespace][name] == re.findall(r"`(\w+)`", dimensions)

    def test_resource_names_below_the_metrics_are_those_of_the_stack(self) -> None:
        """Function, queue and table of a limiter called my-app."""
        sentence = f"The function is `{NAMES['FunctionName']}`, its queue `{NAMES['QueueName']}`, the table `my-app`."

        assert sentence in MONITORING


class TestDashboard:
    """The dashboard shows existing metrics of the stack."""

    @pytest.mark.parametrize("widget", DASHBOARD["widgets"], ids=lambda widget: widget["properties"]["title"])
    def test_dashboard_widget_shows_existing_metrics(self, widget: dict[str, Any]) -> None:
        """With their dimensions, of the resources of the stack."""
        if widget["type"] == "log":
            assert "SOURCE '/aws/lambda/my-app-aggregator'" in widget["properties"]["query"]
            return
        for namespace, name, dimensions in metrics_of(widget):
            known = {name: ["service"] for name in COUNTS} if namespace == OWN_NAMESPACE else OF_AWS[namespace]
            assert known[name] == list(dimensions)
            for dimension, value in dimensions.items():
                assert value == NAMES.get(dimension, value)

    def test_dashboard_shows_every_count_of_the_aggregator(self) -> None:
        """No count is left out."""
        shown = {
            name
            for widget in DASHBOARD["widgets"]
            if widget["type"] == "metric"
            for namespace, name, _ in metrics_of(widget)
            if namespace == OWN_NAMESPACE
        }

        assert COUNTS.keys() == shown

    def test_dashboard_shows_the_metric_of_every_alarm(self) -> None:
        """An operator finds the metric that raised an alarm."""
        watched = {one["MetricName"] for one in STACK.of_type("AWS::CloudWatch::Alarm").values()}
        shown = {name for one in DASHBOARD["widgets"] if one["type"] == "metric" for _, name, _ in metrics_of(one)}

        assert watched <= shown

    def test_dashboard_widgets_do_not_overlap(self) -> None:
        """Twenty-four columns, every cell once."""
        cells = [
            (x, y)
            for one in DASHBOARD["widgets"]
            for x in range(one["x"], one["x"] + one["width"])
            for y in range(one["y"], one["y"] + one["height"])
        ]

        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24


class TestAlarms:
    """The page has the alarms of the stack."""

    def test_every_alarm_is_on_the_page_with_its_condition(self) -> None:
        """Name, metric and threshold of each."""
        documented = rows("monitoring.md", "## Alarms")
        alarms = {one["AlarmName"]: one for one in STACK.of_type("AWS::CloudWatch::Alarm").values()}

        assert alarms.keys() == documented.keys()
        for name, alarm in alarms.items():
            raised = documented[name][0]
            assert f"`{alarm['MetricName']}` above {alarm['Threshold']}" in raised
            assert ("twice in a row" in raised) == (alarm["EvaluationPeriods"] == 2)
            assert f"in {alarm['Period'] // 60} minutes" in raised


class TestLogs:
    """The page describes the log lines of function and client."""

    def test_log_line_of_a_batch_has_the_fields_on_the_page(self, said: list[dict[str, Any]]) -> None:
        """The page shows a complete line."""
        (shown,) = [json.loads(line) for line in re.findall(r"```json\n(.*?)\n```", MONITORING, re.DOTALL)]
        (line,) = [line for line in said if line.get("message") == "batch"]

        assert shown.keys() == line.keys()

    def test_log_line_of_an_error_has_the_fields_on_the_page(self, said: list[dict[str, Any]]) -> None:
        """The page lists the fields."""
        (sentence,) = re.findall(r"A line of level `ERROR` has (.*?)\.", MONITORING)
        (line,) = [line for line in said if line.get("level") == "ERROR"]

        assert {"message", "error", "delivered_again", "service", "request_id"} == set(re.findall(r"`(\w+)`", sentence))
        assert set(re.findall(r"`(\w+)`", sentence)) <= line.keys()

    def test_log_queries_use_existing_fields(self, said: list[dict[str, Any]]) -> None:
        """Fields that CloudWatch adds to every line start with @."""
        fields = {name for line in said for name in line}
        own = {"longest_ms", "p99_ms", "memory_mb", "times", "last", "delivered", "writes", "counted", "failed"}
        words = {"fields", "filter", "sort", "desc", "limit", "stats", "count", "max", "sum", "pct", "as", "by", "bin"}
        words |= {"and", "or", "m"}
        queries = [query for query in re.findall(r"```text\n(.*?)```", MONITORING, re.DOTALL) if "filter" in query]
        queries += [
            one["properties"]["query"].partition("|")[2] for one in DASHBOARD["widgets"] if one["type"] == "log"
        ]

        assert len(queries) == 6
        for query in queries:
            bare = re.sub(r'"[^"]*"|@\w+|\b\d+', " ", query)
            assert set(re.findall(r"[a-z_]\w*", bare)) - words - own <= fields

    def test_log_messages_of_the_client_are_on_the_page(self) -> None:
        """No more and no less than in the source."""
        documented = rows("monitoring.md", "### What the client logs")
        levels = re.findall(r"^\| `(ERROR|WARNING|INFO)` \| `([^`]+)` \|", MONITORING, re.MULTILINE)
        logged = {(call.level, call.begins) for call in _log_calls()}

        assert {"ERROR", "WARNING", "INFO"} == documented.keys()
        assert logged == set(levels)


class _LogCall:
    """A call of a logger: its level, and its text up to the first value."""

    def __init__(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        (message, *_) = call.args
        assert isinstance(message, ast.Constant)
        self.level = call.func.attr.upper()
        self.begins = str(message.value).partition("%s")[0].strip()


def _log_calls() -> list[_LogCall]:
    """Return the log calls of the client, in the async tree. Load tests log to the operator of the test."""
    others = {"_sync", "loadtest"}
    files = [path for path in sorted((SRC / "zae_limiter").rglob("*.py")) if others.isdisjoint(path.parts)]
    return [
        _LogCall(node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_log"
    ]
