"""Define ``zae-limiter acquire``: take tokens from the shell."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._failures import blocked_line, exceeded_line, in_seconds, never_line
from zae_limiter.cli._help import examples, help_of, json_shape, section
from zae_limiter.cli._limit_syntax import gather_amounts
from zae_limiter.cli._options import LimitOptions, also_option, asking_arguments, consume_option, json_option
from zae_limiter.cli._output import (
    Column,
    Grid,
    has_status_line,
    print_details,
    print_grid,
    print_json,
    print_note,
    working,
)
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import QUICK_S, opened
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import AmountExceedsCapacityError, EntityBlockedError, RateLimitExceeded
from zae_limiter.core.lazy_dataclass import asdict, dataclass

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.lease import SyncLease
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter


@dataclass(frozen=True, slots=True)
class TakenLimits:
    """What one request took of each limit, and what is left; ``available`` is empty if the store was unavailable."""

    entity_id: str
    resource: str
    consumed: dict[str, int]
    available: dict[str, int]

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Each limit with what was taken and what is left."""
        names = self.consumed | self.available
        return [(name, str(self.consumed.get(name, 0)), str(self.available.get(name, "?"))) for name in names]


@dataclass(frozen=True, slots=True)
class TakenTokens:
    """What an acquire took, for its own request and for those of ``--also``; ``slots`` are limits of concurrent use."""

    own: TakenLimits
    also: list[TakenLimits]
    degraded: bool
    slots: list[str]


@dataclass(frozen=True, slots=True)
class AcquireOptions:
    """What to take, and what else in the same acquire."""

    asking: LimitOptions
    consume: dict[str, int]
    also: tuple[Also, ...]


SLOT_POLL_S = 0.25
"""While it waits for slots, the command tries again after this many seconds."""

UPDATE_S = 0.2
"""The status line of a wait is updated after this many seconds."""

EXAMPLES = examples(
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c tpm:500 && call-the-model",
    "zae-limiter acquire nightly-job api -c rps:1 -l rps:10/s --wait 5",
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 --also tool search rpm:1,tpm:200",
)
EXIT_CODES = section(
    "Exit codes",
    "0   the tokens were taken",
    "2   the request is invalid, or above a capacity",
    "69  the store is unavailable",
    "75  too few tokens; stderr says when to retry",
    "77  the entity is blocked, or one that it cascades to",
)


TAKEN_COLUMNS = [Column("limit"), Column("taken", True), Column("left", True)]
BUCKET_COLUMNS = [
    Column("entity"),
    Column("resource"),
    Column("limit"),
    Column("available", True),
    Column("capacity", True),
    Column("requested", True),
    Column("lacks", True),
]
SHAPE = json_shape(
    "{acquired: true, entity_id, resource, consumed: {limit: amount},",
    " available: {limit: amount}, degraded: whether the store was unavailable,",
    " also: [{entity_id, resource, consumed, available}]}",
    "{acquired: false, error, message, retry_after_seconds, retry_after_ms,",
    " never: whether no wait helps, limits: [LIMIT],",
    " buckets: [{entity_id, resource, limits: [LIMIT]}]}",
    "{acquired: false, error, message, entity_id, resource, reason, until}",
    " if an entity is blocked; resource is null for all",
    "LIMIT is {entity_id, resource, limit_name, capacity, refill_amount,",
    " refill_period_seconds, available, requested, deficit, exceeded,",
    " retry_after_seconds}, and {hold_seconds, in_use, exact: false} of slots",
)


@click.command(short_help="Take tokens, or report when to retry.", epilog=help_of(EXAMPLES, SHAPE, EXIT_CODES))
@asking_arguments
@consume_option
@also_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait up to this many seconds for the tokens; fail immediately if it would take longer. "
    "Slots are asked for again until then, because they are returned at any time.",
)
@json_option
@store_options
def acquire(
    asking: LimitOptions,
    amounts: tuple[tuple[str, int], ...],
    also: tuple[Also, ...],
    wait_s: float,
    as_json: bool,
    store: StoreChoice,
) -> None:
    """Take tokens of one or several limits: all of them, or none.

    Slots of a limit of concurrent use are returned when the command ends: it cannot hold them.
    """
    request = AcquireOptions(asking, gather_amounts(amounts), also)
    try:
        with opened(store, QUICK_S, create=True) as limiter:
            taken = take(limiter, request, wait_s)
    except RateLimitExceeded as error:
        if as_json:
            line = never_line(error) if isinstance(error, AmountExceedsCapacityError) else exceeded_line(error)
            print_json({"acquired": False} | error.as_dict() | {"message": line})
        else:
            print_buckets(error)
        raise
    except EntityBlockedError as error:
        if as_json:
            print_json({"acquired": False} | error.as_dict() | {"message": blocked_line(error)})
        raise
    print_taken(taken, as_json)


def take(limiter: "SyncRateLimiter", request: AcquireOptions, wait_s: float) -> TakenTokens:
    """Take the tokens; wait for them if they will be available within ``wait_s`` seconds.

    Raises:
        RateLimitExceeded: There are too few tokens, and there will be too few in time.
    """
    until_s = time.monotonic() + wait_s
    is_told = False
    while True:
        try:
            asking, also = request.asking, request.also
            with limiter.acquire(asking.entity_id, asking.resource, request.consume, asking.limits, also=also) as lease:
                # Read before the lease ends: if this fails, the tokens are given back.
                return taken_of(limiter, request, lease)
        except RateLimitExceeded as error:
            pause_s = pause_before_next(error, until_s - time.monotonic())
            if pause_s is None:
                raise
            if not (is_told or has_status_line()):
                slots = f"up to {in_seconds(wait_s)} for slots"
                print_note(f"Waiting {f'{in_seconds(pause_s)} for the tokens' if error.exact else slots} ...")
                is_told = True
            if error.exact:
                wait_for(pause_s)
            else:
                wait_for(pause_s, lambda _: slots_text(until_s - time.monotonic()))


def pause_before_next(error: RateLimitExceeded, left_s: float) -> float | None:
    """Return the seconds until the next try, None if no try within ``left_s`` seconds can succeed."""
    if error.never:
        return None
    if error.exact:
        return error.retry_after_seconds if error.retry_after_seconds <= left_s else None
    # Other limits have to refill first; after that, slots may be free at any time.
    refilled_s = max((one.retry_after_seconds for one in error.violations if one.exact), default=0.0)
    pause_s = max(SLOT_POLL_S, refilled_s)
    return pause_s if pause_s <= left_s else None


def taken_of(limiter: "SyncRateLimiter", request: AcquireOptions, lease: "SyncLease") -> TakenTokens:
    """Return what a lease took for each request, and what is left now."""
    others = [LimitOptions(one.entity_id, one.resource, None) for one in request.also]
    found = []
    for asking, part in zip([request.asking, *others], [lease, *lease.also], strict=True):
        left = {} if lease.degraded else limiter.available(asking.entity_id, asking.resource, asking.limits)
        found.append(TakenLimits(asking.entity_id, asking.resource, part.consumed, left))
    names = {limit.name for part in (lease, *lease.also) for limit in part.limits if limit.is_concurrent}
    slots = sorted(name for name in names if any(name in part.consumed for part in found))
    return TakenTokens(found[0], found[1:], lease.degraded, slots)


def waiting_text(left_s: float) -> str:
    """Return the status line of a wait, with whole seconds."""
    return f"Waiting for the tokens: {math.ceil(left_s)} s left"


def wait_for(seconds: float, text: Callable[[float], str] = waiting_text) -> None:
    """Wait, and show a text of the seconds left in a terminal."""
    until_s = time.monotonic() + seconds
    with working(text(seconds)) as say:
        while (left_s := until_s - time.monotonic()) > 0:
            say(text(left_s))
            time.sleep(min(left_s, UPDATE_S))


def slots_text(left_s: float) -> str:
    """Return the status line of a wait for slots, with the most seconds that it may take."""
    return f"Waiting for slots: at most {math.ceil(left_s)} s"


def print_buckets(error: RateLimitExceeded) -> None:
    """Print every bucket of a rejected request in a terminal, if there are several. One is in the message."""
    if len({(one.entity_id, one.resource) for one in error.statuses}) < 2:
        return
    rows = [
        (
            one.entity_id,
            one.resource,
            one.limit_name,
            str(one.available),
            str(one.limit.capacity),
            str(one.requested),
            str(one.deficit or ""),
        )
        for one in error.statuses
        if one.requested
    ]
    print_details(Grid(BUCKET_COLUMNS, rows))


def print_taken(taken: TakenTokens, as_json: bool) -> None:
    """Print what was taken and what is left."""
    if taken.degraded:
        print_note("Store unavailable; request allowed without limiting, because on_unavailable is 'allow'")
    if taken.slots:
        print_note(f"{', '.join(taken.slots)}: returned now, because this command ends.")
    if as_json:
        others = [asdict(one) for one in taken.also]
        print_json({"acquired": True} | asdict(taken.own) | {"degraded": taken.degraded, "also": others})
    elif taken.also:
        parts = [taken.own, *taken.also]
        rows = [(part.entity_id, part.resource, *row) for part in parts for row in part.rows]
        print_grid(Grid([Column("entity"), Column("resource"), *TAKEN_COLUMNS], rows))
    else:
        print_grid(Grid(TAKEN_COLUMNS, taken.own.rows))
