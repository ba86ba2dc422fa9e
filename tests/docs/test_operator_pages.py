"""AWS commands on the pages for operators exist, and so does every name on them.

Their programs, links and commands of this package are checked with those of all pages.
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

# These belong to other programs.
FLAGS_OF_OTHERS = {"--host", "--list", "--parameter-overrides", "--resources-to-skip", "--seed", "--tags"}
SESSION = botocore.session.Session()
# Options that the AWS command line adds to the calls.
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
def test_list_item_after_paragraphs_begins_after_an_empty_line(page: Path) -> None:
    """Otherwise the site appends it to the last paragraph."""
    bare = re.sub(r"^( *)```.*?^\1```", "```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)

    assert [] == re.findall(r"^ {4}\S.*\n(?:- |\d+\. ).*", bare, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_of_a_session_can_be_given(page: Path) -> None:
    """What is after a prompt, above its output."""
    typed = re.findall(r"^ *\$ (zae-limiter .+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    faults = {line: fault(arguments) for line in typed for arguments in calls(line)}

    assert {} == {line: wrong for line, wrong in faults.items() if wrong is not None}


@pytest.mark.parametrize("words", commands("aws"))
def test_aws_command_exists_with_its_options(words: list[str]) -> None:
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
def test_deploy_flag_in_a_sentence_exists(page: Path) -> None:
    """Also without its command."""
    flags = {flag for command in _all(main) for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    named = re.findall(r"`(--[a-z-]+)(?: [^`]*)?`", page.read_text(encoding="utf-8"))
    mentioned = {flag for flag in named if flag not in FLAGS_OF_OTHERS}

    assert mentioned <= flags


def _all(command: click.Command) -> list[click.Command]:
    """Yield a command and all its subcommands."""
    if not isinstance(command, click.Group):
        return [command]
    context = click.Context(command)
    below = [command.get_command(context, name) for name in command.list_commands(context)]
    return [command, *(one for found_one in below if found_one is not None for one in _all(found_one))]


def test_operator_pages_exist() -> None:
    """If they were moved, these tests would check nothing."""
    assert len(PAGES) > len(list((DOCS / "operations").glob("*.md")))
