"""Metrics, alarms, log lines and the dashboard of the page about monitoring are those there are."""

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
from zae_limiter.infra import naming
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter_aggregator.batch_processor import BatchReport

SRC = DOCS.parent / "src"
MONITORING = text("monitoring.md")
DASHBOARD = json.loads(text("dashboard.json"))
STACK = Resolved("my-app", template_parameters("my-app", StackOptions(create_iam_roles=True)))
COUNTS = BatchReport(0, 0, 0, 0, 0, 0, 0, 0, [], None).counts()

# What AWS measures, with the dimensions by which it files it.
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
    "QueueName": naming.dead_letter_queue_name("my-app"),
    "service": "my-app",
}
A_BATCH = """
from types import SimpleNamespace
import zae_limiter_aggregator.handler as handler
from zae_limiter_aggregator.batch_processor import BatchReport, Trouble
trouble = Trouble("usage of user-1 gpt-4", TimeoutError("no time is left"), again=True)
handler._tell(BatchReport(1, 1, 0, 0, 2, 0, 0, 0, [trouble], "100"), SimpleNamespace(aws_request_id="7c7b8c70"))
"""


def metrics_of(widget: dict[str, Any]) -> list[tuple[str, str, dict[str, str]]]:
    """Namespace, name and dimensions of what a widget shows."""
    shown = []
    for line in widget["properties"]["metrics"]:
        namespace, name, *rest = [part for part in line if isinstance(part, str)]
        shown.append((namespace, name, dict(zip(rest[::2], rest[1::2], strict=True))))
    return shown


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    """The lines that the function writes of a batch in which something failed."""
    environment = {"POWERTOOLS_SERVICE_NAME": "my-app", "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", A_BATCH], env=environment, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


class TestMetrics:
    def test_those_of_the_aggregator_are_all_told(self) -> None:
        """No more and no less than it reports."""
        assert COUNTS.keys() == rows("monitoring.md", "## Metrics of the aggregator").keys()

    def test_they_are_filed_as_the_page_says(self, said: list[dict[str, Any]]) -> None:
        """Under one namespace, by the name of the stack."""
        (filed,) = [line["_aws"]["CloudWatchMetrics"][0] for line in said if "_aws" in line]
        variables = STACK.properties("AggregatorFunction")["Environment"]["Variables"]

        assert [["service"]] == filed["Dimensions"]
        assert COUNTS.keys() == {one["Name"] for one in filed["Metrics"]}
        assert (OWN_NAMESPACE, "my-app") == (
            variables["POWERTOOLS_METRICS_NAMESPACE"],
            variables["POWERTOOLS_SERVICE_NAME"],
        )

    def test_those_of_aws_are_known(self) -> None:
        """Each row of the page: metrics of one namespace with the dimensions they have."""
        _, _, table = MONITORING.partition("## Metrics of AWS")
        told = re.findall(r"^\| `(AWS/\w+)` \| ([^|]+) \| ([^|]+) \|", table, re.MULTILINE)

        assert told
        for namespace, names, dimensions in told:
            for name in re.findall(r"`(\w+)`", names):
                assert OF_AWS[namespace][name] == re.findall(r"`(\w+)`", dimensions)

    def test_the_names_below_the_table_are_those_of_the_stack(self) -> None:
        """Function, queue and table of a limiter called my-app."""
        sentence = f"The function is `{NAMES['FunctionName']}`, its queue `{NAMES['QueueName']}`, the table `my-app`."

        assert sentence in MONITORING


class TestDashboard:
    @pytest.mark.parametrize("widget", DASHBOARD["widgets"], ids=lambda widget: widget["properties"]["title"])
    def test_a_widget_shows_what_there_is(self, widget: dict[str, Any]) -> None:
        """Metrics that exist, with their dimensions, of the parts of the stack."""
        if widget["type"] == "log":
            assert f"SOURCE '{naming.log_group_name('my-app')}'" in widget["properties"]["query"]
            return
        for namespace, name, dimensions in metrics_of(widget):
            known = {name: ["service"] for name in COUNTS} if namespace == OWN_NAMESPACE else OF_AWS[namespace]
            assert known[name] == list(dimensions)
            for dimension, value in dimensions.items():
                assert value == NAMES.get(dimension, value)

    def test_it_shows_everything_the_aggregator_counts(self) -> None:
        shown = {
            name
            for widget in DASHBOARD["widgets"]
            if widget["type"] == "metric"
            for namespace, name, _ in metrics_of(widget)
            if namespace == OWN_NAMESPACE
        }

        assert COUNTS.keys() == shown

    def test_it_shows_what_alarms_watch(self) -> None:
        """Whoever was woken by an alarm finds its metric there."""
        watched = {one["MetricName"] for one in STACK.of_type("AWS::CloudWatch::Alarm").values()}
        shown = {name for one in DASHBOARD["widgets"] if one["type"] == "metric" for _, name, _ in metrics_of(one)}

        assert watched <= shown

    def test_its_widgets_do_not_overlap(self) -> None:
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
    def test_all_are_told_with_what_raises_them(self) -> None:
        """Name, metric and threshold of each."""
        told = rows("monitoring.md", "## Alarms")
        alarms = {one["AlarmName"]: one for one in STACK.of_type("AWS::CloudWatch::Alarm").values()}

        assert alarms.keys() == told.keys()
        for name, alarm in alarms.items():
            raised = told[name][0]
            assert f"`{alarm['MetricName']}` above {alarm['Threshold']}" in raised
            assert ("twice in a row" in raised) == (alarm["EvaluationPeriods"] == 2)
            assert f"in {alarm['Period'] // 60} minutes" in raised


class TestLogs:
    def test_the_line_of_a_batch_has_the_fields_that_are_shown(self, said: list[dict[str, Any]]) -> None:
        (shown,) = [json.loads(line) for line in re.findall(r"```json\n(.*?)\n```", MONITORING, re.DOTALL)]
        (line,) = [line for line in said if line.get("message") == "batch"]

        assert shown.keys() == line.keys()

    def test_the_line_of_a_trouble_has_the_fields_that_are_told(self, said: list[dict[str, Any]]) -> None:
        (sentence,) = re.findall(r"A line of level `ERROR` has (.*?)\.", MONITORING)
        (line,) = [line for line in said if line.get("level") == "ERROR"]

        assert {"message", "error", "delivered_again", "service", "request_id"} == set(re.findall(r"`(\w+)`", sentence))
        assert set(re.findall(r"`(\w+)`", sentence)) <= line.keys()

    def test_queries_ask_for_fields_there_are(self, said: list[dict[str, Any]]) -> None:
        """What CloudWatch makes of every line starts with @."""
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

    def test_what_the_client_logs_is_told_line_by_line(self) -> None:
        """No more and no less than there is in the source."""
        told = rows("monitoring.md", "### What the client logs")
        levels = re.findall(r"^\| `(WARNING|INFO)` \| `([^`]+)` \|", MONITORING, re.MULTILINE)
        logged = {(call.level, call.begins) for call in _log_calls()}

        assert {"WARNING", "INFO"} == told.keys()
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
    """What the client logs, in the tree that the other one is made from."""
    files = [path for path in sorted((SRC / "zae_limiter").rglob("*.py")) if "_sync" not in path.parts]
    return [
        _LogCall(node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_log"
    ]
