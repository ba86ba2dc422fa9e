"""``zae-limiter entity reset`` and ``credit``: what was done, and what was given."""

import pytest

from tests.cli.aws import printed_json


@pytest.fixture
def used(run):
    """An entity that has used its limits of one resource, and half of those across resources."""
    run("system", "set-defaults", "-l", "rpd:10/d", "-l", "tpd:1k/d")
    run("entity", "set-limits", "user-1", "--all-resources", "-l", "rpd:20/d")
    run("acquire", "user-1", "gpt-4", "-c", "rpd:10", "-c", "tpd:500")
    return run


def left(run):
    return printed_json(run("available", "user-1", "gpt-4", "--json"))["available"]


def events(run):
    return printed_json(run("audit", "list", "user-1", "--json"))["events"]


class TestReset:
    def test_entity_reset_prints_each_bucket(self, used):
        """Including that across resources; the audit has the operator."""
        done = used("entity", "reset", "user-1", "--yes", "--principal", "ops")

        assert [
            "Reset the bucket of user-1 across resources.",
            "Reset the bucket of user-1 for gpt-4.",
        ] == done.stdout.splitlines()
        assert {"rpd": 10, "tpd": 1_000} == left(used)
        assert [("buckets_reset", "ops")] * 2 == [(one["action"], one["principal"]) for one in events(used)[:2]]
        assert ["rpd"] == [line.split()[-1] for line in used("audit", "list", "user-1").stdout.splitlines()[2:3]]

    def test_entity_reset_of_one_resource_as_json(self, used):
        """The others stay."""
        done = printed_json(used("entity", "reset", "user-1", "-r", "gpt-4", "-y", "--json"))
        across = printed_json(used("entity", "buckets", "user-1", "--all-resources", "--json"))

        assert {"entity_id": "user-1", "resources": ["gpt-4"]} == done
        assert [10_000] == [one["tokens_milli"] for one in across]

    def test_entity_reset_across_resources_alone(self, used):
        """It is a bucket of its own."""
        done = used("entity", "reset", "user-1", "--all-resources", "--yes")

        assert "Reset the bucket of user-1 across resources.\n" == done.stdout
        assert 0 == left(used)["rpd"]

    def test_entity_reset_without_buckets_says_so(self, used):
        """It is no error, so a script may repeat it."""
        done = used("entity", "reset", "user-2", "--yes")

        assert (0, "Entity user-2 has no bucket to reset; nothing was changed.\n") == (done.exit_code, done.stdout)

    def test_entity_reset_of_a_resource_without_a_bucket_names_the_resource(self, used):
        """The entity may have other buckets, which stay as they are."""
        done = used("entity", "reset", "user-1", "-r", "gpt-5", "--yes")

        assert "Entity user-1 has no bucket for gpt-5 to reset; nothing was changed.\n" == done.stdout

    @pytest.mark.parametrize(("answer", "code", "remaining"), [("y\n", 0, 10), ("n\n", 1, 0)])
    @pytest.mark.usefixtures("interactive")
    def test_entity_reset_asks_first(self, used, answer, code, remaining):
        """A reset cannot be undone."""
        done = used("entity", "reset", "user-1", "-r", "gpt-4", answers=answer)

        assert (code, remaining) == (done.exit_code, left(used)["rpd"])
        assert "Reset the bucket for gpt-4 of user-1?" in done.stderr

    def test_entity_reset_without_a_terminal_requires_yes(self, used):
        """A script says that it means it."""
        done = used("entity", "reset", "user-1")

        assert (2, True) == (done.exit_code, "pass --yes to reset it" in done.stderr)


class TestCredit:
    def test_entity_credit_prints_what_was_given(self, used):
        """At most what was spent."""
        done = used("entity", "credit", "user-1", "gpt-4", "-a", "rpd:4", "-a", "tpd:0.9k", "--key", "ticket-1")
        *lines, last = done.stdout.splitlines()

        assert ["LIMIT  ASKED  GIVEN", "rpd        4      4"] == lines
        # A part of a token may be refilled by then.
        assert last in ("tpd      900    500", "tpd      900    499")
        assert "No more than that was spent.\n" == done.stderr
        assert (4, True) == (left(used)["rpd"], left(used)["tpd"] >= 999)

    def test_entity_credit_with_the_same_key_gives_nothing_more(self, used):
        """The second call prints the same, and another amount is an error."""
        words = ("entity", "credit", "user-1", "gpt-4", "--key", "ticket-1", "-a")
        first, second = (printed_json(used(*words, "rpd:4", "--json")) for _ in range(2))
        refused = used(*words, "rpd:5")

        assert {"entity_id": "user-1", "resource": "gpt-4", "amounts": {"rpd": 4}, "given": {"rpd": 4}} == first
        assert first == second
        assert 4 == left(used)["rpd"]
        assert (2, True) == (refused.exit_code, "Invalid --key 'ticket-1': was used for another" in refused.stderr)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("gpt-4", "-a", "rpd:1"), "Missing option '--key'"),
            (("gpt-4", "--key", "k"), "Missing option '--amount'"),
            (("--key", "k", "-a", "rpd:1"), "Missing argument 'RESOURCE'"),
            (("gpt-4", "--key", "", "-a", "rpd:1"), "Invalid --key '': must not be empty"),
            (("gpt-4", "--key", "k", "-a", "rpd:0"), "Invalid amounts[rpd] 0: must be at least 1"),
            (("gpt-4", "--key", "k", "-a", "rpm:1"), "is not a limit in force; these are: rpd, tpd"),
            (("gpt-4", "--key", "k", "-a", "rpd"), "'rpd': must be NAME:AMOUNT"),
        ],
    )
    def test_entity_credit_with_invalid_arguments_prints_what_is_wrong(self, used, arguments, words):
        """Nothing is given."""
        done = used("entity", "credit", "user-1", *arguments)

        assert (2, "", True) == (done.exit_code, done.stdout, words in done.stderr)
        assert 0 == left(used)["rpd"]
