"""``zae-limiter audit``: who made which change, and when."""

import pytest

from tests.cli.aws import printed_json
from zae_limiter.cli.audit import in_words


def changes(result):
    """Return the changes of a printed page, without their times."""
    return [" ".join(line.split()[2:]) for line in result.stdout.splitlines()[1:]]


class TestFilters:
    @pytest.fixture(autouse=True)
    def made(self, run):
        """Make a change of each kind, as ops."""
        run("system", "set-defaults", "-l", "rpm:5", "--on-unavailable", "allow", "--principal", "ops")
        run("resource", "set-defaults", "gpt-4", "-l", "rpm:5/s:burst=9", "--principal", "ops")
        run("entity", "create", "user-1", "--principal", "ops")
        run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:5/h", "--principal", "ops")
        run("namespace", "register", "acme", "--principal", "ops")

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("user-1",), ["limits set ops gpt-4 rpm:5/h", "entity created ops cascade=false"]),
            (("--system",), ["system defaults set ops rpm:5/min on_unavailable=allow"]),
            (("--of-resource", "gpt-4"), ["resource defaults set ops gpt-4 rpm:5/s:burst=9"]),
            (("$RESOURCE:gpt-4",), ["resource defaults set ops gpt-4 rpm:5/s:burst=9"]),
        ],
    )
    def test_audit_list_shows_changes_newest_first(self, run, arguments, expected):
        """Limits are written in the syntax that commands accept."""
        assert expected == changes(run("audit", "list", *arguments))

    def test_audit_list_of_a_namespace_works_from_any_namespace(self, run):
        (event,) = printed_json(run("audit", "list", "--of-namespace", "acme", "--json"))["events"]

        assert ("namespace_registered", "$NAMESPACE:acme", "ops") == (
            event["action"],
            event["entity_id"],
            event["principal"],
        )

    def test_audit_list_without_a_name_shows_all_changes_of_the_namespace(self, run):
        """These are its lifecycle, and all changes in it, ordered by time. A column names the subject of each."""
        run("namespace", "register", "globex")
        run("system", "set-defaults", "-l", "rpm:7", "-N", "globex")
        run("entity", "create", "user-9", "-N", "globex")
        words = ("audit", "list", "--namespace", "globex")
        found = printed_json(run(*words, "--json"))["events"]

        expected = ["entity_created", "system_defaults_set", "namespace_registered"]
        assert expected == [event["action"] for event in found]
        assert ["entity created user-9", "system defaults set $SYSTEM", "namespace registered $NAMESPACE:globex"] == [
            " ".join(line.split()[: len(action.split("_")) + 1])
            for line, action in zip(changes(run(*words)), expected, strict=True)
        ]

    @pytest.mark.parametrize("option", ["--entity-id", "-e"])
    def test_audit_list_of_an_entity_can_name_it_by_an_option(self, run, option):
        """The option means the same as the argument."""
        assert run("audit", "list", "user-1").stdout == run("audit", "list", option, "user-1").stdout

    def test_audit_list_with_two_filters_is_refused(self, run):
        done = run("audit", "list", "user-1", "--system")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "pass only one of ENTITY, --entity-id, --system, --of-resource and --of-namespace" in done.stderr


class TestPages:
    @pytest.fixture
    def five(self, run):
        """Make five changes of an entity."""
        for rate in range(1, 6):
            run("entity", "set-limits", "user-1", "-l", f"rpm:{rate}")

    def test_audit_list_prints_the_next_page_as_a_command_to_copy(self, run, five):
        first = run("audit", "list", "user-1", "--limit", "3")
        second = run(
            *first.stderr.removeprefix("There are older changes; pass --all, or continue with: zae-limiter ").split()
        )

        assert ["5", "4", "3"] == [line.rpartition(":")[2].partition("/")[0] for line in changes(first)]
        assert ["2", "1"] == [line.rpartition(":")[2].partition("/")[0] for line in changes(second)]
        assert "" == second.stderr

    def test_audit_list_of_a_full_last_page_has_no_next_page(self, run, five):
        assert None is printed_json(run("audit", "list", "user-1", "--limit", "5", "--json"))["next_cursor"]

    def test_audit_list_with_all_shows_every_event(self, run, five, monkeypatch):
        """The number of pages makes no difference."""
        monkeypatch.setattr("zae_limiter.cli.audit._READ_AT_ONCE", 2)

        assert 5 == len(printed_json(run("audit", "list", "user-1", "--all", "--json"))["events"])

    def test_audit_pages_of_a_namespace_contain_every_event_once(self, run):
        """The cursor is the id of the last event, and can be given by either option."""
        run("namespace", "register", "acme")
        for rate in range(1, 4):
            run("system", "set-defaults", "-l", f"rpm:{rate}", "-N", "acme")
        whole = printed_json(run("audit", "list", "-N", "acme", "--json"))["events"]
        first = printed_json(run("audit", "list", "-N", "acme", "--limit", "3", "--json"))
        second = printed_json(run("audit", "list", "-N", "acme", "--start-event-id", first["next_cursor"], "--json"))

        assert 4 == len(whole)
        assert whole == first["events"] + second["events"]
        assert second == printed_json(run("audit", "list", "-N", "acme", "--cursor", first["next_cursor"], "--json"))

    def test_audit_list_with_an_invalid_cursor_prints_one_line(self, run):
        done = run("audit", "list", "user-1", "--cursor", "bogus")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "Invalid --cursor 'bogus'" in done.stderr


def test_audit_list_without_events_succeeds_and_says_so(run):
    done = run("audit", "list", "nobody")

    assert (0, "", "No changes are recorded.\n") == (done.exit_code, done.stdout, done.stderr)
    assert {"events": [], "next_cursor": None} == printed_json(run("audit", "list", "nobody", "--json"))


def test_audit_details_of_an_unknown_format_are_shown_as_stored():
    """Events written by a newer version are still shown."""
    assert 'rpm:5/min {"of": "another kind"} by=1' == in_words(
        {
            "limits": [
                {"name": "rpm", "capacity": 5, "refill_amount": 5, "refill_period_seconds": 60},
                {"of": "another kind"},
            ],
            "why": None,
            "by": 1,
        }
    )
