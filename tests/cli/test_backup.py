"""``backup`` and ``restore``: what is asked, printed and refused, and the exit codes."""

import json
import stat
import sys

import pytest

from tests.cli.test_terminal import command, in_terminal
from zae_limiter import Limit, SyncRateLimiter, SyncRepository


@pytest.fixture
def store(database):
    """A store with an entity in it, opened by this process all the time."""
    with SyncRepository.open(f"sqlite:///{database}") as repo:
        repo.set_system_defaults([Limit.custom("rpm", 100, 1, 365 * 86_400)])
        yield SyncRateLimiter(repo)


@pytest.fixture
def file(tmp_path):
    """The name of a backup."""
    return tmp_path / "backup.db"


def take(limiter, amount):
    """Take tokens, and return what is left."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": amount}):
        return limiter.available("user-1", "gpt-4")["rpm"]


def test_what_was_backed_up_is_restored(run, store, database, file):
    """The process that has the store open continues on the restored content; the old content is kept."""
    take(store, 10)
    saved = run("backup", str(file))
    take(store, 30)
    restored = run("restore", str(file), "--yes")

    assert (0, 0) == (saved.exit_code, restored.exit_code)
    assert saved.stdout.startswith("Backed up ")
    assert f" items to {file} (" in saved.stdout
    assert restored.stdout.startswith("Restored ")
    assert f"The old content is in {database}.before-restore." in restored.stderr
    assert 85 == take(store, 5)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


def test_both_print_json(run, store, database, file):
    """The keys are those of the help."""
    take(store, 10)
    saved = json.loads(run("backup", str(file), "--json").stdout)
    restored = json.loads(run("restore", str(file), "--yes", "--json").stdout)
    same = {"store": str(database), "backup": str(file), "items": saved["items"], "bytes": file.stat().st_size}

    assert same == saved
    assert same | {"saved_as": f"{database}.before-restore"} == restored
    for name, printed in (("backup", saved), ("restore", restored)):
        shape = run(name, "--help").stdout.partition("JSON:")[2]
        assert [] == [key for key in printed if f'"{key}"' not in shape]


def test_progress_is_a_line_for_each_step_where_there_is_no_terminal(run, store, file):
    """On stderr, so that stdout has the result alone."""
    saved = run("backup", str(file))
    restored = run("restore", str(file), "--yes")

    assert ["Copying", "Checking"] == [one.split()[0] for one in saved.stderr.splitlines()]
    steps = ["Reading", "Checking", "Saving", "Restoring", "Finishing"]
    assert steps == [one.split()[0] for one in restored.stderr.splitlines()[:-1]]


def test_a_large_copy_reports_every_tenth(run, store, file, monkeypatch):
    """Without a terminal too, a long copy is seen to advance."""
    monkeypatch.setattr("zae_limiter.cli._copying._LARGE_BYTES", 1)
    monkeypatch.setattr("zae_limiter.tables.sqlite.backup._BYTES_PER_STEP", 1024)
    reported = run("backup", str(file)).stderr.splitlines()
    tenths = [int(one.split()[-3]) for one in reported if one.endswith("% ...")]

    assert len(tenths) > 3
    assert sorted({*tenths, 100}) == tenths


def test_an_existing_file_is_replaced_only_if_the_user_agrees(run, store, file, somebody):
    """The question is asked; ``--yes`` answers it."""
    file.write_text("precious")
    declined = run("backup", str(file), answers="n\n")

    assert (1, True) == (declined.exit_code, "Nothing was replaced." in declined.stderr)
    assert "precious" == file.read_text()
    assert 0 == run("backup", str(file), "--yes").exit_code
    assert file.read_bytes().startswith(b"SQLite format 3")


def test_a_restore_asks_first(run, store, database, file, somebody):
    """The question names both files; declined, nothing is changed."""
    run("backup", str(file))
    take(store, 10)
    declined = run("restore", str(file), answers="n\n")

    assert 1 == declined.exit_code
    assert f"Replace the content of {database} with {file}?" in declined.stderr
    assert "Nothing was restored." in declined.stderr
    assert 80 == take(store, 10)
    assert not database.with_name("limiter.db.before-restore").exists()


def test_without_a_terminal_yes_is_required(run, store, file):
    """Nothing is replaced by a script that did not say so."""
    run("backup", str(file))
    refused = [run("backup", str(file)), run("restore", str(file))]

    assert [2, 2] == [one.exit_code for one in refused]
    assert ["pass --yes to replace it", "pass --yes to restore it"] == [
        one.stderr.splitlines()[-1].partition("; ")[2].partition(".")[0] for one in refused
    ]


@pytest.mark.parametrize("name", ["backup", "restore"])
@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--url", "memory://"), "not supported by the memory backend; use sqlite:///"),
        (("--url", "dynamodb://my-app"), "not supported by the dynamodb backend; use point-in-time recovery"),
        (("--name", "my-app"), "not supported by the dynamodb backend; use point-in-time recovery"),
    ],
)
def test_another_store_than_a_file_is_refused(run, file, name, options, hint):
    """The error says what to use instead."""
    refused = run(name, str(file), *options)

    assert 2 == refused.exit_code
    assert refused.stderr.startswith(f"Error: {name} is {hint}")


def test_what_is_no_backup_is_refused_before_anything_is_asked(run, store, file, somebody):
    """With what is wrong, and exit code 69."""
    file.write_text("Dear diary")
    refused = run("restore", str(file))

    assert (69, True) == (refused.exit_code, "not a SQLite file" in refused.stderr)
    assert "Replace" not in refused.stderr


def test_a_store_that_does_not_exist_is_not_backed_up(run, database, file):
    """Nothing is created."""
    refused = run("backup", str(file))

    assert (69, True) == (refused.exit_code, "it does not exist" in refused.stderr)
    assert not database.exists()
    assert not file.exists()


def test_the_default_file_is_announced(run, file, tmp_path, monkeypatch):
    """Where neither an option nor the environment names a store."""
    monkeypatch.delenv("ZAE_LIMITER_URL")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run("system", "set-defaults", "-l", "rpm:5")
    saved = run("backup", str(file))

    assert (0, True) == (saved.exit_code, "zae-limiter/limiter.db (choose another" in saved.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_progress_is_a_bar_in_a_terminal(run, store, file):
    """It is gone when the result is printed."""
    code, shown = in_terminal(*command("backup", str(file)))

    assert 0 == code
    assert "Checking" in shown
    assert shown.rstrip().endswith(").")
    assert "Backed up " in shown
