"""A file that does not exist: commands that read or delete report it, and only writing creates it."""

import os

import pytest

from tests.cli.aws import invoke
from tests.cli.test_parity import STORY
from zae_limiter.cli._place import Region, target_of

CREATING = {
    "acquire",
    "create_entity",
    "register_namespace",
    "register_namespaces",
    "set_limits",
    "set_resource_defaults",
    "set_system_defaults",
}
ID = "a7x3kq00000"
READING = [step.words.format(acme=ID, globex=ID) for step in STORY if step.verb not in CREATING]
WRITING = ["acquire user-1 gpt-4 -c rpm:1 -l rpm:5"] + [
    step.words for step in STORY if step.verb in CREATING - {"acquire"} and "--parent" not in step.words
]


@pytest.fixture
def missing(tmp_path, monkeypatch):
    """The path of a file in a directory; neither exists. The environment names it."""
    path = tmp_path / "folder" / "limiter.db"
    monkeypatch.setenv("ZAE_LIMITER_URL", f"sqlite:///{path}")
    return path


@pytest.mark.parametrize("words", [*READING, "check", "upgrade", "upgrade --dry-run"])
def test_a_command_that_reads_or_deletes_reports_a_missing_database_and_creates_nothing(missing, tmp_path, words):
    """One line has the path and a command that creates a database. No file and no directory is left."""
    done = invoke(*words.split())

    line = f"Error: there is no database at {missing}; check the path, or create one: "
    assert f"{line}zae-limiter system set-defaults -l rpm:100\n" == done.stderr
    assert (1, "") == (done.exit_code, done.stdout)
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize("words", WRITING)
def test_a_command_that_writes_creates_the_database(missing, words):
    """The next command reads what was written."""
    done = invoke(*words.split())

    assert (0, "") == (done.exit_code, done.stderr)
    assert missing.exists()
    assert 0 == invoke("status").exit_code


def test_the_suggested_command_names_the_store_of_the_option(tmp_path):
    """It creates the database that was missing."""
    url = f"sqlite:///{tmp_path}/x.db"
    suggested = invoke("entity", "show", "u", "--url", url, "-N", "acme").stderr.partition("create one: zae-limiter ")[
        2
    ]
    done = invoke(*suggested.split())

    assert f"system set-defaults -l rpm:100 --url {url}\n" == suggested
    assert (0, True) == (done.exit_code, (tmp_path / "x.db").exists())


def test_an_empty_file_is_no_database_and_stays_empty(missing):
    """Reading does not create tables in it."""
    missing.parent.mkdir()
    missing.touch()
    done = invoke("system", "get-defaults")

    assert (1, True) == (done.exit_code, f"no database at {missing}" in done.stderr)
    assert [missing.name] == os.listdir(missing.parent)
    assert 0 == missing.stat().st_size


def test_a_path_below_a_file_is_no_database(missing, tmp_path):
    """The parent of the path is a file."""
    (tmp_path / "folder").write_text("a file")

    assert 1 == invoke("status").exit_code


def test_a_missing_default_file_is_reported_in_one_line(tmp_path, monkeypatch):
    """The path is not announced as well."""
    monkeypatch.delenv("ZAE_LIMITER_URL", raising=False)
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    done = invoke("available", "user-1", "gpt-4")

    assert (1, 1) == (done.exit_code, done.stderr.count("\n"))
    assert [] == os.listdir(tmp_path)


def test_a_path_that_cannot_be_read_is_not_reported_as_missing(tmp_path):
    """The name is too long for a file. Opening it reports the reason."""
    done = invoke("status", "--url", f"sqlite:///{tmp_path}/{'x' * 300}")

    assert (69, True) == (done.exit_code, done.stderr.startswith("Error: Cannot use "))


def test_reading_does_not_use_the_option_of_a_url_that_creates_a_table():
    """The option ?create=true applies to commands that write."""
    url = "dynamodb://my-app?region=us-east-1&create=true"

    assert "dynamodb://my-app?region=us-east-1" == target_of(None, Region(None, None), url).existing_url


@pytest.mark.parametrize("words", sorted({*READING, *WRITING, "check", "upgrade", "backup copy.db"} - {"version"}))
@pytest.mark.parametrize("exists", [False, True])
def test_a_command_in_the_environment_of_another_program_names_the_url_and_uses_no_file(
    missing, tmp_path, monkeypatch, words, exists
):
    """Its limits are in a stack. A file of the user's own would not share them."""
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ZAE_LIMITER_URL")
    if exists:
        invoke("namespace", "register", "acme")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for name, value in (("ZAEL_STACK", "my-app"), ("ZAEL_NAMESPACE", "team"), ("AWS_REGION", "eu-west-1")):
        monkeypatch.setenv(name, value)
    done = invoke(*words.split())

    said = "Error: ZAEL_STACK and ZAEL_NAMESPACE are set, but this package reads ZAE_LIMITER_URL only; pass "
    options = "--url 'dynamodb://my-app?region=eu-west-1' --namespace team, or set ZAE_LIMITER_URL to that URL."
    assert (2, True) == (done.exit_code, done.stderr.startswith(f"{said}{options} See: zae-limiter {words.split()[0]}"))
    assert before == sorted(path.name for path in tmp_path.rglob("*"))


def test_a_store_that_is_named_is_used_in_the_environment_of_another_program(missing, monkeypatch):
    """The variable of this package, or an option, takes precedence."""
    monkeypatch.setenv("ZAEL_STACK", "my-app")
    written = invoke("system", "set-defaults", "-l", "rpm:5")
    monkeypatch.delenv("ZAE_LIMITER_URL")
    read = invoke("system", "get-defaults", "--url", f"sqlite:///{missing}")

    assert (0, 0) == (written.exit_code, read.exit_code)


def test_version_of_this_installation_needs_no_store(monkeypatch):
    """So the variables of another program do not matter."""
    monkeypatch.setenv("ZAEL_STACK", "my-app")

    assert (0, "") == ((done := invoke("version")).exit_code, done.stderr)
