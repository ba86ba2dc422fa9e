"""``zae-limiter local``: an AWS on this machine, to try things out."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._failures import UNAVAILABLE
from zae_limiter.cli._help import examples, section
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import Command
from zae_limiter.core.names import check_stack_name
from zae_limiter.infra.local import (
    DEFAULT_PORT,
    DEFAULT_REGION,
    LocalAws,
    LocalStatus,
    Wanted,
    default_directory,
    session_of,
)
from zae_limiter.infra.local_container import IMAGE
from zae_limiter.infra.local_files import Server

UP = ("zae-limiter local up", "zae-limiter local up --name my-app", "zae-limiter local up --docker")
ENV = ('eval "$(zae-limiter local env)"', 'eval "$(zae-limiter local env --name my-app)"')
FOLLOW = "zae-limiter local logs --follow"
STATUS_CODES = section("Exit codes", "0   it runs and answers", "69  it does not")
STATUS_HELP = f"{examples('zae-limiter local status --json')}\n\n{STATUS_CODES}"
ROWS = [("endpoint", "endpoint_url"), ("region", "region"), ("since", "started_at"), ("kept in", "directory")]

# What would lead a client elsewhere, or sign with keys that mean nothing here.
MISLEADING = ("AWS_PROFILE", "AWS_SESSION_TOKEN")

DEPLOY_S = 30.0


@dataclass(frozen=True, slots=True)
class Shown:
    """What is printed of a local AWS."""

    standing: LocalStatus | None
    directory: Path

    def as_dict(self) -> dict[str, object]:
        """Return it ready for JSON."""
        if self.standing is None:
            return {"running": False, "directory": str(self.directory)}
        server = self.standing.server
        return {
            "running": True,
            "answers": self.standing.answers,
            "endpoint_url": server.endpoint_url,
            "region": server.region,
            "kind": server.kind,
            "pid": self.standing.pid,
            "container": server.container,
            "started_at": server.started_at,
            "directory": str(self.directory),
        }


@click.group(short_help="An AWS on this machine, to try things out.", epilog=examples(*UP[:2], ENV[0], FOLLOW))
def local() -> None:
    """An AWS on this machine, to try things out: CloudFormation, DynamoDB, streams, Lambda, S3.

    It runs in the background, without docker, and what it holds is there again when it is next started.
    """


def local_option(command: Command) -> Command:
    """Add ``--directory``; the command takes the local AWS in it as ``aws``."""

    @click.option(
        "--directory",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="ZAE_LIMITER_LOCAL_DIR",
        show_envvar=True,
        help="Where its state, log and record are kept. Without it, a directory of your own.",
    )
    @wraps(command)
    def with_aws(*, directory: Path | None, **others: Any) -> None:
        command(aws=LocalAws(directory or default_directory()), **others)

    return with_aws


def wanted_options(command: Command) -> Command:
    """Add how it is to run; the command takes it as ``wanted``."""

    @click.option(
        "--port", type=click.IntRange(1, 65535), metavar="PORT", help=f"Where it listens.  [default: {DEFAULT_PORT}]"
    )
    @click.option("--region", metavar="REGION", help=f"The region it says it is.  [default: {DEFAULT_REGION}]")
    @click.option("--docker", "in_docker", is_flag=True, help="Run it in a container.")
    @click.option("--image", metavar="IMAGE", help=f"A LocalStack-compatible image.  [default: {IMAGE}]")
    @wraps(command)
    def with_wanted(*, port: int | None, region: str | None, in_docker: bool, image: str | None, **others: Any) -> None:
        if image is not None and not in_docker:
            raise click.UsageError("--image needs --docker", click.get_current_context())
        command(wanted=Wanted(port, region, image, in_docker), **others)

    return with_wanted


@local.command(short_help="Start it.", epilog=examples(*UP))
@click.option("--name", "-n", metavar="NAME", help="Deploy a limiter of this name as well.")
@wanted_options
@json_option
@local_option
def up(aws: LocalAws, wanted: Wanted, name: str | None, as_json: bool) -> None:
    """Start it in the background and wait until it answers. One that runs already is left alone."""
    if name is not None:
        check_stack_name(name, "name")
    with working("Starting a local AWS"):
        standing = aws.up(wanted)
    if name is not None:
        with working(f"Deploying {name}") as say:
            deploy(name, standing.server, say)
    print_standing(Shown(standing, aws.directory), as_json)
    if not as_json:
        suffix = "" if name is None else f" --name {name}"
        print_note(f'To use it in this shell: eval "$(zae-limiter local env{suffix})"')


@local.command(short_help="Stop it.", epilog=examples("zae-limiter local down", "zae-limiter local down --wipe"))
@click.option("--wipe", is_flag=True, help="Remove all it holds.")
@json_option
@local_option
def down(aws: LocalAws, wipe: bool, as_json: bool) -> None:
    """Stop it. What it holds is kept for the next start."""
    with working("Stopping the local AWS"):
        stopped = aws.down(wipe=wipe)
    if as_json:
        print_json({"stopped": stopped is not None, "wiped": wipe})
        return
    kept = "what it held is removed" if wipe else f"what it held is kept in {aws.directory}"
    click.echo(f"It did not run; {kept}." if stopped is None else f"Stopped; {kept}.")


@local.command(short_help="Show whether it runs, and where.", epilog=STATUS_HELP)
@json_option
@local_option
def status(aws: LocalAws, as_json: bool) -> None:
    """Show whether it runs, and where."""
    standing = aws.status()
    print_standing(Shown(standing, aws.directory), as_json)
    if standing is None or not standing.answers:
        raise click.exceptions.Exit(UNAVAILABLE)


@local.command(short_help="Show what it says.", epilog=examples(FOLLOW, "zae-limiter local logs -n 100"))
@click.option("--follow", "-f", is_flag=True, help="Go on until it ends, or you press Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(min=0), default=20, show_default=True, help="How many lines.")
@local_option
def logs(aws: LocalAws, follow: bool, lines: int) -> None:
    """Show the last lines of its log."""
    for line in aws.follow(lines) if follow else aws.logs(lines):
        click.echo(line)


@local.command(short_help="Print what a shell needs to use it.", epilog=examples(*ENV, "zae-limiter local env --json"))
@click.option("--name", "-n", metavar="NAME", help="Also name the limiter that commands work on.")
@json_option
@local_option
def env(aws: LocalAws, name: str | None, as_json: bool) -> None:
    """Print lines that point a shell, and every AWS client started from it, to the local AWS."""
    if name is not None:
        check_stack_name(name, "name")
    known = aws.environment(name)
    if as_json:
        print_json(known)
        return
    for variable, value in known.items():
        click.echo(f"export {variable}={shlex.quote(value)}")
    click.echo(f"unset {' '.join(MISLEADING)}")


def deploy(name: str, server: Server, say: Callable[[str], None]) -> None:
    """Deploy the stack of a limiter with its aggregator, or bring it up to date, and its default namespace."""
    from zae_limiter._sync.repository import SyncRepository

    session = session_of(server)
    builder = SyncRepository.builder(name, server.region, endpoint_url=server.endpoint_url, session=session)
    # Nobody is to be woken at night.
    builder.deadline_s(DEPLOY_S).enable_alarms(False)
    builder.build(lambda event: say(f"Deploying {name}: {event}")).close()


def print_standing(shown: Shown, as_json: bool) -> None:
    """Print what runs, and where."""
    facts = shown.as_dict()
    if as_json:
        print_json(facts)
        return
    if shown.standing is None:
        print_note("It does not run. Start it: zae-limiter local up")
        return
    state = "running" if shown.standing.answers else "running, but does not answer"
    of_kind = f"pid {facts['pid']}" if facts["pid"] else f"container {str(facts['container'])[:12]}"
    rows = [("state", f"{state} ({of_kind})"), *((title, str(facts[key])) for title, key in ROWS)]
    print_grid(Grid([Column("local aws"), Column("")], rows))
