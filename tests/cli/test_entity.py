"""``zae-limiter entity``: entities, their limits and their buckets."""

import pytest

from tests.cli.aws import printed_json

RPM = {"name": "rpm", "capacity": 1000, "refill_amount": 1000, "refill_period_seconds": 60}


class TestCreate:
    def test_entity_create_and_entity_show_print_the_stored_entity(self, run):
        """Both commands print the same facts."""
        run("entity", "create", "project-1")
        arguments = ("--parent", "project-1", "--cascade", "--display-name", "Jobs", "--metadata", "tier=gold=1")
        made = printed_json(run("entity", "create", "key-1", *arguments, "--json"))

        shown = printed_json(run("entity", "show", "key-1", "--json"))
        facts = {"id": "key-1", "name": "Jobs", "parent_id": "project-1", "cascade": True}
        others = {"cascade_resources": None, "blocks": [], "bypass": False}
        assert facts | others | {"metadata": {"tier": "gold=1"}, "created_at": made["created_at"]} == made
        assert ["project-1"] == [one["id"] for one in shown.pop("ancestors")]
        assert made == shown

    def test_entity_show_omits_facts_that_are_not_set(self, run):
        """Every known fact has a line; unknown facts have none."""
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--metadata", "tier=gold")
        parent, child = (run("entity", "show", one).stdout.splitlines() for one in ("project-1", "key-1"))

        assert ["ENTITY", "id", "created"] == [line.split()[0] for line in parent]
        assert [
            "id             key-1",
            "parent         project-1",
            "cascade        no",
            "metadata tier  gold",
        ] == child[1:5]

    def test_metadata_from_json_has_numbers_lists_and_objects(self, run):
        """Text from --metadata is added to it, and takes precedence."""
        given = '{"discount": 0.1, "plan": {"seats": [1, null, true, "é"]}, "tier": 1}'
        made = printed_json(
            run("entity", "create", "user-1", "--metadata-json", given, "--metadata", "tier=gold", "--json")
        )
        shown = run("entity", "show", "user-1").stdout

        assert {"discount": 0.1, "plan": {"seats": [1, None, True, "é"]}, "tier": "gold"} == made["metadata"]
        assert 'metadata plan      {"seats": [1, null, true, "é"]}\n' in shown
        assert "metadata discount  0.1\n" in shown

    def test_entity_names_with_control_characters_are_escaped(self, run):
        """Characters that a terminal would interpret are printed as escapes."""
        run("entity", "create", "user-1", "--display-name", "a\x1b[2Jb\nc")

        assert "name     a\\x1b[2Jb\\nc\n" in run("entity", "show", "user-1").stdout

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("project-1",), 1, "entity 'project-1' exists already; show it: zae-limiter entity show project-1"),
            (
                ("key-1", "--parent", "absent"),
                1,
                "there is no entity 'absent'; create it: zae-limiter entity create absent",
            ),
            (("key-1", "--cascade"), 2, "--cascade requires --parent"),
            (("key-1", "--parent", "project-1", "--cascade-resource", "a"), 2, "--cascade-resource requires --cascade"),
            (("key-1", "--metadata", "gold"), 2, "must be KEY=VALUE, such as tier=gold"),
            (("key-1", "--metadata-json", "{'a': 1}"), 2, "must be a JSON object, such as"),
            (("key-1", "--metadata-json", "[1]"), 2, "must be a JSON object, such as"),
            (("key-1", "--metadata-json", "[" * 100_000), 2, "must be a JSON object, such as"),
            (("key-1", "--metadata-json", '{"a": NaN}'), 2, "must be a finite number"),
            (("key-1", "--parent", "key-1"), 2, "--parent 'key-1': an entity cannot be its own parent"),
            (("a b",), 2, "an entity id starts with"),
            ((), 2, "Missing argument 'ENTITY'"),
        ],
    )
    def test_entity_create_with_invalid_arguments_prints_one_line(self, run, arguments, code, words):
        """The line uses the option names of the command and says what to do."""
        run("entity", "create", "project-1")
        done = run("entity", "create", *arguments)

        assert (code, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr

    def test_entity_show_of_a_missing_entity_fails(self, run):
        done = run("entity", "show", "absent", "--namespace", "default")

        assert (1, "") == (done.exit_code, done.stdout)
        assert "Error: there is no entity 'absent'; create it: zae-limiter entity create absent\n" == done.stderr


class TestChildren:
    def test_entity_children_are_listed_in_order(self, run):
        run("entity", "create", "project-1")
        for name in ("key-b", "key-a"):
            run("entity", "create", name, "--parent", "project-1", "--cascade")
        plain, facts = (
            run("entity", "children", "project-1"),
            printed_json(run("entity", "children", "project-1", "--json")),
        )

        assert ["ENTITY", "key-a", "key-b"] == [line.split()[0] for line in plain.stdout.splitlines()]
        assert [("key-a", True), ("key-b", True)] == [(one["id"], one["cascade"]) for one in facts]

    def test_entity_children_of_a_childless_entity_succeeds_with_a_hint(self, run):
        """The hint is on stderr; JSON is an empty list."""
        done = run("entity", "children", "project-1")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity create key-1 --parent project-1 --cascade" in done.stderr
        assert [] == printed_json(run("entity", "children", "project-1", "--json"))


class TestDelete:
    def test_entity_delete_with_yes_removes_the_entity(self, run):
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1", "--yes")

        assert (0, "Deleted entity user-1.\n") == (done.exit_code, done.stdout)
        assert 1 == run("entity", "show", "user-1").exit_code

    def test_entity_delete_without_a_terminal_requires_yes(self, run):
        """A script that does not confirm deletes nothing."""
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "pass --yes" in done.stderr
        assert 0 == run("entity", "show", "user-1").exit_code

    @pytest.mark.parametrize("answer", ["n", "", "y"])
    def test_entity_delete_in_a_terminal_asks_for_confirmation(self, run, interactive, answer):
        """An empty answer means no. The question names what would be lost."""
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1", answers=f"{answer}\n")

        assert "Delete entity user-1 in namespace default, with its limits and buckets? [y/N]" in done.stderr
        assert (0 if answer == "y" else 1) == done.exit_code
        assert (1 if answer == "y" else 0) == run("entity", "show", "user-1").exit_code

    def test_entity_delete_with_input_that_ends_deletes_nothing(self, run, interactive):
        """The end of the input is treated as no."""
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1", answers="")

        assert (1, True) == (done.exit_code, done.stderr.endswith("\nNothing was deleted.\n"))
        assert 0 == run("entity", "show", "user-1").exit_code

    @pytest.mark.parametrize("arguments", [(), ("--yes",)])
    def test_entity_delete_of_a_missing_entity_asks_nothing(self, run, arguments):
        done = run("entity", "delete", "absent", *arguments)

        assert (1, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "there is no entity 'absent'" in done.stderr

    def test_entity_delete_of_a_parent_with_children_is_refused(self, run):
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1")
        done = run("entity", "delete", "project-1", "--yes", "--json")

        assert (1, "") == (done.exit_code, done.stdout)
        assert "deleted first; list them: zae-limiter entity children project-1\n" in done.stderr
        assert {"entity_id": "key-1", "deleted": True} == printed_json(run("entity", "delete", "key-1", "-y", "--json"))


class TestLimits:
    def test_entity_get_limits_prints_what_set_limits_stored(self, run):
        """Limits may be stored for one resource, or for all others."""
        told_of = run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:1000")
        run("entity", "set-limits", "user-1", "-l", "rpm:5/h:burst=9")

        assert "LIMIT  CAPACITY  REFILL\nrpm        1000  1000 per minute\n" == told_of.stdout
        assert told_of.stdout == run("entity", "get-limits", "user-1", "--resource", "gpt-4").stdout
        assert "rpm           9  5 per hour\n" in run("entity", "get-limits", "user-1").stdout

    def test_entity_limits_json_names_the_entity_and_the_resource(self, run):
        facts = printed_json(run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:1000", "--json"))
        others = printed_json(run("entity", "get-limits", "user-1", "--json"))

        assert {"entity_id": "user-1", "resource": "gpt-4", "limits": [RPM]} == facts
        assert {"entity_id": "user-1", "resource": "_default_", "limits": []} == others

    def test_entity_get_limits_without_stored_limits_succeeds_with_a_hint(self, run):
        """The hint is a command that can be copied."""
        done = run("entity", "get-limits", "user-1", "--resource", "gpt-4")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity set-limits user-1 --resource gpt-4 -l rpm:1000\n" in done.stderr

    def test_entity_delete_limits_asks_and_prints_what_was_deleted(self, run, interactive):
        """No question is asked if no limits are stored."""
        run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:1000")
        delete = ("entity", "delete-limits", "user-1", "--resource", "gpt-4")
        kept, gone, none = (run(*delete, answers="n\n"), run(*delete, answers="y\n"), run(*delete))

        assert (1, "") == (kept.exit_code, kept.stdout)
        assert "Delete the limits for entity user-1 and resource gpt-4 in namespace default? [y/N]" in kept.stderr
        assert (0, "Deleted the limits for entity user-1 and resource gpt-4.\n") == (gone.exit_code, gone.stdout)
        assert "There are no limits for entity user-1 and resource gpt-4; nothing was deleted.\n" == none.stdout

    def test_entity_delete_limits_json_says_whether_limits_existed(self, run):
        run("entity", "set-limits", "user-1", "-l", "rpm:1000")
        delete = ("entity", "delete-limits", "user-1", "--yes", "--json")
        facts = {"entity_id": "user-1", "resource": "_default_"}

        assert facts | {"deleted": True} == printed_json(run(*delete))
        assert facts | {"deleted": False} == printed_json(run(*delete))

    def test_entity_resources_with_limits_are_listed(self, run):
        none = run("entity", "list-resources")
        for arguments in (("--resource", "gpt-4"), ()):
            run("entity", "set-limits", "user-1", *arguments, "-l", "rpm:1000")

        assert (0, "") == (none.exit_code, none.stdout)
        assert "RESOURCE\n_default_\ngpt-4\n" == run("entity", "list-resources").stdout
        assert ["_default_", "gpt-4"] == printed_json(run("entity", "list-resources", "--json"))


class TestList:
    @pytest.fixture
    def listing(self, run):
        """Three entities with limits of their own."""
        for name in ("user-1", "user-2", "user-3"):
            run("entity", "set-limits", name, "--resource", "gpt-4", "-l", "rpm:5")
        return ("entity", "list", "--with-custom-limits", "gpt-4")

    def test_entity_list_prints_the_next_page_as_a_command_to_copy(self, run, listing):
        """It goes to stderr, so that stdout has the list alone."""
        first = run(*listing, "--limit", "2")
        command = first.stderr.removeprefix("There are more; pass --all, or continue with: zae-limiter ").split()
        second = run(*command)

        assert ("ENTITY\nuser-1\nuser-2\n", "ENTITY\nuser-3\n") == (first.stdout, second.stdout)
        assert "" == second.stderr

    def test_entity_list_json_has_the_cursor_of_the_next_page(self, run, listing):
        """The cursor is null after the last page."""
        first = printed_json(run(*listing, "--limit", "2", "--json"))
        second = printed_json(run(*listing, "--cursor", first["next_cursor"], "--json"))

        assert {"resource": "gpt-4", "entities": ["user-3"], "next_cursor": None} == second

    def test_entity_list_with_all_shows_every_entity(self, run, listing):
        assert "ENTITY\nuser-1\nuser-2\nuser-3\n" == run(*listing, "--all").stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--cursor", "bogus"), "Invalid --cursor 'bogus'"),
            (("--with-custom-limits", "gpt-4", "--cursor", "bogus"), "Invalid --cursor 'bogus'"),
            (("--with-custom-limits", "gpt-4", "--limit", "0"), "0 is not in the range"),
            (("--with-custom-limits", "gpt-4", "--limit", "5", "--all"), "pass --limit or --all, not both"),
        ],
    )
    def test_entity_list_with_invalid_arguments_prints_one_line(self, run, arguments, words):
        done = run("entity", "list", *arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr

    def test_entity_list_without_entities_succeeds(self, run):
        done = run("entity", "list", "--with-custom-limits", "gpt-4")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity set-limits user-123 --resource gpt-4 -l rpm:1000" in done.stderr


class TestListAll:
    @pytest.fixture
    def family(self, run):
        """A project with a name, two keys of it, an entity that was deleted, and an id that only has limits."""
        run("entity", "create", "project-1", "--display-name", "The project")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("entity", "create", "key-2", "--parent", "project-1")
        run("entity", "create", "old")
        run("entity", "delete", "old", "--yes")
        run("entity", "set-limits", "limited", "-l", "rpm:5")

    def test_entity_list_shows_every_entity_that_was_created(self, run, family):
        """The columns are the id, the name, the parent, whether it cascades, and whether it is blocked."""
        lines = [line.split("  ") for line in run("entity", "list").stdout.splitlines()]

        assert [
            ["ENTITY", "NAME", "PARENT", "CASCADE", "STATUS"],
            ["key-1", "project-1", "yes"],
            ["key-2", "project-1", "no"],
            ["project-1", "The project"],
        ] == [[cell.strip() for cell in line if cell.strip()] for line in lines]

    def test_entity_list_json_has_the_whole_entities(self, run, family):
        """They are as `entity show` prints them, without their ancestors."""
        found = printed_json(run("entity", "list", "--json"))
        shown = [printed_json(run("entity", "show", one, "--json")) for one in ("key-1", "key-2", "project-1")]

        assert [["project-1"], ["project-1"], []] == [[above["id"] for above in one.pop("ancestors")] for one in shown]
        assert shown == found["entities"]
        assert found["next_cursor"] is None

    def test_entity_list_prints_the_next_page_as_a_short_command(self, run, family):
        """Copied, it shows the rest."""
        first = run("entity", "list", "--limit", "2")
        command = first.stderr.removeprefix("There are more; pass --all, or continue with: zae-limiter ").split()
        second = run(*command)

        assert ("project-1", "") == (second.stdout.splitlines()[1].split()[0], second.stderr)
        assert len(first.stderr) < 120

    def test_entity_list_refuses_the_cursor_of_another_list(self, run, family):
        """It would silently skip entities."""
        run("entity", "set-limits", "another", "-l", "rpm:5")
        other = printed_json(run("entity", "list", "--with-custom-limits", "_default_", "--limit", "1", "--json"))
        done = run("entity", "list", "--cursor", other["next_cursor"])

        assert (2, "") == (done.exit_code, done.stdout)
        assert "must come from a list of all entities" in done.stderr

    def test_entity_list_without_entities_says_how_to_create_one(self, run):
        """An empty list is not an error."""
        done = run("entity", "list")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "No entity was created. Create one: zae-limiter entity create user-123" in done.stderr


class TestResolve:
    @pytest.mark.parametrize(
        ("command", "source", "words"),
        [
            (("system", "set-defaults"), "system", "Source: the system defaults."),
            (("resource", "set-defaults", "gpt-4"), "resource", "Source: the defaults of the resource."),
            (
                ("entity", "set-limits", "user-1"),
                "entity_default",
                "Source: the entity's own limits for all resources.",
            ),
            (
                ("entity", "set-limits", "user-1", "--resource", "gpt-4"),
                "entity",
                "Source: the entity's own limits for this resource.",
            ),
        ],
    )
    def test_entity_resolve_shows_the_source_of_the_limits(self, run, command, source, words):
        run(*command, "-l", "rpm:1000")
        plain, facts = (
            run("entity", "resolve", "user-1", "gpt-4"),
            printed_json(run("entity", "resolve", "user-1", "gpt-4", "--json")),
        )

        assert ["rpm        1000  1000 per minute", words] == plain.stdout.splitlines()[1:]
        whose = {"entity_id": "user-1", "resource": "gpt-4"}
        where = {"source": source, "sources": {"rpm": source}}
        assert whose | {"limits": [RPM], "all_resources": [], "on_unavailable": None} | where == facts

    def test_entity_resolve_shows_the_on_unavailable_choice(self, run):
        run("system", "set-defaults", "-l", "rpm:5", "--on-unavailable", "allow")

        assert "If the store is unavailable: allow\n" in run("entity", "resolve", "user-1", "gpt-4").stdout

    def test_entity_resolve_without_limits_succeeds(self, run):
        done = run("entity", "resolve", "user-1", "gpt-4")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter system set-defaults -l rpm:1000" in done.stderr


class TestBuckets:
    def test_entity_buckets_are_shown_as_stored(self, run):
        """Buckets of one resource or of all are shown; the consumption counter never resets."""
        for resource in ("claude", "gpt-4"):
            run("acquire", "user-1", resource, "-c", "rpd:3", "-l", "rpd:10/d")

        lines = [
            "claude    rpd         7        10  10 per day         3",
            "gpt-4     rpd         7        10  10 per day         3",
        ]
        assert lines == run("entity", "buckets", "user-1").stdout.splitlines()[1:]
        assert lines[1:] == run("entity", "buckets", "user-1", "--resource", "gpt-4").stdout.splitlines()[1:]

    def test_entity_buckets_json_is_exact(self, run):
        """Amounts are in millitokens, as in the API."""
        run("acquire", "user-1", "gpt-4", "-c", "rpd:3", "-l", "rpd:10/d")
        (facts,) = printed_json(run("entity", "buckets", "user-1", "--json"))

        assert ("user-1", "gpt-4", "rpd", 10_000, 3_000) == (
            facts["entity_id"],
            facts["resource"],
            facts["limit_name"],
            facts["capacity_milli"],
            facts["total_consumed_milli"],
        )

    def test_entity_buckets_without_buckets_succeeds(self, run):
        done = run("entity", "buckets", "user-1")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter acquire user-1 gpt-4 -c rpm:1" in done.stderr
