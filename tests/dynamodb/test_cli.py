"""The command line on a real engine, addressed by a URL."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from tests.dynamodb.engines import Engine, free_port
from zae_limiter.cli import acquire, available, main

Run = Callable[..., Result]

LIMIT = ("-l", "rpd:10/d")
"""Of which a thousandth of a token comes back in eight seconds."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with keys that no engine checks, and long deadlines for a busy machine."""
    for command in (acquire, available):
        monkeypatch.setattr(command, "QUICK_S", 60.0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "engine")

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, prog_name="zae-limiter", catch_exceptions=False)

    return invoke


@pytest.fixture
def place(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}"


def test_acquire_takes_from_a_bucket_on_dynamodb(run: Run, place: str) -> None:
    """With create=true the table is created; the next command uses it."""
    first = run("acquire", "user-1", "gpt-4", "-c", "rpd:3", *LIMIT, "--url", f"{place}&create=true")
    second = run("acquire", "user-1", "gpt-4", "-c", "rpd:3", *LIMIT, "--url", place)

    assert (0, "LIMIT  TAKEN  LEFT\nrpd        3     7\n", "") == (first.exit_code, first.stdout, first.stderr)
    assert (0, "LIMIT  TAKEN  LEFT\nrpd        3     4\n", "") == (second.exit_code, second.stdout, second.stderr)


def test_acquire_is_rejected_by_a_bucket_on_dynamodb(run: Run, place: str) -> None:
    """The exit code says to retry later."""
    taking = ("acquire", "user-1", "gpt-4", "-c", "rpd:6", *LIMIT, "--url")
    run(*taking, f"{place}&create=true")
    refused = run(*taking, place)

    assert (75, "") == (refused.exit_code, refused.stdout)
    assert "rpd" in refused.stderr


def test_acquire_uses_limits_stored_by_another_command(run: Run, place: str) -> None:
    """Both commands use the same table."""
    run("system", "set-defaults", *LIMIT, "--url", f"{place}&create=true")
    found = run("available", "user-1", "gpt-4", "--url", place, "--json")

    assert (0, "") == (found.exit_code, found.stderr)
    assert {"rpd": 10} == json.loads(found.stdout)["available"]


def test_a_name_addresses_the_same_limiter_as_a_url(run: Run, place: str, engine: Engine, table_name: str) -> None:
    """Commands on data do not need the stack."""
    run("system", "set-defaults", *LIMIT, "--url", f"{place}&create=true")
    named = ("--name", table_name, "--region", "us-east-1", "--endpoint-url", engine.url)
    found = run("available", "user-1", "gpt-4", *named, "--json")

    assert (0, "") == (found.exit_code, found.stderr)
    assert {"rpd": 10} == json.loads(found.stdout)["available"]


def test_a_missing_namespace_prints_one_line_with_commands_to_copy(run: Run, place: str, table_name: str) -> None:
    """The commands name the limiter."""
    run("system", "set-defaults", *LIMIT, "--url", f"{place}&create=true")
    failed = run("system", "get-defaults", "--url", place, "--namespace", "acme")

    assert (2, 1) == (failed.exit_code, failed.stderr.count("\n"))
    assert failed.stderr.startswith("Error: there is no namespace 'acme'")
    assert f"zae-limiter namespace register acme --url 'dynamodb://{table_name}?" in failed.stderr


def test_a_missing_table_prints_one_line(run: Run, place: str, table_name: str) -> None:
    """It names the table and shows no traceback."""
    failed = run("available", "user-1", "gpt-4", "--url", place)

    assert (69, 1) == (failed.exit_code, failed.stderr.count("\n"))
    assert failed.stderr.startswith(f"Error: There is no limiter {table_name!r}")


def test_an_unavailable_engine_prints_one_line(run: Run, table_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says that the store is unreachable."""
    monkeypatch.setattr(available, "QUICK_S", 1.0)
    nowhere = f"dynamodb://{table_name}?region=us-east-1&endpoint_url=http://127.0.0.1:{free_port()}"
    failed = run("available", "user-1", "gpt-4", "--url", nowhere)

    assert (69, 1) == (failed.exit_code, failed.stderr.count("\n"))
    assert failed.stderr.startswith("Error: the store is unavailable")


def test_usage_without_an_aggregator_is_explained(run: Run, place: str) -> None:
    """Only the aggregator of a stack counts usage on DynamoDB."""
    run("acquire", "user-1", "gpt-4", "-c", "rpd:3", *LIMIT, "--url", f"{place}&create=true")
    done = run("usage", "list", "--entity", "user-1", "--json", "--url", place)

    assert (0, {"snapshots": [], "next_cursor": None}) == (done.exit_code, json.loads(done.stdout))
    expected = "There is no usage by user-1 in hourly windows. On DynamoDB the aggregator of the stack counts usage"
    assert expected in done.stderr
