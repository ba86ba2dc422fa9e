"""Warns about limits of an embedded table when a request of this process reaches one of their thresholds.

A deployed table has an aggregator for this. An embedded table counts usage only when it is read. So the client checks
what each of its own writes returns, without a call, and only for limits that have thresholds. If one is reached, it is
marked in the table beside the request. The process that writes the mark sends the warning, so that others do not.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Callable, Sequence
from functools import partial

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.store.scope import PutOff, Scope
from zae_limiter.caches.buckets import Bounded, BucketId
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.warnings import LimitUse, LimitWarning, Marks, crossings, uses_of
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.keys import BucketKey

_log = logging.getLogger("zae_limiter")

_MOST_KNOWN = 10_000

OnWarning = Callable[[LimitWarning], object]
"""What a user wants to be called with each warning; in the async tree, it may be an async function."""


class Warner:
    """Sends the warnings of one client to the log, and to a function of the user if there is one."""

    def __init__(self, on_warning: OnWarning | None, put_off: PutOff) -> None:
        self._on_warning = on_warning
        self._put_off = put_off
        self._calls = runtime.BackgroundCalls()
        self._known: Bounded[tuple[str, BucketId], Marks] = Bounded(_MOST_KNOWN)

    def look(self, scope: Scope, bucket: BucketId, view: BucketView) -> None:
        """Start a warning if a bucket has reached a threshold that is not known to be marked."""
        uses = uses_of(view, scope.table.now()[0])
        # An embedded table never splits a bucket, so a single shard shows all of it.
        name = (scope.namespace_id, bucket)
        known = self._known.get(name, {})
        found = crossings(uses, known)
        if found and view.layout.shard_count == 1 and self._put_off.add(self):
            # Before the mark is written, so that the next request does not start the same warning.
            self._known.keep(name, {**known, **{one.key: one.mark for one in found}})
            if not self._calls.start(partial(self._warn, scope, bucket, uses)):
                self._known.drop(name)

    def finish(self) -> None:
        """Wait until all warnings were sent, because the repository is closed."""
        self._calls.drain()

    def _warn(self, scope: Scope, bucket: BucketId, uses: Sequence[LimitUse]) -> None:
        """Mark the thresholds that were reached, and send the warnings that this process has marked."""
        # Imported here, because most tables have no thresholds.
        from zae_limiter._sync.store.dialogues import carry_out
        from zae_limiter_aggregator.apply import ApplyContext
        from zae_limiter_aggregator.plan import Rules
        from zae_limiter_aggregator.warn import mark

        context = ApplyContext(scope.client.nonces, scope.table.now)
        try:
            warned = carry_out(
                scope.table, mark(BucketKey(scope.namespace_id, *bucket, 0), uses, Rules(), context)
            )
        except ZAELimiterError as error:
            # The next request that is above the threshold tries again.
            self._known.drop((scope.namespace_id, bucket))
            _log.warning("Warning put off until the next use: %s: %s", bucket, error)
            return
        self._known.keep((scope.namespace_id, bucket), warned.marks)
        for warning in warned.warnings:
            _log.warning("Limit warning: %s", warning.text)
            self._call(warning)

    def _call(self, warning: LimitWarning) -> None:
        """Call the function of the user; its error is logged, and other warnings are still sent."""
        if self._on_warning is None:
            return
        try:
            runtime.call_back(self._on_warning, warning)
        except Exception:  # noqa: BLE001 - it is the code of the user, and runs beside a request
            _log.error("Function on_warning failed: %s", warning.text, exc_info=True)
