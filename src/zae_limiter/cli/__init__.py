"""The command ``zae-limiter``: what commands there are, and the modules they are in, each loaded when called."""

import click

from zae_limiter.cli._help import examples
from zae_limiter.cli._lazy import LazyCommand, LazyGroup

COMMANDS = {
    "demo": LazyCommand("zae_limiter.cli.demo", "demo", "Watch the limiter at work, for twenty seconds."),
    "acquire": LazyCommand("zae_limiter.cli.acquire", "acquire", "Take tokens, or say when to try again."),
    "available": LazyCommand("zae_limiter.cli.available", "available", "Show what is left of each limit."),
    "system": LazyCommand("zae_limiter.cli.system", "system", "Limits of everyone who has no others."),
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
}


EXAMPLES = examples(
    "zae-limiter demo",
    "zae-limiter system set-defaults -l rpm:100 -l tpm:10000",
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c tpm:500 && call-the-model",
)
SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS, epilog=EXAMPLES, context_settings=SETTINGS)
@click.version_option(None, "--version", package_name="zae-limiter", prog_name="zae-limiter")
def main() -> None:
    """Rate limits for LLM calls and APIs, kept in a SQLite file that any number of processes share.

    Data is kept in the file that --url or ZAE_LIMITER_URL names (sqlite:///file.db), else in one of your own.
    """
