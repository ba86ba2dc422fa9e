"""The invariants of all buckets, checked after every step.

A step is the moment at which a write acts on the table. The check sees each changed item before and after, the true
time, and the time that the sender assumed. It knows the attributes of an item and the arithmetic of DESIGN.md, but
neither the limiter's caches nor its decisions.

The kinds of violations are listed in ``docs/contributing/debugging-a-seed.md``. A step costs constant time: the parsed
limits of a shard are kept until a write changes them.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from tests.simulation.absences import Absences
from tests.simulation.flow import Flow, Ideal, most_earned
from tests.simulation.server import Change, Sent
from tests.simulation.stored_limit import StoredLimit
from tests.simulation.takes import is_bounded, takes
from zae_limiter.core.outcome import Item
from zae_limiter.schema.keys import parse_bucket_pk
from zae_limiter.schema.operations import Put, Update

BucketId = tuple[str, str]

_STATE = "#STATE"
_LAYOUT_FIELDS = itemgetter("rf", "gn", "shard_count", "cv", "ld")
_MEETING_GRIDS = 2
"""Millitokens by which two grids, or the shares of one grid, may differ where they meet."""


class Violation(AssertionError):  # noqa: N818 - its name in all documents
    """An invariant does not hold; ``kind`` names which."""

    def __init__(self, kind: str, *details: object) -> None:
        self.kind = kind
        super().__init__(f"{kind}: " + " ".join(str(one) for one in details))


class Shard:
    """A shard as stored now, and its limits.

    ``ideals`` are the balances of its limits if it had been created at the true time; empty after any other change.
    """

    __slots__ = ("ideals", "item", "layout_fields", "layouts", "names")

    def __init__(self, item: Item, number: int) -> None:
        self.item = item
        self.ideals: dict[str, Ideal] = {}
        self.layout_fields = _LAYOUT_FIELDS(item)
        names = sorted(name[2:-3] for name in item if name.startswith("b_") and name.endswith("_tk"))
        if any(f"b_{name}_cp" not in item for name in names):
            raise Violation("limits", "a balance has no capacity:", item)
        # Slots have invariants of their own in ``slot_holders``, and soft limits in ``quota_ledger``.
        others = [name for name in names if f"b_{name}_hs" in item or f"b_{name}_sf" in item]
        self.layouts = {name: StoredLimit(item, name, number) for name in names if name not in others}
        self.names = [*names, *(name[2:-3] for name in item if name.startswith("b_") and name.endswith("_qk"))]


class Bucket:
    """All shards of a bucket, and the flow of each of its limits."""

    __slots__ = ("absences", "births", "flows", "id", "shards", "used")

    def __init__(self, bucket: BucketId) -> None:
        self.id = bucket
        self.shards: dict[int, Shard] = {}
        self.flows: dict[str, Flow] = {}
        # Usage of each limit since the bucket was created, and all birth numbers that it ever had.
        self.used: dict[str, int] = {}
        self.births: set[int] = set()
        self.absences = Absences()


class ShardChange(NamedTuple):
    """A change of one shard: before and after."""

    change: Change
    number: int
    before: Shard | None
    after: Shard | None


class Step(NamedTuple):
    """The time at which a write acted, its sender, and how far the sender's clock was behind."""

    now_ms: int
    sent: Sent
    takes: bool

    @property
    def behind_ms(self) -> int:
        """The age of the late end of the sender's time bounds."""
        return self.now_ms - self.sent.time_bounds[1]

    @property
    def oldest_ms(self) -> int:
        """The age of the early end of the sender's time bounds."""
        return self.now_ms - self.sent.time_bounds[0]


Acted = Callable[[BucketId, str, int, bool], None]
"""Receives what a step used of a limit of a bucket, and whether its sender gets no answer."""


class Invariants:
    """Every bucket, and its checks. ``acted`` receives all usage; ``known`` are the limits ever configured."""

    def __init__(self, acted: Acted, forgot: Callable[[BucketId, str, bool], None]) -> None:
        self.buckets: dict[BucketId, Bucket] = {}
        self.known: set[tuple[str, int, int, int]] = set()
        # The part of each capacity that all takes of a process must leave, by its name.
        self.reserved: dict[str, float] = {}
        self.steps = 0
        self.digest = 0
        self._acted = acted
        self._forgot = forgot
        self._shards_by_pk: dict[str, tuple[Bucket, int]] = {}
        self._senders: dict[int, str] = {}

    def step(self, now_ms: int, changes: Sequence[Change], sent: Sent) -> None:
        """Record one write or transaction, and check everything that must hold after it.

        Raises:
            Violation: An invariant does not hold.
        """
        moves = [change for change in changes if change.key.sk == _STATE]
        if not moves:
            return
        self.steps += 1
        for change in moves:
            # A late write that was already retried cannot see that: the charge counts twice, as documented.
            same = change.old is not None and change.new is not None and change.old["op"] == change.new["op"]
            if same and not sent.unanswered:
                raise Violation("twice", change.key.pk, "already shows this write as applied", sent)
            if change.new is not None and self._senders.setdefault(change.new["op"], sent.process) != sent.process:
                raise Violation("nonce", change.key.pk, "has a nonce that another process also drew", sent)
            self.digest = (self.digest * 1_000_003 ^ now_ms ^ (change.new or {}).get("op", 1)) & 0xFFFFFFFFFFFF
        if len(moves) == 1:
            change = moves[0]
            bucket, number = self._shard_of(change.key.pk)
            shard = bucket.shards.get(number)
            if shard is not None and change.new is not None and shard.layout_fields == _LAYOUT_FIELDS(change.new):
                self._layout_unchanged(bucket, shard, change, Step(now_ms, sent, takes(change)))
                return
        grouped: dict[BucketId, list[Change]] = {}
        for change in moves:
            grouped.setdefault(self._shard_of(change.key.pk)[0].id, []).append(change)
        for same in grouped.values():
            self._layout_changed(same, Step(now_ms, sent, any(takes(change) for change in same)))

    def expire(self, now_ms: int, change: Change) -> None:
        """Record that an item expired. No usage may be forgotten with it."""
        self.steps += 1
        bucket, number = self._shard_of(change.key.pk)
        shard = bucket.shards.pop(number)
        if shard.item["shard_count"] != 1:
            raise Violation("expiry", "one of several shards expired", change)
        for name, layout in shard.layouts.items():
            if layout.offered(shard.item, now_ms) < layout.capacity:
                raise Violation("expiry", "expired although it was not full:", bucket.id, name, now_ms, shard.item)
            self._forgot(bucket.id, name, False)
        bucket.used.clear()
        self._note_absences(bucket)

    def lacked(self, bucket: BucketId, name: str, since: int) -> bool:
        """Return whether a bucket existed without a limit that it had before, at some time after a step."""
        return bucket in self.buckets and self.buckets[bucket].absences.lacked(name, since)

    def _note_absences(self, bucket: Bucket) -> None:
        bucket.absences.stored((shard.names for shard in bucket.shards.values()), self.steps)

    def indebted(self, now_ms: int) -> list[tuple[BucketId, int]]:
        """Return the shards that have a debt of some limit."""
        return [
            (bucket.id, number)
            for bucket in self.buckets.values()
            for number, shard in bucket.shards.items()
            if any(layout.offered(shard.item, now_ms) < 0 for layout in shard.layouts.values())
        ]

    def _shard_of(self, pk: str) -> tuple[Bucket, int]:
        found = self._shards_by_pk.get(pk)
        if found is None:
            parsed = parse_bucket_pk(pk)
            assert parsed is not None, "only buckets have a #STATE item"
            bucket = self.buckets.setdefault(
                (parsed.entity_id, parsed.resource), Bucket((parsed.entity_id, parsed.resource))
            )
            found = self._shards_by_pk[pk] = bucket, parsed.shard_id
        return found

    def _layout_unchanged(self, bucket: Bucket, shard: Shard, change: Change, step: Step) -> None:
        """Record a write that leaves the baseline and all limits as they are."""
        old, new, now_ms = shard.item, change.new, step.now_ms
        assert new is not None, "the caller has checked it"
        shard.item = new
        if isinstance(change.operation, Update) and not _without_cohorts(change.operation.add) <= old.keys():
            raise Violation("limits", bucket.id, "got a balance of a limit that it lacks", step, old, new)
        for name, layout in shard.layouts.items():
            spent = new[layout.tc] - old[layout.tc]
            gained = new[layout.tk] - old[layout.tk]
            if not spent and not gained:
                continue
            ideal = shard.ideals.get(name)
            if ideal is not None:
                ideal.spend(spent, now_ms)
            # Tokens that overflow while the write is in flight are not cut off, as with any take.
            in_flight = -(-max(0, now_ms - step.sent.time_bounds[0]) * layout.amount // layout.period)
            if gained > -spent and (ideal is None or layout.offered(new, now_ms) > ideal.level_milli + in_flight):
                raise Violation("made", bucket.id, name, "a balance rose by", gained + spent, step, old, new)
            if spent > 0:
                earned = layout.earned(now_ms)
                returned = max(0, gained + spent)
                if step.takes and is_bounded(change, layout.tk) and old[layout.tk] + earned + returned < spent:
                    raise Violation("overdrawn", bucket.id, name, spent, "of", old[layout.tk] + earned, step, old)
                self._check_use(bucket, layout, (new[layout.tk] + earned, spent), step)
                if step.sent.process in self.reserved and step.takes and is_bounded(change, layout.tk):
                    self._check_reserve(bucket, layout, new[layout.tk], step)
            self._use(bucket, name, spent, step)
            if spent > 0 and step.takes and is_bounded(change, layout.tk):
                self._check_promise(bucket, name, step)

    def _check_use(self, bucket: Bucket, layout: StoredLimit, left: tuple[int, int], step: Step) -> None:
        """A take or a debit leaves at most what a full bucket would have left."""
        has, spent = left
        late = most_earned(layout.amount, layout.period, step.behind_ms)
        if has + spent > layout.capacity + late:
            raise Violation("overfull", bucket.id, layout.name, has, "left of", layout.capacity, "after", spent, step)

    def _check_reserve(self, bucket: Bucket, layout: StoredLimit, balance: int, step: Step) -> None:
        """A take of a client with a reserve leaves it on its shard, at the latest time that the client considered."""
        late_ms = max(step.now_ms, step.sent.time_bounds[1])
        kept = layout.left_by(self.reserved[step.sent.process], balance, late_ms)
        if kept.left < kept.least:
            raise Violation("reserve", bucket.id, layout.name, kept, step)

    def _use(self, bucket: Bucket, name: str, spent: int, step: Step) -> None:
        flow = bucket.flows[name]
        flow.allow_for(max(step.oldest_ms, -step.oldest_ms, step.sent.time_bounds[1] - step.now_ms))
        if spent:
            bucket.used[name] = used = bucket.used.get(name, 0) + spent
            if used < 0:
                raise Violation(
                    "reborn", bucket.id, name, "got back", -used, "that was taken from an earlier bucket", step
                )
            flow.spend(spent, step.now_ms)
            self._acted(bucket.id, name, spent, step.sent.unanswered)

    def _check_promise(self, bucket: Bucket, name: str, step: Step) -> None:
        """No span that ends in a take has used more than the largest capacity and what it earned."""
        for used, most in bucket.flows[name].exceeded():
            owed = self._owed(bucket, name, step.now_ms)
            if used > most + owed:
                raise Violation("promise", bucket.id, name, used, "used of", most, "plus debts of", owed, step)

    @staticmethod
    def _owed(bucket: Bucket, name: str, now_ms: int) -> int:
        """Return the debts of all shards: a debt blocks only the shard that has it."""
        found = [(shard.layouts.get(name), shard.item) for shard in bucket.shards.values()]
        return sum(max(0, -layout.offered(item, now_ms)) for layout, item in found if layout is not None)

    def _layout_changed(self, changes: Sequence[Change], step: Step) -> None:
        """Record a write that changes a bucket's limits, baseline or shards."""
        bucket, _ = self._shard_of(changes[0].key.pk)
        moves = [self._move(bucket, change, step.now_ms) for change in changes]
        self._note_absences(bucket)
        if all(move.after is None for move in moves):
            self._removed(bucket, moves)
            return
        names = sorted(
            {name for move in moves for shard in (move.before, move.after) if shard for name in shard.layouts}
        )
        for name in names:
            spent = self._check_held(bucket, name, moves, step)
            _check_halves(bucket, name, moves, step)
            self._rate(bucket, name, moves, step)
            if name not in bucket.flows:
                continue
            self._use(bucket, name, spent, step)
            if spent > 0 and (step.takes or isinstance(moves[0].change.operation, Put)):
                self._check_promise(bucket, name, step)
        for move in moves:
            if move.after is not None:
                self._check_limits(bucket, move.after)
        _check_shards(bucket)
        _check_births(bucket, moves)

    @staticmethod
    def _move(bucket: Bucket, change: Change, now_ms: int) -> ShardChange:
        number = int(change.key.pk.rpartition("#")[2])
        before = bucket.shards.pop(number, None)
        after = None
        if change.new is not None:
            after = bucket.shards[number] = Shard(change.new, number)
            if change.old is None and after.item["shard_count"] == 1:
                for name, layout in after.layouts.items():
                    rate = layout.amount, layout.period
                    after.ideals[name] = Ideal(layout.capacity, after.item[layout.tk], rate, now_ms)
        return ShardChange(change, number, before, after)

    def _removed(self, bucket: Bucket, moves: Sequence[ShardChange]) -> None:
        """Record that a bucket was deleted: a new bucket in its place starts from zero."""
        if bucket.shards:
            raise Violation("shards", bucket.id, "some shards were deleted and others not", sorted(bucket.shards))
        for name in bucket.flows:
            self._forgot(bucket.id, name, False)
        bucket.flows.clear()
        bucket.used.clear()

    def _check_held(self, bucket: Bucket, name: str, moves: Sequence[ShardChange], step: Step) -> int:
        """Check that all shards together hold no more than before, less what was used; return what was used."""
        now_ms, several = step.now_ms, len(moves) > 1
        had = has = spent = slack = 0
        for move in moves:
            old = move.before.layouts.get(name) if move.before else None
            new = move.after.layouts.get(name) if move.after else None
            if new is None and old is not None and move.after is not None:
                self._dropped(bucket, move, old, step)
                continue
            if old is not None and move.before is not None:
                had += _held(old, new, move.before.item, step)
            if new is not None:
                left, used = self._check_after(bucket, (move, old, new), step)
                has, spent = has + left, spent + used
                split_off = several and move.before is None
                # A new limit starts full, at its baseline.
                had += new.capacity + new.earned(now_ms) if old is None and not split_off else 0
            slack += _rounding(old, new, now_ms)
        if has > had - spent + slack:
            raise Violation(
                "made", bucket.id, name, "held", had, "then", has, "after", spent, "used; rounding", slack, step, moves
            )
        return spent

    def _check_after(
        self, bucket: Bucket, one: tuple[ShardChange, StoredLimit | None, StoredLimit], step: Step
    ) -> tuple[int, int]:
        """Check the balance of one limit of one shard after a step; return it, and what was used."""
        move, old, new = one
        assert move.after is not None, "the caller has checked it"
        item = move.after.item
        spent = item[new.tc] - (move.before.item[old.tc] if old is not None and move.before is not None else 0)
        left = new.offered(item, step.now_ms)
        late = most_earned(new.amount, new.period, step.oldest_ms)
        if step.takes and spent > 0:
            had = new.capacity if old is None or move.before is None else old.offered(move.before.item, step.now_ms)
            if had < spent:
                raise Violation("overdrawn", bucket.id, new.name, spent, "of", had, step, move)
            if step.sent.process in self.reserved:
                self._check_reserve(bucket, new, item[new.tk], step)
        changed = move.before is None or old is None or move.before.item[old.tk] != item[new.tk] or old.rf != new.rf
        if changed and spent >= 0 and left + spent > new.capacity + late + _MEETING_GRIDS:
            raise Violation("overfull", bucket.id, new.name, left, "of", new.capacity, "after", spent, step, move)
        return left, spent

    def _dropped(self, bucket: Bucket, move: ShardChange, old: StoredLimit, step: Step) -> None:
        """Check that a removed limit was full; otherwise adding it again would refill it."""
        assert move.before is not None, "the caller has checked it"
        left = old.offered(move.before.item, step.now_ms)
        if left < old.capacity:
            raise Violation("dropped", bucket.id, old.name, left, "of", old.capacity, step, move)
        self._forgot(bucket.id, old.name, True)

    @staticmethod
    def _rate(bucket: Bucket, name: str, moves: Sequence[ShardChange], step: Step) -> None:
        """Set the flow of a limit to the largest capacity and the fastest rate of any shard."""
        layouts = [layout for shard in bucket.shards.values() if (layout := shard.layouts.get(name)) is not None]
        if not layouts:
            return
        fastest = layouts[0]
        for layout in layouts:
            if layout.amount * fastest.period > fastest.amount * layout.period:
                fastest = layout
        rate = fastest.amount, fastest.period
        awake = [layout.whole for layout in layouts if not layout.dormant]
        flow = bucket.flows.get(name)
        if flow is None:
            flow = bucket.flows[name] = Flow(max(awake or [fastest.whole]), rate, step.now_ms)
        flow.change_rate(rate, min([step.now_ms, *_rebased(name, moves)]), step.now_ms)
        if awake:
            flow.change_capacity(max(awake))
        flow.tolerate(_MEETING_GRIDS * len(moves))
        flow.allow_for(max(layout.rf - step.now_ms for layout in layouts))

    def _check_limits(self, bucket: Bucket, shard: Shard) -> None:
        """A bucket has only limits that were configured."""
        for name, layout in shard.layouts.items():
            limit = (name, layout.whole, layout.amount, layout.period)
            if not layout.dormant and self.known and limit not in self.known:
                raise Violation("limits", bucket.id, "has a limit that was never configured:", limit)


def _without_cohorts(names: Iterable[str]) -> set[str]:
    """Return the attributes that are not slots in use, which a take adds to an item."""
    return {name for name in names if not name.rpartition("_h")[2].isdigit()}


def _rebased(name: str, moves: Sequence[ShardChange]) -> Iterable[int]:
    """Yield the new baselines that a step gave to a limit."""
    for move in moves:
        new = move.after.layouts.get(name) if move.after else None
        old = move.before.layouts.get(name) if move.before else None
        if new is not None and (old is None or old.terms != new.terms):
            yield new.rf


def _held(old: StoredLimit, new: StoredLimit | None, item: Item, step: Step) -> int:
    """Return what a shard holds before a step. A split or a merge has no room for what overflows."""
    offered = old.offered(item, step.now_ms)
    if new is not None and new.count == old.count:
        return offered
    return min(offered, old.capacity + most_earned(old.amount, old.period, step.oldest_ms))


def _rounding(old: StoredLimit | None, new: StoredLimit | None, now_ms: int) -> int:
    """Return by how much a balance may seem to rise only because its baseline or rate changed."""
    if old is None or new is None:
        return _MEETING_GRIDS
    if old.terms == new.terms and old.count == new.count:
        return 0
    if new.rf > now_ms:
        # The baseline is in the future: the earnings until then were counted early.
        return _MEETING_GRIDS + most_earned(old.amount, old.period, new.rf - now_ms)
    faster = now_ms * new.amount // new.period - new.rf * new.amount // new.period
    slower = now_ms * old.amount // old.period - new.rf * old.amount // old.period
    return _MEETING_GRIDS + max(0, faster - slower)


def _check_halves(bucket: Bucket, name: str, moves: Sequence[ShardChange], step: Step) -> None:
    """A split leaves neither half with a debt that the whole did not have."""
    if len(moves) == 1 or all(move.before is not None for move in moves):
        return
    before = [(move.before.layouts.get(name), move.before.item) for move in moves if move.before is not None]
    had = sum(layout.offered(item, step.now_ms) for layout, item in before if layout is not None)
    for move in moves:
        layout = move.after.layouts.get(name) if move.after is not None else None
        if layout is None or move.after is None:
            continue
        late = most_earned(layout.amount, layout.period, step.oldest_ms)
        left = layout.offered(move.after.item, step.now_ms)
        if left < min(0, had) - late - _MEETING_GRIDS:
            raise Violation("indebted", bucket.id, name, left, "of", had, "left in one half", step, moves)


def _check_births(bucket: Bucket, moves: Sequence[ShardChange]) -> None:
    """Each create draws a birth number that the bucket never had, and all shards of a bucket share it."""
    births = {shard.item.get("bi") for shard in bucket.shards.values()}
    if len(births) > 1:
        raise Violation("unborn", bucket.id, "has shards with different birth numbers:", births)
    if len(moves) == 1 and moves[0].before is None:
        birth = births.pop()
        if birth in bucket.births:
            raise Violation("reborn", bucket.id, "was recreated with an old birth number", birth)
        if birth is not None:
            bucket.births.add(birth)


def _check_shards(bucket: Bucket) -> None:
    """Every number belongs to exactly one shard, and no shard of several expires."""
    shards = bucket.shards
    if len(shards) == 1 and 0 in shards and shards[0].item["shard_count"] == 1:
        return
    numbers = sum(64 // shard.item["shard_count"] for shard in shards.values())
    if numbers != 64 or any(_overlap(pair) for pair in _pairs(shards)):
        counts = {number: shard.item["shard_count"] for number, shard in shards.items()}
        raise Violation("shards", bucket.id, "do not cover every number once:", counts)
    if any("ttl" in shard.item for shard in shards.values()):
        raise Violation("expiry", bucket.id, "one of several shards has an expiry time")


def _pairs(shards: dict[int, Shard]) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
    known = [(number, shard.item["shard_count"]) for number, shard in shards.items()]
    return ((one, other) for place, one in enumerate(known) for other in known[:place])


def _overlap(pair: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    (one, first), (other, second) = pair
    smaller = min(first, second)
    return one % smaller == other % smaller
