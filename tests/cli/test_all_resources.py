"""Limits across resources on the command line: ``--all-resources`` in place of a resource."""

import pytest

from tests.cli.aws import printed_json

RPD = {"name": "rpd", "capacity": 100, "refill_amount": 100, "refill_period_seconds": 86400}
SET = ("entity", "set-limits", "project-1", "--all-resources", "-l", "rpd:100/d")


class TestOfAnEntity:
    def test_limits_across_resources_are_set_shown_and_deleted(self, run, interactive):
        """They are stored beside the limits of each resource."""
        made, shown = run(*SET), run("entity", "get-limits", "project-1", "--all-resources")
        facts = printed_json(run("entity", "get-limits", "project-1", "--resource", "_all_", "--json"))
        other = printed_json(run("entity", "get-limits", "project-1", "--json"))
        gone = run("entity", "delete-limits", "project-1", "--all-resources", answers="y\n")

        assert "LIMIT  CAPACITY  REFILL\nrpd         100  100 per day\n" == made.stdout == shown.stdout
        assert {"entity_id": "project-1", "resource": "_all_", "limits": [RPD]} == facts
        assert [] == other["limits"]
        assert "Delete the limits for entity project-1 across resources in namespace default? [y/N]" in gone.stderr
        assert "Deleted the limits for entity project-1 across resources.\n" == gone.stdout

    def test_get_limits_across_resources_without_any_says_how_to_set_some(self, run):
        """The suggested command has the same option."""
        done = run("entity", "get-limits", "project-1", "--all-resources")

        assert "zae-limiter entity set-limits project-1 --all-resources -l rpm:1000\n" in done.stderr

    def test_limits_across_resources_reject_by_name(self, run):
        """An invented resource gives no further tokens."""
        run("system", "set-defaults", "-l", "rpd:80/d")
        run(*SET)
        codes = [run("acquire", "project-1", name, "-c", "rpd:60").exit_code for name in ("gpt-4", "invented")]

        assert [0, 75] == codes

    def test_set_limits_across_resources_names_a_limit_that_would_be_dropped(self, run):
        """Limits of a resource and of the system are not replaced by them, so they are not dropped."""
        run("system", "set-defaults", "-l", "tpd:80/d")
        run("resource", "set-defaults", "--all-resources", "-l", "rpd:5/d")
        first = run("entity", "set-limits", "project-1", "--all-resources", "-l", "rpm:5")
        inheriting = run("entity", "set-limits", "project-1", "--all-resources", "-l", "rpm:5", "--inherit")

        assert (2, 0) == (first.exit_code, inheriting.exit_code)
        assert "rpd, which is in force for entity project-1 across resources, or --inherit" in first.stderr
        assert "tpd" not in first.stderr

    def test_entity_resolve_shows_limits_across_resources_and_their_source(self, run):
        """They apply in addition to those of a resource."""
        run("system", "set-defaults", "-l", "rpd:80/d")
        run("resource", "set-defaults", "--all-resources", "-l", "rpd:100/d")
        of_one, across = run("entity", "resolve", "u", "gpt-4"), run("entity", "resolve", "u", "--all-resources")
        facts = printed_json(run("entity", "resolve", "u", "gpt-4", "--json"))

        assert [
            "Source: the system defaults.",
            "In addition, all resources of the entity share: rpd:100/d.",
        ] == of_one.stdout.splitlines()[2:]
        assert "Source: the limits across resources of all entities.\n" == across.stdout.splitlines(keepends=True)[2]
        assert ([80], [RPD]) == ([one["capacity"] for one in facts["limits"]], facts["all_resources"])

    def test_entity_resolve_across_resources_without_limits_says_how_to_set_some(self, run):
        """They never come from the system defaults."""
        run("system", "set-defaults", "-l", "rpd:80/d")
        done = run("entity", "resolve", "u", "--all-resources")

        assert (0, "") == (done.exit_code, done.stdout)
        assert (
            "across resources. Set some: zae-limiter resource set-defaults --all-resources -l rpm:1000" in done.stderr
        )

    def test_entity_buckets_across_resources_are_shown_alone_or_with_all_others(self, run):
        """An entity has one such bucket."""
        run("system", "set-defaults", "-l", "rpd:80/d")
        none = run("entity", "buckets", "project-1", "--all-resources")
        run(*SET)
        run("acquire", "project-1", "gpt-4", "-c", "rpd:1")
        shown = [
            printed_json(run("entity", "buckets", "project-1", *one, "--json")) for one in (["--all-resources"], [])
        ]

        assert "has no bucket across resources yet" in none.stderr
        assert "acquire project-1 gpt-4 -c" in none.stderr
        assert [["_all_"], ["_all_", "gpt-4"]] == [sorted(one["resource"] for one in found) for found in shown]


class TestOfAllEntities:
    def test_defaults_across_resources_are_set_shown_and_deleted(self, run, interactive):
        """They apply to each entity on its own."""
        run("resource", "set-defaults", "--all-resources", "-l", "rpd:100/d")
        facts = printed_json(run("resource", "get-defaults", "--all-resources", "--json"))
        listed = run("resource", "list").stdout
        gone = run("resource", "delete-defaults", "--all-resources", answers="y\n")
        none = run("resource", "get-defaults", "--all-resources")

        assert {"resource": "_all_", "limits": [RPD]} == facts
        assert "RESOURCE\n_all_\n" == listed
        assert "Deleted the limits of entities across resources.\n" == gone.stdout
        assert "zae-limiter resource set-defaults --all-resources -l rpm:500\n" in none.stderr

    def test_resource_capacity_across_resources_sums_all_entities(self, run):
        """Each entity has one bucket for all its resources."""
        none = run("resource", "capacity", "--all-resources", "rpd")
        run("resource", "set-defaults", "--all-resources", "-l", "rpd:100/d")
        for entity_id, resource in (("a", "gpt-4"), ("a", "search"), ("b", "gpt-4")):
            run("acquire", entity_id, resource, "-c", "rpd:10")
        facts = printed_json(run("resource", "capacity", "--all-resources", "rpd", "--json"))

        assert "No entity has used rpd across resources yet. Use it, for example: zae-limiter acquire" in none.stderr
        assert [("a", 80), ("b", 90)] == [(one["entity_id"], one["available"]) for one in facts["entities"]]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("entity get-limits u --resource gpt-4 --all-resources", "pass --resource or --all-resources, not both"),
        ("entity resolve u gpt-4 --all-resources", "pass RESOURCE or --all-resources, not both"),
        ("entity resolve u", "Missing argument 'RESOURCE'; or pass --all-resources"),
        ("resource get-defaults", "Missing argument 'RESOURCE'; or pass --all-resources"),
        ("resource capacity", "Missing argument 'LIMIT'"),
        ("resource capacity rpd", "Missing argument 'RESOURCE'; or pass --all-resources"),
        ("resource capacity gpt-4 rpd more", "Got unexpected extra argument 'more'"),
        ("resource capacity gpt-4 rpd --all-resources", "pass RESOURCE or --all-resources, not both"),
        ("resource set-defaults --all-resources -l rpd:1/d --inherit", "--inherit has no effect"),
    ],
)
def test_a_resource_is_named_exactly_once(run, words, reason):
    """Otherwise it would be unclear which limits are meant."""
    done = run(*words.split())

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert reason in done.stderr
