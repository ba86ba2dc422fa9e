"""Backup and restore of a SQLite file: consistent under load, all or nothing, while other processes continue."""

import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tables.engines import KEY, item
from tests.tables.test_sqlite_processes import Start, go, line, start, whole
from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.core.outcome import Applied, Committed
from zae_limiter.core.version_errors import IncompatibleSchemaError
from zae_limiter.schema.operations import Key, Put, Update
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite import backup as sqlite_backup
from zae_limiter.tables.sqlite.backup import Copied, CopyProgress, back_up, check_backup, restore
from zae_limiter.tables.sqlite.table import SqliteTable

__all__ = ["start"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limiter.db"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """The path of a backup in a directory of its own."""
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "backup.db"


def ignore(_: CopyProgress) -> None:
    """Ignore progress."""


def filled(path: Path, number: int) -> None:
    """Write a number to an item of a file, and enough other content for many pages."""
    table = SqliteTable(path)
    for part in range(20):
        table.write(Put(item("filler", str(part), text="word" * 500)))
    table.write(Put(item(x=number)))
    table.close()


def number_in(path: Path) -> object:
    """Return the number that was written to an item of a file."""
    table = SqliteTable(path)
    found = table.get(KEY)
    table.close()
    return None if found is None else found["x"]


def changed(path: Path, *statements: str) -> None:
    """Change a file by plain SQL, without this package."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def when_free(call: Callable[[], object]) -> object:
    """Repeat a call until no other process holds the file."""
    while True:
        with suppress(Busy):
            return call()


def beside(path: Path) -> list[str]:
    """Return the names of all files in the directory of a file."""
    return sorted(os.listdir(path.parent))


class TestBackup:
    def test_a_backup_contains_everything_written_before_it(self, path: Path, backup: Path) -> None:
        """It is one private file without a log, and can be used as a store."""
        filled(path, 1)
        table = SqliteTable(path)
        table.write(Update(KEY, add={"x": 1}))
        steps: list[CopyProgress] = []
        done = back_up(str(path), str(backup), steps.append)
        table.write(Update(KEY, add={"x": 1}))

        assert Copied(21, backup.stat().st_size) == done
        assert ["backup.db"] == beside(backup)
        assert 0o600 == stat.S_IMODE(backup.stat().st_mode)
        assert {"Copying", "Checking"} == {progress.step for progress in steps}
        assert [done.size_bytes] * 2 == [*steps[-2][1:]]
        assert 2 == number_in(backup)
        table.close()

    def test_a_backup_during_constant_writes_ends_and_is_consistent(
        self, path: Path, backup: Path, start: Start
    ) -> None:
        """Writers never make it start again, and it contains no partial transaction."""
        filled(path, 1)
        writer = start("pair", path)
        assert "written" == line(writer)
        table, done_bytes = SqliteTable(path), list[int]()

        def write_between_steps(progress: CopyProgress) -> None:
            if progress.step == "Copying":
                done_bytes.append(progress.done_bytes)
                assert len(done_bytes) < 1000
                when_free(lambda: table.transact([Update(Key("pair", name), add={"x": 1}) for name in "ab"]))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite_backup, "_BYTES_PER_STEP", 4096)
            back_up(str(path), str(backup), write_between_steps)
        table.close()
        copy = SqliteTable(backup)
        found = copy.batch_get([Key("pair", "a"), Key("pair", "b")])
        copy.close()

        assert len(done_bytes) > 10
        assert sorted(set(done_bytes)) == done_bytes
        assert (found[0] or {})["x"] == (found[1] or {})["x"]

    def test_a_failed_backup_leaves_the_previous_one(self, path: Path, backup: Path) -> None:
        """The target is replaced as a whole or not at all, and no temporary file is left."""
        filled(path, 1)
        back_up(str(path), str(backup), ignore)
        content = backup.read_bytes()

        def interrupt(_: CopyProgress) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            back_up(str(path), str(backup), interrupt)
        assert content == backup.read_bytes()
        assert ["backup.db"] == beside(backup)

    def test_a_backup_of_a_damaged_store_is_refused(self, path: Path, backup: Path) -> None:
        """A backup has to be restorable."""
        filled(path, 1)
        content = path.read_bytes()
        path.write_bytes(content[:8192] + b"\xa5" * 4096 + content[12288:])

        with pytest.raises(StorageError, match="damaged"):
            back_up(str(path), str(backup), ignore)
        assert [] == beside(backup)

    def test_a_backup_of_a_missing_store_is_refused_and_creates_nothing(self, path: Path, backup: Path) -> None:
        """The error names the file."""
        with pytest.raises(StorageError, match=r"limiter\.db: it does not exist"):
            back_up(str(path), str(backup), ignore)
        assert ["backups"] == beside(path)

    def test_a_backup_to_the_store_itself_is_refused(self, path: Path) -> None:
        """The target may be neither the store, nor a link to it, nor one of its files."""
        filled(path, 1)
        link = path.with_name("link.db")
        link.symlink_to(path)

        for target in (path, link, f"{path}-wal"):
            with pytest.raises(ValidationError, match="the store"):
                back_up(str(path), str(target), ignore)
        assert 1 == number_in(path)

    def test_a_backup_to_a_target_with_a_log_of_another_file_is_refused(self, path: Path, backup: Path) -> None:
        """SQLite would apply that log to the new backup. A process that used the old backup as a store has left it."""
        filled(path, 1)
        back_up(str(path), str(backup), ignore)
        used = SqliteTable(backup)
        used.write(Update(KEY, add={"x": 4}))

        with pytest.raises(StorageError, match=r"backup\.db: a log is beside it"):
            back_up(str(path), str(backup), ignore)
        used.close()
        back_up(str(path), str(backup), ignore)
        assert 1 == number_in(backup)

    def test_a_backup_to_a_missing_directory_is_refused(self, path: Path, tmp_path: Path) -> None:
        """The user creates directories of backups."""
        filled(path, 1)

        with pytest.raises(StorageError, match="no file can be created in its directory"):
            back_up(str(path), str(tmp_path / "missing" / "backup.db"), ignore)


class TestRestore:
    @pytest.fixture(autouse=True)
    def backed_up(self, path: Path, backup: Path) -> None:
        """A store that contains 2, and a backup from when it contained 1."""
        filled(path, 1)
        back_up(str(path), str(backup), ignore)
        filled(path, 2)

    def test_open_tables_continue_on_the_restored_content(self, path: Path, backup: Path, start: Start) -> None:
        """Tables of this and other processes see no error. The file is the same file and undamaged."""
        table = SqliteTable(path)
        table.write(Update(KEY, add={"x": 1}))
        writer = start("pair", path)
        assert "written" == line(writer)
        inode = path.stat().st_ino
        done = restore(str(backup), str(path), ignore)

        assert (21, f"{path}.before-restore") == (done.items, done.saved_as)
        assert Applied(item(x=2)) == when_free(lambda: table.write(Update(KEY, add={"x": 1})))
        assert Committed() == when_free(lambda: table.transact([Update(KEY, add={"x": 1})]))
        for _ in range(500):
            assert "written" == line(writer)
        pair = table.batch_get([Key("pair", "a"), Key("pair", "b")])
        assert 0 < (pair[0] or {})["x"] == (pair[1] or {})["x"]
        assert inode == path.stat().st_ino
        table.close()
        assert whole(path)

    def test_a_restore_keeps_the_old_content_in_a_new_file(self, path: Path, backup: Path) -> None:
        """Each restore uses another file name, and the kept file can be restored."""
        restore(str(backup), str(path), ignore)
        filled(path, 3)
        done = restore(str(backup), str(path), ignore)

        assert f"{path}.before-restore-2" == done.saved_as
        assert ["backups", "limiter.db", "limiter.db.before-restore", "limiter.db.before-restore-2"] == beside(path)
        restore(f"{path}.before-restore", str(path), ignore)
        assert 2 == number_in(path)

    def test_a_restore_to_a_missing_store_creates_it(self, tmp_path: Path, backup: Path) -> None:
        """No old content is kept."""
        fresh = tmp_path / "fresh" / "limiter.db"
        done = restore(str(backup), str(fresh), ignore)

        assert done.saved_as is None
        assert ["limiter.db"] == beside(fresh)
        assert 1 == number_in(fresh)

    def test_a_killed_restore_changes_nothing(self, path: Path, backup: Path, start: Start) -> None:
        """After a kill in the middle of the copy, open tables continue on the old content, and a new restore works."""
        table = SqliteTable(path)
        table.get(KEY)
        restorer = start("restore", path, backup)
        assert "restoring" == line(restorer)
        go(restorer)
        assert "restoring" == line(restorer)
        restorer.send_signal(signal.SIGKILL)
        restorer.wait()

        assert Applied(item(x=3)) == table.write(Update(KEY, add={"x": 1}))
        assert whole(path)
        restore(str(backup), str(path), ignore)
        assert item(x=1) == table.get(KEY)
        table.close()

    def test_writers_wait_and_readers_continue_during_a_restore(self, path: Path, backup: Path, start: Start) -> None:
        """Writes are refused as busy until the deadline. Reads return the old content until the new is complete."""
        table = SqliteTable(path)
        restorer = start("restore", path, backup)
        assert "restoring" == line(restorer)

        with pytest.raises(Busy):
            table.write(Update(KEY, add={"x": 1}))
        assert item(x=2) == table.get(KEY)
        go(restorer)
        while line(restorer) == "restoring":
            go(restorer)
        assert item(x=1) == table.get(KEY)
        table.close()

    def test_a_restore_to_a_store_that_stays_locked_gives_up(
        self, path: Path, backup: Path, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The store is unchanged."""
        monkeypatch.setattr(sqlite_backup, "_LOCKED_STEPS", 2)
        holder = start("hold", path)
        assert "ready" == line(holder)
        steps: list[CopyProgress] = []

        with pytest.raises(StorageError, match="kept it locked"):
            restore(str(backup), str(path), steps.append)
        assert "Waiting for other writers" in {progress.step for progress in steps}
        go(holder)
        holder.wait()
        assert 2 == number_in(path)

    def test_a_restore_waits_for_a_lock_that_is_released(self, path: Path, backup: Path, start: Start) -> None:
        """The restore continues after the other writer."""
        holder = start("hold", path)
        assert "ready" == line(holder)

        def release(progress: CopyProgress) -> None:
            if progress.step == "Waiting for other writers" and holder.poll() is None:
                go(holder)
                holder.wait()

        restore(str(backup), str(path), release)
        assert 1 == number_in(path)

    def test_a_backup_with_another_page_size_is_restored(self, path: Path, backup: Path) -> None:
        """SQLite refuses another page size in a file with a log, so the copy is rebuilt first."""
        changed(backup, "PRAGMA page_size = 8192", "VACUUM")
        table = SqliteTable(path)
        restore(str(backup), str(path), ignore)

        assert item(x=1) == table.get(KEY)
        table.close()
        assert whole(path)

    def test_a_backup_of_an_older_version_is_upgraded_by_the_restore(self, path: Path, backup: Path) -> None:
        """It is upgraded before its content is visible; the backup itself stays unchanged."""
        changed(
            backup,
            "ALTER TABLE items DROP COLUMN hour",
            "ALTER TABLE items DROP COLUMN totals",
            "DROP TABLE changes",
            "PRAGMA user_version = 1",
        )
        content = backup.read_bytes()
        table = SqliteTable(path)
        restore(str(backup), str(path), ignore)

        assert Applied(item(x=2)) == table.write(Update(KEY, add={"x": 1}))
        assert [] == table.changes(0, 10)
        assert content == backup.read_bytes()
        table.close()

    def test_a_backup_with_a_log_beside_it_is_restored_with_the_log(self, path: Path, backup: Path) -> None:
        """A user may have copied the file and the log after a crash."""
        table = SqliteTable(backup)
        table.write(Update(KEY, add={"x": 4}))
        restore(str(backup), str(path), ignore)

        assert 5 == number_in(path)
        table.close()

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (None, "it does not exist"),
            (b"", "it is empty"),
            (b"Dear diary,\n" * 100, "not a SQLite file"),
        ],
    )
    def test_a_restore_of_an_invalid_file_is_refused(
        self, path: Path, backup: Path, content: bytes | None, reason: str
    ) -> None:
        """The store is unchanged, and no old content is kept."""
        backup.unlink()
        if content is not None:
            backup.write_bytes(content)

        for call in (lambda: check_backup(str(backup), str(path)), lambda: restore(str(backup), str(path), ignore)):
            with pytest.raises(StorageError, match=reason) as raised:
                call()
            assert str(backup) == raised.value.location
        assert ["backups", "limiter.db"] == beside(path)
        assert 2 == number_in(path)

    def test_a_restore_of_a_file_of_another_application_is_refused(self, path: Path, backup: Path) -> None:
        """It is a SQLite file, but not a store."""
        backup.unlink()
        changed(backup, "CREATE TABLE precious(x)")

        with pytest.raises(StorageError, match="another program"):
            restore(str(backup), str(path), ignore)
        assert 2 == number_in(path)

    def test_a_restore_of_a_later_version_is_refused(self, path: Path, backup: Path) -> None:
        """The store is unchanged."""
        changed(backup, "PRAGMA user_version = 99")

        with pytest.raises(IncompatibleSchemaError, match="99"):
            restore(str(backup), str(path), ignore)
        assert 2 == number_in(path)

    def test_a_restore_of_a_damaged_backup_is_refused(self, path: Path, backup: Path) -> None:
        """The whole backup is checked before the store is changed."""
        content = backup.read_bytes()
        backup.write_bytes(content[:8192] + b"\xa5" * 4096 + content[12288:])

        with pytest.raises(StorageError, match="damaged"):
            restore(str(backup), str(path), ignore)
        assert ["backups", "limiter.db"] == beside(path)
        assert 2 == number_in(path)

    def test_a_damaged_store_is_replaced_by_a_restore(self, path: Path, backup: Path) -> None:
        """Its damaged content is kept in a file."""
        content = path.read_bytes()
        path.write_bytes(content[:8192] + b"\xa5" * 4096 + content[12288:])
        restore(str(backup), str(path), ignore)

        assert 1 == number_in(path)
        assert whole(path)

    def test_a_restore_of_the_store_itself_is_refused(self, path: Path) -> None:
        """The store would be replaced by itself."""
        with pytest.raises(ValidationError, match="the store itself"):
            restore(str(path), str(path), ignore)
