"""What the pages for operators say is so: commands of AWS work, and every name on them is one there is.

Their programs, their links and the commands of this package are checked with those of all pages.
"""

import re
from pathlib import Path

import botocore.session
import click
import pytest
from botocore import xform_name

from tests.docs.operator_pages import DOCS, PAGES, commands, name_of
from tests.docs.pages import calls
from tests.docs.test_commands import fault
from zae_limiter.cli import main

# What belongs to other programs.
FLAGS_OF_OTHERS = {"--list", "--parameter-overrides", "--resources-to-skip", "--seed", "--tags"}
SESSION = botocore.session.Session()
# What the AWS command line adds to the calls themselves.
EVERYWHERE = {"query", "output", "region", "endpoint-url", "profile"}
OF_ITS_OWN = {
    ("cloudformation", "deploy"): {
        "template-file",
        "stack-name",
        "capabilities",
        "parameter-overrides",
        "tags",
        "role-arn",
        "no-execute-changeset",
    },
}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_an_item_of_a_list_begins_after_an_empty_line(page: Path) -> None:
    """Where the one before has paragraphs of its own: else the site puts it at the end of the last of them."""
    bare = re.sub(r"^( *)```.*?^\1```", "```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)

    assert [] == re.findall(r"^ {4}\S.*\n(?:- |\d+\. ).*", bare, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_session_that_is_shown_can_be_repeated(page: Path) -> None:
    """What stands after a prompt, above what it printed, can be given."""
    typed = re.findall(r"^ *\$ (zae-limiter .+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    faults = {line: fault(arguments) for line in typed for arguments in calls(line)}

    assert {} == {line: wrong for line, wrong in faults.items() if wrong is not None}


@pytest.mark.parametrize("words", commands("aws"))
def test_a_command_of_aws_exists_with_its_options(words: list[str]) -> None:
    """The options are the members of the call, as botocore knows it."""
    service, verb, *rest = words
    given = {word.removeprefix("--") for word in rest if word.startswith("--")} - EVERYWHERE
    known = OF_ITS_OWN.get((service, verb))
    if known is None:
        model = SESSION.get_service_model(service)
        (call,) = [name for name in model.operation_names if xform_name(name, "-") == verb]
        known = {xform_name(member, "-") for member in model.operation_model(call).input_shape.members}
        known |= {f"no-{member}" for member in known}

    assert given <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_flag_of_deploy_that_is_named_exists(page: Path) -> None:
    """Also where it stands alone in a sentence."""
    flags = {flag for command in _all(main) for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    named = re.findall(r"`(--[a-z-]+)(?: [^`]*)?`", page.read_text(encoding="utf-8"))
    mentioned = {flag for flag in named if flag not in FLAGS_OF_OTHERS}

    assert mentioned <= flags


def _all(command: click.Command) -> list[click.Command]:
    """A command and all below it."""
    if not isinstance(command, click.Group):
        return [command]
    context = click.Context(command)
    below = [command.get_command(context, name) for name in command.list_commands(context)]
    return [command, *(one for found_one in below if found_one is not None for one in _all(found_one))]


def test_there_are_pages() -> None:
    """Where they were moved, this looks in the wrong place."""
    assert len(PAGES) > len(list((DOCS / "operations").glob("*.md")))
