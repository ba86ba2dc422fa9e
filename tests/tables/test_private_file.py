"""Permissions of created files: private by default, and never changed on paths that the user chose."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables.engines import item
from zae_limiter import SyncRepository
from zae_limiter.schema.operations import Put
from zae_limiter.tables.private_file import create_file, file_mode, tighten
from zae_limiter.tables.sqlite.table import SqliteTable

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")

OPEN_AND_LIST = """
import os, sys
os.umask(0)
from zae_limiter import SyncRateLimiter, SyncRepository, Limit
repo = SyncRepository.open(None if sys.argv[1] == "default" else sys.argv[1])
repo.set_system_defaults([Limit.per_day("rpd", 10)])
for folder, _, names in os.walk(sys.argv[2]):
    for path in (folder, *(os.path.join(folder, name) for name in names)):
        print(oct(os.stat(path).st_mode & 0o777), os.path.relpath(path, sys.argv[2]))
"""


def modes(folder: Path, url: str = "default") -> dict[str, str]:
    """Open a store in a process without a umask; return the modes of all files below a folder."""
    environment = {**os.environ, "XDG_DATA_HOME": str(folder)}
    environment.pop("ZAE_LIMITER_URL", None)
    command = [sys.executable, "-c", OPEN_AND_LIST, url, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return {name: mode for mode, name in map(str.split, done.stdout.splitlines())}


def mode_of(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_file_and_its_directory_are_created_private(tmp_path: Path) -> None:
    """Other users cannot read the file, its log or its directory, even without a umask."""
    found = modes(tmp_path / "data")

    assert {
        ".": "0o700",
        "zae-limiter": "0o700",
        "zae-limiter/limiter.db": "0o600",
        "zae-limiter/limiter.db-wal": "0o600",
        "zae-limiter/limiter.db-shm": "0o600",
    } == found


def test_a_default_file_of_an_earlier_version_is_made_private(tmp_path: Path) -> None:
    """The file, its log and its directory lose the rights of group and others when the store is opened."""
    folder = tmp_path / "zae-limiter"
    SqliteTable(folder / "limiter.db").close()
    folder.chmod(0o755)
    (folder / "limiter.db").chmod(0o644)
    tmp_path.chmod(0o755)

    found = modes(tmp_path)

    assert "0o755" == found["."]
    assert {"0o700", "0o600"} == {mode for name, mode in found.items() if name != "."}


def test_a_named_file_is_created_private_and_its_directory_is_unchanged(tmp_path: Path) -> None:
    """A directory of the user keeps its mode; a directory created for the file is private."""
    tmp_path.chmod(0o755)
    found = modes(tmp_path, f"sqlite:///{tmp_path}/new/limiter.db")

    assert {"0o755"} == {found["."]}
    assert {"0o700", "0o600"} == {mode for name, mode in found.items() if name != "."}


def test_an_existing_named_file_keeps_its_mode(tmp_path: Path) -> None:
    """A group may share the file."""
    path = tmp_path / "limiter.db"
    path.touch()
    path.chmod(0o660)
    tmp_path.chmod(0o770)
    with SyncRepository.open(f"sqlite:///{path}") as repo:
        repo.ping()

        assert {0o660} == {mode_of(one) for one in tmp_path.iterdir()}
        assert 0o770 == mode_of(tmp_path)


def test_a_file_in_a_setgid_group_directory_is_created_group_writable(tmp_path: Path) -> None:
    """A directory is shared by setgid and group write, as ``chmod 2770`` sets them."""
    tmp_path.chmod(0o2770)
    table = SqliteTable(tmp_path / "limiter.db")
    table.write(Put(item(x=1)))

    assert {"limiter.db", "limiter.db-wal", "limiter.db-shm"} == {one.name for one in tmp_path.iterdir()}
    assert {0o660} == {mode_of(one) for one in tmp_path.iterdir()}
    table.close()


@pytest.mark.parametrize(
    ("directory_mode", "mode"), [(0o2770, 0o660), (0o2775, 0o660), (0o2750, 0o600), (0o777, 0o600), (0o700, 0o600)]
)
def test_only_setgid_together_with_group_write_shares_new_files(directory_mode: int, mode: int) -> None:
    """Either bit alone does not mean sharing."""
    assert mode == file_mode(directory_mode)


def test_the_target_of_a_dangling_link_is_created_private(tmp_path: Path) -> None:
    """The link stays a link."""
    link = tmp_path / "limiter.db"
    link.symlink_to(tmp_path / "elsewhere.db")
    SqliteTable(link).close()

    assert link.is_symlink()
    assert 0o600 == mode_of(tmp_path / "elsewhere.db")


def test_making_a_file_private_does_not_change_the_target_of_a_link(tmp_path: Path) -> None:
    """The user chose the target."""
    target, folder = tmp_path / "shared.db", tmp_path / "own"
    target.touch()
    target.chmod(0o664)
    folder.mkdir(mode=0o755)
    (folder / "limiter.db").symlink_to(target)
    tighten(str(folder / "limiter.db"))

    assert (0o664, 0o755) == (mode_of(target), mode_of(folder))


def test_creating_a_file_keeps_an_existing_one(tmp_path: Path) -> None:
    """Neither content nor mode changes."""
    path = tmp_path / "limiter.db"
    path.write_bytes(b"kept")
    path.chmod(0o640)
    create_file(str(path))

    assert (b"kept", 0o640) == (path.read_bytes(), mode_of(path))
