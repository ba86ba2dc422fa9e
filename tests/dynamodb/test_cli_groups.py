"""The command groups on a real engine: commands that work on a file work on DynamoDB."""

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

PrintedJson = Callable[..., Any]


@pytest.fixture
def location(monkeypatch: pytest.MonkeyPatch) -> DynamoLocation:
    """A table without any namespace, as CloudFormation alone creates it."""
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
    """Run a command on the table by its name."""
    place = ("--name", location.name, "--region", str(location.region), "--endpoint-url", str(location.endpoint_url))

    def invoke(*arguments: str) -> Result:
        words = [*arguments, *place]
        return CliRunner().invoke(main, words, prog_name="zae-limiter", catch_exceptions=False)

    return invoke


@pytest.fixture
def printed_json(run: Callable[..., Result]) -> PrintedJson:
    """Run a command and return what it printed as JSON."""

    def invoke(*arguments: str) -> Any:
        done = run(*arguments, "--json")
        assert (0, "") == (done.exit_code, done.stderr)
        return json.loads(done.stdout)

    return invoke


def test_the_first_namespace_of_a_table_can_be_registered(
    run: Callable[..., Result], printed_json: PrintedJson
) -> None:
    """A user who gets the error about the missing default namespace can follow it."""
    refused = run("system", "get-defaults")
    command = refused.stderr.partition("create it: zae-limiter ")[2].split()
    place = command.index("--name")

    assert (2, ["upgrade"]) == (refused.exit_code, command[:place])
    assert {"default"} == set(printed_json("namespace", "register", "default"))
    assert {"limits": [], "on_unavailable": None} == printed_json("system", "get-defaults")


def test_namespaces_are_registered_deleted_recovered_and_purged(
    run: Callable[..., Result], printed_json: PrintedJson
) -> None:
    """The commands cover the whole lifecycle."""
    ids = printed_json("namespace", "register", "default", "acme")
    printed_json("system", "set-defaults", "-l", "rpm:5", "-N", "acme")
    printed_json("namespace", "delete", "acme", "--yes")
    printed_json("namespace", "recover", ids["acme"])
    printed_json("namespace", "delete", "acme", "--yes")
    purged = printed_json("namespace", "purge", ids["acme"], "--yes")

    assert (ids["acme"], True) == (purged["id"], purged["removed"] > 0)
    assert ["default"] == [one["name"] for one in printed_json("namespace", "list")]
    assert "namespace_purged" == printed_json("audit", "list", "--of-namespace", "acme")["events"][0]["action"]


def test_limits_of_every_level_are_resolved_by_precedence(printed_json: PrintedJson) -> None:
    """The most specific level applies, and the audit records who set it."""
    printed_json("namespace", "register", "default")
    printed_json("system", "set-defaults", "-l", "rpm:1")
    printed_json("resource", "set-defaults", "gpt-4", "-l", "rpm:2")
    printed_json("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:3", "--principal", "ops")

    assert "entity" == printed_json("entity", "resolve", "user-1", "gpt-4")["source"]
    assert {"resource": "gpt-4", "entities": ["user-1"], "next_cursor": None} == printed_json(
        "entity", "list", "--with-custom-limits", "gpt-4"
    )
    assert ["ops"] == [event["principal"] for event in printed_json("audit", "list", "user-1")["events"]]
    assert printed_json("entity", "delete-limits", "user-1", "--resource", "gpt-4", "--yes")["deleted"]
    assert "resource" == printed_json("entity", "resolve", "user-1", "gpt-4")["source"]


def test_buckets_of_a_key_and_its_project_count_the_same_take(printed_json: PrintedJson) -> None:
    """A take of the key cascades to its project."""
    printed_json("namespace", "register", "default")
    printed_json("resource", "set-defaults", "gpt-4", "-l", "rpd:10/d")
    printed_json("entity", "create", "project-1")
    printed_json("entity", "create", "key-1", "--parent", "project-1", "--cascade")
    printed_json("acquire", "key-1", "gpt-4", "-c", "rpd:3")
    found = printed_json("resource", "capacity", "gpt-4", "rpd")

    assert [("key-1", 7), ("project-1", 7)] == [(one["entity_id"], one["available"]) for one in found["entities"]]
    assert 3000 == printed_json("entity", "buckets", "project-1")[0]["total_consumed_milli"]


def test_entities_are_moved_blocked_and_listed(run: Callable[..., Result], printed_json: PrintedJson) -> None:
    """A move, a block and limits across resources are in the items of the same table."""
    printed_json("namespace", "register", "default")
    printed_json("system", "set-defaults", "-l", "rpd:100/d")
    printed_json("entity", "create", "org-1")
    printed_json("entity", "create", "project-1", "--parent", "org-1", "--cascade", "--cascade-resource", "gpt-4")
    printed_json("entity", "create", "key-1")
    printed_json("entity", "set-limits", "project-1", "--all-resources", "-l", "rpd:5/d")
    printed_json("entity", "move", "key-1", "--parent", "project-1", "--cascade")
    printed_json("acquire", "key-1", "gpt-4", "-c", "rpd:3", "--also", "tool", "search", "rpd:1")
    rejected = run("acquire", "key-1", "gpt-4", "-c", "rpd:3")
    printed_json("entity", "block", "org-1", "--reason", "unpaid invoice")
    blocked = run("acquire", "key-1", "gpt-4", "-c", "rpd:1")
    shown = printed_json("entity", "show", "key-1")

    assert (75, 77) == (rejected.exit_code, blocked.exit_code)
    assert rejected.stderr.startswith("rate limit exceeded: rpd of project-1 across resources: 2 of 5 available,")
    assert ["project-1", "org-1"] == [one["id"] for one in shown["ancestors"]]
    assert ["org-1"] == [one["id"] for one in printed_json("entity", "list", "--blocked")["entities"]]
    assert [97] == [one["available"] for one in printed_json("resource", "capacity", "gpt-4", "rpd")["entities"]][:1]


def test_a_missing_limiter_prints_how_to_deploy_it(location: DynamoLocation) -> None:
    """The command names the same endpoint."""
    place = ["--name", "nowhere", "--region", "us-east-1", "--endpoint-url", str(location.endpoint_url)]
    done = CliRunner().invoke(main, ["entity", "show", "user-1", *place], prog_name="zae-limiter")

    assert (69, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert done.stderr.endswith(f"Deploy it with: zae-limiter deploy {' '.join(place)}\n")
