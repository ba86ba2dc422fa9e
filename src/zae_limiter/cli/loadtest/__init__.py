"""Define ``zae-limiter loadtest``: measure a limiter under load, on this machine or on AWS."""

import click

from zae_limiter.cli._help import examples
from zae_limiter.cli._lazy import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand("zae_limiter.cli.loadtest.run", "run", "Run a load test, and report what it measured."),
    "ui": LazyCommand("zae_limiter.cli.loadtest.ui", "ui", "Start Locust's web page."),
    "deploy": LazyCommand("zae_limiter.cli.loadtest.deploy", "deploy", "Deploy what load tests on AWS need."),
    "push": LazyCommand("zae_limiter.cli.loadtest.push", "push", "Replace the Locust files and the code of workers."),
    "tune": LazyCommand("zae_limiter.cli.loadtest.tune", "tune", "Find the number of users that suits a worker."),
    "list": LazyCommand("zae_limiter.cli.loadtest.list", "list_load_tests", "List the load tests of a region."),
    "delete": LazyCommand("zae_limiter.cli.loadtest.delete", "delete", "Delete what load tests on AWS need."),
}

EXAMPLES = examples(
    "zae-limiter loadtest run --url sqlite:///load.db -f locustfiles/simple.py --users 5",
    "zae-limiter loadtest deploy -n my-app -C examples/locust",
    "zae-limiter loadtest run -n my-app -f locustfiles/max_rps.py --workers 10 --users 100",
)


@click.group(cls=LazyGroup, lazy_commands=COMMANDS, short_help="Run load tests, here or on AWS.", epilog=EXAMPLES)
def loadtest() -> None:
    """Run load tests: how many calls per second, at which latency and price, and do the limits hold?

    With --url, Locust runs on this machine. With --name, it runs on AWS, next to a limiter there.
    """
