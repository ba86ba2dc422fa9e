"""Carries out the steps of an acquire, and the settling of what it took, on one bucket.

What to do next is decided in ``core.acquire``; here it is done, and what was learnt is handed back.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar, assert_never

from zae_limiter._sync import runtime
from zae_limiter._sync.caches import BucketId
from zae_limiter._sync.limiter.availability import chosen
from zae_limiter._sync.limiter.resolve import OwnLimits, Resolver
from zae_limiter._sync.store.buckets import BucketStore, check_bucket
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.acquire import (
    Create,
    Look,
    Progress,
    Rebase,
    Reject,
    Resolve,
    Standing,
    Step,
    Take,
    amounts_of,
    next_step,
    standings,
    statuses,
)
from zae_limiter.core.bucket import Moment
from zae_limiter.core.composite import Settlement, Settling, settle
from zae_limiter.core.errors import NamespaceNotFoundError, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.limit import check_limits
from zae_limiter.core.outcome import Applied, Missing, Refused
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.view import Amounts, Terms
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_after_take
from zae_limiter.schema.operations import Put

_MOST_STEPS = 64
_TO_GIVE_BACK = 1 / 8
"""The part of a deadline that is kept for giving back to one bucket where another then gives nothing."""

T = TypeVar("T")


class Asking(NamedTuple):
    """What a caller asks for: so much of a bucket, by the stored limits or its own, and until when.

    ``partly``: what the bucket does not limit is not asked of it.
    """

    bucket: BucketId
    consume: dict[str, int]
    own: OwnLimits
    until_s: float
    partly: bool = False

    def amounts(self, terms: Terms) -> Amounts:
        """Return the amounts by these terms.

        Raises:
            ValidationError: An amount that is none, or that can never be admitted.
        """
        if not self.partly:
            return amounts_of(self.consume, terms)
        return amounts_of({name: amount for name, amount in self.consume.items() if name in terms.positions}, terms)


class BucketClient:
    """Takes from buckets and settles with them."""

    def __init__(self, scope: Scope, *, speculative: bool) -> None:
        self._scope = scope
        self.buckets = BucketStore(scope)
        self.resolver = Resolver(scope)
        self.now = scope.table.now
        self.nonces: Iterator[int] = scope.client.nonces
        self._monotonic_s = scope.client.clock.monotonic_s
        self._deadline_s = scope.settings.deadline_s
        self._configs = ConfigStore(scope)
        self._table = scope.table
        self.inline = scope.table.inline
        self.parallel = scope.client.parallel
        self._write = scope.table.write
        self._remembered = scope.caches.buckets
        self._caches = scope.caches
        self._first = Progress(trust_ms=scope.settings.reject_locally_ms, look_first=not speculative)

    def take(
        self, bucket: BucketId, consume: dict[str, int], own: OwnLimits, until_s: float, partly: bool = False
    ) -> Terms:
        """Take from a bucket, in one round trip as a rule, and return the terms it was judged by.

        ``partly``: what the bucket does not limit is not asked of it.

        Raises:
            RateLimitExceeded: The bucket lacks the tokens.
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        now = self.now()
        try:
            memory = self._remembered.get(bucket)
        except TypeError:
            # A name that cannot even be hashed is no name: it is refused with all the others that are none.
            memory = None
        known = None if memory is None else memory.limits
        if memory is None or known is None or own is not None or known.terms is None:
            return self._take_as_stranger(Asking(bucket, consume, own, until_s, partly))
        if not known.read_ms <= now[0] < known.expires_ms:
            # Not fresh, or read in the future of a clock that was set back since.
            return self._take_as_stranger(Asking(bucket, consume, own, until_s, partly))
        terms = known.terms
        self._caches.hits += 1
        if partly and not consume.keys() <= terms.positions.keys():
            return self._take_as_stranger(Asking(bucket, consume, own, until_s, partly))
        amounts = amounts_of(consume, terms)
        view = memory.view
        step = next_step(view, terms, amounts, now, self._first)
        if type(step) is Reject:
            raise exceeded(bucket, view, (terms, amounts), (step.at, now))
        if type(step) is not Take or view is None:
            return Errand(self, Asking(bucket, consume, own, until_s, partly), terms, self._first).run()
        update = bucket_writes.take(view, step, next(self.nonces))
        outcome = self._write(update, until_s)
        if type(outcome) is Applied:
            after = view_after_take(view, outcome.new, amounts, now[1])
            if memory.view is view:
                memory.view = after
            else:
                self.buckets.learn_taken(bucket, after)
            return terms
        fate = self.buckets.fate(update, outcome, update, until_s)
        errand = Errand(self, Asking(bucket, consume, own, until_s, partly), terms, self._first)
        return terms if errand.hear(fate, now) else errand.run()

    def _take_as_stranger(self, asking: Asking) -> Terms:
        """Take from a bucket whose terms are not at hand; where it was not seen either, both are read at once."""
        bucket, own, until_s = asking.bucket, asking.own, asking.until_s
        check_bucket(bucket)
        if self.buckets.remembered(bucket) is not None or self.resolver.is_known(bucket):
            return Errand(self, asking, self.resolver.terms(bucket, own, until_s), self._first).run()
        limits = None if own is None else check_limits(own)
        keys = [*self._configs.keys(bucket), self.buckets.key(bucket)]
        *configs, item = self._table.batch_get(keys, until_s=until_s)
        terms = self.resolver.agreed(bucket, limits, self._configs.learn(bucket, configs))
        self.buckets.learn(bucket, item, terms)
        return Errand(self, asking, terms, self._first.after_look()).run()

    def choice(self, asked: object) -> OnUnavailable:
        """Return what to do while the store is away."""
        return chosen(asked, self._scope)

    def take_whole(self, take: Callable[[], T], undo: Callable[[T], None]) -> T:
        """Take, and where the caller is cancelled while a write is in flight, see it through and undo it."""
        return (take() if self.inline else runtime.outlast(take, undo))

    def see_through(self, settling: Callable[[], None]) -> None:
        """Settle to the end, though the caller is cancelled."""
        (runtime.insist(settling) if self.inline else runtime.finish(settling))

    def until_s(self) -> float:
        """Return when the store must have answered what is begun now, by the clock that never goes back."""
        return self._monotonic_s() + self._deadline_s

    def with_time_to_give_back(self, asking: Asking) -> Asking:
        """Return the same request, to be answered early enough to be undone by the time it is to be answered."""
        return asking._replace(until_s=asking.until_s - self._deadline_s * _TO_GIVE_BACK)

    def settle(self, bucket: BucketId, settlement: Settlement, terms: Terms, until_s: float) -> None:
        """Charge debits and give credits back.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may have been given all the same.
        """
        view = self.buckets.remembered(bucket)
        if view is None or not view.frame.has_all(settlement.names):
            view = self.buckets.look(bucket, terms, until_s)
        refusals = 0
        for _ in range(_MOST_STEPS):
            if view is None and not (settlement.debits and self._has_namespace(bucket, until_s)):
                return
            if view is None:
                fate = self.buckets.send(self._charged_from_full(bucket, settlement, terms), until_s)
                own: Amounts = ()
            else:
                settling = settle(view, settlement, self.now(), refusals)
                if not settling.parts:
                    return
                own = [(part.position, part.spent) for part in settling.parts]
                fate = self._settle_with(view, settling, until_s)
            if isinstance(fate, Applied):
                self.buckets.learn(bucket, fate.new, terms, own)
                return
            if isinstance(fate, Refused):
                refusals += view is not None and view.frame.describes(fate.old)
            view = self.buckets.learn(bucket, fate.old if isinstance(fate, Refused) else None, terms)
        raise about(RateLimiterUnavailable(TimeoutError("others kept changing the bucket")), bucket)

    def _settle_with(self, view: BucketView, settling: Settling, until_s: float) -> Applied | Refused | Missing:
        """Send a settlement; after a lost answer only its debits are sent again, never a credit."""
        nonce = next(self.nonces)
        operation = bucket_writes.settle(view, settling, nonce)
        debits = [part for part in settling.parts if part.spent >= 0]
        again = bucket_writes.settle(view, Settling(debits, settling.held), nonce) if debits else None
        return self.buckets.fate(operation, self._write(operation, until_s), again, until_s)

    def _has_namespace(self, bucket: BucketId, until_s: float) -> bool:
        """Say whether there is still anyone to charge: a bucket that is gone may have gone with its namespace."""
        try:
            self._configs.read_again(bucket, until_s, consistent=True)
        except NamespaceNotFoundError:
            return False
        return True

    def _charged_from_full(self, bucket: BucketId, settlement: Settlement, terms: Terms) -> Put:
        owner, spent = self.buckets.owner(bucket), dict(settlement.debits)
        return bucket_writes.create(owner, terms, spent, self.now()[1], next(self.nonces))

    def standings(self, bucket: BucketId, own: OwnLimits) -> tuple[list[Standing], Terms]:
        """Look at a bucket and return how its limits stand, and the terms."""
        until_s = self.until_s()
        try:
            terms = self.resolver.terms(bucket, own, until_s)
            view = self.buckets.look(bucket, terms, until_s)
        except RateLimiterUnavailable as away:
            raise about(away, bucket) from away.cause
        return standings(view, terms, self.now()), terms


def exceeded(
    bucket: BucketId, view: BucketView | None, asked: tuple[Terms, Amounts], times: tuple[Moment, Moment]
) -> RateLimitExceeded:
    """Return the error of a request that was judged at one time and is rejected at another."""
    terms, amounts = asked
    judged, now = times
    return RateLimitExceeded(statuses(bucket, standings(view, terms, judged), amounts, judged, now))


def about(away: RateLimiterUnavailable, bucket: BucketId) -> RateLimiterUnavailable:
    """Return the same error, saying which bucket could not be reached."""
    entity_id, resource = bucket
    return RateLimiterUnavailable(away.cause, away.stack_name, entity_id, resource)


class Errand:
    """One request on its way to be admitted or rejected, once it takes more than one step."""

    def __init__(self, client: BucketClient, asking: Asking, terms: Terms, progress: Progress) -> None:
        self._client = client
        self._buckets = client.buckets
        self._asking = asking
        self._bucket = asking.bucket
        self._until_s = asking.until_s
        self._terms = terms
        self._amounts = asking.amounts(terms)
        self._progress = progress
        self._view: BucketView | None = client.buckets.remembered(asking.bucket)

    def run(self) -> Terms:
        """Do what is next until the request is admitted, and return the terms it was judged by.

        Raises:
            RateLimitExceeded: The bucket lacks the tokens.
        """
        for _ in range(_MOST_STEPS):
            if not self._amounts:
                return self._terms
            now = self._client.now()
            if self._carry_out(next_step(self._view, self._terms, self._amounts, now, self._progress), now):
                return self._terms
        raise about(RateLimiterUnavailable(TimeoutError("others kept changing the bucket")), self._bucket)

    def _carry_out(self, step: Step, now: Moment) -> bool:
        """Carry out a step; True if the request is admitted."""
        match step:
            case Reject(at=at):
                raise exceeded(self._bucket, self._view, (self._terms, self._amounts), (at, now))
            case Look():
                seen, self._view = self._view, self._buckets.look(self._bucket, self._terms, self._until_s)
                gone = seen is not None and self._view is None
                self._progress = self._progress.after_vanishing() if gone else self._progress.after_look()
            case Resolve():
                self._terms = self._client.resolver.terms_again(self._bucket, self._asking.own, self._until_s)
                self._amounts = self._asking.amounts(self._terms)
                self._progress = self._progress.after_resolve(None if self._view is None else self._view.frame.stamp)
            case Create():
                return self.hear(self._buckets.send(self._creation(now), self._until_s), now)
            case Take():
                update = bucket_writes.take(self._known_view(), step, next(self._client.nonces))
                return self.hear(self._buckets.send(update, self._until_s), now)
            case Rebase(rebasing=rebasing, takes=takes):
                update = bucket_writes.rebase(self._known_view(), rebasing, next(self._client.nonces))
                return self.hear(self._buckets.send(update, self._until_s), now) and takes
            case never:
                assert_never(never)
        return False

    def hear(self, fate: Applied | Refused | Missing, asked: Moment) -> bool:
        """Learn from the fate of a write that was judged at ``asked``; True if it was applied."""
        match fate:
            case Applied(new=new):
                self._view = self._buckets.learn(self._bucket, new, self._terms, self._amounts)
                self._progress = self._progress.after_look()
                return True
            case Refused(old=old):
                guessed = self._view is not None and self._view.frame.describes(old)
                self._view = self._buckets.learn(self._bucket, old, self._terms)
                self._progress = self._progress.after_refusal(asked, guessed=guessed)
            case Missing():
                self._view = self._buckets.learn(self._bucket, None, self._terms)
                self._progress = self._progress.after_vanishing()
            case never:
                assert_never(never)
        return False

    def _creation(self, now: Moment) -> Put:
        terms = self._terms
        spent = {terms.limits[position].name: taken for position, taken in self._amounts}
        return bucket_writes.create(self._buckets.owner(self._bucket), terms, spent, now[1], next(self._client.nonces))

    def _known_view(self) -> BucketView:
        assert self._view is not None, "a bucket is written to only once it was seen"
        return self._view
