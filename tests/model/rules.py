"""The rules that actors write by: the real writers. A mutation replaces some of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zae_limiter.core import operator_actions
from zae_limiter.core.acquire import NextStep
from zae_limiter.core.multi_shard import take_across
from zae_limiter.core.reserved_take import next_step_above
from zae_limiter.core.take_and_settle import TakeAndSettle
from zae_limiter.core.take_and_settle import take_and_settle as decide_combined
from zae_limiter.core.top_up import Creation, Known, TopUp, top_up
from zae_limiter.core.view import Amounts, EffectiveLimits
from zae_limiter.schema import attributes, bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Put, Update

Item = dict[str, Any]


def has_its_nonce(write: Put | Update, item: Item) -> bool:
    """Return whether the item that refused a resent write was last written by that very write."""
    written = write.item if isinstance(write, Put) else write.set
    return bool(item) and written[attributes.NONCE] == item[attributes.NONCE]


def drawn(fresh: int, nonce: int) -> int:
    """Return the birth number of a create: one that no bucket, view or lease has."""
    return fresh


def topped_up(
    creation: Creation, view: BucketView, terms: EffectiveLimits, amounts: Amounts, known: Known
) -> TopUp | None:
    """Return the top-up that is due, None if there is none or if other clients have written."""
    if not creation.is_certain(view) or not view.layout.follows(terms):
        return None
    return top_up(creation, view, terms, amounts, known)


@dataclass(frozen=True)
class Rules:
    """One function per writer, and what happens to a write whose answer is lost.

    ``topped_up`` decides what a top-up returns. ``filled`` and ``granted`` decide what an operator's reset and credit
    do. ``credits_any``: credits reach any bucket with the same name. ``keeps_records``: a credit of an operator
    requires that its record is absent. ``next_step``, ``take_across`` and ``combined`` decide what a request does that
    must leave a reserve.
    """

    take: Callable[..., Any] = bucket_writes.take
    top_up: Callable[..., Any] = bucket_writes.top_up
    topped_up: Callable[..., TopUp | None] = topped_up
    settle: Callable[..., Any] = bucket_writes.settle
    take_and_settle: Callable[..., Any] = bucket_writes.take_and_settle
    create: Callable[..., Any] = bucket_writes.create
    rebase: Callable[..., Any] = bucket_writes.rebase
    split: Callable[..., Any] = bucket_writes.split
    merge: Callable[..., Any] = bucket_writes.merge
    reset: Callable[..., Any] = bucket_writes.reset
    operator_credit: Callable[..., Any] = bucket_writes.operator_credit
    filled: Callable[..., Any] = operator_actions.reset
    granted: Callable[..., Any] = operator_actions.operator_credit
    sent_again: Callable[..., Any] = bucket_writes.sent_again
    is_mine: Callable[[Put | Update, Item], bool] = has_its_nonce
    resends_credits: bool = False
    honours_tokens: bool = True
    birth: Callable[[int, int], int] = drawn
    credits_any: bool = False
    keeps_records: bool = True
    next_step: Callable[..., NextStep] = next_step_above
    take_across: Callable[..., Any] = take_across
    combined: Callable[..., TakeAndSettle | None] = decide_combined


def create_without_birth(*given: Any) -> Put:
    """Return the create of a version before birth numbers."""
    write = bucket_writes.create(*given)
    return Put({name: value for name, value in write.item.items() if name != attributes.BIRTH}, write.when)


def _as_it_was(write: Put | Update, birth: int) -> Put | Update:
    return write if isinstance(write, Put) else bucket_writes.sent_again(write, birth)


REAL = Rules()

OLDER = Rules(create=create_without_birth, sent_again=_as_it_was)
"""The rules of a version before birth numbers."""
