"""``backup`` and ``restore``: prompts, output, refusals and exit codes."""

import json
import stat
import sys

import pytest

from tests.cli.aws import invoke
from tests.cli.test_terminal import command, in_terminal
from zae_limiter import Limit, SyncRateLimiter, SyncRepository


@pytest.fixture
def store(database):
    """A store with one entity, kept open by this process."""
    with SyncRepository.open(f"sqlite:///{database}") as repo:
        repo.set_system_defaults([Limit.custom("rpm", 100, 1, 365 * 86_400)])
        yield SyncRateLimiter(repo)


@pytest.fixture
def file(tmp_path):
    """The path of a backup file."""
    return tmp_path / "backup.db"


def take(limiter, amount):
    """Take tokens and return what is left."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": amount}):
        return limiter.available("user-1", "gpt-4")["rpm"]


def test_restore_brings_back_the_content_of_the_backup(run, store, database, file):
    """A process that has the store open continues with the restored content. The old content is kept."""
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


def test_backup_and_restore_print_json_with_the_documented_keys(run, store, database, file):
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


def test_backup_progress_outside_a_terminal_is_one_line_per_step(run, store, file):
    """Progress goes to stderr; stdout has the result alone."""
    saved = run("backup", str(file))
    restored = run("restore", str(file), "--yes")

    assert ["Copying", "Checking"] == [one.split()[0] for one in saved.stderr.splitlines()]
    steps = ["Reading", "Checking", "Saving", "Restoring", "Finishing"]
    assert steps == [one.split()[0] for one in restored.stderr.splitlines()[:-1]]


def test_backup_progress_of_a_large_file_is_reported_every_tenth(run, store, file, monkeypatch):
    """A long copy shows progress without a terminal too."""
    monkeypatch.setattr("zae_limiter.cli._copying._LARGE_BYTES", 1)
    monkeypatch.setattr("zae_limiter.tables.sqlite.backup._BYTES_PER_STEP", 1024)
    reported = run("backup", str(file)).stderr.splitlines()
    tenths = [int(one.split()[-3]) for one in reported if one.endswith("% ...")]

    assert len(tenths) > 3
    assert sorted({*tenths, 100}) == tenths


def test_backup_replaces_an_existing_file_only_after_confirmation(run, store, file, interactive):
    """The command asks; ``--yes`` answers."""
    file.write_text("precious")
    declined = run("backup", str(file), answers="n\n")

    assert (1, True) == (declined.exit_code, "Nothing was replaced." in declined.stderr)
    assert "precious" == file.read_text()
    assert 0 == run("backup", str(file), "--yes").exit_code
    assert file.read_bytes().startswith(b"SQLite format 3")


def test_restore_asks_for_confirmation_first(run, store, database, file, interactive):
    """The question names both files; if declined, nothing changes."""
    run("backup", str(file))
    take(store, 10)
    declined = run("restore", str(file), answers="n\n")

    assert 1 == declined.exit_code
    assert f"Replace the content of {database} with {file}?" in declined.stderr
    assert "Nothing was restored." in declined.stderr
    assert 80 == take(store, 10)
    assert not database.with_name("limiter.db.before-restore").exists()


def test_backup_and_restore_without_a_terminal_require_yes(run, store, file):
    """A script that does not confirm replaces nothing."""
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
def test_backup_of_a_store_that_is_not_a_file_is_refused(run, file, name, options, hint):
    """The error names the alternative."""
    refused = run(name, str(file), *options)

    assert 2 == refused.exit_code
    assert refused.stderr.startswith(f"Error: {name} is {hint}")


def test_restore_of_an_invalid_backup_is_refused_before_the_question(run, store, file, interactive):
    """The error gives the reason; the exit code is 69."""
    file.write_text("Dear diary")
    refused = run("restore", str(file))

    assert (69, True) == (refused.exit_code, "not a SQLite file" in refused.stderr)
    assert "Replace" not in refused.stderr


def test_backup_of_a_missing_store_is_refused(database, file):
    """No file is created."""
    refused = invoke("backup", str(file))

    assert (69, True) == (refused.exit_code, "it does not exist" in refused.stderr)
    assert not database.exists()
    assert not file.exists()


def test_backup_announces_the_default_file(run, file, tmp_path, monkeypatch):
    """This applies if neither an option nor the environment names a store."""
    monkeypatch.delenv("ZAE_LIMITER_URL")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run("system", "set-defaults", "-l", "rpm:5")
    saved = run("backup", str(file))

    assert (0, True) == (saved.exit_code, "zae-limiter/limiter.db (--url selects another" in saved.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_backup_progress_in_a_terminal_is_a_bar(run, store, file):
    """The bar is cleared when the result is printed."""
    code, shown = in_terminal(*command("backup", str(file)))

    assert 0 == code
    assert "Checking" in shown
    assert shown.rstrip().endswith(").")
    assert "Backed up " in shown
