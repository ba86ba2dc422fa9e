"""The rules of the model of quotas: the rows of ``zae_limiter.core.quota``. A mutation replaces some of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zae_limiter.core import quota


@dataclass(frozen=True)
class Rules:
    """One function per row, and the conditions that a writer adds to it."""

    epoch_of: Callable[[int], int] = quota.epoch_of
    known_s: Callable[..., int] = quota.known_s
    current_epoch: Callable[[int, int, int], int] = quota.current_epoch
    view: Callable[..., quota.QuotaView] = quota.QuotaView
    settle_and_take: Callable[..., Any] = quota.take_and_settle
    debit: Callable[..., Any] = quota.debit
    debit_and_credit: Callable[..., Any] = quota.debit_and_credit
    credit: Callable[..., Any] = quota.credit
    share_credit: Callable[..., Any] = quota.share_credit
    created: Callable[[int, int], int] = quota.created
    rebase_schedule: Callable[..., Any] = quota.rebase_schedule
    rebase_soft: Callable[..., Any] = quota.rebase_soft
    split: Callable[..., Any] = quota.split
    merge: Callable[..., Any] = quota.merge
    reset: Callable[..., Any] = quota.reset
    credits_any: bool = False
    resends_credits: bool = False
    guards: bool = True
    honours_tokens: bool = True
    whole_group: bool = True


REAL = Rules()
