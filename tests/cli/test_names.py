"""Names with signs on the command line: they are passed, stored, shown and suggested unchanged."""

import csv
import io
import json
import shlex

import pytest

from tests.cli.aws import printed_json
from tests.real_names import ENTITY, RESOURCES

every_resource = pytest.mark.parametrize("resource", RESOURCES)


@pytest.mark.parametrize("resource", [RESOURCES[0], RESOURCES[-2], RESOURCES[-1]])
def test_names_on_a_command_line_are_passed_unchanged(shell, resource):
    """The process gets them as arguments, as from a shell; @ does not name a file, and = ends no option."""
    stored = shell("resource", "set-defaults", resource, "-l", "rpm:5/d")
    taken = shell("acquire", ENTITY, resource, "-c", "rpm:2", "--json")

    assert (0, "") == (stored.returncode, stored.stderr)
    assert (0, "") == (taken.returncode, taken.stderr)
    expected = {"entity_id": ENTITY, "resource": resource, "consumed": {"rpm": 2}, "available": {"rpm": 3}}
    assert expected.items() <= json.loads(taken.stdout).items()


@every_resource
def test_limits_of_an_entity_with_signs_are_stored_and_listed(run, resource):
    """The option of a resource may be joined to its value by an equals sign."""
    run("entity", "create", ENTITY)
    run("entity", "set-limits", ENTITY, f"--resource={resource}", "-l", "rpm:7/d")
    listed = printed_json(run("entity", "list", "--with-custom-limits", resource, "--json"))
    shown = printed_json(run("entity", "get-limits", ENTITY, "--resource", resource, "--json"))

    assert [ENTITY] == listed["entities"]
    assert ["rpm"] == [limit["name"] for limit in shown["limits"]]


@every_resource
def test_usage_and_audit_of_names_with_signs_are_found(run, resource):
    """The formats for programs contain the names unchanged."""
    run("resource", "set-defaults", resource, "-l", "rpm:5/d")
    run("acquire", ENTITY, resource, "-c", "rpm:2")
    (row,) = csv.DictReader(io.StringIO(run("usage", "list", "-e", ENTITY, "-r", resource, "--csv").stdout))
    (event,) = printed_json(run("audit", "list", "--of-resource", resource, "--json"))["events"]

    assert (ENTITY, resource, "2") == (row["entity_id"], row["resource"], row["used_rpm"])
    assert (f"$RESOURCE:{resource}", resource) == (event["entity_id"], event["resource"])


@every_resource
def test_a_request_without_limits_names_entity_and_resource(run, resource):
    """The message is not cut off at a colon of a name."""
    failed = run("acquire", f"{ENTITY}:c", resource, "-c", "rpm:1")

    assert 2 == failed.exit_code
    expected = f"no limits are in force for entity '{ENTITY}:c' and resource '{resource}'; pass -l rpm:100"
    assert expected in failed.stderr


@pytest.mark.parametrize("command", ["show", "children"])
def test_a_suggested_command_with_a_pipe_is_quoted(run, command):
    """A user can paste it into a shell."""
    if command == "show":
        failed = run("entity", "show", ENTITY)
    else:
        run("entity", "create", ENTITY)
        failed = run("entity", "children", ENTITY)
    _, _, suggested = failed.stderr.strip().partition("zae-limiter ")

    assert ENTITY in shlex.split(suggested)


@pytest.mark.parametrize(("entity", "resource"), [("a#b", "gpt-4"), ("@a", "gpt-4"), ("a", "1a"), ("a", "b#c")])
def test_invalid_names_name_the_signs_that_are_allowed(run, entity, resource):
    """A user sees what to change."""
    failed = run("acquire", entity, resource, "-c", "rpm:1", "-l", "rpm:5")

    assert 2 == failed.exit_code
    assert "letters, digits and _ - . / : @ + | = only" in failed.stderr
