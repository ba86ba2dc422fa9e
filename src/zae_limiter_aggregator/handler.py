"""Handle batches of stream records in Lambda, and return which records to deliver again.

A container makes its clients once, and remembers what it saw of shards for the next batch.
"""

import os
import sys
import time
from functools import cache
from random import getrandbits
from types import ModuleType
from typing import Any

import botocore.session

from zae_limiter_aggregator.archive import Archive
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.client import AggregatorTable
from zae_limiter_aggregator.delivery import Delivery
from zae_limiter_aggregator.report_lines import ReportLines
from zae_limiter_aggregator.settings import TABLE_NAME, AggregatorSettings
from zae_limiter_aggregator.transport import caller_of

_NONCE_BITS = 60


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
    delivery = Delivery(settings, lambda service, config: session.create_client(service, config=config))
    return Worker(table, settings.rules, archive, getrandbits(_NONCE_BITS), delivery)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Process a batch, and report."""
    report = worker().work(event.get("Records", []), lambda: context.get_remaining_time_in_millis() / 1000)
    _tell(report, context)
    return report.response()


def _tell(report: BatchReport, context: Any) -> None:
    """Log the results and failures of a batch, and publish metrics."""
    request_id = getattr(context, "aws_request_id", None)
    lines = ReportLines.of(os.environ).lines(report, request_id, time.time_ns() // 1_000_000)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    # Lambda freezes the process after the response, with what is still in the buffer.
    sys.stdout.flush()


class HandlerModule(ModuleType):
    """This module, which can be called as its handler.

    So ``from zae_limiter_aggregator import handler`` is a handler, although the module has the same name.
    """

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        """Process a batch, and report."""
        return handler(event, context)


sys.modules[__name__].__class__ = HandlerModule

# Lambda gives a starting container a full processor. So make the clients now, not at the first
# batch.
if TABLE_NAME in os.environ:
    worker()
