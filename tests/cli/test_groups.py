"""Groups of commands: suggestions for mistyped names, aliases, and rules for all deletions."""

import click
import pytest

from tests.cli.aws import invoke, printed_json
from tests.cli.test_main import every_command
from zae_limiter.cli import main

GROUPS = [(path, command) for path, command in every_command() if isinstance(command, click.Group)]
ALIASES = [(path, alias, name) for path, group in GROUPS for alias, name in group.aliases.items()]
DELETING = ("delete", "delete-limits", "delete-defaults", "purge", "restore")
FINAL = {
    ("system", "delete-defaults"): "",
    ("resource", "delete-defaults"): "gpt-4",
    ("entity", "delete"): "user-1",
    ("entity", "delete-limits"): "user-1 --resource gpt-4",
    ("namespace", "purge"): "{deleted}",
}
"""Deletions that cannot be undone, and their arguments."""
ELSEWHERE = {
    ("delete",): "test_stack.py",
    ("restore",): "test_backup.py",
    ("loadtest", "delete"): "loadtest/test_load_commands.py",
}
RECOVERABLE = {("namespace", "delete"): "test_namespace.py"}


class TestSuggestions:
    @pytest.mark.parametrize(("path", "group"), GROUPS, ids=[" ".join(path) for path, _ in GROUPS])
    def test_a_mistyped_command_of_every_group_is_suggested(self, path, group):
        """The last letter of the first command is missing."""
        name = group.list_commands(click.Context(group))[0]
        done = invoke(*path, name[:-1])

        words = " ".join(("zae-limiter", *path))
        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert done.stderr.startswith(f"Error: No such command {name[:-1]!r}. Did you mean ")
        assert f"{name!r}" in done.stderr
        assert done.stderr.endswith(f"? See: {words} --help\n")

    @pytest.mark.parametrize(
        ("words", "suggested"),
        [
            ("namesapce list", "Did you mean 'namespace'?"),
            ("STATUS", "Did you mean 'status'?"),
            ("set-limits user-1", "Did you mean 'entity set-limits'?"),
            ("set-default", "Did you mean 'system set-defaults' or 'resource set-defaults'?"),
            ("entity limits", "Did you mean 'set-limits', 'get-limits' or 'delete-limits'?"),
            ("entity gett", "Did you mean 'get'"),
            ("namespace crate", "Did you mean 'create'"),
        ],
    )
    def test_a_mistyped_command_suggests_the_most_similar_commands(self, words, suggested):
        """Outside of its group, a command is suggested with the name of the group."""
        assert suggested in invoke(*words.split()).stderr

    def test_a_word_that_resembles_no_command_gets_no_suggestion(self):
        """The help lists the commands."""
        assert "Error: No such command 'xyzzy'. See: zae-limiter --help\n" == invoke("xyzzy").stderr

    @pytest.mark.parametrize(
        ("words", "suggested"),
        [
            ("entity create user-1 --parnt project-1", "--parent"),
            ("acquire user-1 gpt-4 --comsume rpm:1", "--consume"),
            ("system delete-defaults --yess", "--yes"),
            ("--versoin", "--version"),
            ("entity --hlp", "--help"),
        ],
    )
    def test_a_mistyped_option_suggests_the_most_similar_option(self, words, suggested):
        """This applies to options of commands and of groups."""
        done = invoke(*words.split())

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert f"Did you mean {suggested!r}?" in done.stderr

    @pytest.mark.parametrize("words", ["--name my-app status", "entity --url memory:// show user-1"])
    def test_an_option_before_its_command_is_an_error_that_says_where_it_belongs(self, words):
        """Only --help and --version come before a command."""
        done = invoke(*words.split())

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "before the command; pass options after it." in done.stderr


class TestAliases:
    def test_the_aliases_are_those_of_show_and_register(self):
        """A new alias needs a reason: two names for one command are more to learn."""
        assert [(("entity",), "get", "show"), (("namespace",), "create", "register")] == ALIASES

    @pytest.mark.parametrize(("path", "alias", "name"), ALIASES)
    def test_an_alias_calls_the_command_and_is_listed_once(self, path, alias, name):
        """The list shows it beside the command. The help has the words that were typed."""
        group = dict(GROUPS)[path]
        context = click.Context(group)

        assert group.get_command(context, name) is group.get_command(context, alias)
        assert alias not in group.list_commands(context)
        assert 1 == invoke(*path, "--help").stdout.count(f"(alias: {alias})")
        assert invoke(*path, alias, "--help").stdout.startswith(f"Usage: zae-limiter {' '.join(path)} {alias} ")

    def test_entity_get_prints_the_same_as_entity_show(self, run):
        """Both names accept the same options."""
        run("entity", "create", "user-1")

        assert run("entity", "show", "user-1", "--json").stdout == run("entity", "get", "user-1", "--json").stdout

    def test_namespace_create_registers_a_namespace(self, run):
        """Registering it again returns the same id."""
        assert run("namespace", "create", "acme").stdout == run("namespace", "register", "acme").stdout


def test_every_deletion_has_a_yes_option():
    """A script can confirm every deletion."""
    deleting = [(path, command) for path, command in every_command(main) if path and path[-1] in DELETING]
    lacking = [path for path, command in deleting if not {"--yes", "-y"} <= options_of(command)]

    assert set(DELETING) == {path[-1] for path, _ in deleting}
    assert [] == lacking


def test_every_deletion_is_final_or_recoverable():
    """Each one has a test of what it does without a terminal, here or elsewhere."""
    deleting = {path for path, _ in every_command(main) if path and path[-1] in DELETING}

    assert deleting == {*FINAL, *ELSEWHERE, *RECOVERABLE}


@pytest.mark.parametrize("path", FINAL, ids=" ".join)
def test_final_deletion_without_a_terminal_exits_with_2_and_deletes_nothing(run, path):
    """A script has to confirm with --yes. The command says so in one line."""
    run("system", "set-defaults", "-l", "rpm:5")
    run("resource", "set-defaults", "gpt-4", "-l", "rpm:5")
    run("entity", "create", "user-1")
    run("entity", "set-limits", "user-1", "--resource", "gpt-4", "-l", "rpm:5")
    run("namespace", "register", "acme")
    run("namespace", "delete", "acme")
    (orphan,) = printed_json(run("namespace", "orphans", "--json"))
    words = [*path, *FINAL[path].format(deleted=orphan["id"]).split()]
    refused = run(*words)

    see = f"See: zae-limiter {' '.join(path)} --help"
    assert f"Error: cannot ask without a terminal; pass --yes to delete it. {see}\n" == refused.stderr
    assert (2, "") == (refused.exit_code, refused.stdout)
    assert run(*words, "--yes").stdout.startswith(("Deleted", "Removed"))


@pytest.mark.parametrize("name", ["set-limits", "get-limits", "delete-limits", "buckets"])
def test_limit_commands_of_an_entity_accept_r_for_resource(name):
    """The option has the same short form as in the usage commands."""
    group = dict(GROUPS)[("entity",)]

    assert {"--resource", "-r"} <= options_of(group.commands[name])


def options_of(command):
    """Return the long and short options of a command."""
    return {name for parameter in command.params for name in parameter.opts}
