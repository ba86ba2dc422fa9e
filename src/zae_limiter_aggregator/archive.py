"""Write expired audit events to S3: gzipped JSON, one event per line, one object per batch.

The key of an object contains the day on which its first event expired, and the sequences of its
first and last event. So a batch that is delivered again overwrites the same object with the same
bytes. A batch that is delivered again in other parts may put an event into two objects, never into
none. The ``event_id`` identifies such duplicates.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from typing import Any

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.timestamp import utc_from_ms
from zae_limiter_aggregator.records import ExpiredEvent

_TYPE = "application/gzip"


@dataclass(frozen=True, slots=True)
class ArchiveObject:
    """The key and the content of an object."""

    key: str
    body: bytes


def object_of(events: Sequence[ExpiredEvent]) -> ArchiveObject:
    """Return the object with the expired events of a batch."""
    first, last = events[0], events[-1]
    day = utc_from_ms(first.at_ms).strftime("year=%Y/month=%m/day=%d")
    lines = "".join(_line(one) + "\n" for one in events)
    # Without a time stamp, the same events give the same bytes. A lone surrogate is escaped: no
    # table stores it, but JSON can contain it, and one event must not stop the others.
    body = gzip.compress(lines.encode(errors="backslashreplace"), mtime=0)
    return ArchiveObject(f"audit/{day}/{first.sequence}-{last.sequence}.jsonl.gz", body)


class Archive:
    """An S3 bucket. Its client is made when there is something to archive."""

    def __init__(self, bucket: str, make_client: Callable[[], Any]) -> None:
        self._bucket = bucket
        self._make_client = make_client
        self._client: Any = None

    def write(self, events: Sequence[ExpiredEvent]) -> None:
        """Write the object of some events, over the same object of an earlier delivery."""
        if self._client is None:
            self._client = self._make_client()
        made = object_of(events)
        self._client.put_object(Bucket=self._bucket, Key=made.key, Body=made.body, ContentType=_TYPE)


def _line(expired: ExpiredEvent) -> str:
    told = {"namespace_id": expired.namespace_id, **expired.event.to_dict()}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))
