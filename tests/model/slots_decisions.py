"""What a client or the aggregator decides in the model of slots, by the real functions."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.model.slots_configs import SlotConfig
from tests.model.slots_state import ABSENT, Client, Lease, Move
from tests.one_bucket import OWNER
from zae_limiter._async.limiter import releases, renewals
from zae_limiter.core import acquire, multi_shard, reserved_take, slots, splitting
from zae_limiter.core.acquire import Create, Progress, Rebase, Resolve, Take
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, Settling, settle
from zae_limiter.core.reserve import Reserve, floor_of
from zae_limiter.core.slots import Claim, SlotRelease, SlotRenewal
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.bucket_writes import Signature
from zae_limiter.schema.operations import Operation

LEARN = object()
"""The client must read the limits."""


class Decided(NamedTuple):
    """Writes by shard, what kind of write it is, and the claims of the lease after it."""

    kind: str
    writes: Sequence[tuple[int, Operation]]
    moved: tuple[Claim, ...] = ()


class Decisions:
    """Decides by views, which may be as old as possible."""

    resends_releases = False

    def __init__(self, config: SlotConfig, items: Sequence[Mapping[str, Any]]) -> None:
        self._config = config
        self._items = items
        self._views: dict[tuple[int, int], BucketView | None] = {}

    def decide(self, move: Move, client: Client, now: TimeBounds, birth: int) -> Any:
        """Return what a move sends, None if nothing, or LEARN."""
        terms = self._config.terms[client.terms]
        views = {shard: view for shard, number in enumerate(client.views) if (view := self._view(number, client.terms))}
        nonce = move.who + 1
        match move.what:
            case "takes":
                shard, order = move.detail
                return self._take((views.get(shard), shard), terms, order, (now, nonce, birth))
            case "takes across":
                by = now, nonce, self._reserve(nonce)
                return _take_across(views, terms, dict(move.detail), by)
            case "releases":
                assert client.lease is not None, "the move requires it"
                return _release(views, client.lease, now, nonce)
            case "renews":
                assert client.lease is not None, "the move requires it"
                return _renew(views, client.lease, self._config.terms[client.lease.terms], now, nonce)
            case "splits":
                return self._split(views, now)
            case "merges":
                return _merge(views, now)
        raise AssertionError(move)

    def _view(self, number: int, version: int) -> BucketView | None:
        if number == ABSENT:
            return None
        key = number, version
        if key not in self._views:
            self._views[key] = view_of(self._items[number], 0, None, self._config.terms[version])
        return self._views[key]

    def _take(
        self,
        place: tuple[BucketView | None, int],
        terms: EffectiveLimits,
        order: Sequence[tuple[str, int]],
        by: tuple[TimeBounds, int, int],
    ) -> Any:
        view, shard = place
        now, nonce, birth = by
        if any(name not in terms.positions for name, _ in order):
            # A request for a limit that is not in force takes from another one: this is what rebases the bucket.
            order = [("r", 0)] if "r" in terms.positions else []
            if not order or view is None:
                return None
        amounts = [(terms.positions[name], amount * 1000) for name, amount in order]
        reserve = self._reserve(nonce)
        limits = terms.limits
        if any(milli + floor_of(limits[at], reserve) * 1000 > limits[at].capacity_milli for at, milli in amounts):
            return None
        progress = Progress(trust_ms=0, looked=True)
        step = reserved_take.next_step_above(view, terms, amounts, now, progress, reserve)
        match step:
            case Create() if shard == 0:
                spent = {terms.limits[at].name: milli for at, milli in amounts}
                made = bucket_writes.create(OWNER, terms, spent, now[1], Signature(nonce, birth))
                return Decided("create", [(0, made)], slots.claims_of(0, terms.limits, amounts, now[1]))
            case Take() if view is not None:
                taken = acquire.taken_by_step(view, step)
                if taken is None or not taken.claims:
                    return None
                return Decided("take", [(shard, bucket_writes.take(view, step, nonce))], taken.claims)
            case Rebase(rebasing=rebasing, takes=takes) if view is not None:
                moved = slots.claims_of(shard, terms.limits, amounts, now[1]) if takes else ()
                return Decided("rebase", [(shard, bucket_writes.rebase(view, rebasing, nonce))], moved)
            case Resolve():
                return LEARN
        return None

    def _reserve(self, nonce: int) -> Reserve | None:
        """Return what a take with this nonce must leave: only those of the first client must."""
        return self._config.reserve if nonce == 1 else None

    def _split(self, views: Mapping[int, BucketView], now: TimeBounds) -> Decided | None:
        view = views.get(0)
        most = self._config.reshards or 2
        if view is None or view.layout.shard_count > 1 or view.layout.generation >= most:
            return None
        parts = splitting.split(view, now)
        assert parts is not None, "it is not split as often as possible"
        old, new = bucket_writes.split(view, parts, 0)
        return Decided("split", [(0, old), (1, new)])


def _merge(views: Mapping[int, BucketView], now: TimeBounds) -> Decided | None:
    if len(views) < 2:
        return None
    merging = splitting.merge(views[0], views[1], now)
    if merging is None:
        return None
    stays, goes = bucket_writes.merge(views[0], views[1], merging, 0)
    return Decided("merge", [(0, stays), (1, goes)])


def _take_across(
    views: Mapping[int, BucketView],
    terms: EffectiveLimits,
    order: Mapping[str, int],
    by: tuple[TimeBounds, int, Reserve | None],
) -> Decided | None:
    now, nonce, reserve = by
    complete = sum(64 // view.layout.shard_count for view in views.values()) == 64
    if not complete or not all(view.layout.follows(terms) for view in views.values()):
        return None
    amounts = [(terms.positions[name], amount * 1000) for name, amount in order.items()]
    takes = multi_shard.take_across(views, amounts, now, 0, reserve)
    if takes is None or len(takes) < 2:
        return None
    writes = [(shard, bucket_writes.take(views[shard], taking, nonce)) for shard, taking in takes.items()]
    taken = [acquire.taken_by_step(views[shard], taking) for shard, taking in takes.items()]
    return Decided("take across", writes, tuple([claim for one in taken if one is not None for claim in one.claims]))


def _release(views: Mapping[int, BucketView], lease: Lease, now: TimeBounds, nonce: int) -> Decided | None:
    """Return the release of all slots of a lease: by shard, or by all shards if one lacks them."""
    by_shard = slots.by_shard(lease.claims)
    writes: list[tuple[int, Operation]] = []
    for shard, whole in by_shard.items():
        live = slots.not_ended(whole, now[0])
        if not live:
            continue
        settlement = Settlement(birth=lease.birth, releases=live, shard=shard)
        view = views.get(shard)
        if releases._fits(view, settlement):
            assert view is not None, "a view that fits was seen"
            writes.append((shard, bucket_writes.settle(view, settle(view, settlement, now, 0), nonce)))
            continue
        reached = {at: one for at, one in views.items() if one.layout.birth == lease.birth}
        for at, part in slots.released_across(reached, live).items():
            settling = Settling([], False, lease.birth, tuple(part))
            writes.append((at, bucket_writes.settle(reached[at], settling, nonce)))
        if len(by_shard) > 1:
            # Each shard is a settlement of its own. The model makes one of them, and leaves the rest to the hold.
            break
    if not writes:
        return None
    one = writes[:1] if len(by_shard) > 1 else writes
    return Decided("release" if len(one) == 1 else "release across", one)


def _renew(
    views: Mapping[int, BucketView], lease: Lease, terms: EffectiveLimits, now: TimeBounds, nonce: int
) -> Decided | None:
    """Return the renewal of a lease's slots on the first of its shards, or on all that have them."""
    shard = lease.claims[0].shard
    mine = [one for one in lease.claims if one.shard == shard]
    others = tuple([one for one in lease.claims if one.shard != shard])
    sums: dict[tuple[str, int, int], int] = {}
    for name, end_s, milli in [(one.name, one.end_s, one.milli) for one in mine]:
        later_s = slots.cohort_end_s(terms.limits[terms.positions[name]], now[1])
        if end_s < later_s:
            sums[name, end_s, later_s] = sums.get((name, end_s, later_s), 0) + milli
    wanted = [SlotRenewal(*moving, milli) for moving, milli in sums.items()]
    if not wanted or any(one.end_s * 1000 <= now[1] for one in wanted):
        return None
    view = views.get(shard)
    if isinstance(view, slots.MixedView) and view.layout.birth == lease.birth and renewals._has_all(view, wanted):
        moved = tuple([Claim(shard, one.name, one.later_s, one.milli) for one in wanted])
        kept = tuple([one for one in mine if (one.name, one.end_s) not in {(a.name, a.end_s) for a in wanted}])
        return Decided("renew", [(shard, _renewal(view, wanted, now, nonce))], (*kept, *moved, *others))
    reached = {at: one for at, one in views.items() if one.layout.birth == lease.birth}
    live = slots.not_ended([SlotRelease(one.name, one.end_s, one.milli) for one in wanted], now[0])
    later = {(one.name, one.end_s): one.later_s for one in wanted}
    writes, found = [], list[Claim]()
    for at, parts in slots.released_across(reached, live).items():
        some = [SlotRenewal(*one[:2], later[one.name, one.end_s], one.milli) for one in parts]
        writes.append((at, _renewal(reached[at], some, now, nonce)))
        found += [Claim(at, one.name, one.later_s, one.milli) for one in some]
    return Decided("renew across", writes, (*found, *others)) if writes else None


def _renewal(view: BucketView, wanted: Sequence[SlotRenewal], now: TimeBounds, nonce: int) -> Operation:
    client = SimpleNamespace(nonces=iter([nonce]))
    made: Any = SimpleNamespace(_now=lambda: now, _scope=SimpleNamespace(client=client))
    return renewals.Renewals._write(made, view, wanted)
