"""Expired audit events as objects of S3: gzipped JSON, one event per line, one object per batch.

The key of an object is the day on which the first of its events expired, and the sequences of the first and the last:
the same batch delivered again writes the same object again, byte by byte, and never another. A batch that is delivered
again in other parts may leave an event in two objects, never in none; its ``event_id`` tells that it is one.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zae_limiter.core.timestamp import utc_from_ms
from zae_limiter_aggregator.records import ExpiredEvent

_TYPE = "application/gzip"


@dataclass(frozen=True, slots=True)
class ArchiveObject:
    """The key and the content of an object."""

    key: str
    body: bytes


def object_of(events: Sequence[ExpiredEvent]) -> ArchiveObject:
    """Return the object that holds the expired events of a batch."""
    first, last = events[0], events[-1]
    day = utc_from_ms(first.at_ms).strftime("year=%Y/month=%m/day=%d")
    lines = "".join(_line(one) + "\n" for one in events)
    # Without a time in it, the same events give the same bytes.
    # A lone surrogate, which no table keeps but JSON can spell, is escaped: one event must not stop the others.
    body = gzip.compress(lines.encode(errors="backslashreplace"), mtime=0)
    return ArchiveObject(f"audit/{day}/{first.sequence}-{last.sequence}.jsonl.gz", body)


class Archive:
    """A bucket of S3. Its client is made when there is something to archive."""

    def __init__(self, bucket: str, make_client: Callable[[], Any]) -> None:
        self._bucket = bucket
        self._make_client = make_client
        self._client: Any = None

    def write(self, events: Sequence[ExpiredEvent]) -> None:
        """Write the object of some events, in place of the same object of an earlier delivery."""
        if self._client is None:
            self._client = self._make_client()
        made = object_of(events)
        self._client.put_object(Bucket=self._bucket, Key=made.key, Body=made.body, ContentType=_TYPE)


def _line(expired: ExpiredEvent) -> str:
    told = {"namespace_id": expired.namespace_id, **asdict(expired.event)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))
