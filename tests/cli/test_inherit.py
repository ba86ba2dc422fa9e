"""Commands that set limits: inherited ones, and the question before a limit in force is dropped."""

import json

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.cli._dropping import dropped_names, of_entity

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture(autouse=True)
def _defaults(run):
    run("system", "set-defaults", "-l", "rpm:60", "-l", "tpm:10k")


def resolved(run):
    return json.loads(run("entity", "resolve", "user-1", "gpt-4", "--json").stdout)


def names(run):
    return [limit["name"] for limit in resolved(run)["limits"]]


@pytest.mark.parametrize("place", [[], ["-r", "gpt-4"]], ids=["all resources", "one resource"])
def test_set_limits_that_drops_a_limit_in_force_without_a_terminal_exits_2_and_names_it(run, place):
    """Otherwise a script would turn every call of the customer into an error."""
    done = run("entity", "set-limits", "user-1", *place, "-l", "rpm:600")

    assert (2, "") == (done.exit_code, done.stdout)
    assert "pass --yes to remove tpm, which is in force for entity user-1" in done.stderr
    assert "--inherit" in done.stderr
    assert ["rpm", "tpm"] == names(run)


@pytest.mark.parametrize(("answer", "left"), [("y", ["rpm"]), ("n", ["rpm", "tpm"])])
def test_set_limits_that_drops_a_limit_in_force_asks_in_a_terminal(run, interactive, answer, left):
    """The answer decides. After a no, the message says how to keep the other limits."""
    done = run("entity", "set-limits", "user-1", "-l", "rpm:600", answers=f"{answer}\n")

    assert "This removes limits that are in force for entity user-1 and all resources: tpm. Continue?" in done.stderr
    assert left == names(run)
    advice = "Nothing was changed. Pass --inherit to keep what the next level has.\n"
    assert done.stderr.endswith(advice) is (answer == "n")


def test_set_limits_with_yes_drops_without_a_question(run):
    """For scripts."""
    done = run("entity", "set-limits", "user-1", "-l", "rpm:600", "--yes")

    assert 0 == done.exit_code
    assert ["rpm"] == names(run)


def test_set_limits_with_inherit_keeps_the_others_and_resolve_shows_their_level(run):
    """No question is needed, because nothing is dropped."""
    done = run("entity", "set-limits", "user-1", "-l", "rpm:600", "--inherit")
    shown = run("entity", "resolve", "user-1", "gpt-4").stdout

    assert 0 == done.exit_code
    assert "All other limits are inherited." in done.stderr
    assert "Source: the entity's own limits for all resources.\nInherited: tpm from the system defaults.\n" in shown
    assert {"rpm": "entity_default", "tpm": "system"} == resolved(run)["sources"]


def test_set_limits_with_inherit_that_drops_a_limit_of_the_record_asks(run):
    """The next level does not have it."""
    run("entity", "set-limits", "user-1", "-l", "rpm:600", "-l", "rpd:9k", "--inherit")
    done = run("entity", "set-limits", "user-1", "-l", "rpm:600", "--inherit")

    assert 2 == done.exit_code
    assert "pass --yes to remove rpd" in done.stderr


def test_set_limits_for_all_resources_does_not_ask_about_a_resource_with_its_own_limits(run):
    """The limits of the entity for that resource stay in force."""
    run("entity", "set-limits", "user-1", "-r", "gpt-4", "-l", "rpm:1", "-l", "tpm:1", "-l", "rpd:1")
    done = run("entity", "set-limits", "user-1", "-l", "rpm:600", "-l", "tpm:600")

    assert 0 == done.exit_code
    assert ["rpd", "rpm", "tpm"] == names(run)


def test_set_defaults_of_a_resource_that_drops_a_limit_in_force_names_it(run):
    """With --inherit it stays."""
    done = run("resource", "set-defaults", "gpt-4", "-l", "rpm:30")
    inherited = run("resource", "set-defaults", "gpt-4", "-l", "rpm:30", "--inherit")

    assert (2, 0) == (done.exit_code, inherited.exit_code)
    assert "remove tpm, which is in force for resource gpt-4, or --inherit" in done.stderr
    assert "All other limits are inherited." in inherited.stderr
    assert ["rpm", "tpm"] == names(run)


def test_set_defaults_of_the_system_that_drops_a_limit_in_force_names_it(run):
    """There is no next level."""
    done = run("system", "set-defaults", "-l", "rpm:30")
    agreed = run("system", "set-defaults", "-l", "rpm:30", "--yes")

    assert (2, 0) == (done.exit_code, agreed.exit_code)
    assert "remove tpm, which is in force for all entities without their own limits" in done.stderr
    assert "--inherit" not in done.stderr
    assert ["rpm"] == names(run)


def test_upgrade_allows_a_kind_once(run, database):
    """Inherited limits do it themselves; an operator may do it for tenants."""
    place = ("--url", f"sqlite:///{database}")
    planned = run("upgrade", *place, "--allow", "inherit", "--dry-run")
    first = run("upgrade", *place, "--allow", "inherit", "--principal", "ops")
    second = run("upgrade", *place, "--allow", "inherit")
    record = json.loads(run("version", *place, "--json").stdout)["limiter"]

    assert "The kind 'inherit' would be allowed." in planned.stdout
    assert "The kind 'inherit' was allowed." in first.stdout
    assert "Everything is up to date." in second.stdout
    assert (["inherit"], "ops") == (list(record["kinds"]), record["updated_by"])


def test_upgrade_records_the_name_of_the_user(run, database, monkeypatch):
    """As every command that changes something does, unless --principal is given."""
    monkeypatch.setenv("LOGNAME", "alice")
    place = ("--url", f"sqlite:///{database}")
    run("upgrade", *place, "--allow", "inherit")

    assert "alice" == json.loads(run("version", *place, "--json").stdout)["limiter"]["updated_by"]


def test_version_shows_the_kinds_that_a_table_may_store(run, database):
    """They are the reason that an older client refuses it."""
    place = ("--url", f"sqlite:///{database}")
    before = run("version", *place).stdout
    run("upgrade", *place, "--allow", "inherit")

    assert "kind" not in before
    assert ["kind", "inherit", "inherit"] == run("version", *place).stdout.splitlines()[-1].split()


def test_upgrade_refuses_an_unknown_kind(run, database):
    """It would lock out every client."""
    done = run("upgrade", "--url", f"sqlite:///{database}", "--allow", "yaks")

    assert 2 == done.exit_code
    assert "inherit" in done.stderr


@pytest.fixture
def repo():
    with SyncRepository.open("memory://") as opened:
        yield opened


def dropped_by(repo, change):
    """Return the limits that a change really drops for gpt-4."""
    before = {limit.name for limit in repo.resolve_limits("user-1", "gpt-4").limits}
    change()
    return sorted(before - {limit.name for limit in repo.resolve_limits("user-1", "gpt-4").limits})


def test_names_below_an_entity_end_at_a_level_that_does_not_inherit(repo):
    """The limits of the entity for all resources are complete, so those of the system are not inherited."""
    repo.set_system_defaults([TPM])
    repo.set_limits("user-1", [RPM])
    repo.set_limits("user-1", [RPM, TPM], "gpt-4")
    told = dropped_names(of_entity(SyncRateLimiter(repo), "user-1", "gpt-4"), [RPM], inherit=True)

    assert ["tpm"] == told == dropped_by(repo, lambda: repo.set_limits("user-1", [RPM], "gpt-4", inherit=True))


def test_names_that_a_record_of_one_resource_inherits_may_be_dropped_for_all(repo):
    """The limits of the entity for the resource inherit through those for all resources."""
    repo.set_resource_defaults("gpt-4", [RPM, TPM])
    repo.set_limits("user-1", [RPM], "gpt-4", inherit=True)
    told = dropped_names(of_entity(SyncRateLimiter(repo), "user-1", "_default_"), [RPM], inherit=False)

    assert ["tpm"] == told == dropped_by(repo, lambda: repo.set_limits("user-1", [RPM]))
