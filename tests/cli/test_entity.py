"""``zae-limiter entity``: who takes tokens, and the limits and buckets they have."""

import pytest

from tests.cli.aws import told

RPM = {"name": "rpm", "capacity": 1000, "refill_amount": 1000, "refill_period_seconds": 60}


class TestCreate:
    def test_what_was_created_is_shown(self, run):
        """Creating prints what is stored, and so does showing."""
        run("entity", "create", "project-1")
        arguments = ("--parent", "project-1", "--cascade", "--display-name", "Jobs", "--metadata", "tier=gold=1")
        made = told(run("entity", "create", "key-1", *arguments, "--json"))

        facts = {"id": "key-1", "name": "Jobs", "parent_id": "project-1", "cascade": True}
        assert facts | {"metadata": {"tier": "gold=1"}, "created_at": made["created_at"]} == made
        assert made == told(run("entity", "show", "key-1", "--json"))

    def test_what_is_not_known_has_no_line(self, run):
        """A line for every fact, and none for what nobody said."""
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

    def test_a_name_cannot_give_orders_to_the_terminal(self, run):
        """What a terminal would obey is written as an escape."""
        run("entity", "create", "user-1", "--display-name", "a\x1b[2Jb\nc")

        assert "name     a\\x1b[2Jb\\nc\n" in run("entity", "show", "user-1").stdout

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("project-1",), 1, "entity 'project-1' exists already; show it: zae-limiter entity show project-1"),
            (
                ("key-1", "--parent", "nobody"),
                1,
                "there is no entity 'nobody'; create it: zae-limiter entity create nobody",
            ),
            (("key-1", "--cascade"), 2, "--cascade requires --parent"),
            (("key-1", "--metadata", "gold"), 2, "must be KEY=VALUE, such as tier=gold"),
            (("key-1", "--parent", "key-1"), 2, "--parent 'key-1': an entity cannot be its own parent"),
            (("a b",), 2, "an entity id starts with"),
            ((), 2, "Missing argument 'ENTITY'"),
        ],
    )
    def test_what_cannot_be_created_is_told_in_one_line(self, run, arguments, code, words):
        """In the words of the command line, with what to do."""
        run("entity", "create", "project-1")
        done = run("entity", "create", *arguments)

        assert (code, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr

    def test_one_that_is_not_there_is_not_shown(self, run):
        done = run("entity", "show", "nobody", "--namespace", "default")

        assert (1, "") == (done.exit_code, done.stdout)
        assert "Error: there is no entity 'nobody'; create it: zae-limiter entity create nobody\n" == done.stderr


class TestChildren:
    def test_they_are_listed_in_order(self, run):
        run("entity", "create", "project-1")
        for name in ("key-b", "key-a"):
            run("entity", "create", name, "--parent", "project-1", "--cascade")
        plain, facts = run("entity", "children", "project-1"), told(run("entity", "children", "project-1", "--json"))

        assert ["ENTITY", "key-a", "key-b"] == [line.split()[0] for line in plain.stdout.splitlines()]
        assert [("key-a", True), ("key-b", True)] == [(one["id"], one["cascade"]) for one in facts]

    def test_none_is_no_failure(self, run):
        """It is said on stderr, with what to do; JSON is an empty list."""
        done = run("entity", "children", "project-1")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity create key-1 --parent project-1 --cascade" in done.stderr
        assert [] == told(run("entity", "children", "project-1", "--json"))


class TestDelete:
    def test_with_yes_it_is_gone(self, run):
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1", "--yes")

        assert (0, "Deleted entity user-1.\n") == (done.exit_code, done.stdout)
        assert 1 == run("entity", "show", "user-1").exit_code

    def test_without_anybody_to_ask_it_needs_yes(self, run):
        """A script that forgot it deletes nothing."""
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "pass --yes" in done.stderr
        assert 0 == run("entity", "show", "user-1").exit_code

    @pytest.mark.parametrize("answer", ["n", "", "y"])
    def test_it_asks_who_is_there(self, run, somebody, answer):
        """No answer is no; the question names what would be lost."""
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1", answers=f"{answer}\n")

        assert "Delete entity user-1 in namespace default, with its limits and buckets? [y/N]" in done.stderr
        assert (0 if answer == "y" else 1) == done.exit_code
        assert (1 if answer == "y" else 0) == run("entity", "show", "user-1").exit_code

    def test_to_go_away_is_no(self, run, somebody):
        """The end of the input is, and so is an interrupt."""
        run("entity", "create", "user-1")
        done = run("entity", "delete", "user-1", answers="")

        assert (1, True) == (done.exit_code, done.stderr.endswith("\nNothing was deleted.\n"))
        assert 0 == run("entity", "show", "user-1").exit_code

    @pytest.mark.parametrize("arguments", [(), ("--yes",)])
    def test_what_is_not_there_is_not_asked_about(self, run, arguments):
        done = run("entity", "delete", "nobody", *arguments)

        assert (1, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "there is no entity 'nobody'" in done.stderr

    def test_a_parent_is_not_deleted_below_its_children(self, run):
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1")
        done = run("entity", "delete", "project-1", "--yes", "--json")

        assert (1, "") == (done.exit_code, done.stdout)
        assert "deleted first; list them: zae-limiter entity children project-1\n" in done.stderr
        assert {"entity_id": "key-1", "deleted": True} == told(run("entity", "delete", "key-1", "-y", "--json"))


class TestLimits:
    def test_what_was_set_is_got(self, run):
        """For one resource, and for all others."""
        told_of = run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:1000")
        run("entity", "set-limits", "user-1", "-l", "rpm:5/h:burst=9")

        assert "LIMIT  CAPACITY  REFILL\nrpm        1000  1000 per minute\n" == told_of.stdout
        assert told_of.stdout == run("entity", "get-limits", "user-1", "--resource", "gpt-4").stdout
        assert "rpm           9  5 per hour\n" in run("entity", "get-limits", "user-1").stdout

    def test_json_says_whose_they_are(self, run):
        facts = told(run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:1000", "--json"))
        others = told(run("entity", "get-limits", "user-1", "--json"))

        assert {"entity_id": "user-1", "resource": "gpt-4", "limits": [RPM]} == facts
        assert {"entity_id": "user-1", "resource": "_default_", "limits": []} == others

    def test_none_is_no_failure(self, run):
        """What would store some is a command that can be copied."""
        done = run("entity", "get-limits", "user-1", "--resource", "gpt-4")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity set-limits user-1 --resource gpt-4 -l rpm:1000\n" in done.stderr

    def test_deleting_asks_and_says_what_was_there(self, run, somebody):
        """What is not there is not asked about."""
        run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:1000")
        delete = ("entity", "delete-limits", "user-1", "--resource", "gpt-4")
        kept, gone, none = (run(*delete, answers="n\n"), run(*delete, answers="y\n"), run(*delete))

        assert (1, "") == (kept.exit_code, kept.stdout)
        assert "Delete the limits for entity user-1 and resource gpt-4 in namespace default? [y/N]" in kept.stderr
        assert (0, "Deleted the limits for entity user-1 and resource gpt-4.\n") == (gone.exit_code, gone.stdout)
        assert "There are no limits for entity user-1 and resource gpt-4; nothing was deleted.\n" == none.stdout

    def test_deleting_in_json_says_whether_there_were_any(self, run):
        run("entity", "set-limits", "user-1", "-l", "rpm:1000")
        delete = ("entity", "delete-limits", "user-1", "--yes", "--json")
        facts = {"entity_id": "user-1", "resource": "_default_"}

        assert facts | {"deleted": True} == told(run(*delete))
        assert facts | {"deleted": False} == told(run(*delete))

    def test_the_resources_are_listed(self, run):
        none = run("entity", "list-resources")
        for arguments in (("--resource", "gpt-4"), ()):
            run("entity", "set-limits", "user-1", *arguments, "-l", "rpm:1000")

        assert (0, "") == (none.exit_code, none.stdout)
        assert "RESOURCE\n_default_\ngpt-4\n" == run("entity", "list-resources").stdout
        assert ["_default_", "gpt-4"] == told(run("entity", "list-resources", "--json"))


class TestList:
    @pytest.fixture
    def listing(self, run):
        """Three entities with limits of their own."""
        for name in ("user-1", "user-2", "user-3"):
            run("entity", "set-limits", name, "--resource", "gpt-4", "-l", "rpm:5")
        return ("entity", "list", "--with-custom-limits", "gpt-4")

    def test_the_next_page_is_a_command_that_can_be_copied(self, run, listing):
        """It is on stderr, out of the way of what reads the list."""
        first = run(*listing, "--limit", "2")
        command = first.stderr.removeprefix("There are more; pass --all, or continue with: zae-limiter ").split()
        second = run(*command)

        assert ("ENTITY\nuser-1\nuser-2\n", "ENTITY\nuser-3\n") == (first.stdout, second.stdout)
        assert "" == second.stderr

    def test_json_has_the_cursor(self, run, listing):
        """Null after the last page."""
        first = told(run(*listing, "--limit", "2", "--json"))
        second = told(run(*listing, "--cursor", first["next_cursor"], "--json"))

        assert {"resource": "gpt-4", "entities": ["user-3"], "next_cursor": None} == second

    def test_all_is_all(self, run, listing):
        assert "ENTITY\nuser-1\nuser-2\nuser-3\n" == run(*listing, "--all").stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "Missing option '--with-custom-limits'"),
            (("--with-custom-limits", "gpt-4", "--cursor", "bogus"), "Invalid --cursor 'bogus'"),
            (("--with-custom-limits", "gpt-4", "--limit", "0"), "0 is not in the range"),
            (("--with-custom-limits", "gpt-4", "--limit", "5", "--all"), "pass --limit or --all, not both"),
        ],
    )
    def test_what_is_wrong_is_told_in_one_line(self, run, arguments, words):
        done = run("entity", "list", *arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr

    def test_none_is_no_failure(self, run):
        done = run("entity", "list", "--with-custom-limits", "gpt-4")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity set-limits user-123 --resource gpt-4 -l rpm:1000" in done.stderr


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
    def test_it_says_where_limits_come_from(self, run, command, source, words):
        run(*command, "-l", "rpm:1000")
        plain, facts = (
            run("entity", "resolve", "user-1", "gpt-4"),
            told(run("entity", "resolve", "user-1", "gpt-4", "--json")),
        )

        assert ["rpm        1000  1000 per minute", words] == plain.stdout.splitlines()[1:]
        whose = {"entity_id": "user-1", "resource": "gpt-4"}
        assert whose | {"limits": [RPM], "on_unavailable": None, "source": source} == facts

    def test_what_to_do_while_the_store_is_away_is_said_as_well(self, run):
        run("system", "set-defaults", "-l", "rpm:5", "--on-unavailable", "allow")

        assert "If the store is unavailable: allow\n" in run("entity", "resolve", "user-1", "gpt-4").stdout

    def test_none_is_no_failure(self, run):
        done = run("entity", "resolve", "user-1", "gpt-4")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter system set-defaults -l rpm:1000" in done.stderr


class TestBuckets:
    def test_they_are_shown_as_stored(self, run):
        """By resource or all of them; what is consumed is counted for ever."""
        for resource in ("claude", "gpt-4"):
            run("acquire", "user-1", resource, "-c", "rpd:3", "-l", "rpd:10/d")

        lines = [
            "claude    rpd         7        10  10 per day         3",
            "gpt-4     rpd         7        10  10 per day         3",
        ]
        assert lines == run("entity", "buckets", "user-1").stdout.splitlines()[1:]
        assert lines[1:] == run("entity", "buckets", "user-1", "--resource", "gpt-4").stdout.splitlines()[1:]

    def test_json_is_exact(self, run):
        """In thousandths of a token, as the API has it."""
        run("acquire", "user-1", "gpt-4", "-c", "rpd:3", "-l", "rpd:10/d")
        (facts,) = told(run("entity", "buckets", "user-1", "--json"))

        assert ("user-1", "gpt-4", "rpd", 10_000, 3_000) == (
            facts["entity_id"],
            facts["resource"],
            facts["limit_name"],
            facts["capacity_milli"],
            facts["total_consumed_milli"],
        )

    def test_none_is_no_failure(self, run):
        done = run("entity", "buckets", "user-1")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter acquire user-1 gpt-4 -c rpm:1" in done.stderr
