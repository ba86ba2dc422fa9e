"""Open a repository whose DynamoDB calls are counted, and sample the shards of its buckets.

Reads of the server's time in the background are not counted. They cost at most 24 read units per
process and 10 seconds.
"""

import os
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

from zae_limiter._async import open as async_open
from zae_limiter._async.repository import Repository
from zae_limiter._sync import open as sync_open
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.caches.buckets import NamespaceCaches
from zae_limiter.clock import Clock, SystemClock
from zae_limiter.core.location import choose_url
from zae_limiter.core.names import check_namespace
from zae_limiter.core.settings import make_settings
from zae_limiter.loadtest.recorder import Recorder
from zae_limiter.runtime import aio, threads
from zae_limiter.tables.dynamodb.errors import ServiceFailure, refused_write_units, throttling_reasons

_READS = frozenset({"GetItem", "BatchGetItem", "Query", "TransactGetItems"})


class CachingScope(Protocol):
    """The part of a scope that has the cached buckets."""

    @property
    def caches(self) -> NamespaceCaches:
        """The caches."""


class RecordingMeter:
    """Counts the calls to DynamoDB, what they consume, and why they were throttled."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def consumed(self, action: str, capacity: list[dict[str, Any]]) -> None:
        """Count a call that succeeded, with the capacity that DynamoDB reports."""
        index_units = sum(index_units_of(one) for one in capacity)
        units = sum(float(one.get("CapacityUnits") or 0) for one in capacity)
        if action in _READS:
            self._recorder.consumed(action, units, 0.0, 0.0)
        else:
            self._recorder.consumed(action, 0.0, units - index_units, index_units)

    def failed(self, action: str, failure: ServiceFailure) -> None:
        """Count a call that DynamoDB refused or throttled."""
        refused = refused_write_units(failure)
        if refused:
            self._recorder.refused_write(action, refused)
        else:
            self._recorder.throttled(action, throttling_reasons(failure))


def index_units_of(capacity: Mapping[str, Any]) -> float:
    """Return the units that were consumed by indexes."""
    indexes = capacity.get("GlobalSecondaryIndexes")
    values = indexes.values() if isinstance(indexes, Mapping) else ()
    return sum(float(one.get("CapacityUnits") or 0) for one in values)


async def open_metered(
    url: str | None, recorder: Recorder, *, namespace: str = "default", clock: Clock | None = None
) -> Repository:
    """Open the table of a URL, as `Repository.open` does, and count its calls.

    Raises:
        ValidationError: The URL is invalid.
        NamespaceNotFoundError: The namespace does not exist.
        InfrastructureError: The table cannot be used; the error says why.
        VersionError: The table has another schema, or requires a newer client.
    """
    check_namespace(namespace)
    location = async_open.located(choose_url(url, os.environ).url)
    settings, meter = make_settings(), RecordingMeter(recorder)
    opening = async_open.Opening(location, settings, clock or SystemClock(), Random(), meter=meter)
    return Repository(await async_open.open_scope(opening, aio.Parallel("auto"), namespace))


def open_metered_sync(
    url: str | None, recorder: Recorder, *, namespace: str = "default", clock: Clock | None = None
) -> SyncRepository:
    """Open the table of a URL, as `SyncRepository.open` does, and count its calls. It raises the same errors."""
    check_namespace(namespace)
    location = sync_open.located(choose_url(url, os.environ).url)
    settings, meter = make_settings(), RecordingMeter(recorder)
    opening = sync_open.Opening(location, settings, clock or SystemClock(), Random(), meter=meter)
    return SyncRepository(sync_open.open_scope(opening, threads.Parallel("auto"), namespace))


def sample_shards(scope: CachingScope, recorder: Recorder) -> None:
    """Note how many shards each bucket has that is known to have several. No call is made."""
    for (entity_id, resource), known in list(scope.caches.buckets.items()):
        if known.sharded:
            recorder.sharded(entity_id, resource, len(known.views()))
