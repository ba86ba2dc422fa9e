"""Handle batches of stream records in Lambda, and return which records to deliver again.

A container makes its clients once, and remembers what it saw of shards for the next batch.
"""

import os
from functools import cache
from random import getrandbits
from typing import Any

import botocore.session
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from zae_limiter_aggregator.archive import Archive
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.client import AggregatorTable
from zae_limiter_aggregator.settings import TABLE_NAME, AggregatorSettings
from zae_limiter_aggregator.transport import caller_of

_NAME = "zae-limiter"
_NONCE_BITS = 60

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", _NAME))
metrics = Metrics(
    namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", _NAME),
    service=os.environ.get("POWERTOOLS_SERVICE_NAME", _NAME),
)


@cache
def worker() -> Worker:
    """Make the worker for all batches of this container.

    Raises:
        ValidationError: An environment variable is invalid.
    """
    settings = AggregatorSettings.of(os.environ)
    session = botocore.session.get_session()
    table = AggregatorTable(caller_of(session, os.environ), settings.table_name)
    archive = None
    if settings.archive_bucket is not None:
        archive = Archive(settings.archive_bucket, lambda: session.create_client("s3"))
    return Worker(table, settings.rules, archive, getrandbits(_NONCE_BITS))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Process a batch, and report."""
    report = worker().work(event.get("Records", []), lambda: context.get_remaining_time_in_millis() / 1000)
    _tell(report, context)
    return report.response()


def _tell(report: BatchReport, context: Any) -> None:
    """Log the results and failures of a batch, and publish metrics."""
    request_id = getattr(context, "aws_request_id", None)
    for trouble in report.troubles:
        logger.error(
            trouble.what,
            extra={"error": repr(trouble.error), "delivered_again": trouble.again, "request_id": request_id},
        )
    logger.info("batch", extra={**report.counts(), "request_id": request_id})
    for name, value in report.counts().items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)
    metrics.flush_metrics()


# Lambda gives a starting container a full processor. So make the clients now, not at the first
# batch.
if TABLE_NAME in os.environ:
    worker()
