"""Define the command ``zae-limiter`` and its commands. The module of a command is loaded when it is called."""

import click

from zae_limiter.cli._help import examples, help_of, section
from zae_limiter.cli._lazy import LazyCommand, LazyGroup

COMMANDS = {
    "demo": LazyCommand("zae_limiter.cli.demo", "demo", "Watch the limiter work for 20 seconds."),
    "acquire": LazyCommand("zae_limiter.cli.acquire", "acquire", "Take tokens, or report when to retry."),
    "available": LazyCommand("zae_limiter.cli.available", "available", "Show the tokens left of each limit."),
    "system": LazyCommand("zae_limiter.cli.system", "system", "Manage the limits that apply by default."),
    "resource": LazyCommand("zae_limiter.cli.resource", "resource", "Manage the default limits of a resource."),
    "entity": LazyCommand("zae_limiter.cli.entity", "entity", "Manage entities, their limits and buckets."),
    "namespace": LazyCommand("zae_limiter.cli.namespace", "namespace", "Manage isolated parts of a limiter."),
    "audit": LazyCommand("zae_limiter.cli.audit", "audit", "Show who changed what, and when."),
    "usage": LazyCommand("zae_limiter.cli.usage", "usage", "Show usage by hour, day and month."),
    "backup": LazyCommand("zae_limiter.cli.backup", "backup_command", "Copy a SQLite store to a file."),
    "restore": LazyCommand(
        "zae_limiter.cli.backup", "restore_command", "Replace the content of a SQLite store with a backup."
    ),
    "deploy": LazyCommand("zae_limiter.cli.stack", "deploy", "Deploy a limiter to AWS."),
    "status": LazyCommand("zae_limiter.cli.stack", "status", "Show the status of a limiter."),
    "list": LazyCommand("zae_limiter.cli.stack", "list_deployed", "List the limiters of a region."),
    "delete": LazyCommand("zae_limiter.cli.stack", "delete", "Delete a limiter and all its data."),
    "version": LazyCommand("zae_limiter.cli.version", "version", "Show client, table and aggregator versions."),
    "check": LazyCommand("zae_limiter.cli.version", "check", "Check if this version is compatible with a limiter."),
    "upgrade": LazyCommand("zae_limiter.cli.version", "upgrade", "Upgrade a limiter to this version."),
    "cfn-template": LazyCommand("zae_limiter.cli.export", "cfn_template", "Print the CloudFormation template."),
    "lambda-export": LazyCommand(
        "zae_limiter.cli.export", "lambda_export", "Write the aggregator's package to a file."
    ),
    "local": LazyCommand("zae_limiter.cli.local", "local", "Run a local AWS for experiments."),
    "loadtest": LazyCommand("zae_limiter.cli.loadtest", "loadtest", "Run load tests, here or on AWS."),
    "completion": LazyCommand("zae_limiter.cli.completion", "completion", "Print a shell completion script."),
}


EXAMPLES = examples(
    "zae-limiter demo",
    "zae-limiter system set-defaults -l rpm:100 -l tpm:10k",
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c tpm:500 && call-the-model",
)
EXIT_CODES = section(
    "Exit codes",
    "0    done",
    "1    the command failed, or you declined; stderr has the reason",
    "2    the command or one of its arguments is invalid",
    "69   the store or AWS is unavailable or unusable",
    "75   too few tokens; stderr says when to retry",
    "77   the entity is blocked; stderr says why",
    "130  interrupted",
)
SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS, epilog=help_of(EXAMPLES, EXIT_CODES), context_settings=SETTINGS)
@click.version_option(None, "--version", package_name="zae-limiter", prog_name="zae-limiter")
def main() -> None:
    """Manage rate limits for LLM calls and APIs, stored in a SQLite file or on AWS and shared by all processes.

    Commands use the limiter on AWS that --name selects, or the file of --url or ZAE_LIMITER_URL
    (sqlite:///file.db). Without these they use a file in your data directory.
    """
