"""Every command on a page can be given: it exists, its options exist, and required arguments are there."""

from contextlib import redirect_stderr
from io import StringIO

import click
import pytest

from tests.docs.pages import PAGES, calls, commands, named
from zae_limiter.cli import main


def fault(arguments: tuple[str, ...], *, in_prose: bool = False) -> str | None:
    """Return what the command line rejects in a call, without running it; None if nothing."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            _parse(main, "zae-limiter", list(arguments), None)
    except click.MissingParameter as missing:
        return None if in_prose else missing.format_message()
    except click.UsageError as wrong:
        return wrong.format_message()
    except click.exceptions.Exit as ended:
        # --help and --version exit with success; the outermost group has printed the error.
        return said.getvalue() if ended.exit_code else None
    return None


def _parse(command: click.Command, name: str, arguments: list[str], above: click.Context | None) -> None:
    """Parse a command's arguments, then those of its subcommand."""
    if isinstance(command, click.Group) and not arguments:
        # A group without a command shows its help.
        return
    with command.make_context(name, arguments, parent=above) as context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            found, member, below = command.resolve_command(context, rest)
            assert member is not None
            _parse(member, str(found), below, context)


WITH_COMMANDS = [page for page in PAGES if list(commands(page))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_every_command_of_a_page_can_be_given(page, monkeypatch):
    """As shown; in prose it may leave out required arguments."""
    monkeypatch.delenv("ZAE_LIMITER_URL", raising=False)
    shown = list(commands(page))
    faults = [(one.place, one.arguments, fault(one.arguments, in_prose=one.in_prose)) for one in shown]

    assert [] == [wrong for wrong in faults if wrong[2] is not None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("zae-limiter aquire user-1 gpt-4 -c rpm:1", "No such command 'aquire'"),
        ("zae-limiter acquire user-1 gpt-4 -c rpm:1 --colour red", "--colour"),
        ("zae-limiter acquire user-1 gpt-4", "--consume"),
        ("zae-limiter acquire user-1 -c rpm:1", "Missing argument 'RESOURCE'"),
        ("zae-limiter acquire user-1 gpt-4 -c rpm", "'rpm'"),
        ("zae-limiter local up --port many", "'many' is not a valid integer"),
        ("zae-limiter local fly", "No such command 'fly'"),
    ],
)
def test_command_that_cannot_be_given_is_found(line, message):
    """The check can fail: at the name, the option, a missing argument, and a value."""
    (arguments,) = calls(line)

    assert message in (fault(arguments) or "")


def test_command_in_prose_may_leave_out_arguments():
    """It still must exist."""
    assert fault(("acquire", "user-1"), in_prose=True) is None
    assert "No such command" in (fault(("aquire",), in_prose=True) or "")


def test_commands_in_scripts_are_found():
    """Among comments, pipes and substitutions, over several lines, but not as the name of something."""
    script = """
    zae-limiter status --json | jq .name        # zae-limiter none
    eval "$(zae-limiter local env --name my-app)" && zae-limiter list > file
    zae-limiter acquire user-1 gpt-4 \\
        -c rpm:1
    if A=b zae-limiter status; then pip install zae-limiter; fi
    aws cloudwatch list-metrics --namespace zae-limiter --region us-east-1
    """

    assert [
        ("local", "env", "--name", "my-app"),
        ("status", "--json"),
        ("list",),
        ("acquire", "user-1", "gpt-4", "-c", "rpm:1"),
        ("status",),
    ] == list(calls(script))
