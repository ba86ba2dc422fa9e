"""The groups of commands on a real engine: whatever works on a file works on DynamoDB."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from zae_limiter._sync.dynamodb_table import open_table
from zae_limiter.cli import acquire, main
from zae_limiter.clock import SystemClock
from zae_limiter.core.location import DynamoLocation

Told = Callable[..., Any]


@pytest.fixture
def location(monkeypatch: pytest.MonkeyPatch) -> DynamoLocation:
    """A table with nothing in it, not even the default namespace, as CloudFormation alone would make it."""
    try:
        engine = running("dynoxide")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    monkeypatch.setattr(acquire, "QUICK_S", 60.0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "engine")
    found = DynamoLocation(fresh_table_name(), "us-east-1", engine.url)
    table = open_table(found, 30.0, SystemClock(), Random())
    table.create()
    table.close()
    return found


@pytest.fixture
def run(location: DynamoLocation) -> Callable[..., Result]:
    """Run a command on the table, by its name."""
    place = ("--name", location.name, "--region", str(location.region), "--endpoint-url", str(location.endpoint_url))

    def invoke(*arguments: str) -> Result:
        words = [*arguments, *place]
        return CliRunner().invoke(main, words, prog_name="zae-limiter", catch_exceptions=False)

    return invoke


@pytest.fixture
def told(run: Callable[..., Result]) -> Told:
    """Run a command, and return what it printed as JSON."""

    def invoke(*arguments: str) -> Any:
        done = run(*arguments, "--json")
        assert (0, "") == (done.exit_code, done.stderr)
        return json.loads(done.stdout)

    return invoke


def test_a_table_without_any_namespace_can_be_given_its_first(run: Callable[..., Result], told: Told) -> None:
    """Whoever is told that the default namespace is not there can do as told."""
    refused = run("system", "get-defaults")
    command = refused.stderr.partition("register it: zae-limiter ")[2].partition(",")[0].split()
    place = command.index("--name")

    assert 2 == refused.exit_code
    assert {"default"} == set(told(*command[:place]))
    assert {"limits": [], "on_unavailable": None} == told("system", "get-defaults")


def test_namespaces_live_and_end(run: Callable[..., Result], told: Told) -> None:
    """From register to purge."""
    ids = told("namespace", "register", "default", "acme")
    told("system", "set-defaults", "-l", "rpm:5", "-N", "acme")
    told("namespace", "delete", "acme")
    told("namespace", "recover", ids["acme"])
    told("namespace", "delete", "acme")
    purged = told("namespace", "purge", ids["acme"], "--yes")

    assert (ids["acme"], True) == (purged["id"], purged["removed"] > 0)
    assert ["default"] == [one["name"] for one in told("namespace", "list")]
    assert "namespace_purged" == told("audit", "list", "--of-namespace", "acme")["events"][0]["action"]


def test_limits_of_every_level(told: Told) -> None:
    """The nearest counts, and the audit knows who set it."""
    told("namespace", "register", "default")
    told("system", "set-defaults", "-l", "rpm:1")
    told("resource", "set-defaults", "gpt-4", "-l", "rpm:2")
    told("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:3", "--principal", "ops")

    assert "entity" == told("entity", "resolve", "user-1", "gpt-4")["source"]
    assert {"resource": "gpt-4", "entities": ["user-1"], "next_cursor": None} == told(
        "entity", "list", "--with-custom-limits", "gpt-4"
    )
    assert ["ops"] == [event["principal"] for event in told("audit", "list", "user-1")["events"]]
    assert told("entity", "delete-limits", "user-1", "--resource", "gpt-4", "--yes")["deleted"]
    assert "resource" == told("entity", "resolve", "user-1", "gpt-4")["source"]


def test_buckets_of_a_key_and_its_project(told: Told) -> None:
    """What was taken from the one was taken from the other."""
    told("namespace", "register", "default")
    told("resource", "set-defaults", "gpt-4", "-l", "rpd:10/d")
    told("entity", "create", "project-1")
    told("entity", "create", "key-1", "--parent", "project-1", "--cascade")
    told("acquire", "key-1", "gpt-4", "-c", "rpd:3")
    found = told("resource", "capacity", "gpt-4", "rpd")

    assert [("key-1", 7), ("project-1", 7)] == [(one["entity_id"], one["available"]) for one in found["entities"]]
    assert 3000 == told("entity", "buckets", "project-1")[0]["total_consumed_milli"]


def test_a_limiter_that_is_not_there_is_told_with_how_to_deploy_it(location: DynamoLocation) -> None:
    """In the same place."""
    place = ["--name", "nowhere", "--region", "us-east-1", "--endpoint-url", str(location.endpoint_url)]
    done = CliRunner().invoke(main, ["entity", "show", "user-1", *place], prog_name="zae-limiter")

    assert (69, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert done.stderr.endswith(f"Deploy it with: zae-limiter deploy {' '.join(place)}\n")
