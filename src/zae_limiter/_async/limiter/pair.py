"""A child and its parent that this client has never seen: both are read, then taken from in one transaction.

So a first touch costs one round trip less than to take from one after the other, and a crash leaves neither charged
without the other. Once they are known they are written to at once, each by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from zae_limiter._async.caches import BucketId, Remembered
from zae_limiter._async.limiter.request import AcquireRequest, Rejected
from zae_limiter._async.limiter.resolve import NoLimitsInForceError
from zae_limiter._async.limiter.shard_attempt import AttemptContext
from zae_limiter._async.store.configs import ConfigStore
from zae_limiter.core.acquire import Create, Progress, Reject, Take, amounts_of, limit_levels, next_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import check_limits
from zae_limiter.core.outcome import Cancelled, Committed, Refused, Unavailable
from zae_limiter.core.view import Amounts, EffectiveLimits, Grant
from zae_limiter.schema import attributes, bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Put, Update

_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class Paired:
    """A child and its parent were both taken from: the grant of the child, the parent's bucket, and its grant."""

    grant: Grant
    parent: BucketId
    parent_grant: Grant


class PlannedTake(NamedTuple):
    """A take that the view of a bucket admits, ready to be written."""

    bucket: BucketId
    memory: Remembered
    view: BucketView
    terms: EffectiveLimits
    amounts: Amounts
    step: Take
    consume: dict[str, int]
    now: TimeBounds


class ChildTaken(NamedTuple):
    """A child was taken from; ``above`` is the take from its parent, which the parent's view admits."""

    grant: Grant
    above: PlannedTake


def plan_above(
    buckets: Mapping[BucketId, Remembered], bucket: BucketId, consume: dict[str, int], now: TimeBounds, first: Progress
) -> PlannedTake | Rejected | None:
    """Return the take from a parent's bucket that is known, or its rejection; None if that needs a call.

    Raises:
        ValidationError: The bucket can never admit the request.
    """
    memory = buckets.get(bucket)
    if memory is None:
        return None
    known, view = memory.limits, memory.view
    if view is None or known is None or known.terms is None or memory.shards is not None:
        return None
    terms = known.terms
    if not known.read_ms <= now[0] < known.expires_ms or not consume.keys() <= terms.positions.keys():
        return None
    amounts = amounts_of(consume, terms)
    step = next_step(view, terms, amounts, now, first)
    if type(step) is Take:
        # As PlannedTake(...), without the call.
        return _new_tuple(PlannedTake, (bucket, memory, view, terms, amounts, step, consume, now))
    if type(step) is Reject:
        return Rejected(bucket, terms, limit_levels(view, terms, step.at), amounts, step.at, now)
    return None


@dataclass(slots=True)
class Met:
    """A bucket that was read for the first time, and the terms it is judged by."""

    request: AcquireRequest
    terms: EffectiveLimits
    found: BucketView | None


class FirstTouch:
    """Reads buckets that were never seen, and takes from two of them in one transaction."""

    def __init__(self, means: AttemptContext, configs: ConfigStore, first: Progress) -> None:
        self._means = means
        self._configs = configs
        self._looked = first.after_look()

    async def meet(self, request: AcquireRequest) -> Met:
        """Read a bucket and its configuration at once.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
            ValidationError: No limits are in force.
        """
        bucket = request.bucket
        buckets = self._means.buckets
        limits = None if request.own is None else check_limits(request.own)
        keys = [*self._configs.keys(bucket), buckets.key(bucket)]
        *configs, item = await self._means.table.batch_get(keys, until_s=request.until_s)
        terms = await self._means.resolver.terms_read(bucket, limits, configs, request.until_s)
        return Met(request, terms, buckets.learn((bucket, 0), item, terms))

    async def take_both(self, child: Met) -> Paired | Rejected | None:
        """Take from a child that was just met and from its parent, in one transaction.

        None: the parent limits nothing of it, or others were faster: they are taken from one by one then.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        request = child.request
        assert child.terms.parent_id is not None, "what cascades has a parent"
        above = (child.terms.parent_id, request.bucket[1])
        try:
            parent = await self.meet(request._replace(bucket=above, own=None, partly=True))
        except NoLimitsInForceError:
            return None
        now = self._means.table.now()
        writes = [self._written(one, now) for one in (child, parent)]
        operations = [write for write in writes if isinstance(write, Put | Update)]
        for write in writes:
            if isinstance(write, Rejected):
                return write
        if len(operations) < len(writes):
            return None
        token = f"pair-{next(self._means.nonces)}"
        whole = [*operations, *self._means.buckets.creation_checks(*operations)]
        outcome = await self._means.table.transact(whole, token, until_s=request.until_s)
        if isinstance(outcome, Unavailable):
            raise RateLimiterUnavailable(outcome.cause)
        self._learn((child, parent), operations, outcome)
        if isinstance(outcome, Cancelled):
            self._means.buckets.require_namespace(outcome.reasons[2:])
        if not isinstance(outcome, Committed):
            return None
        charged = [_granted(met, operation) for met, operation in zip((child, parent), operations, strict=True)]
        return Paired(charged[0], above, charged[1])

    def _written(self, met: Met, now: TimeBounds) -> Put | Update | Rejected | None:
        """Return how a bucket is taken from, that it lacks the tokens, or None if it takes more than one step."""
        amounts = met.request.amounts(met.terms)
        if not amounts:
            return None
        step = next_step(met.found, met.terms, amounts, now, self._looked)
        match step:
            case Take() if met.found is not None and met.found.layout.shard_count == 1:
                return bucket_writes.take(met.found, step, next(self._means.nonces))
            case Create():
                spent = {met.terms.limits[position].name: taken for position, taken in amounts}
                owner = self._means.buckets.owner(met.request.bucket)
                return bucket_writes.create(owner, met.terms, spent, now[1], self._means.buckets.signature())
            case Reject(at=at) if met.found is None or met.found.layout.shard_count == 1:
                stands = limit_levels(met.found, met.terms, at)
                return Rejected(met.request.bucket, met.terms, stands, amounts, at, now)
        return None

    def _learn(self, both: tuple[Met, Met], operations: list[Put | Update], outcome: Any) -> None:
        """Remember buckets as they were created, or as they refused."""
        reasons = outcome.reasons[:2] if isinstance(outcome, Cancelled) else (None, None)
        for met, operation, reason in zip(both, operations, reasons, strict=True):
            shard_id = (met.request.bucket, 0)
            if reason is not None:
                self._means.buckets.learn(shard_id, reason.old if isinstance(reason, Refused) else None, met.terms)
            elif isinstance(outcome, Committed) and isinstance(operation, Put):
                self._means.buckets.learn(shard_id, operation.item, met.terms)


def _granted(met: Met, operation: Put | Update) -> Grant:
    """Return what admitted a take that was carried out by this operation."""
    if isinstance(operation, Put):
        return Grant(met.terms, operation.item[attributes.BIRTH])
    assert met.found is not None, "only a bucket that was found is updated"
    return met.found.layout.granted(met.terms)
