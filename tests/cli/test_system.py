"""``zae-limiter system``: the limits of every entity without limits of its own."""

import json

LIMIT = {"name": "rpm", "capacity": 1000, "refill_amount": 1000, "refill_period_seconds": 60}


def test_system_get_defaults_prints_what_set_defaults_stored(run):
    """Both commands print what is stored."""
    told = run("system", "set-defaults", "-l", "rpm:1000", "--on-unavailable", "allow", "--principal", "ops")
    got = run("system", "get-defaults")

    assert (
        "LIMIT  CAPACITY  REFILL\nrpm        1000  1000 per minute\nIf the store is unavailable: allow\n" == told.stdout
    )
    assert told.stdout == got.stdout


def test_system_defaults_json_has_the_limits_and_the_unavailable_choice(run):
    """Null means that no choice was made."""
    told = run("system", "set-defaults", "-l", "rpm:1000", "--json", "--yes")
    got = run("system", "get-defaults", "--json")

    assert {"limits": [LIMIT], "on_unavailable": None} == json.loads(told.stdout)
    assert told.stdout == got.stdout


def test_system_set_defaults_replaces_the_limits_and_keeps_the_choice(run):
    """An on-unavailable choice that is not given stays the same."""
    run("system", "set-defaults", "-l", "rpm:5", "-l", "tpm:50", "--on-unavailable", "block")
    told = run("system", "set-defaults", "-l", "rpm:1000", "--json", "--yes")

    assert {"limits": [LIMIT], "on_unavailable": "block"} == json.loads(told.stdout)


def test_system_get_defaults_without_defaults_succeeds_with_a_hint(run):
    """The hint is on stderr; the shape of the JSON stays the same."""
    plain, as_json = run("system", "get-defaults"), run("system", "get-defaults", "--json")

    assert (0, "") == (plain.exit_code, plain.stdout)
    assert "zae-limiter system set-defaults -l rpm:1000" in plain.stderr
    assert {"limits": [], "on_unavailable": None} == json.loads(as_json.stdout)


def test_system_set_defaults_requires_at_least_one_limit(run):
    """An empty set of limits is a mistake."""
    done = run("system", "set-defaults")

    assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
    assert "Missing option '--limit' / '-l'" in done.stderr


def test_system_set_defaults_refuses_an_unknown_unavailable_choice(run):
    """Only allow and block are accepted."""
    done = run("system", "set-defaults", "-l", "rpm:5", "--on-unavailable", "maybe")

    assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
    assert "'allow', 'block'" in done.stderr


def test_system_delete_defaults_asks_and_prints_what_was_deleted(run, interactive):
    """No question is asked if no defaults are stored."""
    run("system", "set-defaults", "-l", "rpm:1000", "--on-unavailable", "allow")
    delete = ("system", "delete-defaults")
    kept, gone, none = run(*delete, answers="n\n"), run(*delete, answers="y\n"), run(*delete)

    assert (1, "") == (kept.exit_code, kept.stdout)
    assert "Delete the system defaults in namespace default? [y/N]" in kept.stderr
    assert (0, "Deleted the system defaults.\n") == (gone.exit_code, gone.stdout)
    assert "There are no system defaults; nothing was deleted.\n" == none.stdout
    assert {"limits": [], "on_unavailable": None} == json.loads(run("system", "get-defaults", "--json").stdout)


def test_system_delete_defaults_without_a_terminal_requires_yes(run):
    """A script that does not confirm deletes nothing."""
    run("system", "set-defaults", "-l", "rpm:1000")
    refused, done = run("system", "delete-defaults"), run("system", "delete-defaults", "--yes", "--json")

    assert (2, "", 1) == (refused.exit_code, refused.stdout, refused.stderr.count("\n"))
    assert "pass --yes" in refused.stderr
    assert {"deleted": True} == json.loads(done.stdout)
