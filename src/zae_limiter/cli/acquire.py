"""Define ``zae-limiter acquire``: take tokens from the shell."""

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._amount_syntax import WrittenAmount, check_currencies, gather_amounts
from zae_limiter.cli._failures import blocked_line, exceeded_line, in_seconds, never_line
from zae_limiter.cli._help import examples, help_of, json_shape, section
from zae_limiter.cli._limit_syntax import FORMS
from zae_limiter.cli._limit_words import facts_with_reset, left_words
from zae_limiter.cli._options import (
    LimitOptions,
    WrittenRequest,
    also_option,
    consume_option,
    json_option,
    limit_arguments,
)
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
from zae_limiter.cli._store import QUICK_S, limits_in_force, opened
from zae_limiter.clock import SystemClock
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    EntityBlockedError,
    RateLimiterUnavailable,
    RateLimitExceeded,
)
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import format_with_unit

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.lease import SyncLease
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter.core.waiting import Standing


@dataclass(frozen=True, slots=True)
class TakenLimits:
    """What one request took of each limit, and what is left; ``available`` is empty if the store was unavailable.

    ``limits`` are those in force at ``now_ms``.
    """

    entity_id: str
    resource: str
    consumed: dict[str, int]
    available: dict[str, int]
    limits: list[Limit]
    now_ms: int

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Each limit with what was taken and what is left."""
        known = {limit.name: limit for limit in reversed(self.limits)}
        return [self._row(name, known.get(name)) for name in self.consumed | self.available]

    def _row(self, name: str, limit: Limit | None) -> tuple[str, str, str]:
        taken = format_with_unit(self.consumed.get(name, 0), None if limit is None else limit.unit)
        left = self.available.get(name)
        return (name, taken, "?" if left is None else left_words(limit, left, self.now_ms))

    @property
    def facts(self) -> dict[str, object]:
        """All of it, ready for JSON."""
        taken = {"entity_id": self.entity_id, "resource": self.resource, "consumed": self.consumed}
        return taken | {"available": self.available, "limits": facts_with_reset(self.limits, self.now_ms)}


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

    options: LimitOptions
    amounts: tuple[WrittenAmount, ...]
    others: tuple[WrittenRequest, ...]

    @property
    def consume(self) -> dict[str, int]:
        """The amounts by limit name."""
        return gather_amounts(self.amounts)

    @property
    def also(self) -> list[Also]:
        """What else to take."""
        return [Also(one.entity_id, one.resource, gather_amounts(one.amounts)) for one in self.others]


FIRST_LOOK_S = 0.01
UPDATE_S = 0.2
"""The status line of a wait is updated after this many seconds."""

EXAMPLES = examples(
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c tpm:500 && call-the-model",
    "zae-limiter acquire nightly-job api -c rps:1 -l rps:10/s --wait 5",
    "zae-limiter acquire user-1 gpt-4 -c rpm:1 -c spend:0.05usd",
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
    " available: {limit: amount}, limits: [{name, ...} and of quotas {resets_at}],",
    " degraded: whether the store was unavailable,",
    " also: [{entity_id, resource, consumed, available, limits}]}",
    "{acquired: false, error, message, retry_after_seconds, retry_after_ms,",
    " never: whether no wait helps, limits: [LIMIT],",
    " buckets: [{entity_id, resource, limits: [LIMIT]}],",
    " with --wait also waited, position, estimate}",
    "{acquired: false, error, message, entity_id, resource, reason, until}",
    " if an entity is blocked; resource is null for all",
    "LIMIT is {entity_id, resource, limit_name, capacity, refill_amount,",
    " refill_period_seconds, available, requested, deficit, exceeded,",
    " retry_after_seconds}, and {hold_seconds, in_use, exact: false} of slots,",
    " {schedule, resets_at} of quotas, and if set {unit, enforce: false}",
)


@click.command(short_help="Take tokens, or report when to retry.", epilog=help_of(EXAMPLES, FORMS, SHAPE, EXIT_CODES))
@limit_arguments
@consume_option
@also_option
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
    options: LimitOptions,
    amounts: tuple[WrittenAmount, ...],
    also: tuple[WrittenRequest, ...],
    wait_s: float,
    as_json: bool,
    store: StoreChoice,
) -> None:
    """Take tokens of one or several limits: all of them, or none.

    Slots of a limit of concurrent use are returned when the command ends: it cannot hold them.

    An amount of money needs its currency, such as spend:0.05usd.
    """
    gather_amounts(amounts)
    request = AcquireOptions(options, amounts, also)
    try:
        with opened(store, QUICK_S, create=True) as limiter:
            require_currencies(limiter, request)
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
    options, also = request.options, request.also
    max_wait = wait_s if wait_s > 0 else None
    lease = limiter.acquire(
        options.entity_id, options.resource, request.consume, options.limits, also=also, max_wait=max_wait
    )
    with ExitStack() as stack:
        with shown_wait(lease) if max_wait else nullcontext():
            stack.enter_context(lease)
        # Read before the lease ends: if this fails, the tokens are given back.
        return taken_of(limiter, request, lease)


def require_currencies(limiter: "SyncRateLimiter", request: AcquireOptions) -> None:
    """Require that amounts are in the unit of their limits.

    Raises:
        ValidationError: Money is given without its currency, or for a limit of something else.
    """
    written = [(request.options, request.amounts)]
    written += [(LimitOptions(one.entity_id, one.resource, None), one.amounts) for one in request.others]
    # If the store is unavailable, the acquire decides, by the policy for that.
    with suppress(RateLimiterUnavailable):
        for options, amounts in written:
            # The limits are cached, so that the acquire does not read them again.
            limits = limits_in_force(limiter, options, [one.limit_name for one in amounts])
            check_currencies(amounts, {limit.name: limit.unit for limit in limits})


def taken_of(limiter: "SyncRateLimiter", request: AcquireOptions, lease: "SyncLease") -> TakenTokens:
    """Return what a lease took for each request, and what is left now."""
    others = [LimitOptions(one.entity_id, one.resource, None) for one in request.also]
    found = []
    for options, part in zip([request.options, *others], [lease, *lease.also], strict=True):
        left = {} if lease.degraded else limiter.available(options.entity_id, options.resource, options.limits)
        now_ms = SystemClock().now_ms()
        found.append(TakenLimits(options.entity_id, options.resource, part.consumed, left, part.limits, now_ms))
    names = {limit.name for part in (lease, *lease.also) for limit in part.limits if limit.is_concurrent}
    slots = sorted(name for name in names if any(name in part.consumed for part in found))
    return TakenTokens(found[0], found[1:], lease.degraded, slots)


@contextmanager
def shown_wait(lease: "SyncLease") -> Iterator[None]:
    """Show the place in the queue and the seconds left, while the lease is entered inside the block."""
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(lease, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(lease: "SyncLease", ended: threading.Event) -> None:
    while not ended.wait(FIRST_LOOK_S) and lease.waiting is None:
        pass
    waiting = lease.waiting
    if waiting is None:
        return
    if not has_status_line():
        print_note(f"Waiting {in_seconds(waiting.estimate_s)} for the tokens ...")
        return
    with working(waiting_text(waiting)) as say:
        while not ended.wait(UPDATE_S):
            waiting = lease.waiting
            if waiting is not None:
                say(waiting_text(waiting))


def waiting_text(waiting: "Standing") -> str:
    """Return the status line of a wait: the place in the queue, and the whole seconds left."""
    left = f"{math.ceil(waiting.estimate_s)} s left" if math.isfinite(waiting.estimate_s) else "until tokens come back"
    place = "" if waiting.position == 1 else f", {waiting.position - 1} ahead"
    return f"Waiting for the tokens: {left}{place}"


def print_buckets(error: RateLimitExceeded) -> None:
    """Print every bucket of a rejected request in a terminal, if there are several. One is in the message."""
    if len({(one.entity_id, one.resource) for one in error.statuses}) < 2:
        return
    rows = [
        (
            one.entity_id,
            one.resource,
            one.limit_name,
            format_with_unit(one.available, one.limit.unit),
            format_with_unit(one.limit.capacity, one.limit.unit),
            format_with_unit(one.requested, one.limit.unit),
            format_with_unit(one.deficit, one.limit.unit) if one.deficit else "",
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
        others = [one.facts for one in taken.also]
        print_json({"acquired": True} | taken.own.facts | {"degraded": taken.degraded, "also": others})
    elif taken.also:
        parts = [taken.own, *taken.also]
        rows = [(part.entity_id, part.resource, *row) for part in parts for row in part.rows]
        print_grid(Grid([Column("entity"), Column("resource"), *TAKEN_COLUMNS], rows))
    else:
        print_grid(Grid(TAKEN_COLUMNS, taken.own.rows))
