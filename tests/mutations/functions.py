"""Mutated functions, for rules that are not part of one write. Each takes the real function and breaks one rule."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import zae_limiter.runtime.aio as runtime
from tests.mutations import writes
from zae_limiter.caches.request import Charge, Owed
from zae_limiter.core import rebase
from zae_limiter.core.add_or_set import Add
from zae_limiter.core.bucket_changes import Settlement, expiry_s
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import Applied, Unavailable
from zae_limiter.core.server_time import ServerTime, narrowed
from zae_limiter.core.take_and_settle import TakeAndSettle
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.attributes import sequence_attribute
from zae_limiter.schema.operations import AtLeast, Put

Real = Callable[..., Any]


def debit_sent_once(real: Real) -> Real:
    """Treat a debit whose answer was lost as applied."""

    async def settle_with(self: Any, view: Any, settling: Any, until_s: float) -> Any:
        operation = bucket_writes.settle(view, settling, next(self._nonces))
        outcome = await self._table.write(operation, until_s)
        if isinstance(outcome, Unavailable) and outcome.ambiguous and settling.held:
            return Applied(await self._table.get(operation.key, consistent=True, until_s=until_s))
        return await self._buckets.result_of(operation, outcome, None, until_s)

    return settle_with


def credit_sent_again(real: Real) -> Real:
    """Send a credit again after its answer was lost."""

    async def settle_with(self: Any, view: Any, settling: Any, until_s: float) -> Any:
        operation = bucket_writes.settle(view, settling, next(self._nonces))
        outcome = await self._table.write(operation, until_s)
        again = replace(operation, set={**operation.set, "op": next(self._nonces)})
        return await self._buckets.result_of(operation, outcome, again, until_s)

    return settle_with


def credit_unseen(real: Real) -> Real:
    """Credit a take whose answer never arrived."""

    async def take(self: Any, request: Any) -> Any:
        try:
            return await real(self, request)
        except RateLimiterUnavailable:
            until_s = self.until_s()
            terms = await self.resolver.terms(request.bucket, request.own, until_s)
            credits = tuple((name, amount * 1000) for name, amount in request.consume.items() if amount)
            await self.settler.settle(Owed(request.bucket, Settlement(credits=credits), terms, until_s))
            raise

    return take


def ancestors_ignored(known_rejection: Real) -> Real:
    """A fresh view of an ancestor that is short rejects nothing."""
    return lambda self, request: None if request.partly else known_rejection(self, request)


def credited_again(real: Real) -> Real:
    """Credit twice what a lease returns."""

    async def settle(self: Any, charges: list[Charge], *, now: bool) -> None:
        await real(self, charges, now=now)
        credits = [{name: amount for name, amount in one.changes.items() if amount < 0} for one in charges]
        again = [one._replace(changes=changes) for one, changes in zip(charges, credits, strict=True) if changes]
        if again:
            await real(self, again, now=now)

    return settle


def settled_again(real: Real) -> Real:
    """Repeat a cancelled settlement as a whole."""

    async def see_through(self: Any, settling: Any) -> None:
        try:
            await settling()
        except asyncio.CancelledError:
            await runtime.finish_in_place(settling)
            raise

    return see_through


def dropped_without_floor(rebasing_writer: Real) -> Real:
    """Drop a limit that was full when it was read, without requiring that it still is."""

    def write(view: Any, rebasing: Any, nonce: int) -> Any:
        made = rebasing_writer(view, rebasing, nonce)
        names = {view.layout.balance_names[position] for position, _ in rebasing.dropped}
        kept = tuple(one for one in made.when if not (isinstance(one, AtLeast) and one.name in names))
        return replace(made, when=kept)

    return write


def any_birth(credits_reach: Real) -> Real:
    """Let credits reach any bucket with the same name."""
    return lambda self, birth: True


def one_birth(create: Real) -> Real:
    """Give every bucket the same birth number."""
    return lambda owner, terms, spent, now_ms, signature: create(
        owner, terms, spent, now_ms, signature._replace(birth=1)
    )


def birth_kept(sent_again: Real) -> Real:
    """Send a create again with the same birth number."""
    return lambda write, birth: write if isinstance(write, Put) else sent_again(write, birth)


def always_solvent(solvency: Real) -> Real:
    """Let a take assume that no limit is in debt."""
    return lambda view, amounts, now: ()


def without_solvency(take: Real) -> Real:
    """Do not require that the other limits have no debt."""

    def write(view: Any, taking: Any, nonce: int) -> Any:
        return take(view, replace(taking, solvent=()), nonce)

    return write


def expiry_in_debt(expiry: Real) -> Real:
    """Let a rebase set an expiry although a limit is in debt."""

    def dated(view: Any, terms: Any, now: Any) -> int | None:
        found: int | None = expiry(replace(view, numbers=tuple(max(0, one) for one in view.numbers)), terms, now)
        return found

    return dated


def expiry_by_the_clock(expiry: Real) -> Real:
    """Let a rebase compute the expiry from the client's clock, even if that is before the baseline."""

    def dated(view: Any, terms: Any, now: Any) -> int | None:
        if expiry(view, terms, now) is None:
            return None
        return expiry_s(now[1], rebase._fill_time(view.layout, terms), terms.ttl_multiplier)

    return dated


def without_solvent_parts(rebasing_writer: Real) -> Real:
    """Let a rebase set an expiry without requiring that untouched limits have no debt."""

    def write(view: Any, rebasing: Any, nonce: int) -> Any:
        parts = [
            part if part.spent or not isinstance(part, Add) else replace(part, low=None) for part in rebasing.parts
        ]
        return rebasing_writer(view, replace(rebasing, parts=parts), nonce)

    return write


def expiry_too_soon(expiry_s: Real) -> Real:
    """Let a bucket expire one second after its use."""
    return lambda now_ms, fill_time_ms, multiplier: now_ms // 1000 + 1


def take_expired(real: Real) -> Real:
    """Let a take set an expiry that has passed already."""
    return lambda bounds, expires_s, solvent: real(bounds, None if expires_s is None else 1, solvent)


def shard_with_expiry(take: Real) -> Real:
    """Let one of several shards expire."""

    def write(view: Any, taking: Any, nonce: int) -> Any:
        made = take(view, taking, nonce)
        if view.layout.shard_count == 1:
            return made
        removed = tuple(name for name in made.remove if name != "ttl")
        soon_s = (view.seen_ms + 2 * view.layout.fill_time_ms) // 1000 + 1
        return replace(made, set={**made.set, "ttl": soon_s}, remove=removed)

    return write


def split_without_floor(split: Real) -> Real:
    """Let a split move tokens that were taken since the read."""
    return _split_with(split, lambda part: part if _owes(part) else replace(part, low=None))


def split_in_debt(split: Real) -> Real:
    """Let a split of a shard in debt ignore credits since the read."""
    return _split_with(split, lambda part: replace(part, high=None) if _owes(part) else part)


def _split_with(split: Real, change: Callable[[Any], Any]) -> Real:
    """Return a split whose additions are changed."""

    def write(view: Any, splitting: Any, nonce: int) -> Any:
        parts = [change(part) if isinstance(part, Add) else part for part in splitting.parts]
        return split(view, replace(splitting, parts=parts), nonce)

    return write


def _owes(part: Add) -> bool:
    """Return whether a part of a split belongs to a limit in debt, whose balance must be as read."""
    return part.low == part.high


def unconditional(commit: Real) -> Real:
    """Take from several shards without the conditions of each shard."""

    async def carry_out(self: Any, bucket: Any, takes: Any, *of: Any, **how: Any) -> bool:
        unbounded = {
            shard: writes.without_floor(writes.without_floor_where_it_sets(one)) for shard, one in takes.items()
        }
        done: bool = await commit(self, bucket, unbounded, *of, **how)
        return done

    return carry_out


def credited_in_another_form(commit: Real) -> Real:
    """Send an ambiguous credit again in another form, although the first may have been applied."""

    async def carry_out(self: Any, bucket: Any, writes: Any, *of: Any, once: bool = False) -> bool:
        return bool(await commit(self, bucket, writes, *of))

    return carry_out


def forgetting_tokens(prepare: Real) -> Real:
    """Treat a retried transaction as a new one."""

    def begin(self: Any, operations: Any, token: str) -> Any:
        if self._committed.get(token):
            del self._committed[token]
        return prepare(self, operations, token)

    return begin


def local_clock(real: Real) -> Real:
    """Use the machine's clock instead of the server's."""

    def init(self: Any, *given: Any) -> None:
        real(self, *given)
        clock = self._clock
        self.now = lambda: (clock.now_ms(), clock.now_ms())

    return init


def date_trusted(real: Real) -> Real:
    """Accept the newest date, whatever it contradicts."""
    return lambda before, heard, machine: ServerTime(narrowed(before.known, heard.offset))


def top_up_after_other_writes(is_certain: Real) -> Real:
    """Let a client top up although other clients may have written to the bucket."""
    return lambda self, view: view.layout is self.layout


def top_up_too_early(top_up: Real) -> Real:
    """Assume that the bucket was created at the earliest possible time."""

    def decided(creation: Any, view: Any, terms: Any, amounts: Any, known: Any, *rest: Any) -> Any:
        return top_up(creation, view, terms, amounts, known._replace(created_ms=creation.earliest_ms), *rest)

    return decided


def one_end(which: int) -> Callable[[Real], Real]:
    """Use only one end of the time bounds."""

    def around(real: Real) -> Real:
        def init(self: Any, *given: Any) -> None:
            real(self, *given)
            now = self.now
            self.now = lambda: (now()[which],) * 2

        return init

    return around


def unconditioned(write: Any) -> Any:
    """Add to a usage snapshot without its condition."""
    return replace(write, when=())


def marker_kept(add: Real) -> Real:
    """Do not store the sequence number of what was counted."""

    def write(usage: Any, *given: Any) -> Any:
        made = add(usage, *given)
        marker = sequence_attribute(usage.bucket.shard_id)
        kept = {name: value for name, value in made.set.items() if name != marker}
        return replace(made, set=kept)

    return write


def nothing(real: Real) -> Real:
    """Do nothing."""

    async def do(*given: Any) -> None:
        return None

    return do


def nothing_now(real: Real) -> Real:
    """Do nothing, in a function that does not wait."""
    return lambda *given: None


def unchanged(real: Real) -> Real:
    """Return a value as it is instead of a changed copy."""
    return lambda value, **changes: value


def sent_again_with_credits(take_and_settle: Real) -> Real:
    """Send the same write again after a lost answer, with its credits."""

    def decided(*given: Any) -> Any:
        made = take_and_settle(*given)
        return made if made is None else _SameAgain(made.taking, made.parts, made.taking, made.changed)

    return decided


class _SameAgain(TakeAndSettle):
    """A combined write whose credits are sent again."""

    @property
    def debit_parts(self) -> Any:
        """All parts."""
        return self.parts


def left_waiting(take_out: Real) -> Real:
    """Return the settlements of a bucket, and let them wait to be written again."""

    def found(self: Any, bucket: Any) -> Any:
        owed = take_out(self, bucket)
        if owed:
            self._owed[bucket] = {(one.terms.digest, one.settlement.birth): one for one in owed}
        return owed

    return found
