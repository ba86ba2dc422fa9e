"""The reference of the model of quotas: what was used in each period, counted from the writes that were applied."""

from tests.model.invariants import ViolationError
from tests.model.quotas_state import Config, Entry, Item, Key, Part, Plan, State
from zae_limiter.core.quota import BAND, HALF_BAND, MOST_SPENT
from zae_limiter.core.sharding import share

PROMISE, KEPT, PERIOD, EARLY, OVERFULL, RESERVED, SPLIT_DEBT, CROSSED, TWICE = (
    "promise",
    "kept",
    "period",
    "early",
    "overfull",
    "reserved",
    "split debt",
    "crossed",
    "twice",
)


def band_of(item: Item) -> int:
    """Return the epoch of an item; written apart from the rows, which may be mutated."""
    return (HALF_BAND - item.qk) // BAND


def spent_of(item: Item) -> int:
    """Return what an item has recorded as spent."""
    return -BAND * band_of(item) - item.qk


class Ledger:
    """The checks of one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._latest_s = max(late for _, late in config.clocks)

    def entry(self, key: Key, used: int, most: int) -> Entry:
        """Return an entry of the ledger."""
        return Entry(key, used, most)

    def share(self, amount: int, place: int, count: int) -> int:
        """Return the part of an amount that belongs to a place."""
        return amount if self._config.several else share(amount, place, count)

    def item_after(self, items: list[Item | None], part: Part, kind: str, nonce: int, *, raising: bool) -> Item | None:
        """Return an item after a part of a write, whose conditions hold."""
        if part.delete:
            return None
        item = items[part.place]
        if item is None:
            assert part.new is not None
            assert part.version is not None
            assert part.birth is not None
            generation = (max(one.generation for one in items if one) if kind == "split" else 0) if any(items) else 0
            made = Item(part.new, part.version, part.birth, generation, part.count or 1, nonce, ())
            return made._replace(key=self._key_after(None, made, part, kind, items))
        qk = item.qk + part.change if part.new is None else part.new
        new = item._replace(
            qk=qk,
            version=item.version if part.version is None else part.version,
            generation=item.generation + raising,
            count=item.count if part.count is None else part.count,
            op=nonce,
        )
        return new._replace(key=self._key_after(item, new, part, kind, items))

    def _key_after(self, item: Item | None, new: Item, part: Part, kind: str, items: list[Item | None]) -> Key:
        """Return the period that the band of a written item belongs to."""
        bucket = part.place if self._config.several else 0
        if item is not None and band_of(new) == band_of(item) and kind != "reset":
            return item.key
        if kind == "reset":
            return bucket, "reset", new.generation
        if kind == "split" and item is None:
            before = items[0]
            assert before is not None
            return before.key if band_of(before) == band_of(new) else self._edge_key(bucket, new, part.epoch)
        if kind == "merge" and item is not None:
            other = items[1]
            if other is not None and band_of(other) == band_of(new):
                return other.key
        if kind == "rebase" and item is not None and band_of(new) != part.epoch:
            # The schedule has changed: what was spent is carried over, and the period goes on.
            return item.key if band_of(item) == part.epoch else self._edge_key(bucket, item, part.epoch)
        return self._edge_key(bucket, new, band_of(new))

    def _edge_key(self, bucket: int, item: Item, epoch: int) -> Key:
        calendar = self._config.versions[item.version].calendar
        number = self._config.versions.index(next(one for one in self._config.versions if one.calendar == calendar))
        index = calendar.index_of(epoch)
        return (bucket, number, index) if index is not None else (bucket, "epoch", epoch)

    def after(self, before: State, items: tuple[Item | None, ...], plan: Plan) -> tuple[Entry, ...]:
        """Return the ledger after an applied write, and check it."""
        now_s = self._config.times[before.tick]
        ledger = {entry.key: entry for entry in before.ledger}
        for part in plan.parts:
            old, new = before.items[part.place], items[part.place]
            if new is None:
                continue
            if old is not None and old.key != new.key:
                before_it = ledger.get(old.key, Entry(old.key, 0, 0))
                ledger[old.key] = before_it._replace(left=before_it.left + spent_of(old))
            amount = self._config.versions[new.version].amount
            entry = ledger.get(new.key, Entry(new.key, 0, amount))
            used = entry.used + part.take + part.debit - part.credit
            ledger[new.key] = Entry(new.key, used, max(entry.most, amount), entry.left)
            self._check_part(part, new)
            self._check_early(before, new, plan.kind, now_s)
        if plan.kind == "merge":
            self._carry(before, items, ledger)
        if plan.kind == "split":
            self._check_split(before.items[0], items)
        result = tuple(sorted(ledger.values(), key=repr))
        for part in plan.parts:
            if part.take:
                self._check_promise(items, part, ledger)
        return result

    @staticmethod
    def _carry(before: State, items: tuple[Item | None, ...], ledger: dict[Key, Entry]) -> None:
        """Move what a shard of an older period had spent to the period of the merged one."""
        merged = items[0]
        assert merged is not None
        for old in before.items:
            assert old is not None
            if old.key != merged.key and band_of(old) != band_of(merged):
                carried = 0
                others = [one for one in before.items if one is not None and one.key == merged.key]
                in_merged = sum(spent_of(one) for one in others)
                if spent_of(merged) > in_merged:
                    carried = min(spent_of(old), spent_of(merged) - in_merged)
                entry = ledger.get(merged.key, Entry(merged.key, 0, 0))
                ledger[merged.key] = entry._replace(used=entry.used + carried)
        gone = before.items[1]
        if gone is not None and gone.key != merged.key:
            entry = ledger[gone.key]
            ledger[gone.key] = entry._replace(left=entry.left + spent_of(gone))

    def _check_part(self, part: Part, new: Item) -> None:
        epoch = band_of(new)
        if part.credit:
            _require(CROSSED, epoch == part.epoch, f"a credit of epoch {part.epoch} reached {epoch}")
        if part.take or part.debit:
            calendar = self._config.versions[new.version].calendar
            # The edges of the strictest client.
            begin_s = min(edges[calendar.index(who, part.low_s)] for who, edges in enumerate(calendar.edges))
            holds = epoch >= 2 * begin_s
            _require(PERIOD, holds, f"a write decided at {part.low_s} s was charged to epoch {epoch}")

    def _check_early(self, before: State, new: Item, kind: str, now_s: int) -> None:
        """No edge is taken before it has come. A bucket is created at the latest time, and actions are dated by it."""
        epoch = band_of(new)
        known = max((band_of(item) for item in before.items if item), default=0)
        latest_s = now_s + self._latest_s if epoch % 2 or kind == "create" else now_s
        # Several actions within a second are dated one after the other.
        latest_s += new.generation
        _require(EARLY, epoch // 2 <= max(latest_s, known // 2), f"epoch {epoch} begins before its time")

    def _check_split(self, old: Item | None, items: tuple[Item | None, ...]) -> None:
        assert old is not None
        amount = self._config.versions[old.version].amount
        stays = [one for one in items if one is not None and band_of(one) == band_of(old)]
        if spent_of(old) <= amount and len(stays) == len(items):
            for place, item in enumerate(items):
                assert item is not None
                level = share(amount, place, 2) - spent_of(item)
                _require(SPLIT_DEBT, level >= 0, f"shard {place} has {level} after a split")

    def _check_promise(self, items: tuple[Item | None, ...], part: Part, ledger: dict[Key, Entry]) -> None:
        item = items[part.place]
        assert item is not None
        version = self._config.versions[item.version]
        if version.soft:
            return
        entry = ledger[item.key]
        owed = 0
        for place, other in enumerate(items):
            if other is not None and place != part.place and other.key == item.key:
                amount = self.share(self._config.versions[other.version].amount, place, other.count)
                owed += max(0, spent_of(other) - amount)
        _require(PROMISE, entry.used <= entry.most + owed, f"{entry.used} used in {item.key}, of {entry.most + owed}")
        left = self.share(version.amount, part.place, item.count) - spent_of(item)
        _require(RESERVED, left >= part.reserve, f"{left} left, where {part.reserve} are reserved")

    def check(self, state: State) -> None:
        """Check that each item has recorded what was used."""
        ledger = {entry.key: entry.used - entry.left for entry in state.ledger}
        recorded: dict[Key, int] = {}
        saturated: set[Key] = set()
        for item in state.items:
            if item is None:
                continue
            spent = spent_of(item)
            _require(OVERFULL, spent >= 0, f"{spent} spent in {item.key}")
            recorded[item.key] = recorded.get(item.key, 0) + spent
            if spent >= MOST_SPENT:
                saturated.add(item.key)
        for key, spent in recorded.items():
            used = ledger.get(key, 0)
            holds = spent <= used if key in saturated else spent == used
            _require(KEPT, holds, f"{spent} recorded in {key}, {used} used")
        self._check_held(state, {entry.key: entry.used for entry in state.ledger}, recorded)

    @staticmethod
    def _check_held(state: State, ledger: dict[Key, int], recorded: dict[Key, int]) -> None:
        """What leases hold of a period was used in it: no credit was given twice."""
        held: dict[Key, int] = {}
        for client in state.clients:
            for one in client.held:
                item = state.items[one.place]
                if item is not None and item.birth == one.birth and band_of(item) == one.epoch:
                    held[item.key] = held.get(item.key, 0) + one.amount
        for key, amount in held.items():
            if key in recorded:
                _require(TWICE, amount <= ledger.get(key, 0), f"{amount} held of {key}, {ledger.get(key, 0)} used")


def _require(invariant: str, holds: bool, message: str) -> None:
    if not holds:
        raise ViolationError(invariant, message)
