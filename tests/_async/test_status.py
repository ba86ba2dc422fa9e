"""The status of a limiter on a file or in memory."""

import importlib.metadata

from zae_limiter import RateLimiterUnavailable, Status
from zae_limiter.core.version import SCHEMA_VERSION

from .clients import Wrapped, another


class UnavailableTable(Wrapped):
    """A table that does not respond."""

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        raise RateLimiterUnavailable(ConnectionError("unavailable"))


async def test_status_of_an_embedded_store_has_availability_and_versions(repo, limiter):
    """There is no infrastructure to report."""
    own = importlib.metadata.version("zae-limiter")
    known = await repo.get_status()
    names = ("table_item_count", "table_size_bytes", "log_size_bytes", "log_held_back")
    size = {name: getattr(known, name) for name in names}
    expected = Status(available=True, latency_ms=0.0, schema_version=SCHEMA_VERSION, client_version=own, **size)

    assert expected == known == await limiter.get_status()


async def test_status_item_count_increases_with_a_new_entity(repo):
    """An entity adds at least one item."""
    before = await repo.get_status()
    await repo.create_entity("user-1")
    after = await repo.get_status()

    assert before.table_item_count < after.table_item_count


async def test_status_of_an_unresponsive_store_is_not_available(repo):
    """The call itself does not raise."""
    status = await another(repo, UnavailableTable).get_status()

    assert (False, None, None) == (status.available, status.latency_ms, status.schema_version)
