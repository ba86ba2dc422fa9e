"""The command ``zae-limiter``: what commands there are, and the modules they are in, each loaded when called."""

import click

from zae_limiter.cli._help import examples, help_of, section
from zae_limiter.cli._lazy import LazyCommand, LazyGroup

COMMANDS = {
    "demo": LazyCommand("zae_limiter.cli.demo", "demo", "Watch the limiter at work, for twenty seconds."),
    "acquire": LazyCommand("zae_limiter.cli.acquire", "acquire", "Take tokens, or say when to try again."),
    "available": LazyCommand("zae_limiter.cli.available", "available", "Show what is left of each limit."),
    "system": LazyCommand("zae_limiter.cli.system", "system", "Limits of everyone who has no others."),
    "resource": LazyCommand("zae_limiter.cli.resource", "resource", "Limits of everyone for one resource."),
    "entity": LazyCommand("zae_limiter.cli.entity", "entity", "Who takes tokens, their limits and buckets."),
    "namespace": LazyCommand(
        "zae_limiter.cli.namespace", "namespace", "Parts of a limiter that know nothing of each other."
    ),
    "audit": LazyCommand("zae_limiter.cli.audit", "audit", "Who changed what, and when."),
    "usage": LazyCommand("zae_limiter.cli.usage", "usage", "What was used, by hour, day and month."),
    "backup": LazyCommand("zae_limiter.cli.backup", "backup_command", "Copy a SQLite store to a file."),
    "restore": LazyCommand(
        "zae_limiter.cli.backup", "restore_command", "Replace the content of a SQLite store by a backup."
    ),
    "deploy": LazyCommand("zae_limiter.cli.stack", "deploy", "Deploy a limiter to AWS."),
    "status": LazyCommand("zae_limiter.cli.stack", "status", "Show how a limiter is."),
    "list": LazyCommand("zae_limiter.cli.stack", "list_deployed", "List the limiters of a region."),
    "delete": LazyCommand("zae_limiter.cli.stack", "delete", "Delete a limiter and all its data."),
    "version": LazyCommand("zae_limiter.cli.version", "version", "Show the versions here and there."),
    "check": LazyCommand("zae_limiter.cli.version", "check", "Check that this installation goes with a limiter."),
    "upgrade": LazyCommand("zae_limiter.cli.version", "upgrade", "Upgrade a limiter to this installation."),
    "cfn-template": LazyCommand("zae_limiter.cli.stack", "cfn_template", "Print the CloudFormation template."),
    "lambda-export": LazyCommand("zae_limiter.cli.stack", "lambda_export", "Write the aggregator's package to a file."),
    "local": LazyCommand("zae_limiter.cli.local", "local", "An AWS on this machine, to try things out."),
    "completion": LazyCommand("zae_limiter.cli.completion", "completion", "Print what completes commands in a shell."),
}


EXAMPLES = examples(
    "zae-limiter demo",
    "zae-limiter system set-defaults -l rpm:100 -l tpm:10000",
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c tpm:500 && call-the-model",
)
EXIT_CODES = section(
    "Exit codes",
    "0    done",
    "1    it could not be done, or you said no; why is on stderr",
    "2    something is wrong with the command, or with what it names",
    "69   the store or AWS cannot be reached or used",
    "75   too few tokens; when to try again is on stderr",
    "130  interrupted",
)
SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS, epilog=help_of(EXAMPLES, EXIT_CODES), context_settings=SETTINGS)
@click.version_option(None, "--version", package_name="zae-limiter", prog_name="zae-limiter")
def main() -> None:
    """Rate limits for LLM calls and APIs, kept in a SQLite file or on AWS, that any number of processes share.

    Commands work on the limiter on AWS that --name names, or on the file that --url or ZAE_LIMITER_URL names
    (sqlite:///file.db), else on one of your own.
    """
