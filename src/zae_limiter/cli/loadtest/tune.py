"""Define ``zae-limiter loadtest tune``: find the number of users that suits a worker."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._help import examples, section
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json
from zae_limiter.cli._place import StoreLocation, place_options
from zae_limiter.core.location import selecting_options
from zae_limiter.loadtest.aws_run import open_load_test
from zae_limiter.loadtest.aws_tuning import AwsTuning, TuningPlan
from zae_limiter.loadtest.tuning import (
    TuningGoal,
    TuningResult,
    chart_lines,
    efficiency,
    planned_commands,
)

EXAMPLES = examples(
    "zae-limiter loadtest tune -n my-app -f locustfiles/max_rps.py",
    "zae-limiter loadtest tune -n my-app -f locustfiles/max_rps.py MaxRpsCascadeUser --threshold 0.9",
)
EXIT_CODES = section(
    "Exit codes",
    "0   the best number of users was found",
    "2   an option is invalid; nothing was run",
    "69  a run failed or was stopped, or AWS refused; stderr has the reason",
)
_COLUMNS = [
    Column("users", is_number=True),
    Column("calls", is_number=True),
    Column("p50 ms", is_number=True),
    Column("calls/s", is_number=True),
    Column("efficiency", is_number=True),
    Column(""),
]


@click.command(short_help="Find the number of users that suits a worker.", epilog=f"{EXAMPLES}\n\n{EXIT_CODES}")
@place_options
@click.argument("classes", nargs=-1, metavar="[CLASS]...")
@click.option(
    "--file", "-f", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Locust file to run."
)
@click.option(
    "--max-users", type=click.IntRange(1), default=40, show_default=True, metavar="N", help="Maximum number of users."
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.80,
    show_default=True,
    metavar="SHARE",
    help="Lowest efficiency to accept: the median latency of one user, divided by that with more users.",
)
@click.option(
    "--step-duration",
    "step_s",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Length of each step.",
)
@click.option(
    "--baseline-duration",
    "baseline_s",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Length of the baseline with one user. It is extended to at least 100 calls.",
)
@click.option(
    "--max-usd",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="USD",
    help="Stop the tuning when it has cost this much.",
)
@click.option(
    "--max-duration",
    "max_duration_s",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Stop the tuning after this time.",
)
@json_option
def tune(place: StoreLocation, classes: tuple[str, ...], file: Path, as_json: bool, **given: Any) -> None:
    """Find how many users one worker simulates before they wait for the worker itself.

    Every step runs in one Lambda function. The first measures one user alone. The others find, by
    bisection, the highest number of users whose median latency is nearly as low.
    """
    goal = TuningGoal(given["max_users"], given["threshold"])
    chosen = {name: given[name] for name in ("step_s", "baseline_s", "max_usd", "max_duration_s")}
    plan = TuningPlan(file.as_posix(), classes, goal, **chosen)
    test = open_load_test(place.name, place.region.clients(), place.region.endpoint_url)
    with steps_shown(f"Tuning {place.name}") as hear:
        result = AwsTuning(test, plan, hear).tune()
    print_tuning(result, plan, place, as_json)


def print_tuning(result: TuningResult, plan: TuningPlan, place: StoreLocation, as_json: bool) -> None:
    """Print all steps as a table and a chart, the throughput of a worker, and the commands to use."""
    commands = planned_commands(selecting_options(place.url), plan.file, plan.classes, result.best.users)
    if as_json:
        print_json(tuning_facts(result, commands))
        return
    print_grid(tuning_grid(result))
    click.echo()
    click.echo("\n".join(chart_lines(result, plan.goal.threshold)))
    click.echo()
    best = result.best
    click.echo(f"One worker handles {best.users} users well, with {best.calls_per_s:,.0f} calls per second.")
    click.echo("To run 100, 500 and 1,000 users:")
    click.echo("\n".join(f"  {command}" for command in commands))


def tuning_grid(result: TuningResult) -> Grid:
    """Return the steps in the order of their users."""
    ordered = sorted((result.baseline, *result.steps), key=lambda step: step.users)
    rows = [
        (
            str(step.users),
            f"{step.requests:,}",
            f"{step.p50_ms:.1f}",
            f"{step.calls_per_s:,.0f}",
            f"{efficiency(result.baseline, step):.0%}",
            "best" if step is result.best else "",
        )
        for step in ordered
    ]
    return Grid(_COLUMNS, rows)


def tuning_facts(result: TuningResult, commands: list[str]) -> dict[str, Any]:
    """Return the result, ready for JSON."""
    measured = [
        asdict(step) | {"efficiency": efficiency(result.baseline, step)} for step in (result.baseline, *result.steps)
    ]
    return {
        "steps": measured,
        "users_per_worker": result.best.users,
        "calls_per_s_per_worker": result.best.calls_per_s,
        "commands": commands,
    }
