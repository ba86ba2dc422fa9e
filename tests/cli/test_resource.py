"""``zae-limiter resource``: the default limits of a resource, and the remaining capacity."""

import pytest

from tests.cli.aws import printed_json

RPM = {"name": "rpm", "capacity": 500, "refill_amount": 500, "refill_period_seconds": 60}


def test_resource_get_defaults_prints_what_set_defaults_stored(run):
    """Both commands print what is stored."""
    plain = run("resource", "set-defaults", "gpt-4", "-l", "rpm:500")

    assert "LIMIT  CAPACITY  REFILL\nrpm         500  500 per minute\n" == plain.stdout
    assert plain.stdout == run("resource", "get-defaults", "gpt-4").stdout
    assert {"resource": "gpt-4", "limits": [RPM]} == printed_json(run("resource", "get-defaults", "gpt-4", "--json"))


def test_resource_get_defaults_without_defaults_succeeds_with_a_hint(run):
    """The hint is on stderr; the shape of the JSON stays the same."""
    done, listed = run("resource", "get-defaults", "gpt-4"), run("resource", "list")

    assert (0, "", 0, "") == (done.exit_code, done.stdout, listed.exit_code, listed.stdout)
    assert "zae-limiter resource set-defaults gpt-4 -l rpm:500" in done.stderr
    assert "zae-limiter resource set-defaults gpt-4 -l rpm:500" in listed.stderr
    assert {"resource": "gpt-4", "limits": []} == printed_json(run("resource", "get-defaults", "gpt-4", "--json"))


def test_resource_list_is_in_order(run):
    for name in ("gpt-4", "claude"):
        run("resource", "set-defaults", name, "-l", "rpm:500")

    assert "RESOURCE\nclaude\ngpt-4\n" == run("resource", "list").stdout
    assert ["claude", "gpt-4"] == printed_json(run("resource", "list", "--json"))


def test_resource_delete_defaults_asks_and_prints_what_was_deleted(run, interactive):
    """No question is asked if no defaults are stored."""
    run("resource", "set-defaults", "gpt-4", "-l", "rpm:500")
    delete = ("resource", "delete-defaults", "gpt-4")
    kept, gone, none = run(*delete, answers="\n"), run(*delete, answers="y\n"), run(*delete)

    assert (1, "") == (kept.exit_code, kept.stdout)
    assert "Delete the limits of resource gpt-4 in namespace default? [y/N]" in kept.stderr
    assert (0, "Deleted the limits of resource gpt-4.\n") == (gone.exit_code, gone.stdout)
    assert "There are no limits for resource gpt-4; nothing was deleted.\n" == none.stdout


def test_resource_delete_defaults_without_a_terminal_requires_yes(run):
    run("resource", "set-defaults", "gpt-4", "-l", "rpm:500")
    refused, done = (
        run("resource", "delete-defaults", "gpt-4"),
        run("resource", "delete-defaults", "gpt-4", "-y", "--json"),
    )

    assert (2, 1) == (refused.exit_code, refused.stderr.count("\n"))
    assert "pass --yes" in refused.stderr
    assert {"resource": "gpt-4", "deleted": True} == printed_json(done)


class TestCapacity:
    @pytest.fixture
    def used(self, run):
        """A project and its key have taken tokens of a daily limit, which does not refill during the test."""
        run("resource", "set-defaults", "gpt-4", "-l", "tpd:1000/d")
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("acquire", "key-1", "gpt-4", "-c", "tpd:250")

    def test_resource_capacity_sums_all_entities(self, run, used):
        plain = run("resource", "capacity", "gpt-4", "tpd")

        assert [
            "ENTITY     CAPACITY  AVAILABLE    USED",
            "key-1          1000        750  25.0 %",
            "project-1      1000        750  25.0 %",
            "Total: 1500 of 2000 left, 25.0 % in use.",
        ] == plain.stdout.splitlines()

    def test_resource_capacity_may_exclude_children(self, run, used):
        facts = printed_json(run("resource", "capacity", "gpt-4", "tpd", "--parents-only", "--json"))

        project = {"entity_id": "project-1", "capacity": 1000, "available": 750, "utilization_pct": 25.0}
        totals = {"total_capacity": 1000, "total_available": 750, "utilization_pct": 25.0}
        assert {"resource": "gpt-4", "limit_name": "tpd", **totals, "entities": [project]} == facts

    def test_resource_capacity_of_an_unused_resource_succeeds(self, run):
        done = run("resource", "capacity", "gpt-4", "tpd")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter acquire user-1 gpt-4 -c tpd:1" in done.stderr


@pytest.mark.parametrize("name", ["a b", "_default_"])
def test_resource_with_an_invalid_name_prints_one_line(run, name):
    done = run("resource", "set-defaults", name, "-l", "rpm:5")

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert name in done.stderr
