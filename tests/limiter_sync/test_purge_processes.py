"""A purge on a SQLite file leaves no items, even if another process works from its cache."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dynamodb.trees import KINDS
from tests.limiter_sync.purge_worker import ENTITIES, LIMITS
from zae_limiter import SyncRepository
from zae_limiter.schema import keys
from zae_limiter.schema.operations import Query

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", KINDS)
def test_process_with_a_cached_purged_namespace_creates_nothing_in_it(tmp_path: Path, kind: str) -> None:
    """Its acquires raise, and the debit of its open lease has no bucket to go to."""
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    repo = SyncRepository.open(url, deadline_s=60)
    namespace_id = repo.register_namespace("tenant")
    repo.namespace("tenant").set_system_defaults(LIMITS)
    command = [sys.executable, "-m", "tests.limiter_sync.purge_worker", kind, url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert "ready\n" == worker.stdout.readline()
        repo.delete_namespace("tenant")
        repo.purge_namespace(namespace_id)
        outcomes, _ = worker.communicate("\n")
    left = repo.scope.table.query(Query(keys.gsi4_pk(namespace_id), index="GSI4"))

    assert 0 == worker.returncode
    assert f"{{'gone': {ENTITIES}}}\n" == outcomes
    assert [] == left.items
    repo.close()
