"""``zae-limiter audit``: who changed what, and when."""

import pytest

from tests.cli.aws import told
from zae_limiter.cli.audit import in_words


def changes(result):
    """The changes a page tells of, without their times."""
    return [" ".join(line.split()[2:]) for line in result.stdout.splitlines()[1:]]


class TestWhoseChanges:
    @pytest.fixture(autouse=True)
    def made(self, run):
        """A change of each kind, by ops."""
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
    def test_they_are_told_newest_first(self, run, arguments, expected):
        """Limits are written as they are given to commands."""
        assert expected == changes(run("audit", "list", *arguments))

    def test_those_of_a_namespace_are_told_from_any(self, run):
        (event,) = told(run("audit", "list", "--of-namespace", "acme", "--json"))["events"]

        assert ("namespace_registered", "$NAMESPACE:acme", "ops") == (
            event["action"],
            event["entity_id"],
            event["principal"],
        )

    def test_without_a_name_they_are_those_of_the_namespace_as_a_whole(self, run):
        """Its own life and its system defaults, in the order of time."""
        run("namespace", "register", "globex")
        run("system", "set-defaults", "-l", "rpm:7", "-N", "globex")
        found = told(run("audit", "list", "--namespace", "globex", "--json"))["events"]

        assert ["system_defaults_set", "namespace_registered"] == [event["action"] for event in found]

    def test_two_kinds_at_once_are_refused(self, run):
        done = run("audit", "list", "user-1", "--system")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "pass only one of ENTITY, --system, --of-resource and --of-namespace" in done.stderr


class TestPages:
    @pytest.fixture
    def five(self, run):
        """Five changes of an entity."""
        for rate in range(1, 6):
            run("entity", "set-limits", "user-1", "-l", f"rpm:{rate}")

    def test_the_next_page_is_a_command_that_can_be_copied(self, run, five):
        first = run("audit", "list", "user-1", "--limit", "3")
        second = run(
            *first.stderr.removeprefix("There are older changes; pass --all, or continue with: zae-limiter ").split()
        )

        assert ["5", "4", "3"] == [line.rpartition(":")[2].partition("/")[0] for line in changes(first)]
        assert ["2", "1"] == [line.rpartition(":")[2].partition("/")[0] for line in changes(second)]
        assert "" == second.stderr

    def test_a_last_page_that_is_full_has_no_next(self, run, five):
        assert None is told(run("audit", "list", "user-1", "--limit", "5", "--json"))["next_cursor"]

    def test_all_is_all(self, run, five, monkeypatch):
        """However many are read at once."""
        monkeypatch.setattr("zae_limiter.cli.audit._READ_AT_ONCE", 2)

        assert 5 == len(told(run("audit", "list", "user-1", "--all", "--json"))["events"])

    def test_pages_of_the_namespace_as_a_whole_miss_nothing(self, run):
        """Two kinds of changes are told as one list."""
        run("namespace", "register", "acme")
        for rate in range(1, 4):
            run("system", "set-defaults", "-l", f"rpm:{rate}", "-N", "acme")
        whole = told(run("audit", "list", "-N", "acme", "--json"))["events"]
        first = told(run("audit", "list", "-N", "acme", "--limit", "3", "--json"))
        second = told(run("audit", "list", "-N", "acme", "--cursor", first["next_cursor"], "--json"))

        assert 4 == len(whole)
        assert whole == first["events"] + second["events"]

    def test_a_cursor_that_is_none_is_told_in_one_line(self, run):
        done = run("audit", "list", "user-1", "--cursor", "bogus")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "Invalid --cursor 'bogus'" in done.stderr


def test_nothing_on_record_is_no_failure(run):
    done = run("audit", "list", "nobody")

    assert (0, "", "No changes are recorded.\n") == (done.exit_code, done.stdout, done.stderr)
    assert {"events": [], "next_cursor": None} == told(run("audit", "list", "nobody", "--json"))


def test_what_a_newer_version_wrote_is_shown_as_it_is():
    """An unknown form is no reason to show nothing."""
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
