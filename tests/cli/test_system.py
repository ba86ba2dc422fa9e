"""``zae-limiter system``: the limits of everyone who has no others."""

import json

LIMIT = {"name": "rpm", "capacity": 1000, "refill_amount": 1000, "refill_period_seconds": 60}


def test_what_was_set_is_got(run):
    """Setting prints what is stored, and so does getting."""
    told = run("system", "set-defaults", "-l", "rpm:1000", "--on-unavailable", "allow", "--principal", "ops")
    got = run("system", "get-defaults")

    assert (
        "LIMIT  CAPACITY  REFILL\nrpm        1000  1000 per minute\nIf the store is unavailable: allow\n" == told.stdout
    )
    assert told.stdout == got.stdout


def test_json_has_the_limits_and_the_choice(run):
    """Null is no choice made."""
    told = run("system", "set-defaults", "-l", "rpm:1000", "--json")
    got = run("system", "get-defaults", "--json")

    assert {"limits": [LIMIT], "on_unavailable": None} == json.loads(told.stdout)
    assert told.stdout == got.stdout


def test_setting_replaces_the_limits_and_leaves_the_choice(run):
    """A choice that is not given stays as it was."""
    run("system", "set-defaults", "-l", "rpm:5", "-l", "tpm:50", "--on-unavailable", "block")
    told = run("system", "set-defaults", "-l", "rpm:1000", "--json")

    assert {"limits": [LIMIT], "on_unavailable": "block"} == json.loads(told.stdout)


def test_nothing_stored_is_no_error(run):
    """It is said on stderr, with what to do; JSON is as ever."""
    plain, as_json = run("system", "get-defaults"), run("system", "get-defaults", "--json")

    assert (0, "") == (plain.exit_code, plain.stdout)
    assert "zae-limiter system set-defaults -l rpm:1000" in plain.stderr
    assert {"limits": [], "on_unavailable": None} == json.loads(as_json.stdout)


def test_at_least_one_limit_is_needed(run):
    """To store no limits is a mistake."""
    done = run("system", "set-defaults")

    assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
    assert "Missing option '--limit' / '-l'" in done.stderr


def test_another_choice_is_refused(run):
    """Allow and block are all there is."""
    done = run("system", "set-defaults", "-l", "rpm:5", "--on-unavailable", "maybe")

    assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
    assert "'allow', 'block'" in done.stderr


def test_deleting_asks_and_says_what_was_there(run, somebody):
    """What is not there is not asked about."""
    run("system", "set-defaults", "-l", "rpm:1000", "--on-unavailable", "allow")
    delete = ("system", "delete-defaults")
    kept, gone, none = run(*delete, answers="n\n"), run(*delete, answers="y\n"), run(*delete)

    assert (1, "") == (kept.exit_code, kept.stdout)
    assert "Delete the system defaults in namespace default? [y/N]" in kept.stderr
    assert (0, "Deleted the system defaults.\n") == (gone.exit_code, gone.stdout)
    assert "There are no system defaults; nothing was deleted.\n" == none.stdout
    assert {"limits": [], "on_unavailable": None} == json.loads(run("system", "get-defaults", "--json").stdout)


def test_without_anybody_to_ask_deleting_needs_yes(run):
    """A script that forgot it deletes nothing."""
    run("system", "set-defaults", "-l", "rpm:1000")
    refused, done = run("system", "delete-defaults"), run("system", "delete-defaults", "--yes", "--json")

    assert (2, "", 1) == (refused.exit_code, refused.stdout, refused.stderr.count("\n"))
    assert "pass --yes" in refused.stderr
    assert {"deleted": True} == json.loads(done.stdout)
