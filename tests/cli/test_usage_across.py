"""``zae-limiter usage`` of limits across resources, which count the tokens of each resource again."""

import json

import pytest

from tests.cli.aws import printed_json


@pytest.fixture
def usage(run):
    """Run a usage command on a file in which a key has limits for each resource and across them."""
    run("system", "set-defaults", "-l", "rpd:100/d")
    run("entity", "set-limits", "key-1", "--resource", "_all_", "-l", "rpd:100/d", "-l", "spend:100/d")
    for resource in ("gpt-4", "search"):
        assert 0 == run("acquire", "key-1", resource, "-c", "rpd:3", "-c", "spend:7").exit_code
    return lambda *words: run("usage", *words)


@pytest.mark.parametrize("whose", [(), ("--entity", "key-1")])
def test_usage_summary_without_a_resource_counts_no_token_twice(usage, whose):
    """A note names the limit that only exists across resources."""
    done = usage("summary", *whose, "--json")

    assert (2, {"rpd": 6}) == (printed_json(done)["snapshot_count"], printed_json(done)["total"])
    assert "Not included: spend, which apply across resources. Show them: --resource _all_\n" == done.stderr


def test_usage_summary_of_all_resources_shows_the_limits_across_them(usage):
    """The name of the resource selects them."""
    done = usage("summary", "--resource", "_all_", "--json")

    assert ({"rpd": 6, "spend": 14}, "") == (printed_json(done)["total"], done.stderr)


def test_usage_summary_of_one_resource_has_no_note(usage):
    """Its limits are complete."""
    done = usage("summary", "--resource", "gpt-4", "--json")

    assert ({"rpd": 3}, "") == (printed_json(done)["total"], done.stderr)


@pytest.mark.parametrize(("by", "names"), [("entity", ["key-1"]), ("resource", ["gpt-4", "search"])])
def test_usage_top_counts_no_token_twice(usage, by, names):
    """The resource ``_all_`` is no rival of the others."""
    (found,) = printed_json(usage("top", "--by", by, "--json"))["limits"]

    assert ("rpd", 6, names) == (found["limit_name"], found["total"], [one["name"] for one in found["top"]])


def test_usage_list_shows_limits_across_resources_in_tables_only(usage):
    """A chart adds up what it shows."""
    listed = printed_json(usage("list", "--json"))["snapshots"]
    chart = usage("list", "--plot").stdout

    assert ["_all_", "gpt-4", "search"] == sorted(one["resource"] for one in listed)
    assert ("total 6", False) == (chart.splitlines()[2].partition(",")[0], "_all_" in chart)
    assert ["_all_"] == [
        one["resource"] for one in printed_json(usage("list", "--resource", "_all_", "--json"))["snapshots"]
    ]


def test_usage_of_only_limits_across_resources_names_the_option(run):
    """An empty summary does not mean that nothing was used."""
    run("entity", "set-limits", "key-1", "--resource", "_all_", "-l", "spend:100/d")
    run("acquire", "key-1", "gpt-4", "-c", "spend:7")
    done = run("usage", "summary", "--json")

    assert {} == json.loads(done.stdout)["total"]
    assert "Not included: spend, which apply across resources. Show them: --resource _all_\n" == done.stderr


def test_usage_across_resources_without_any_says_how_to_set_limits(run):
    """The reserved name is no resource to acquire."""
    done = run("usage", "list", "--resource", "_all_")

    assert "Set some: zae-limiter entity set-limits user-1 --all-resources -l rpm:100\n" in done.stderr
