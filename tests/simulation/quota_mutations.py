"""Break a rule of quotas in the code that the fleet runs: the rules of the model, and some of the fleet's own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from tests.model.quotas_mutations import MUTATIONS
from tests.model.quotas_rules import REAL
from zae_limiter.core import bucket_changes, quota, tracked
from zae_limiter.core.names import MAX_QUOTA
from zae_limiter.core.quota import QuotaView
from zae_limiter.core.tracked import Refund, TrackedTake
from zae_limiter.core.view import View

_ROWS = {
    "epoch_of": "epoch_of",
    "known_s": "known_s",
    "current_epoch": "current_epoch",
    "view": "QuotaView",
    "settle_and_take": "take_and_settle",
    "debit": "debit",
    "debit_and_credit": "debit_and_credit",
    "credit": "credit",
    "share_credit": "share_credit",
    "created": "created",
    "rebase_schedule": "rebase_schedule",
    "rebase_soft": "rebase_soft",
    "split": "split",
    "merge": "merge",
}
"""The rules of the model, and the functions of ``core.quota`` that they replace."""

Patches = list[tuple[Any, str, Any]]


def _take_quota(view: View[Any], position: int, milli: int, low_ms: int) -> TrackedTake | None:
    """Take as ``tracked._take_quota`` does, always by the rows."""
    seen, units = tracked.quota_view(view, position, low_ms // 1000), milli // 1000
    if view.layout.shared.shares[position].limit.enforce:
        write: Any = quota.take(seen, units)
    else:
        units = min(units, MAX_QUOTA)
        write = quota.debit(seen, units)
    return None if write is None else TrackedTake(tracked._part(position, milli, write), seen.epoch, units * 1000)


def _kept_epoch(qk: int, begin_s: int, tolerance: int) -> int:
    """Keep the epoch that something was spent in."""
    band = quota.epoch_of(qk)
    return band if QuotaView(qk, band, 0, 0).spent else max(band, 2 * begin_s)


def _refund_twice(settlement: Any, real: Callable[..., Any] = bucket_changes.settle_tracked) -> Callable[..., Any]:
    def doubled(view: Any, position: int, debit: int, refunds: Any, now: Any) -> Any:
        return real(
            view, position, debit, [Refund(one.name, one.epoch, 2 * one.milli, one.counted) for one in refunds], now
        )

    return doubled


OWN: dict[str, Patches] = {
    "quota that keeps its epoch": [(quota, "current_epoch", _kept_epoch)],
    "refund of twice the amount": [(bucket_changes, "settle_tracked", _refund_twice(None))],
    "soft limit that rejects": [
        (tracked, "_take_soft", lambda view, position, milli, now: None),
    ],
}
"""Rules that only the fleet breaks."""


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Break a rule while the block runs."""
    patches: Patches = list(OWN.get(name, []))
    if not patches:
        (rules,) = [one.rules for one in MUTATIONS if one.name == name]
        changed = {field: getattr(rules, field) for field in _ROWS}
        patches = [(quota, _ROWS[field], row) for field, row in changed.items() if row is not getattr(REAL, field)]
        patches.append((tracked, "_take_quota", _take_quota))
    with ExitStack() as stack:
        for owner, attribute, value in patches:
            stack.enter_context(mock.patch.object(owner, attribute, value))
        yield
