"""The commands of the SQLite runbook run as shown, while real processes acquire."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.operator_pages import DOCS
from tests.docs.pages import blocks
from tests.stress.fleet import Fleet, fleet_of
from tests.stress.worker import BUCKET, DEADLINE_S
from zae_limiter import Limit, SyncRepository

LIMIT = Limit.per_second("rps", 1_000)
PROCESSES, EACH = 2, 2
LOST = 100
"""The number of admissions that a restore has to undo."""

BACK_UP, RESTORE = (block.text.splitlines() for block in blocks(DOCS / "operations/runbooks/sqlite.md", "bash"))


def run(commands: list[str], folder: Path) -> str:
    """Run commands of the page in a folder, and return their output."""
    program = f"{sys.executable} -m zae_limiter"
    script = "set -e\n" + "\n".join(f"{program} {line.removeprefix('zae-limiter ')}" for line in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(DOCS.parent / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def consumed(path: Path) -> int:
    """Return the total that a bucket of a file has counted."""
    with SyncRepository.open(f"sqlite:///{path}", deadline_s=DEADLINE_S) as repo:
        return sum(one.total_consumed_milli for one in repo.get_buckets(*BUCKET)) // 1000


def work(fleet: Fleet, count: int) -> None:
    """Wait until this many more requests were admitted."""
    so_far = len(fleet.all_admissions())
    fleet.work_until(lambda: len(fleet.all_admissions()) >= so_far + count)
    assert len(fleet.all_admissions()) >= so_far + count


@pytest.mark.parametrize(("kind", "rounds"), [("threads", 3), ("tasks", 1)])
def test_sqlite_runbook_commands_work_under_load(tmp_path: Path, kind: str, rounds: int) -> None:
    """After a restore the file has the content of the backup and later takes, never the old content.

    No process has to be restarted, and each sees only rejections as errors. The file is intact.
    """
    with fleet_of(tmp_path, LIMIT) as fleet:
        fleet.start(kind, PROCESSES, EACH)
        fleet.begin()
        for number in range(rounds):
            work(fleet, LOST)
            run(BACK_UP, tmp_path)
            with SyncRepository.open(fleet.url, deadline_s=DEADLINE_S) as repo:
                repo.create_entity(f"later-{number}")
            work(fleet, LOST)
            began_ns = time.time_ns()
            shown = run(RESTORE, tmp_path)
            ended_ns = time.time_ns()
            work(fleet, LOST)
            # Opened in a folder of its own: the backup itself stays as it is.
            saved = consumed(copied(tmp_path / "limiter-backup.db", tmp_path / f"copy-{number}.db"))
            after = sum(one.before_ns >= ended_ns for one in fleet.all_admissions())
            found = consumed(fleet.path)
            since = sum(one.after_ns >= began_ns for one in fleet.all_admissions())

            assert "healthy" in shown
            # Each worker may have one take that is stored and not logged yet.
            assert saved + after <= found <= saved + since + PROCESSES * EACH
            with SyncRepository.open(fleet.url, deadline_s=DEADLINE_S) as repo:
                assert repo.get_entity(f"later-{number}") is None
        assert [0, 0] == fleet.exit_codes()
        assert fleet.is_sound()
    kept = sorted(path.name for path in tmp_path.glob("limiter.db.*"))
    assert [f"limiter.db.before-restore{ending}" for ending in ("", "-2", "-3")[:rounds]] == kept


def copied(path: Path, target: Path) -> Path:
    """Return a copy of a closed file."""
    target.write_bytes(path.read_bytes())
    return target
