"""How Lambda forms batches of a DynamoDB stream, with the settings of the deployed template.

The first record that waits opens a batching window. The batch is delivered when the window ends or when the batch is
full, whichever is first. https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html
"""

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from tests.infra.resolved import Resolved
from zae_limiter.infra.options import StackOptions, template_parameters

T = TypeVar("T")


class Batching(NamedTuple):
    """The longest time that a record waits for others, in seconds, and the most records of a batch."""

    window_s: float
    records: int


def deployed(interval_s: int) -> Batching:
    """Return the settings of a stack that counts usage at this interval."""
    options = StackOptions(usage_interval_seconds=interval_s)
    stack = Resolved("my-app", template_parameters("my-app", options))
    source = stack.properties("AggregatorEventSource")
    return Batching(float(source["MaximumBatchingWindowInSeconds"]), int(source["BatchSize"]))


BEFORE = Batching(2.0, 1_000)
"""The settings of stacks that were deployed before the interval was an option."""


class StreamBatch(NamedTuple, Generic[T]):
    """The records of a batch, and when the first of them was written, in seconds."""

    opened_s: float
    records: list[T]


def batches(records: Iterable[tuple[float, T]], batching: Batching) -> Iterator[StreamBatch[T]]:
    """Yield the full batches of one shard of a stream, from its records and their times in seconds."""
    batch: StreamBatch[T] | None = None
    for at_s, record in records:
        if batch is not None and at_s >= batch.opened_s + batching.window_s:
            yield batch
            batch = None
        if batch is None:
            batch = StreamBatch(at_s, [])
        batch.records.append(record)
        if len(batch.records) == batching.records:
            yield batch
            batch = None
