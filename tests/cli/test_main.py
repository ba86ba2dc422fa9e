"""The command as a whole: help, versions, failures, and what is loaded when."""

import subprocess
import sys

import click
import pytest

import zae_limiter
from zae_limiter.cli import COMMANDS, main
from zae_limiter.cli._failures import failure_of, told_in_one_line
from zae_limiter.core.errors import EntityNotFoundError, RateLimiterUnavailable, StorageError


def every_command(command=main, path=()):
    """Every command and group, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


# Commands on other things than the data of a limiter, or on all of it.
NOT_ON_DATA = {
    "backup",
    "restore",
    "completion",
    "local",
    "deploy",
    "delete",
    "status",
    "list",
    "cfn-template",
    "lambda-export",
    "version",
    "check",
    "upgrade",
}


class TestHelp:
    @pytest.mark.parametrize("path", [path for path, _ in every_command()], ids=" ".join)
    def test_every_help_shows_an_example(self, run, path):
        """A line that can be copied says more than a list of options, and it fits a terminal."""
        told = run(*path, "--help").stdout

        assert f"  {' '.join(('zae-limiter', *path))}" in told.partition("Example")[2]
        assert max(len(line) for line in told.splitlines()) <= 100

    @pytest.mark.parametrize("name", COMMANDS)
    def test_the_summary_is_that_of_the_command(self, name):
        """The list of commands, which loads none, says what they say."""
        assert COMMANDS[name].summary == COMMANDS[name].load().get_short_help_str(100)

    def test_data_commands_take_a_name_or_a_url_a_namespace_and_json(self):
        """Wherever data is printed it can be JSON, and wherever it is read its place can be chosen."""
        lacking = [
            (path, option)
            for path, command in every_command()
            for option in ("--name", "--region", "--endpoint-url", "--url", "--namespace", "--json")
            if not isinstance(command, click.Group) and (path, option) != (("demo",), "--json")
            if path[0] not in NOT_ON_DATA and (path[0], option) != ("namespace", "--namespace")
            if option not in {name for parameter in command.params for name in parameter.opts}
        ]

        assert [] == lacking

    def test_the_version_is_the_packages(self, run):
        """As pip knows it."""
        assert f"zae-limiter, version {zae_limiter.__version__}\n" == run("--version").stdout

    def test_help_loads_no_command_no_limiter_no_database_no_client_and_no_rich(self):
        """Asking what there is costs next to nothing."""
        libraries = ("rich", "sqlite3", "asyncio", "botocore", "zae_limiter._async", "zae_limiter._sync")
        heavy = (*libraries, *{command.module for command in COMMANDS.values()})
        script = (
            "import sys\nfrom zae_limiter.cli import main\nmain(['--help'], standalone_mode=False)\n"
            f"print('loaded:', *[name for name in {heavy!r} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert "Commands:" in done.stdout
        assert "loaded:" == done.stdout.splitlines()[-1]

    def test_the_help_of_data_commands_loads_no_limiter_either(self):
        """It is opened when it is needed; completion, too, loads a group at every press of a key."""
        heavy = ("rich", "sqlite3", "asyncio", "botocore", "zae_limiter._async", "zae_limiter._sync")
        groups = ("acquire", "available", "system", "resource", "entity", "namespace", "audit")
        script = (
            f"import sys\nfrom zae_limiter.cli import COMMANDS\nfor name in {groups!r}: COMMANDS[name].load()\n"
            f"print('loaded:', *[name for name in {heavy!r} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert "loaded:\n" == done.stdout

    def test_it_runs_as_a_module(self, shell):
        """python -m zae_limiter is the command."""
        done = shell("--help")

        assert (0, "Usage: zae-limiter [OPTIONS] COMMAND [ARGS]...") == (done.returncode, done.stdout.splitlines()[0])


class TestFailures:
    @pytest.mark.parametrize("arguments", [("bogus",), ("--bogus",), ("system", "bogus"), ("acquire", "--bogus")])
    def test_a_mistyped_word_is_one_line_that_leads_to_the_help(self, run, arguments):
        """Usage is at hand, and not in the way."""
        done = run(*arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert done.stderr.rstrip().endswith("--help")

    @pytest.mark.parametrize("arguments", [(), ("system",)])
    def test_a_group_without_a_command_shows_its_help(self, run, arguments):
        """What else could it do."""
        assert "Commands:" in run(*arguments).output

    @pytest.mark.parametrize(
        ("error", "line", "code"),
        [
            (RateLimiterUnavailable(None), "Error: the store is unavailable: it did not answer. Retry later.", 69),
            (StorageError("x.db", "it is odd."), "Error: Cannot use x.db: it is odd.", 69),
            (EntityNotFoundError("u"), "Error: there is no entity 'u'; create it: zae-limiter entity create u", 1),
        ],
    )
    def test_every_error_of_the_package_has_a_line_and_an_exit_code(self, error, line, code):
        """Scripts tell them apart by the code, people by the line."""
        assert (line, code) == failure_of(error)

    def test_an_interrupt_is_quiet_and_exit_code_130(self, capsys):
        """As shells know it."""
        with pytest.raises(click.exceptions.Exit) as caught, told_in_one_line():
            raise KeyboardInterrupt

        assert (130, ("", "")) == (caught.value.exit_code, tuple(capsys.readouterr()))

    def test_what_nobody_foresaw_keeps_its_traceback(self):
        """A fault of ours is not made to look like the user's."""
        with pytest.raises(ZeroDivisionError), told_in_one_line():
            _ = 1 // 0
