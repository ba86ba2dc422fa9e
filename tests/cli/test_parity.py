"""The command line covers the API: every admin method has a command, or a reason to have none."""

import inspect
import json
from typing import NamedTuple

import click
import pytest

from tests.cli.aws import printed_json
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.cli import main


class Step(NamedTuple):
    """A method and a call of its command. Earlier steps have prepared the store."""

    verb: str
    words: str


STORY = [
    Step("register_namespaces", "namespace register acme globex"),
    Step("register_namespace", "namespace register initech"),
    Step("list_namespaces", "namespace list"),
    Step("get_namespace", "namespace show acme"),
    Step("delete_namespace", "namespace delete acme"),
    Step("delete_namespace", "namespace delete globex"),
    Step("list_orphan_namespaces", "namespace orphans"),
    Step("recover_namespace", "namespace recover {acme}"),
    Step("set_system_defaults", "system set-defaults -l rpd:100/d --on-unavailable allow"),
    Step("get_system_defaults", "system get-defaults"),
    Step("set_resource_defaults", "resource set-defaults gpt-4 -l rpd:50/d"),
    Step("get_resource_defaults", "resource get-defaults gpt-4"),
    Step("list_resources_with_defaults", "resource list"),
    Step("create_entity", "entity create project-1 --metadata tier=gold"),
    Step("create_entity", "entity create key-1 --parent project-1 --cascade"),
    Step("create_entity", "entity create key-2 --parent project-1 --cascade --cascade-resource gpt-4"),
    Step("set_parent", "entity move key-2 --parent key-1"),
    Step("block_entity", "entity block key-1 --resource search --reason abuse --until 2999-01-01"),
    Step("block_entity", "entity block key-1 --resource search"),
    Step("set_bypass", "entity bypass key-1 --on"),
    Step("get_entity", "entity show key-1"),
    Step("get_entity", "entity show key-2"),
    Step("list_entities", "entity list --blocked"),
    Step("unblock_entity", "entity unblock key-1 --resource search"),
    Step("set_bypass", "entity bypass key-1 --off"),
    Step("set_parent", "entity move key-2 --no-parent"),
    Step("get_children", "entity children project-1"),
    Step("list_entities", "entity list"),
    Step("set_limits", "entity set-limits key-1 --resource gpt-4 -l rpd:10/d"),
    Step("set_limits", "entity set-limits project-1 --all-resources -l rpd:1000/d"),
    Step("get_limits", "entity get-limits key-1 --resource gpt-4"),
    Step("list_entities_with_custom_limits", "entity list --with-custom-limits gpt-4"),
    Step("list_resources_with_entity_configs", "entity list-resources"),
    Step("resolve_limits", "entity resolve key-1 gpt-4"),
    Step("resolve_limits", "entity resolve project-1 --all-resources"),
    Step("acquire", "acquire key-1 gpt-4 -c rpd:1"),
    Step("acquire", "acquire project-1 search -c rpd:1 --also key-1 gpt-4 rpd:1"),
    Step("available", "available key-1 gpt-4"),
    Step("get_buckets", "entity buckets key-1"),
    Step("get_buckets", "entity buckets project-1 --all-resources"),
    Step("get_balances", "entity balances project-1"),
    Step("get_resource_capacity", "resource capacity gpt-4 rpd"),
    Step("get_resource_capacity", "resource capacity --all-resources rpd"),
    Step("get_usage_snapshots", "usage list --entity key-1"),
    Step("get_usage_snapshots", "usage top"),
    Step("get_usage_summary", "usage summary --entity key-1"),
    Step("get_audit_events", "audit list key-1"),
    Step("get_audit_events", "audit list"),
    Step("get_status", "status"),
    Step("get_version_record", "version"),
    Step("delete_limits", "entity delete-limits key-1 --resource gpt-4 --yes"),
    Step("delete_entity", "entity delete key-1 --yes"),
    Step("delete_resource_defaults", "resource delete-defaults gpt-4 --yes"),
    Step("delete_system_defaults", "system delete-defaults --yes"),
    Step("purge_namespace", "namespace purge {globex} --yes"),
]

USERS_OWN = ("metadata", "details", "consumed", "available", "sources")
"""Keys whose values have keys that users chose."""

ON_AWS = {
    "ensure_infrastructure": "deploy",
    "create_stack": "deploy",
    "delete_stack": "delete",
    "list_deployed": "list",
}
"""Verbs whose commands need an AWS, and are run where there is one, in test_stack.py."""

WITHOUT_SHAPE = {"usage", "status", "version"}
"""Commands whose JSON has too many keys for their help; what they are is in the reference of the values."""

WITHOUT = {
    "open": "every command opens the store that --url names",
    "connect": "every command connects to the limiter that --name names",
    "builder": "deploy has an option for each choice of the builder",
    "namespace": "every data command takes --namespace",
    "close": "a command closes what it opened",
    "pace": "a loop over acquire --wait",
    "ping": "status tells whether the store answers",
    "is_available": "status tells whether the store answers",
    "time_until_available": "acquire tells when to try again, or waits with --wait",
    "get_cache_stats": "a command lives too short for its cache to matter",
    "invalidate_config_cache": "a command reads limits afresh",
}


def public_verbs():
    """Return every public method of a repository and of a limiter."""
    return {
        name
        for kind in (SyncRepository, SyncRateLimiter)
        for name, _ in inspect.getmembers(kind, inspect.isroutine)
        if not name.startswith("_")
    }


def find(words):
    """Return the command that the words call, and how many of the words are its name."""
    command, context = main, click.Context(main)
    for count, word in enumerate(words, 1):
        found = command.get_command(context, word)
        assert found is not None, words
        command = found
        if not isinstance(command, click.Group):
            return command, count
    raise AssertionError(words)


def options_of(command):
    """Return the long and short options of a command."""
    return {name for parameter in command.params for name in parameter.opts}


def keys_of(value):
    """Return all keys of a JSON value at any depth, except those that users chose."""
    if isinstance(value, list):
        return {key for one in value for key in keys_of(one)}
    if not isinstance(value, dict):
        return set()
    inside = [keys_of(one) for key, one in value.items() if key not in USERS_OWN]
    return set(value).union(*inside)


def test_every_api_method_has_a_command_or_a_reason_to_have_none():
    """A new method fails here until it has a command, or a listed reason to have none."""
    listed = [*{step.verb for step in STORY}, *ON_AWS, *WITHOUT]

    assert sorted(public_verbs()) == sorted(listed)


@pytest.mark.parametrize("step", STORY, ids=lambda step: step.words)
def test_a_command_has_a_principal_option_if_its_method_takes_a_principal(step):
    """The audit records who made a change, also on the command line."""
    verb = getattr(SyncRateLimiter, step.verb)
    command, _ = find(step.words.split())

    assert ("principal" in inspect.signature(verb).parameters) == ("--principal" in options_of(command))


@pytest.mark.parametrize("words", ON_AWS.values())
def test_methods_that_need_aws_have_a_command(words):
    """The commands are run in test_stack.py."""
    assert isinstance(find([words])[0], click.Command)


def test_every_command_prints_the_json_keys_that_its_help_documents(run):
    """All commands run in turn on one file. Keys that users chose are exempt."""
    ids, undocumented = {}, []
    for step in STORY:
        words = step.words.format(**ids).split()
        _, count = find(words)
        printed = printed_json(run(*words, "--json"))
        shape = run(*words[:count], "--help").stdout.partition("JSON:")[2]
        if step.verb.startswith("register_namespace"):
            ids |= printed
        elif shape or words[0] not in WITHOUT_SHAPE:
            undocumented += [(step.words, key) for key in sorted(keys_of(printed)) if key not in shape]

    assert [] == undocumented


def test_every_command_prints_text_without_json(run):
    """Without --json, every command prints a table or a sentence, and no Python values."""
    ids = {}
    for step in STORY:
        words = step.words.format(**ids).split()
        if step.verb.startswith("register_namespace"):
            ids |= json.loads(run(*words, "--json").stdout)
        done = run(*words)

        assert (0, True) == (done.exit_code, bool(done.stdout)), (step, done.stderr)
        assert not any(mark in done.stdout for mark in ("None", "{", "<")), done.stdout
