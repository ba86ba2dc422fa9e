"""``zae-limiter entity move``, ``block``, ``unblock`` and ``bypass``, and how entities show what they changed."""

import pytest

from tests.cli.aws import printed_json
from zae_limiter.core.timestamp import ms_from_iso

REASON = "unpaid invoice"


@pytest.fixture
def family(run):
    """A key under a project under an organisation; each cascades to the next."""
    run("system", "set-defaults", "-l", "rpd:100/d")
    run("entity", "create", "org-1")
    run("entity", "create", "project-1", "--parent", "org-1", "--cascade")
    run("entity", "create", "project-2")
    run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
    return run


def shown(run, entity_id):
    """Return the rows that show an entity, but not when it was created."""
    rows = [line.split("  ", 1) for line in run("entity", "show", entity_id).stdout.splitlines()[1:]]
    return [(label, value.strip()) for label, value in rows if label != "created"]


def refused(run, *words):
    """Return the code and the output of a command that must not print data."""
    done = run(*words)
    assert ("", 1) == (done.stdout, done.stderr.count("\n"))
    return done.exit_code, done.stderr


class TestMove:
    def test_entity_move_prints_what_changed(self, family):
        """What stays as it was is not printed."""
        done = family("entity", "move", "key-1", "--parent", "project-2")
        parent = family("entity", "move", "key-1", "--parent", "project-2", "--no-cascade", "--principal", "ops")
        (event, *_) = printed_json(family("audit", "list", "key-1", "--json"))["events"]

        assert ["KEY-1   BEFORE     AFTER", "parent  project-1  project-2"] == done.stdout.splitlines()
        assert ["KEY-1    BEFORE  AFTER", "cascade  yes     no"] == parent.stdout.splitlines()
        assert ("entity_moved", "ops") == (event["action"], event["principal"])

    def test_entity_move_json_has_the_parent_before_and_the_entity_after(self, family):
        """The entity is as `entity show` prints it."""
        arguments = ("--parent", "project-2", "--cascade-resource", "gpt-4", "--cascade-resource", "a")
        moved = printed_json(family("entity", "move", "key-1", *arguments, "--json"))
        after = printed_json(family("entity", "show", "key-1", "--json"))

        assert {"parent_id": "project-1", "cascade": True, "cascade_resources": None} == moved["before"]
        assert ("project-2", ["a", "gpt-4"]) == (after["parent_id"], after["cascade_resources"])
        assert moved["entity"].items() <= after.items()

    def test_entity_move_to_no_parent_ends_the_cascade(self, family):
        """Nothing is left to cascade to."""
        done = family("entity", "move", "key-1", "--no-parent")

        assert ["parent   project-1  none", "cascade  yes        no"] == done.stdout.splitlines()[1:]
        assert [("id", "key-1")] == shown(family, "key-1")

    def test_entity_move_to_the_same_parent_says_that_nothing_changed(self, family):
        """It is no error, so a script may repeat it."""
        done = family("entity", "move", "key-1", "--parent", "project-1")

        assert (0, "Entity key-1 was there already; nothing was changed.\n") == (done.exit_code, done.stdout)

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("key-1",), 2, "pass either --parent or --no-parent"),
            (("key-1", "--parent", "org-1", "--no-parent"), 2, "pass either --parent or --no-parent"),
            (("key-1", "--no-parent", "--cascade"), 2, "--cascade requires --parent"),
            (("key-1", "--no-parent", "--cascade-resource", "a"), 2, "--cascade-resource requires --cascade"),
            (
                ("key-1", "--parent", "org-1", "--no-cascade", "--cascade-resource", "a"),
                2,
                "--cascade-resource requires --cascade",
            ),
            (("project-2", "--parent", "org-1", "--cascade-resource", "a"), 2, "--cascade-resource requires --cascade"),
            (("key-1", "--parent", "absent"), 1, "create it: zae-limiter entity create absent"),
            (("absent", "--parent", "org-1"), 1, "create it: zae-limiter entity create absent"),
            (("org-1", "--parent", "key-1"), 2, "Invalid --parent 'key-1': is below 'org-1': that would be a cycle"),
            (("key-1", "--parent", "org-1", "--cascade-resource", "a b"), 2, "Invalid --cascade-resource 'a b'"),
        ],
    )
    def test_entity_move_with_invalid_arguments_prints_one_line(self, family, arguments, code, words):
        """Nothing is moved."""
        found = refused(family, "entity", "move", *arguments)

        assert (code, True) == (found[0], words in found[1]), found
        assert ("parent", "project-1") in shown(family, "key-1")


class TestCascadeResources:
    def test_entity_create_cascades_for_the_given_resources_only(self, family):
        """The parent is charged for these alone."""
        arguments = ("--parent", "project-2", "--cascade", "--cascade-resource", "gpt-4", "--cascade-resource", "a")
        made = printed_json(family("entity", "create", "key-2", *arguments, "--json"))
        for resource in ("gpt-4", "search"):
            family("acquire", "key-2", resource, "-c", "rpd:1")
        charged = printed_json(family("entity", "buckets", "project-2", "--json"))

        assert ["a", "gpt-4"] == made["cascade_resources"]
        assert ["gpt-4"] == [one["resource"] for one in charged]
        assert ("cascade", "for a, gpt-4") in shown(family, "key-2")

    def test_entity_show_names_all_ancestors_and_those_that_are_charged(self, family):
        """The charge of a level is limited to resources for which every level below cascades."""
        family("entity", "move", "project-1", "--parent", "org-1", "--cascade-resource", "gpt-4")
        family("entity", "create", "key-2", "--parent", "project-1")
        family("entity", "create", "key-3", "--parent", "project-1", "--cascade", "--cascade-resource", "search")

        assert [("ancestors", "project-1, org-1"), ("charges", "project-1, org-1 (gpt-4 only)")] == (
            shown(family, "key-1")[3:]
        )
        assert [("ancestors", "project-1, org-1")] == shown(family, "key-2")[3:]
        assert ("charges", "project-1 (search only)") == shown(family, "key-3")[-1]
        above = printed_json(family("entity", "show", "key-1", "--json"))["ancestors"]
        assert [("project-1", ["gpt-4"]), ("org-1", None)] == [(one["id"], one["cascade_resources"]) for one in above]


class TestBlock:
    def test_entity_block_refuses_every_request_until_unblocked(self, family):
        """Both commands print what they changed."""
        done = family("entity", "block", "key-1", "--reason", REASON, "--principal", "ops")
        refusal = family("acquire", "key-1", "gpt-4", "-c", "rpd:1")
        undone = family("entity", "unblock", "key-1")

        assert f"Blocked key-1 for all resources: {REASON}\n" == done.stdout
        assert 77 == refusal.exit_code
        assert f"Removed the block of key-1 for all resources: {REASON}\n" == undone.stdout
        assert 0 == family("acquire", "key-1", "gpt-4", "-c", "rpd:1").exit_code

    def test_entity_block_of_a_parent_is_shown_with_its_children(self, family):
        """A request of the key is refused too, so its page says why."""
        family("entity", "block", "org-1", "--until", "2999-12-01", "--reason", REASON)
        family("entity", "block", "project-2")

        expected = f"through org-1: all resources until 2999-12-01 00:00:00 UTC: {REASON}"
        assert [("blocked", expected)] == [row for row in shown(family, "key-1") if row[0] == "blocked"]
        assert ("blocked", expected.removeprefix("through org-1: ")) == shown(family, "org-1")[-1]

    def test_entity_block_of_a_resource_leaves_others_open(self, family):
        """A second block of the same resource replaces the first."""
        block = ("entity", "block", "key-1", "--resource", "gpt-4")
        first = printed_json(family(*block, "--reason", REASON, "--until", "2999-12-01T10:00+01:00", "--json"))
        second, third = family(*block, "--reason", "abuse"), printed_json(family(*block, "--json"))

        facts = {"resource": "gpt-4", "reason": REASON, "until": "2999-12-01T09:00:00+00:00"}
        assert {"entity_id": "key-1", **facts, "replaced": None} == first
        assert f"Before, it was blocked for gpt-4 until 2999-12-01 09:00:00 UTC: {REASON}\n" in second.stderr
        assert {"resource": "gpt-4", "reason": "abuse", "until": None} == third["replaced"]
        codes = [family("acquire", "key-1", one, "-c", "rpd:1").exit_code for one in ("gpt-4", "search")]
        assert [77, 0] == codes

    def test_entity_unblock_of_one_resource_names_what_stays_blocked(self, family):
        """A block of all resources is not removed by the name of one."""
        for arguments in ((), ("--resource", "gpt-4")):
            family("entity", "block", "key-1", *arguments)
        one = family("entity", "unblock", "key-1", "--resource", "gpt-4")
        none = family("entity", "unblock", "key-1", "--resource", "gpt-4")
        rest = printed_json(family("entity", "unblock", "key-1", "--json"))

        assert ("Removed the block of key-1 for gpt-4\n", True) == (
            one.stdout,
            "still blocked for all resources\n" in one.stderr,
        )
        assert "Entity key-1 has no block for gpt-4; nothing was changed.\n" == none.stdout
        block = {"resource": None, "reason": None, "until": None}
        assert {"entity_id": "key-1", "resource": None, "removed": [block], "remaining": []} == rest
        assert "Entity key-1 has no block; nothing was changed.\n" == family("entity", "unblock", "key-1").stdout

    def test_a_block_that_has_ended_is_marked_and_blocks_nothing(self, family, monkeypatch):
        """It stays in the record until the next block."""
        family("entity", "block", "key-1", "--until", "2999-12-01")
        monkeypatch.setattr("zae_limiter.clock.SystemClock.now_ms", lambda _: ms_from_iso("2999-12-02"))

        assert ("blocked", "all resources until 2999-12-01 00:00:00 UTC (ended)") == shown(family, "key-1")[-1]
        assert "No entity is blocked.\n" == family("entity", "list", "--blocked").stderr

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("absent",), 1, "create it: zae-limiter entity create absent"),
            (("key-1", "--until", "someday"), 2, "--until: 'someday': write a time in the future as tomorrow, 'in 2 h"),
            (
                ("key-1", "--until", "2020-01-01"),
                2,
                "Invalid --until '2020-01-01T00:00:00+00:00': must be in the future",
            ),
            (("key-1", "--resource", "_all_"), 2, "_all_ is only allowed for limits across resources"),
            (("key-1", "--reason", "x" * 257), 2, "must have at most 256 characters"),
        ],
    )
    def test_entity_block_with_invalid_arguments_prints_one_line(self, family, arguments, code, words):
        """Nothing is blocked."""
        found = refused(family, "entity", "block", *arguments)

        assert (code, True) == (found[0], words in found[1]), found

    @pytest.mark.parametrize("command", [("unblock",), ("bypass", "--on")])
    def test_a_change_of_a_missing_entity_fails(self, run, command):
        """The line says how to create it."""
        code, line = refused(run, "entity", *command, "absent")

        assert (1, True) == (code, "zae-limiter entity create absent" in line)


class TestBypass:
    def test_entity_bypass_is_set_shown_and_ended(self, family):
        """A second call changes nothing."""
        on, again = family("entity", "bypass", "key-1", "--on"), family("entity", "bypass", "key-1", "--on")
        rows = shown(family, "key-1")
        off = printed_json(family("entity", "bypass", "key-1", "--off", "--json"))

        assert "No limit rejects requests of key-1 now.\n" == on.stdout
        assert ("No limit rejects requests of key-1; nothing was changed.\n", "") == (again.stdout, again.stderr)
        assert ("bypass", "yes") == rows[-1]
        assert {"entity_id": "key-1", "bypass": False, "changed": True} == off
        assert "bypass" not in dict(shown(family, "key-1"))

    def test_entity_with_a_bypass_is_admitted_above_its_limit(self, family):
        """What it uses is counted all the same."""
        take = ("acquire", "key-1", "gpt-4", "-c", "rpd:60")
        family("entity", "bypass", "key-1", "--on")
        codes = [family(*take).exit_code for _ in range(3)]
        family("entity", "bypass", "key-1", "--off")
        used = printed_json(family("usage", "summary", "--entity", "key-1", "--json"))

        assert ([0, 0, 0], 75) == (codes, family(*take).exit_code)
        assert {"rpd": 180} == used["total"]

    def test_entity_bypass_needs_one_of_both_options(self, family):
        """There is no default that would be safe."""
        code, line = refused(family, "entity", "bypass", "key-1")

        assert (2, True) == (code, "pass either --on or --off" in line)


class TestList:
    @pytest.fixture
    def blocked(self, family):
        """Of five entities, three are blocked in different ways, and one has a bypass."""
        family("entity", "create", "user-1")
        family("entity", "block", "user-1", "--resource", "gpt-4")
        for resource in ("gpt-4", "search"):
            family("entity", "block", "project-2", "--resource", resource)
        family("entity", "block", "org-1")
        for entity_id in ("org-1", "key-1"):
            family("entity", "bypass", entity_id, "--on")
        return family

    def test_entity_list_marks_blocked_and_bypassed_entities(self, blocked):
        """The last column is empty for all others."""
        lines = blocked("entity", "list").stdout.splitlines()
        column = lines[0].index("STATUS")

        assert {
            "key-1": "bypass",
            "org-1": "blocked, bypass",
            "project-1": "",
            "project-2": "blocked for 2 resources",
            "user-1": "blocked for gpt-4",
        } == {line.split()[0]: line[column:] for line in lines[1:]}

    def test_entity_list_of_blocked_entities_has_pages(self, blocked):
        """Each page is full, and the note continues the same list."""
        first = blocked("entity", "list", "--blocked", "--limit", "2")
        words = first.stderr.removeprefix("There are more; pass --all, or continue with: zae-limiter ").split()
        second = blocked(*words)
        everything = printed_json(blocked("entity", "list", "--blocked", "--all", "--json"))

        assert ["org-1", "project-2"] == [line.split()[0] for line in first.stdout.splitlines()[1:]]
        assert (["user-1"], "") == ([line.split()[0] for line in second.stdout.splitlines()[1:]], second.stderr)
        assert ["org-1", "project-2", "user-1"] == [one["id"] for one in everything["entities"]]
        assert everything["next_cursor"] is None

    def test_entity_list_of_blocked_entities_is_about_entities_only(self, run):
        """Ids with limits need not be entities."""
        code, line = refused(run, "entity", "list", "--blocked", "--with-custom-limits", "gpt-4")

        assert (2, True) == (code, "pass --blocked or --with-custom-limits, not both" in line)
