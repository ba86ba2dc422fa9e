"""Find thresholds that buckets have reached, and mark each before it is reported. Without waiting, as in ``apply``.

A warning is sent at most once. So its mark is written first, and only the function or process whose write was applied
sends it. If that one ends between the two, the warning is lost. The other order would send it twice.

A threshold is a part of the capacity of the whole bucket. A record of the stream shows one shard. So all shards of a
bucket with several are read, once per batch. A single shard does not show it: requests use the shards unevenly. The
shard with the most use reaches a threshold before the bucket does, and the last request may go to another one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.outcome import Committed, TransactOutcome, Unavailable
from zae_limiter.core.usage import Window, window_at
from zae_limiter.core.warnings import (
    Crossing,
    LimitUse,
    LimitWarning,
    MarkKey,
    Marks,
    WarningMark,
    crossings,
    is_all_marked,
    quiet_until_ms,
    total_uses,
    uses_of,
    warning_of,
)
from zae_limiter.schema import namespace_item, usage_item, warning_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Operation
from zae_limiter_aggregator.apply import ApplyContext, Read, TableDialogue, Transaction, all_shards, pause
from zae_limiter_aggregator.plan import Rules, ThresholdCheck

if TYPE_CHECKING:
    from zae_limiter.schema.bucket_item import BucketView

_MOST_TRIES = 8
_RECORD_SPAN_MS = 1000
"""A record of a stream has the second in which it was written. This many milliseconds later, it has been written."""


class Warned(NamedTuple):
    """The warnings to send, and all marks of the bucket that are known now."""

    warnings: Sequence[LimitWarning]
    marks: Marks


def check(wanted: ThresholdCheck, known: Marks, rules: Rules, context: ApplyContext) -> TableDialogue[Warned]:
    """Return the warnings about a bucket; ``known`` are marks that are remembered.

    Raises:
        CorruptItemError: A shard, the record of marks, or the record of the namespace is damaged.
    """
    views = _views(wanted)
    uses = [use for view, at_ms in views for use in uses_of(view, at_ms, at_ms + _RECORD_SPAN_MS)]
    widest = max(view.layout.shard_count for view, _ in views)
    if widest > 1:
        if is_all_marked(uses, known):
            return Warned((), known)
        uses = yield from _uses_of_all(wanted.bucket, views, widest, context)
    if not crossings(uses, known):
        return Warned((), known)
    return (yield from mark(wanted.bucket, uses, rules, context))


def mark(bucket: BucketKey, uses: Sequence[LimitUse], rules: Rules, context: ApplyContext) -> TableDialogue[Warned]:
    """Mark the thresholds that were reached and are not marked yet, and return the warnings about them.

    There are none if another writer has marked them, or if the namespace is being purged.

    Raises:
        CorruptItemError: The record of marks, or the record of the namespace, is damaged.
    """
    wanted = (namespace_item.reverse_key(bucket.namespace_id), warning_item.warned_key(bucket))
    marks: Mapping[MarkKey, WarningMark] = {}
    for attempt in range(_MOST_TRIES):
        first, item = yield Read(wanted, attempt > 0)
        namespace = None if first is None else namespace_item.from_item(first)
        if namespace is None or namespace.status is NamespaceStatus.PURGING:
            break
        marks = warning_item.marks_of(item or {})
        found = crossings(uses, marks)
        if not found:
            break
        made = {one.key: one.mark for one in found}
        until_s = max(quiet_until_ms(one.use) for one in found) // 1000 + rules.retention_s
        operations: list[Operation] = [namespace_item.require_unchanged(namespace)]
        operations += [warning_item.mark(bucket, made, item or {}, until_s), *_in_usage(bucket, found, rules)]
        outcome: TransactOutcome = yield Transaction(tuple(operations), f"warned-{next(context.nonces)}")
        if isinstance(outcome, Committed):
            warnings = [warning_of(one, namespace.name, bucket.entity_id, bucket.resource) for one in found]
            return Warned(warnings, {**marks, **made})
        if isinstance(outcome, Unavailable) and not outcome.ambiguous:
            break
        # A write without an answer may have been applied. If the next read finds its mark, nothing is sent. If it is
        # applied after that, its condition refuses it.
        yield pause(attempt)
    return Warned((), marks)


def _in_usage(bucket: BucketKey, found: Sequence[Crossing], rules: Rules) -> list[Operation]:
    """Return the writes that show thresholds in the usage of the windows in which they were reached."""
    windows: dict[Window, dict[MarkKey, WarningMark]] = {}
    for one in found:
        for window_type in rules.window_types:
            windows.setdefault(window_at(window_type, one.use.at_ms), {})[one.key] = one.mark
    return [usage_item.warned(bucket, window, marks, rules.expiry_s(window)) for window, marks in windows.items()]


def _views(wanted: ThresholdCheck) -> "list[tuple[BucketView, int]]":
    """Return the shards in the changes of a bucket, each with the time of its change.

    Raises:
        CorruptItemError: A shard is damaged.
    """
    # Imported here: most batches have no bucket with thresholds, and a container that starts is billed for imports.
    from zae_limiter.schema.bucket_item import view_of
    from zae_limiter.tables.dynamodb.codec import decode_item

    views = []
    for change in wanted.changes:
        assert change.image is not None, "only changes with thresholds are checked"
        views.append((view_of(decode_item(change.image), change.at_ms, None), change.at_ms))
    return views


def _uses_of_all(
    bucket: BucketKey, views: "Sequence[tuple[BucketView, int]]", widest: int, context: ApplyContext
) -> TableDialogue[list[LimitUse]]:
    """Return what is used of each limit by all shards now."""
    stored = yield from all_shards(bucket, widest, context)
    at_ms, level_ms = max(at_ms for _, at_ms in views), context.now()[1]
    changed: dict[int, list[LimitUse]] = {}
    for view, changed_ms in views:
        changed.setdefault(view.layout.shard, []).extend(uses_of(view, changed_ms, level_ms))
    return total_uses(changed, {shard: uses_of(view, at_ms, level_ms) for shard, view in stored.items()})
