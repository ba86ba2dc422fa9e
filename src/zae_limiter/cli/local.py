"""Define ``zae-limiter local``: run a local AWS for experiments."""

import os
import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._failures import UNAVAILABLE
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, section
from zae_limiter.cli._options import json_option, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import Command
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.local_endpoint import STORE_VARIABLE, local_variables
from zae_limiter.core.names import check_stack_name
from zae_limiter.infra.local import (
    DEFAULT_PORT,
    DEFAULT_REGION,
    LocalAws,
    LocalStatus,
    Wanted,
    default_directory,
    default_server,
    environment_of,
    session_of,
)
from zae_limiter.infra.local_container import IMAGE
from zae_limiter.infra.local_files import Server

UP = ("zae-limiter local up", "zae-limiter local up --name my-app", "zae-limiter local up --docker")
ENV = (
    'eval "$(zae-limiter local env)"',
    'eval "$(zae-limiter local env --name my-app)"',
    'eval "$(zae-limiter local env --unset)"',
)
FOLLOW = "zae-limiter local logs --follow"
STATUS_CODES = section("Exit codes", "0   it is running and answers", "69  it is not running, or does not answer")
STATUS_HELP = f"{examples('zae-limiter local status --json')}\n\n{STATUS_CODES}"
ROWS = [("endpoint", "endpoint_url"), ("region", "region"), ("started", "started_at"), ("directory", "directory")]

# Variables that would select other credentials, or sign with a token that is unknown here.
MISLEADING = ("AWS_PROFILE", "AWS_SESSION_TOKEN")

DEPLOY_S = 30.0


@dataclass(frozen=True, slots=True)
class Shown:
    """The printed facts about a local AWS."""

    status: LocalStatus | None
    directory: Path

    def as_dict(self) -> dict[str, object]:
        """Return the facts, ready for JSON."""
        if self.status is None:
            return {"running": False, "directory": str(self.directory)}
        server = self.status.server
        return {
            "running": True,
            "answers": self.status.answers,
            "endpoint_url": server.endpoint_url,
            "region": server.region,
            "kind": server.kind,
            "pid": self.status.pid,
            "container": server.container,
            "started_at": server.started_at,
            "directory": str(self.directory),
        }


@click.group(cls=CommandGroup, short_help="Run a local AWS for experiments.", epilog=examples(*UP[:2], ENV[0], FOLLOW))
def local() -> None:
    """Run a local AWS for experiments: CloudFormation, DynamoDB, streams, Lambda, S3.

    It runs in the background, without docker, and keeps its state for the next start.
    """


def local_option(command: Command) -> Command:
    """Add ``--directory``; the command takes the local AWS in it as ``aws``."""

    @click.option(
        "--directory",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="ZAE_LIMITER_LOCAL_DIR",
        show_envvar=True,
        help="Directory of its data, log and pid file. Default: your state directory.",
    )
    @wraps(command)
    def with_aws(*, directory: Path | None, **others: Any) -> None:
        command(aws=LocalAws(directory or default_directory()), **others)

    return with_aws


def wanted_options(command: Command) -> Command:
    """Add the options of the server; the command takes them as ``wanted``."""

    @click.option(
        "--port", type=click.IntRange(1, 65535), metavar="PORT", help=f"Port to listen on.  [default: {DEFAULT_PORT}]"
    )
    @click.option("--region", metavar="REGION", help=f"Region to simulate.  [default: {DEFAULT_REGION}]")
    @click.option("--docker", "in_docker", is_flag=True, help="Run it in a container.")
    @click.option("--image", metavar="IMAGE", help=f"LocalStack-compatible image.  [default: {IMAGE}]")
    @wraps(command)
    def with_wanted(*, port: int | None, region: str | None, in_docker: bool, image: str | None, **others: Any) -> None:
        if image is not None and not in_docker:
            raise click.UsageError("--image requires --docker", click.get_current_context())
        command(wanted=Wanted(port, region, image, in_docker), **others)

    return with_wanted


@local.command(short_help="Start the local AWS.", epilog=examples(*UP))
@click.option("--name", "-n", metavar="NAME", help="Also deploy a limiter with this name.")
@wanted_options
@json_option
@local_option
def up(aws: LocalAws, wanted: Wanted, name: str | None, as_json: bool) -> None:
    """Start the local AWS in the background and wait until it answers. A running server is not restarted."""
    from zae_limiter.cli._deploying import steps_shown

    if name is not None:
        check_stack_name(name, "name")
    with steps_shown("Starting the local AWS") as hear:
        started = aws.up(wanted, hear)
    if name is not None:
        with working(f"Deploying {name}") as say:
            deploy(name, started.server, say)
    print_status(Shown(started, aws.directory), as_json)
    if not as_json:
        suffix = "" if name is None else f" --name {name}"
        print_note(f'To use it in this shell: eval "$(zae-limiter local env{suffix})"')


@local.command(
    short_help="Stop the local AWS.", epilog=examples("zae-limiter local down", "zae-limiter local down --wipe --yes")
)
@click.option("--wipe", is_flag=True, help="Delete its state.")
@yes_option
@json_option
@local_option
def down(aws: LocalAws, wipe: bool, yes: bool, as_json: bool) -> None:
    """Stop the local AWS. Its state is kept for the next start."""
    if wipe and not yes:
        require_consent(f"Delete the state of the local AWS in {aws.directory}, with all its limiters?")
    with working("Stopping the local AWS"):
        stopped = aws.down(wipe=wipe)
    if as_json:
        print_json({"stopped": stopped is not None, "wiped": wipe})
        return
    kept = "its state was deleted" if wipe else f"its state is kept in {aws.directory}"
    click.echo(f"It was not running; {kept}." if stopped is None else f"Stopped; {kept}.")


@local.command(short_help="Show the status of the local AWS.", epilog=STATUS_HELP)
@json_option
@local_option
def status(aws: LocalAws, as_json: bool) -> None:
    """Show whether the local AWS is running, and where."""
    found = aws.status()
    print_status(Shown(found, aws.directory), as_json)
    if found is None or not found.answers:
        raise click.exceptions.Exit(UNAVAILABLE)


@local.command(
    short_help="Show the log of the local AWS.", epilog=examples(FOLLOW, "zae-limiter local logs --tail 100")
)
@click.option("--follow", "-f", is_flag=True, help="Continue until it ends or you press Ctrl-C.")
@click.option(
    "--lines",
    "--tail",
    "-n",
    "lines",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Number of lines.",
)
@local_option
def logs(aws: LocalAws, follow: bool, lines: int) -> None:
    """Show the last lines of the log of the local AWS."""
    for line in aws.follow(lines) if follow else aws.logs(lines):
        click.echo(line)


@local.command(short_help="Print its environment variables.", epilog=examples(*ENV, "zae-limiter local env --json"))
@click.option("--name", "-n", metavar="NAME", help="Also select this limiter for further commands.")
@click.option("--unset", is_flag=True, help="Print commands that stop this shell from using it.")
@json_option
@local_option
def env(aws: LocalAws, name: str | None, unset: bool, as_json: bool) -> None:
    """Print shell commands that make a shell, and every AWS client started from it, use the local AWS.

    If it is not running, the values are those of the next start.
    """
    if unset and name is not None:
        raise click.UsageError("pass --name or --unset, not both", click.get_current_context())
    if unset:
        variables = local_variables(os.environ)
        print_unset(variables, as_json)
        if STORE_VARIABLE in os.environ and STORE_VARIABLE not in variables:
            print_note(f"{STORE_VARIABLE} is still set; remove it: unset {STORE_VARIABLE}")
        return
    if name is not None:
        check_stack_name(name, "name")
    running = aws.server()
    if running is None:
        print_note("It is not running. Start it: zae-limiter local up")
    known = environment_of(running or default_server(), name)
    if as_json:
        print_json(known)
        return
    for variable, value in known.items():
        click.echo(f"export {variable}={shlex.quote(value)}")
    click.echo(f"unset {' '.join(MISLEADING)}")


def print_unset(variables: list[str], as_json: bool) -> None:
    """Print a shell command that removes variables; with JSON, each of them with the value null."""
    if as_json:
        print_json(dict.fromkeys(variables))
    elif variables:
        click.echo(f"unset {' '.join(variables)}")
    else:
        print_note("This shell does not use the local AWS.")


def deploy(name: str, server: Server, say: Callable[[str], None]) -> None:
    """Deploy or update the stack of a limiter with its aggregator, and create its default namespace."""
    from zae_limiter._sync.repository import SyncRepository

    session = session_of(server)
    builder = SyncRepository.builder(name, server.region, endpoint_url=server.endpoint_url, session=session)
    # An experiment needs no alarms.
    builder.deadline_s(DEPLOY_S).enable_alarms(False)
    builder.build(lambda event: say(f"Deploying {name}: {event}")).close()


def print_status(shown: Shown, as_json: bool) -> None:
    """Print the status of the local AWS."""
    facts = shown.as_dict()
    if as_json:
        print_json(facts)
        return
    if shown.status is None:
        print_note("It is not running. Start it: zae-limiter local up")
        return
    state = "running" if shown.status.answers else "running, but does not answer"
    of_kind = f"pid {facts['pid']}" if facts["pid"] else f"container {str(facts['container'])[:12]}"
    rows = [("state", f"{state} ({of_kind})"), *((title, str(facts[key])) for title, key in ROWS)]
    print_grid(Grid([Column("local aws"), Column("")], rows))
