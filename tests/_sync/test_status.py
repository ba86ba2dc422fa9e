"""How a limiter stands that is a file, or memory."""  # generated from _async by tools/mirror.py; do not edit

import importlib.metadata

from zae_limiter import RateLimiterUnavailable, Status
from zae_limiter.core.version import SCHEMA_VERSION

from .clients import Wrapped, another


class AwayTable(Wrapped):
    """A table that does not answer."""

    def batch_get(self, keys, *, consistent=False, until_s=None):
        raise RateLimiterUnavailable(ConnectionError("away"))


def test_it_answers_and_tells_its_versions(repo, limiter):
    """There is nothing around it."""
    own = importlib.metadata.version("zae-limiter")
    known = repo.get_status()
    names = ("table_item_count", "table_size_bytes", "log_size_bytes", "log_held_back")
    size = {name: getattr(known, name) for name in names}
    expected = Status(available=True, latency_ms=0.0, schema_version=SCHEMA_VERSION, client_version=own, **size)

    assert expected == known == limiter.get_status()


def test_it_tells_how_many_items_there_are(repo):
    """An entity is at least one more."""
    before = repo.get_status()
    repo.create_entity("user-1")
    after = repo.get_status()

    assert before.table_item_count < after.table_item_count


def test_one_that_does_not_answer_is_not_available(repo):
    """Asking is no error."""
    status = another(repo, AwayTable).get_status()

    assert (False, None, None) == (status.available, status.latency_ms, status.schema_version)
