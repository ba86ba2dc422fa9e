"""One bucket and its clients without a driver: limits, items, views, and the writes of each applied to the item.

Everything goes through ``next_step``, the writers and ``tables.evaluate``, as in the limiter. Tests check what
happens to an item, not how a decision is represented.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from zae_limiter.core.acquire import (
    Create,
    Look,
    NextStep,
    Progress,
    Rebase,
    Reject,
    Resolve,
    Take,
    amounts_of,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.config import Resolution
from zae_limiter.core.levels import limit_levels, statuses
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Missing, Refused
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.reserved_take import next_step_above
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.view import EffectiveLimits, effective_limits, own_effective_limits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.schema.operations import Operation, Put, Update
from zae_limiter.tables import evaluate

Item = dict[str, Any]

OWNER = Owner("ns000000000", "user-1", "gpt-4")
NOON = 1_700_000_000_000
"""A time to start from, in milliseconds."""

_nonces = count(1)
_births = count(2)


def at(time_ms: int) -> TimeBounds:
    """Return the bounds of a time that is known exactly."""
    return time_ms, time_ms


def stored(*limits: Limit, stamp: int = 1, ttl: int = 0) -> EffectiveLimits:
    """Return limits read from the configuration; ``ttl`` is the multiplier, 0 for never."""
    terms = effective_limits(Resolution(limits, stamp, "system" if ttl else "entity", None, None), ttl)
    assert terms is not None
    return terms


def own(*limits: Limit, stamp: int = 1, ttl: int = 0) -> EffectiveLimits:
    """Return limits that a caller passes."""
    return own_effective_limits(Resolution((), stamp, None, None, None), limits, ttl)


def created(terms: EffectiveLimits, spent: Mapping[str, int] | None = None, now_ms: int = NOON, birth: int = 1) -> Item:
    """Return the item of a new bucket with this many whole tokens taken."""
    milli = {name: tokens * 1000 for name, tokens in (spent or {}).items()}
    new = evaluate.apply(bucket_writes.create(OWNER, terms, milli, now_ms, Signature(next(_nonces), birth)), {})
    assert isinstance(new, dict)
    return new


def without_birth(item: Item) -> Item:
    """Return the item as a version before birth numbers would have created it."""
    return {name: value for name, value in item.items() if name != "bi"}


def balance(item: Mapping[str, Any], name: str) -> int:
    """Return the stored balance of a limit."""
    found: int = item[f"b_{name}_tk"]
    return found


def with_balances(item: Item, **balances: int) -> Item:
    """Return the item with other stored balances."""
    return {**item, **{f"b_{name}_tk": tk for name, tk in balances.items()}}


def level(item: Mapping[str, Any], name: str, now_ms: int) -> int:
    """Return the level of a limit of an unsharded bucket, computed here and not by the code under test."""
    capacity, amount, period = item[f"b_{name}_cp"], item[f"b_{name}_ra"], item[f"b_{name}_rp"]
    start_ms = min(item["rf"], now_ms)
    earned = now_ms * amount // period - start_ms * amount // period
    if now_ms <= item["rf"]:
        earned = 0
    return min(capacity, item[f"b_{name}_tk"] + earned)


def apply(operation: Operation, item: Item) -> Applied | Refused | Missing:
    """Return what a table would answer."""
    new = evaluate.apply(operation, item)
    return Applied(new) if isinstance(new, dict) else new


def after(operation: Operation, item: Item) -> Item:
    """Return the item after a write that must be applied."""
    new = evaluate.apply(operation, item)
    assert isinstance(new, dict), f"refused: {operation} by {item}"
    return new


def view(
    item: Item, seen_ms: int = NOON, before: BucketView | None = None, terms: EffectiveLimits | None = None
) -> BucketView:
    """Return a client's view of an item."""
    return view_of(item, seen_ms, before, terms)


def step(
    seen: BucketView | None,
    terms: EffectiveLimits,
    consume: Mapping[str, int],
    now: TimeBounds,
    progress: Progress | None = None,
    reserve: Reserve | None = None,
) -> NextStep:
    """Return the next step of a request."""
    known = progress or Progress(trust_ms=1000)
    return next_step_above(seen, terms, amounts_of(dict(consume), terms), now, known, reserve)


def write_of(
    chosen: NextStep, seen: BucketView | None, terms: EffectiveLimits, consume: Mapping[str, int], now: TimeBounds
) -> Any:
    """Return the operation of a step that writes, None for a step that does not."""
    match chosen:
        case Take() if seen is not None:
            return bucket_writes.take(seen, chosen, next(_nonces))
        case Rebase(rebasing=rebasing) if seen is not None:
            return bucket_writes.rebase(seen, rebasing, next(_nonces))
        case Create():
            milli = {name: tokens * 1000 for name, tokens in consume.items()}
            return bucket_writes.create(OWNER, terms, milli, now[1], Signature(next(_nonces), next(_births)))
    return None


def settling(
    seen: BucketView,
    now: TimeBounds,
    debits: Mapping[str, int] | None = None,
    credits: Mapping[str, int] | None = None,
    tries: int = 0,
) -> Update | None:
    """Return the write that settles whole tokens, None if there is nothing to write."""
    settlement = Settlement(
        tuple((name, tokens * 1000) for name, tokens in (debits or {}).items()),
        tuple((name, tokens * 1000) for name, tokens in (credits or {}).items()),
    )
    parts = settle(seen, settlement, now, tries)
    return bucket_writes.settle(seen, parts, next(_nonces)) if parts.parts else None


def taking(
    seen: BucketView,
    terms: EffectiveLimits,
    consume: Mapping[str, int],
    now: TimeBounds,
    progress: Progress | None = None,
) -> Update:
    """Return the write of a request whose next step must be a take or a rebase."""
    chosen = step(seen, terms, consume, now, progress)
    operation = write_of(chosen, seen, terms, consume, now)
    assert isinstance(operation, Update), chosen
    return operation


def refused_so_often(count: int, now: TimeBounds) -> Progress:
    """Return the progress of a request that was refused this many times, the last time just now."""
    progress = Progress(trust_ms=1000)
    for _ in range(count):
        progress = progress.after_refusal(now, guessed=True)
    return progress


@dataclass
class Client:
    """A client with its own view and limits, whose every request completes before any other client acts."""

    terms: EffectiveLimits
    item: Item = field(default_factory=dict)
    seen: BucketView | None = None
    steps: list[NextStep] = field(default_factory=list)
    trust_ms: int = 1000
    reserve: Reserve | None = None

    def request(self, consume: Mapping[str, int], now: TimeBounds) -> list[LimitStatus]:
        """Request these amounts; return [] if admitted, otherwise the statuses for the caller."""
        progress = Progress(trust_ms=self.trust_ms)
        self.steps = []
        while len(self.steps) < 64:
            chosen = step(self.seen, self.terms, consume, now, progress, self.reserve)
            self.steps.append(chosen)
            if isinstance(chosen, Reject):
                levels = limit_levels(self.seen, self.terms, chosen.at)
                amounts = amounts_of(dict(consume), self.terms)
                return statuses(("user-1", "gpt-4"), levels, amounts, chosen.at, chosen.at, self.reserve)
            if isinstance(chosen, Look):
                self.look(now)
                progress = progress.after_look()
            elif isinstance(chosen, Resolve):
                progress = progress.after_resolve(None if self.seen is None else self.seen.layout.stamp)
            else:
                operation: Put | Update = write_of(chosen, self.seen, self.terms, consume, now)
                answer = apply(operation, self.item)
                if isinstance(answer, Applied):
                    self.item = dict(answer.new)
                    self.look(now)
                    if not isinstance(chosen, Rebase) or chosen.takes:
                        return []
                    progress = progress.after_look()
                elif isinstance(answer, Refused):
                    guessed = self.seen is not None and self.seen.layout.describes(self.item)
                    self.look(now)
                    progress = progress.after_refusal(now, guessed=guessed)
                else:
                    self.seen = None
                    progress = progress.after_vanishing()
        raise AssertionError(f"no end: {self.steps[-3:]}")

    def look(self, now: TimeBounds) -> None:
        """Read the item; the pace of other clients is not learned, since there are none."""
        self.seen = view_of(self.item, now[1], None) if self.item else None
