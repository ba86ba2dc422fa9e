"""The whole command: help, versions, failures, and which modules are imported."""

import subprocess
import sys

import click
import pytest

import zae_limiter
from zae_limiter.cli import COMMANDS, main
from zae_limiter.cli._failures import failure_of, told_in_one_line
from zae_limiter.core.errors import EntityNotFoundError, RateLimiterUnavailable, StorageError
from zae_limiter.core.version_errors import KindNotAllowedError


def every_command(command=main, path=()):
    """Return every command and group, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


# Commands that do not work on the data of a limiter, or that work on all of it.
NOT_ON_DATA = {
    "demo",
    "backup",
    "restore",
    "completion",
    "local",
    "loadtest",
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
    def test_every_help_text_shows_an_example_that_fits_a_terminal(self, run, path):
        """Every example can be copied."""
        printed = run(*path, "--help").stdout

        assert f"  {' '.join(('zae-limiter', *path))}" in printed.partition("Example")[2]
        assert max(len(line) for line in printed.splitlines()) <= 100

    @pytest.mark.parametrize("name", COMMANDS)
    def test_the_command_list_shows_the_summary_of_each_command(self, name):
        """The list is printed without importing the commands."""
        assert COMMANDS[name].summary == COMMANDS[name].load().get_short_help_str(100)

    def test_data_commands_accept_name_url_namespace_and_json(self):
        """Data can be printed as JSON, and its location can be chosen, in every command."""
        lacking = [
            (path, option)
            for path, command in every_command()
            for option in ("--name", "--region", "--endpoint-url", "--url", "--namespace", "--json")
            if not isinstance(command, click.Group)
            if path[0] not in NOT_ON_DATA and (path[0], option) != ("namespace", "--namespace")
            if option not in {name for parameter in command.params for name in parameter.opts}
        ]

        assert [] == lacking

    def test_version_option_prints_the_package_version(self, run):
        """It is the version that pip reports."""
        assert f"zae-limiter, version {zae_limiter.__version__}\n" == run("--version").stdout

    def test_help_imports_no_command_limiter_database_client_or_rich(self):
        """Printing the help is fast."""
        libraries = ("rich", "sqlite3", "asyncio", "botocore", "zae_limiter._async", "zae_limiter._sync")
        heavy = (*libraries, *{command.module for command in COMMANDS.values()})
        script = (
            "import sys\nfrom zae_limiter.cli import main\nmain(['--help'], standalone_mode=False)\n"
            f"print('loaded:', *[name for name in {heavy!r} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert "Commands:" in done.stdout
        assert "loaded:" == done.stdout.splitlines()[-1]

    def test_the_help_of_data_commands_imports_no_limiter(self):
        """The limiter is imported when it is needed. Shell completion loads a group at every key press."""
        heavy = ("rich", "sqlite3", "asyncio", "botocore", "zae_limiter._async", "zae_limiter._sync")
        groups = ("acquire", "available", "system", "resource", "entity", "namespace", "audit", "deploy", "status")
        script = (
            f"import sys\nfrom zae_limiter.cli import COMMANDS\nfor name in {groups!r}: COMMANDS[name].load()\n"
            f"print('loaded:', *[name for name in {heavy!r} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert "loaded:\n" == done.stdout

    def test_python_m_zae_limiter_runs_the_command(self, shell):
        """`python -m zae_limiter` is the command."""
        done = shell("--help")

        assert (0, "Usage: zae-limiter [OPTIONS] COMMAND [ARGS]...") == (done.returncode, done.stdout.splitlines()[0])


class TestFailures:
    @pytest.mark.parametrize("arguments", [("bogus",), ("--bogus",), ("system", "bogus"), ("acquire", "--bogus")])
    def test_a_mistyped_argument_prints_one_line_that_names_the_help(self, run, arguments):
        """The full usage text is not printed."""
        done = run(*arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert done.stderr.rstrip().endswith("--help")

    @pytest.mark.parametrize("arguments", [(), ("system",)])
    def test_a_group_without_a_command_shows_its_help(self, run, arguments):
        """The help lists the commands of the group."""
        assert "Commands:" in run(*arguments).output

    @pytest.mark.parametrize(
        ("error", "line", "code"),
        [
            (RateLimiterUnavailable(None), "Error: the store is unavailable: it did not answer. Retry later.", 69),
            (StorageError("x.db", "it is odd."), "Error: Cannot use x.db: it is odd.", 69),
            (
                KindNotAllowedError("blocks"),
                (
                    "Error: the table does not allow items of the kind 'blocks' yet; update all clients, then run: "
                    "zae-limiter upgrade --allow blocks"
                ),
                1,
            ),
            (EntityNotFoundError("u"), "Error: there is no entity 'u'; create it: zae-limiter entity create u", 1),
        ],
    )
    def test_every_package_error_has_a_message_and_an_exit_code(self, error, line, code):
        """Scripts read the exit code; people read the line."""
        assert (line, code) == failure_of(error)

    def test_an_interrupt_prints_one_line_and_exits_with_130(self, capsys):
        """130 is the exit code that shells use for Ctrl-C."""
        with pytest.raises(click.exceptions.Exit) as caught, told_in_one_line():
            raise KeyboardInterrupt

        assert (130, ("", "Interrupted.\n")) == (caught.value.exit_code, tuple(capsys.readouterr()))

    def test_an_unexpected_error_keeps_its_traceback(self):
        """A bug of the package is not shown as a mistake of the user."""
        with pytest.raises(ZeroDivisionError), told_in_one_line():
            _ = 1 // 0
