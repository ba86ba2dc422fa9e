"""Define ``zae-limiter acquire``: take tokens from the shell."""

import math
import time
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._failures import exceeded_line, in_seconds, never_line
from zae_limiter.cli._help import examples, help_of, json_shape, section
from zae_limiter.cli._limit_syntax import gather_amounts
from zae_limiter.cli._options import LimitOptions, asking_arguments, consume_option, json_option
from zae_limiter.cli._output import Column, Grid, has_status_line, print_grid, print_json, print_note, working
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import QUICK_S, opened
from zae_limiter.core.errors import AmountExceedsCapacityError, RateLimitExceeded
from zae_limiter.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter


@dataclass(frozen=True, slots=True)
class TakenLimits:
    """What was taken of each limit, and what is left; ``available`` is empty if the store was unavailable."""

    consumed: dict[str, int]
    available: dict[str, int]
    degraded: bool


UPDATE_S = 0.2
"""The status line of a wait is updated after this many seconds."""

EXAMPLES = examples(
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c tpm:500 && call-the-model",
    "zae-limiter acquire nightly-job api -c rps:1 -l rps:10/s --wait 5",
)
EXIT_CODES = section(
    "Exit codes",
    "0   the tokens were taken",
    "2   the request is invalid, or above a capacity",
    "69  the store is unavailable",
    "75  too few tokens; stderr says when to retry",
)


SHAPE = json_shape(
    "{acquired: true, entity_id, resource, consumed: {limit: amount},",
    " available: {limit: amount}, degraded: whether the store was unavailable}",
    "{acquired: false, error, message, retry_after_seconds, retry_after_ms,",
    " never: whether no wait helps, limits: [LIMIT]}",
    "LIMIT is {entity_id, resource, limit_name, capacity, refill_amount,",
    " refill_period_seconds, available, requested, deficit, exceeded,",
    " retry_after_seconds}",
)


@click.command(short_help="Take tokens, or report when to retry.", epilog=help_of(EXAMPLES, SHAPE, EXIT_CODES))
@asking_arguments
@consume_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait up to this many seconds for the tokens; fail immediately if it would take longer.",
)
@json_option
@store_options
def acquire(
    asking: LimitOptions, amounts: tuple[tuple[str, int], ...], wait_s: float, as_json: bool, store: StoreChoice
) -> None:
    """Take tokens of one or several limits: all of them, or none."""
    consume = gather_amounts(amounts)
    try:
        with opened(store, QUICK_S, create=True) as limiter:
            taken = take(limiter, asking, consume, wait_s)
    except RateLimitExceeded as error:
        if as_json:
            line = never_line(error) if isinstance(error, AmountExceedsCapacityError) else exceeded_line(error)
            print_json({"acquired": False} | error.as_dict() | {"message": line})
        raise
    print_taken(asking, taken, as_json)


def take(limiter: "SyncRateLimiter", asking: LimitOptions, consume: dict[str, int], wait_s: float) -> TakenLimits:
    """Take the tokens; wait for them if they will be available within ``wait_s`` seconds.

    Raises:
        RateLimitExceeded: There are too few tokens, and there will be too few in time.
    """
    until_s = time.monotonic() + wait_s
    is_told = False
    while True:
        try:
            with limiter.acquire(asking.entity_id, asking.resource, consume, asking.limits) as lease:
                # Read before the lease ends: if this fails, the tokens are given back.
                left = {} if lease.degraded else limiter.available(asking.entity_id, asking.resource, asking.limits)
                return TakenLimits(lease.consumed, left, lease.degraded)
        except RateLimitExceeded as error:
            if error.never or not time.monotonic() + error.retry_after_seconds <= until_s:
                raise
            if not (is_told or has_status_line()):
                print_note(f"Waiting {in_seconds(error.retry_after_seconds)} for the tokens ...")
                is_told = True
            wait_for(error.retry_after_seconds)


def wait_for(seconds: float) -> None:
    """Wait, and show the seconds left in a terminal."""
    until_s = time.monotonic() + seconds
    with working(waiting_text(seconds)) as say:
        while (left_s := until_s - time.monotonic()) > 0:
            say(waiting_text(left_s))
            time.sleep(min(left_s, UPDATE_S))


def waiting_text(left_s: float) -> str:
    """Return the status line of a wait, with whole seconds."""
    return f"Waiting for the tokens: {math.ceil(left_s)} s left"


def print_taken(asking: LimitOptions, taken: TakenLimits, as_json: bool) -> None:
    """Print what was taken and what is left."""
    if taken.degraded:
        print_note("Store unavailable; request allowed without limiting, because on_unavailable is 'allow'")
    if as_json:
        facts = {"acquired": True, "entity_id": asking.entity_id, "resource": asking.resource}
        print_json(facts | {"consumed": taken.consumed, "available": taken.available, "degraded": taken.degraded})
        return
    rows = [
        (name, str(taken.consumed.get(name, 0)), str(taken.available.get(name, "?")))
        for name in taken.consumed | taken.available
    ]
    print_grid(Grid([Column("limit"), Column("taken", True), Column("left", True)], rows))
