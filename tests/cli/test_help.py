"""The help of a command says what it does, as an order."""

import click
import pytest

from tools.cli_reference import entries

COMMANDS = {one.title: one.command for one in entries()}
IMPERATIVES = frozenset(
    {
        "Add",
        "Block",
        "Check",
        "Copy",
        "Create",
        "Credit",
        "Delete",
        "Deploy",
        "Find",
        "List",
        "Manage",
        "Move",
        "Print",
        "Register",
        "Remove",
        "Replace",
        "Reset",
        "Restore",
        "Run",
        "Set",
        "Show",
        "Start",
        "Stop",
        "Take",
        "Unblock",
        "Upgrade",
        "Upload",
        "Watch",
        "Write",
    }
)


def first_words(command: click.Command) -> list[str]:
    """Return the first word of the help of a command, and of its line in the list of its group."""
    return [text.split()[0] for text in (command.help, command.short_help) if text]


@pytest.mark.parametrize("title", COMMANDS)
def test_help_of_a_command_begins_with_an_imperative(title):
    """Add a verb to the list if it is one that a user understands at once."""
    words = first_words(COMMANDS[title])

    assert words
    assert [] == [word for word in words if word not in IMPERATIVES]


def test_every_imperative_of_the_list_is_used():
    """The list stays as short as the help needs."""
    used = {word for command in COMMANDS.values() for word in first_words(command)}

    assert IMPERATIVES == used


def test_help_that_begins_with_a_noun_is_found():
    """The check can fail."""
    command = click.Command("status", help="The status of a limiter.", short_help="Shows the status.")

    assert ["The", "Shows"] == first_words(command)
    assert not IMPERATIVES.intersection(first_words(command))
