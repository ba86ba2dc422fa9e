"""Write the report of a batch as lines of JSON: log lines, and metrics in CloudWatch's embedded metric format.

CloudWatch reads both from the log of the function, so publishing a metric is no call. A line has no
spaces, because logs are paid for by the byte.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter_aggregator.batch_processor import BatchReport

SERVICE_NAME = "POWERTOOLS_SERVICE_NAME"
METRICS_NAMESPACE = "POWERTOOLS_METRICS_NAMESPACE"
LOG_LEVEL = "POWERTOOLS_LOG_LEVEL"

_NAME = "zae-limiter"


@dataclass(frozen=True, slots=True)
class ReportLines:
    """Where a report belongs: the service and the namespace of its metrics; less important lines are left out."""

    service: str
    namespace: str
    least_level: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ReportLines":
        """Read the environment; an unknown log level is INFO, because a typing error must not stop the function."""
        level = environment.get(LOG_LEVEL, "").upper()
        return cls(
            environment.get(SERVICE_NAME) or _NAME,
            environment.get(METRICS_NAMESPACE) or _NAME,
            logging.getLevelNamesMapping().get(level, logging.INFO),
        )

    def lines(self, report: BatchReport, request_id: str | None, now_ms: int) -> Iterator[str]:
        """Yield a line per failure and per warning, a line with the counts, and the counts as metrics."""
        if self.least_level <= logging.ERROR:
            for trouble in report.troubles:
                failed = {"error": repr(trouble.error), "delivered_again": trouble.again}
                yield self._log_line("ERROR", trouble.what, now_ms, {**failed, "request_id": request_id})
        if self.least_level <= logging.WARNING:
            for warning in report.warnings:
                fields = {**warning.as_dict(), "request_id": request_id}
                yield self._log_line("WARNING", str(fields.pop("message")), now_ms, fields)
        if self.least_level <= logging.INFO:
            yield self._log_line("INFO", "batch", now_ms, {**report.counts(), "request_id": request_id})
        yield self._metrics_line(report.counts(), now_ms)

    def _log_line(self, level: str, message: str, now_ms: int, fields: Mapping[str, object]) -> str:
        timestamp = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return _json({"level": level, "message": message, "timestamp": timestamp, "service": self.service, **fields})

    def _metrics_line(self, counts: Mapping[str, int], now_ms: int) -> str:
        described = {
            "Namespace": self.namespace,
            "Dimensions": [["service"]],
            "Metrics": [{"Name": name, "Unit": "Count"} for name in counts],
        }
        published = {"Timestamp": now_ms, "CloudWatchMetrics": [described]}
        return _json({"_aws": published, "service": self.service, **counts})


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))
