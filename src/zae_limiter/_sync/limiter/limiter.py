"""SyncRateLimiter: the public verbs. The admin verbs are those of its repository."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Iterator, Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Unpack, cast

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.admin import DelegatedVerbs
from zae_limiter._sync.limiter.client import BucketClient
from zae_limiter._sync.limiter.direct_client import DirectClient
from zae_limiter._sync.limiter.lease import GIVE_BACK, KEEP, BatchedLease, DirectLease, SyncLease
from zae_limiter._sync.limiter.lease_facts import OnError
from zae_limiter._sync.protocol import SyncRepositoryProtocol, ScopedRepository, unwrap
from zae_limiter._sync.store.scope import Closable, Scope
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import check_priority, priority_reserves
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.waiting import DEFAULT_QUEUE, PaceProgress, Queue, check_queue

if TYPE_CHECKING:
    from zae_limiter._sync.deprecated import Named
    from zae_limiter._sync.limiter.group_commit import BatchedClient
    from zae_limiter._sync.limiter.lease_also import SeveralLease
    from zae_limiter._sync.limiter.waiting import WaitingLease
    from zae_limiter.infra.discovery import LimiterInfo


class SyncRateLimiter(DelegatedVerbs, Closable):
    """Limits calls by what is stored in a repository.

    Example:
        ```python
        repo = SyncRepository.open("memory://")
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults([Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)])
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            lease.adjust(tpm=120)
        ```
    """

    def __init__(
        self,
        repository: SyncRepositoryProtocol | None = None,
        *,
        speculative_writes: bool = True,
        group_commit: bool = True,
        queue: Queue = DEFAULT_QUEUE,
        priority_reserve: Mapping[int, float] | None = None,
        **named: "Unpack[Named]",
    ) -> None:
        """Limit by a repository. Without one, the first call opens what ``named`` says; this form is deprecated.

        Args:
            repository: An open repository, which stores limits and buckets.
            speculative_writes: Write without reading first, based on the cached view of the bucket. False adds a read.
            group_commit: Send concurrent acquires of one bucket as one write, on DynamoDB.
            queue: How many requests may wait for one bucket, and in which order.
            priority_reserve: The part of each capacity that requests up to a priority must leave to others. With
                ``{-1: 0.5}``, requests of priority -1 and below are admitted only if half of it remains after them.
            **named: The arguments of the deprecated form.

        Raises:
            ValidationError: There is neither a repository nor a name, or there are both, or the repository is neither
                a ``SyncRepository`` nor a wrapper of one. Or a reserve is invalid.
        """
        if repository is None:
            # A limiter that is given a repository pays for none of this.
            from zae_limiter._sync.deprecated import NamedRepository, warn_deprecated

            repository = NamedRepository(named)
            warn_deprecated(type(self).__name__)
        elif named:
            raise ValidationError("repository", sorted(named), "is open already: choose these where it is opened")
        self._repository = repository
        self._speculative = speculative_writes
        self._together = group_commit
        self._queue = check_queue(queue)
        self._reserves = priority_reserves(priority_reserve)
        self._waiting_kinds: dict[type[SyncLease], type[WaitingLease]] | None = None
        wrapped = unwrap(repository)
        if not wrapped.is_open:
            from zae_limiter._sync.deprecated import LateRateLimiter, late_form

            # Not in __new__, which would be handed the arguments of a subclass's own constructor.
            self.__class__ = late_form(type(self), LateRateLimiter)
        self._begin(wrapped)

    def _begin(self, repository: ScopedRepository) -> None:
        scope = repository.scope
        # Chosen once: a write to an embedded table is made in place, and writes to a networked table are batched.
        if scope.table.inline:
            self._client: BucketClient = _direct_kind(scope)(scope, speculative=self._speculative)
            self._lease_kind: type[SyncLease] = DirectLease
        else:
            batched = _batched_kind(scope)
            self._client = batched(scope, speculative=self._speculative, together=self._together)
            self._lease_kind = BatchedLease

    @property
    def repository(self) -> SyncRepositoryProtocol:
        """The repository."""
        return self._repository

    @property
    def name(self) -> str:
        """The name of the stack on DynamoDB; in memory or a file, the URL of the table."""
        return self._repository.name

    def acquire(  # noqa: PLR0913 - each is an argument of the caller, named in the call
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        limits: Sequence[Limit] | None = None,
        on_unavailable: OnUnavailable | str | None = None,
        on_error: OnError = GIVE_BACK,
        durable: bool = False,
        also: Sequence[Also] | None = None,
        on_lost: Callable[[SyncLease], object] | None = None,
        max_wait: float | None = None,
        priority: int = 0,
    ) -> SyncLease:
        """Take from every limit named in ``consume``, or from none.

        Entering takes the tokens and yields the lease. Leaving writes its adjustments. Leaving by an exception
        gives everything back, unless ``lease.commit()`` was called or ``on_error`` is ``keep``.

        Args:
            entity_id: The user, key or project that is limited.
            resource: What it uses, for example a model.
            consume: How many tokens to take from each limit, by its name. 0 is admitted even if the limit is in debt.
            limits: Replace the stored limits for this call. If the entity cascades, they also apply to each entity
                above it without stored limits. If None, the stored limits are in force.
            on_unavailable: ``block`` raises if the store is unavailable; ``allow`` admits the call without
                limiting. If None, the repository decides, then the stored defaults, then ``block``.
            on_error: ``give_back`` returns everything if the block raises. ``keep`` writes the adjustments.
            durable: Write the adjustments when the lease ends, despite ``settle_within``.
            also: Other entities and resources to take from, all or none. ``limits`` does not apply to them.
            on_lost: Called with the lease if its slots were not renewed in time. Its work continues. A sync limiter
                calls it on a thread of its own.
            max_wait: Wait at most this many seconds, behind requests of this process that wait for the same bucket.
                None rejects immediately, as 0 does, but goes before those that wait.
            priority: Requests of a higher priority go first among those that wait. A low one must leave the
                ``priority_reserve`` of the limiter.

        Raises:
            RateLimitExceeded: A limit lacks the tokens, on entering, and the wait cannot end in time or has ended.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
            AmountExceedsCapacityError: An amount exceeds a capacity, or what a reserve leaves of it, so the request can
                never be admitted.
            ValidationError: A name, an amount or a limit is invalid.
            RateLimiterUnavailable: The store is unavailable, and ``on_unavailable`` is ``block``.
        """
        if also or max_wait is not None or on_lost is not None or self._reserves is not None:
            arguments = (entity_id, resource), consume, limits, on_unavailable, on_error, durable
            lease = self._rare_lease(arguments, also, max_wait, priority)
            return lease if on_lost is None else lease.report_loss_to(on_lost)
        return self._lease_kind(self._client, (entity_id, resource), consume, limits, on_unavailable, on_error, durable)

    def pace(
        self,
        entity_id: str,
        resource: str,
        consume: dict[str, int],
        count: int | None = None,
        limits: Sequence[Limit] | None = None,
        priority: int = 0,
        progress: Callable[[PaceProgress], object] | None = None,
    ) -> Iterator[SyncLease]:
        """Yield leases as fast as the limits allow, for a job of many calls.

        Each lease has been entered. It is settled when the next one is requested, or when the loop ends. What it took
        is charged even if the loop ends by an exception, because the lease cannot see it.

        Args:
            entity_id: As for ``acquire``.
            resource: As for ``acquire``.
            consume: What each lease takes.
            count: Stop after this many leases; None never stops.
            limits: As for ``acquire``.
            priority: As for ``acquire``; a negative one lets other requests that wait go first.
            progress: Is called with a ``PaceProgress`` for every lease, before it is yielded.

        Raises:
            RateLimitExceeded: The queue is full, or an amount exceeds a capacity.
            ValidationError: A name, an amount or a limit is invalid.
            RateLimiterUnavailable: The store is unavailable.
        """
        granted, waited_s, began_s = 0, 0.0, inf
        while count is None or granted < count:
            one = self.acquire(entity_id, resource, consume, limits, on_error=KEEP, max_wait=inf, priority=priority)
            with one as lease:
                granted, waited_s, now_s = granted + 1, waited_s + lease.waited, self._client.monotonic_s()
                began_s = min(began_s, now_s - lease.waited)
                if progress is not None:
                    progress(PaceProgress(granted, count, waited_s, now_s - began_s))
                yield lease

    def _rare_lease(
        self, arguments: tuple[Any, ...], also: Sequence[Also] | None, max_wait: float | None, priority: int
    ) -> SyncLease:
        """Return a lease of several requests, or of one that must leave a reserve; it may wait."""
        reserve = self._reserves.of(check_priority(priority)) if self._reserves is not None else None
        is_several = also or reserve is not None
        kind = self._several_kind() if is_several else self._lease_kind
        if max_wait is None:
            lease = kind(self._client, *arguments)
        else:
            lease = self._waiting_kind(kind)(self._client, *arguments).wait(max_wait, priority, self._queue, reserve)
        return cast("SeveralLease", lease).ask(also or (), reserve) if is_several else lease

    def _waiting_kind(self, kind: type[SyncLease]) -> "type[WaitingLease]":
        """Return the kind of lease that waits, of the same kind otherwise."""
        if self._waiting_kinds is None:
            # Imported here, because most limiters let no request wait.
            from zae_limiter._sync.limiter.waiting import KINDS

            self._waiting_kinds = KINDS
        return self._waiting_kinds[kind]

    def _several_kind(self) -> "type[SeveralLease]":
        """Return the kind of lease for several requests."""
        # Imported here, because most limiters do not need it.
        from zae_limiter._sync.limiter.lease_also import BatchedSeveralLease, DirectSeveralLease

        return DirectSeveralLease if issubclass(self._lease_kind, DirectLease) else BatchedSeveralLease

    def available(self, entity_id: str, resource: str, limits: Sequence[Limit] | None = None) -> dict[str, int]:
        """Return what is available of each limit now; below zero if it is in debt, 0 if the entity is blocked.

        If an acquire would take from several buckets, this is the smallest amount of all of them.
        """
        self._client.flush()
        buckets, blocked = self._client.levels.all_levels((entity_id, resource), limits, self._client.until_s())
        now = self._client.now()
        found: dict[str, int] = {}
        for bucket in buckets:
            for level in bucket.levels:
                if bucket.bucket[0] == entity_id or level.name in found:
                    left = 0 if blocked else level.available_milli(now) // 1000
                    found[level.name] = min(left, found.get(level.name, left))
        return found

    def time_until_available(
        self, entity_id: str, resource: str, needed: dict[str, int], limits: Sequence[Limit] | None = None
    ) -> float:
        """Return the seconds until everything needed is available, if no other request takes from it meanwhile.

        If an acquire would take from several buckets, this is the longest wait of all of them.

        Raises:
            EntityBlockedError: The entity is blocked.
        """
        if type(needed) is not dict:
            raise ValidationError("needed", needed, "must be a dict of limit names and amounts")
        self._client.flush()
        buckets, blocked = self._client.levels.all_levels((entity_id, resource), limits, self._client.until_s())
        if blocked is not None:
            raise blocked
        now = self._client.now()
        waits: list[int] = []
        own = {name for bucket in buckets if bucket.bucket[0] == entity_id for name in bucket.terms.positions}
        for bucket in buckets:
            # The first bucket refuses names that are not in force for the entity.
            known = bucket.terms.positions if waits else {*bucket.terms.positions, *(needed.keys() - own)}
            waits.append(bucket.wait_ms({name: amount for name, amount in needed.items() if name in known}, now))
        return max(waits) / 1000

    def is_available(self, timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - the specification names it so
        """Return whether the store responds within the timeout."""
        try:
            return runtime.within(timeout, self._repository.ping)
        except (TimeoutError, RateLimiterUnavailable):
            return False

    def ensure_infrastructure(self) -> None:
        """Deploy the stack that a deprecated constructor has named; do nothing for an open repository.

        Raises:
            UnsupportedByBackendError: A file or memory has no infrastructure.
            InfrastructureError: The deployment failed; the message says why, and what to do.
        """
        self._repository.ensure_infrastructure()

    @staticmethod
    def list_deployed(region: str | None = None, endpoint_url: str | None = None) -> "list[LimiterInfo]":
        """Return the limiters that are deployed in a region, by name.

        Raises:
            ValidationError: No region is configured.
            InfrastructureError: There are no credentials, or AWS refuses, or cannot be reached.
        """
        # Imported here, so that a limiter does not pay for AWS clients that it does not use.
        from zae_limiter.infra.clients import Clients
        from zae_limiter.infra.discovery import list_limiters

        return runtime.in_thread(list_limiters, Clients(region, endpoint_url))

    def close(self) -> None:
        """Close the repository."""
        self._repository.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._repository!r})"


def _direct_kind(scope: Scope) -> type[DirectClient]:
    if scope.settings.settle_within_s > 0:
        # Imported here, because most limiters do not put off settlements.
        from zae_limiter._sync.limiter.deferred import DeferringDirectClient

        return DeferringDirectClient
    return DirectClient


def _batched_kind(scope: Scope) -> "type[BatchedClient]":
    # Imported here, because an embedded table needs no batches.
    if scope.settings.settle_within_s > 0:
        from zae_limiter._sync.limiter.deferred import DeferringBatchedClient

        return DeferringBatchedClient
    from zae_limiter._sync.limiter.group_commit import BatchedClient

    return BatchedClient
