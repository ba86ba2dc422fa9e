"""Options that several commands share: the default of --principal, and --no-cascade."""

import getpass

import pytest

from tests.cli.aws import printed_json
from zae_limiter.cli._options import user_name


def principals(run, *subject):
    """Return the authors of the changes of a subject, newest first."""
    return [event["principal"] for event in printed_json(run("audit", "list", *subject, "--json"))["events"]]


@pytest.fixture
def alice(monkeypatch):
    """The user is alice."""
    monkeypatch.setenv("LOGNAME", "alice")


def test_principal_defaults_to_the_name_of_the_user(run, alice):
    """The option overrides it."""
    run("entity", "create", "user-1")
    run("entity", "set-limits", "user-1", "-l", "rpm:5", "--principal", "pipeline-7")

    assert ["pipeline-7", "alice"] == principals(run, "user-1")


def test_principal_of_a_namespace_change_defaults_to_the_name_of_the_user(run, alice):
    """Namespace commands have an option of their own."""
    run("namespace", "register", "acme")

    assert ["alice"] == principals(run, "--of-namespace", "acme")


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("No username set"), ImportError("pwd")])
def test_principal_of_a_user_without_a_name_is_none(run, monkeypatch, error):
    """A container may run as a user id that is not in the password file."""

    def fail():
        raise error

    monkeypatch.setattr(getpass, "getuser", fail)
    done = run("entity", "create", "user-1")

    assert 0 == done.exit_code
    assert [None] == principals(run, "user-1")


@pytest.mark.parametrize("name", ["x" * 300, "a\udcffb"])
def test_user_name_that_cannot_be_recorded_is_none(monkeypatch, name):
    """The name is too long, or is not valid Unicode."""
    monkeypatch.setattr(getpass, "getuser", lambda: name)

    assert user_name() is None


@pytest.mark.parametrize(("flags", "cascade"), [([], False), (["--no-cascade"], False), (["--cascade"], True)])
def test_entity_create_does_not_cascade_unless_it_is_asked_to(run, flags, cascade):
    """A script can state either choice."""
    run("entity", "create", "project-1")
    made = printed_json(run("entity", "create", "key-1", "--parent", "project-1", *flags, "--json"))

    assert cascade == made["cascade"]


def test_entity_create_with_no_cascade_needs_no_parent(run):
    """Without a parent there is nothing to take from."""
    assert 0 == run("entity", "create", "user-1", "--no-cascade").exit_code
