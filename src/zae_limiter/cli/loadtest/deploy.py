"""Define ``zae-limiter loadtest deploy``: create the stack that tests a limiter, and upload its code."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._help import SectionedCommand, examples
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import print_json, print_note
from zae_limiter.cli._place import StoreLocation, place_options
from zae_limiter.cli._stack_options import explained_in_flags
from zae_limiter.cli.loadtest._choose_network import with_network
from zae_limiter.cli.loadtest._load_options import ALL_FLAGS, LOAD_CODES, directory_option, load_options
from zae_limiter.cli.loadtest.push import print_pushed, pushed_facts
from zae_limiter.core.location import selecting_options
from zae_limiter.core.names import check_stack_name
from zae_limiter.infra.stack_state import StackResult
from zae_limiter.loadtest.load_code import PushedCode, build_for, push_code, read_locust_files
from zae_limiter.loadtest.load_options import LoadOptions, LoadOutputs
from zae_limiter.loadtest.load_stack import LoadStack
from zae_limiter.loadtest.master_image import push_image, require_docker

DEPLOY = (
    "zae-limiter loadtest deploy -n my-app -C examples/locust",
    "zae-limiter loadtest deploy -n my-app -C . --vpc-id vpc-0a1b --subnet-ids subnet-1,subnet-2",
    "zae-limiter loadtest deploy -n my-app -C examples/locust --max-workers 500 --lambda-timeout 15",
)


@dataclass(frozen=True, slots=True)
class DeployedLoadTest:
    """A deployed stack, its resources, and the code that was uploaded to it."""

    stack: StackResult
    outputs: LoadOutputs
    pushed: PushedCode


@click.command(
    cls=SectionedCommand,
    short_help="Deploy what load tests on AWS need.",
    epilog=f"{examples(*DEPLOY)}\n\n{LOAD_CODES}",
)
@place_options
@directory_option
@load_options
@json_option
def deploy(place: StoreLocation, directory: Path, given: dict[str, Any], as_json: bool) -> None:
    """Deploy what load tests of a limiter need, as a CloudFormation stack of its own, NAME-load.

    Nothing runs, and nothing is billed by the hour, until a test is started. An existing stack is
    updated; it keeps the options that you omit.
    """
    check_stack_name(place.name, "name")
    with explained_in_flags(ALL_FLAGS):
        done = deploy_load_test(place, read_locust_files(directory), given)
    print_deployed(place.resolved(), done, as_json)


def deploy_load_test(place: StoreLocation, locust_files: dict[str, bytes], given: dict[str, Any]) -> DeployedLoadTest:
    """Check everything first, then deploy the stack, and upload the image and the code."""
    clients = place.region.clients()
    stack = LoadStack(place.name, clients)
    stack.limiter.require()
    stored = stack.stored_options()
    options = LoadOptions(**stored | with_network(given, stored, stack, clients))
    if options.build_image:
        require_docker()
    for note in stack.plan(options).notes:
        print_note(note)
    title = f"Deploying the load test of {place.name}"
    with steps_shown(title) as hear:
        package = build_for(clients, hear)
        done = stack.deploy(options, hear)
        outputs = stack.outputs()
        if outputs.image_uri is not None:
            push_image(outputs.image_uri, clients, hear)
        pushed = push_code(outputs, clients, locust_files, package, hear)
    return DeployedLoadTest(done, outputs, pushed)


def print_deployed(place: StoreLocation, done: DeployedLoadTest, as_json: bool) -> None:
    """Print the state of the stack, the uploaded code and the next command."""
    if as_json:
        facts = {"name": place.name, "stack": done.stack.state.name, "stack_status": done.stack.state.status}
        print_json(facts | {"outputs": asdict(done.outputs), "code": pushed_facts(done.pushed)})
        return
    change = "is deployed" if done.stack.changed else "is up to date"
    click.echo(f"The load test of {place.name} {change}: stack {done.stack.state.name}.")
    print_pushed(done.pushed)
    first = next(name for name in done.pushed.locust_files if name.endswith(".py"))
    print_note(f"Run it: zae-limiter loadtest run{selecting_options(place.url)} -f {first}")
