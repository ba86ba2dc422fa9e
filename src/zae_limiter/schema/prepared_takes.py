"""Prepare the usual takes from a bucket of several kinds in an embedded table.

What is the same for all takes of a while is computed once. Those are the names of attributes, the cohort that slots
join, and the period of a quota. A take then computes the new item from the stored one, by the rules of ``next_step``.

Everything that is unusual is left to plans. Those are rejections, soft limits that lack the tokens, and an expiry that
has to move. The first slot of a cohort and the first take of a period are planned too.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zae_limiter.core.calendar import period_at
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.outcome import Item
from zae_limiter.core.quota import BAND
from zae_limiter.core.slots import Claim, cohort_end_s
from zae_limiter.core.tracked import AdmittedMixed, EpochCharge
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import attributes
from zae_limiter.schema.bucket_item import StoredLayout
from zae_limiter.schema.operations import Conditions, DirectUpdate, ItemAbsent, ItemExists, Key

_WRITE_COUNTER, _NONCE, _TTL, _BIRTH = attributes.WRITE_COUNTER, attributes.NONCE, attributes.TTL, attributes.BIRTH
_NEVER = (ItemExists(), ItemAbsent())
_FOREVER_MS = 10**18

PreparedPart = tuple[str, str, int, int, int, int, int]
"""How one limit is taken from.

The attributes of its balance and its total, its capacity, and what it earns in a period of milliseconds. Then what it
had offered at the baseline, and how many units of the balance one token is. A bare tuple, because every acquire reads
one per limit.
"""


@dataclass(slots=True)
class PreparedCohort:
    """The cohort that slots join which are taken between ``from_ms`` and ``until_ms``, both included.

    ``cohort`` is its attribute, ``balance`` that of the free slots, and ``mark`` the name of the highest number in use.
    """

    slot_name: str
    balance: str
    capacity_milli: int
    mark: str
    cohort: str
    end_s: int
    half_hold_ms: int
    from_ms: int
    until_ms: int


# Its free slots are never fewer than its capacity.
_NO_COHORT = PreparedCohort("", _WRITE_COUNTER, 0, "", "", 0, 0, 0, _FOREVER_MS)


@dataclass(slots=True)
class PreparedTakes:
    """How a bucket is taken from between ``from_ms`` and ``until_ms``, both included.

    ``parts`` are the limits that may be taken from, and ``rates`` all rate limits. ``epochs`` are those of quotas; a
    soft rate limit has 0. A take from ``solvent_count`` limits leaves no debt; 0 if that must be looked at.
    ``slot_name`` is the limit of concurrent use, empty if its slots cannot be taken. ``lifetime_ms`` is how long the
    item lives after a take, None if it does not expire. ``size`` is its number of attributes, and ``numbers`` are those
    that have to be integers.
    """

    key: Key
    layout: StoredLayout
    terms: EffectiveLimits
    from_ms: int
    until_ms: int
    parts: Mapping[str, PreparedPart]
    rates: Mapping[str, PreparedPart]
    solvent_count: int
    epochs: Mapping[str, int]
    lifetime_ms: int | None
    size: int
    numbers: tuple[str, ...]
    slot_name: str
    joined: PreparedCohort

    def fits(self, item: Item) -> bool:
        """Return whether an item has this layout, these cohorts, and whole numbers."""
        if len(item) != self.size or not self.layout.describes(item):
            return False
        return all(item.get(name).__class__ is int for name in self.numbers)

    def after_take(self, item: Item, consume: Mapping[str, int], at_ms: int, nonce: int) -> dict[str, Any] | None:
        """Return a fitting item after a take; None if it lacks tokens, or if the take is not the usual one."""
        new, parts = {**item}, self.parts
        try:
            for name, amount in consume.items():
                balance_name, total_name, capacity, rate, period_ms, offered, scale = parts[name]
                if amount.__class__ is not int or amount <= 0:
                    return None
                earned = at_ms * rate // period_ms - offered
                level = new[balance_name] + earned
                if level > capacity:
                    # A quota is above its amount if its last take was in an older period.
                    if scale == 1:
                        return None
                    level = capacity
                level -= amount * scale
                if level < 0:
                    return None
                new[balance_name] = level - earned
                new[total_name] += amount * 1000
            if self.slot_name in consume:
                new[self.joined.cohort] += consume[self.slot_name] * 1000
            new[_WRITE_COUNTER] += 1
        except KeyError:
            # Not a limit in force, or slots that are not prepared.
            return None
        new[_NONCE] = nonce
        expires_s, lifetime_ms = new.get(_TTL), self.lifetime_ms
        if expires_s is None:
            return new if lifetime_ms is None else None
        if lifetime_ms is None or expires_s * 1000 <= at_ms + lifetime_ms:
            return None
        # A bucket in debt must not expire. The limits that are taken from are not in debt.
        return new if len(consume) == self.solvent_count or self._is_solvent(new, consume, at_ms) else None

    def _is_solvent(self, new: Item, consume: Mapping[str, int], at_ms: int) -> bool:
        """Return whether no rate limit that is left out is in debt."""
        for name, (balance_name, _, _, rate, period_ms, offered, _) in self.rates.items():
            if name not in consume and new[balance_name] + at_ms * rate // period_ms < offered:
                return False
        return True


def prepare(layout: StoredLayout, terms: EffectiveLimits, item: Item, now_ms: int) -> PreparedTakes | None:
    """Return how a bucket is taken from after ``now_ms``; None if its takes are not the usual ones."""
    shared = layout.shared
    if shared.shard_count != 1 or len(shared.slots) > 1 or layout.birth is None or not layout.follows(terms):
        return None
    joined = _joined_cohort(layout, item, now_ms)
    from_ms, until_ms = max(layout.start_ms, joined.from_ms), joined.until_ms
    parts: dict[str, PreparedPart] = {}
    rates: dict[str, PreparedPart] = {}
    epochs: dict[str, int] = {}
    for position, share in enumerate(shared.shares):
        limit, capacity, offered, scale = share.limit, share.capacity_milli, layout.grids[position], 1000
        if limit.schedule is not None:
            begin_s, edge_s = period_at(limit.schedule, now_ms // 1000)
            from_ms, until_ms = max(from_ms, begin_s * 1000), min(until_ms, edge_s * 1000 - 1)
            epochs[share.name] = 2 * begin_s
            # The balance is -BAND * epoch if nothing of the period is spent. So the level is the balance minus this.
            capacity, offered, scale = capacity // 1000, -BAND * epochs[share.name] - capacity // 1000, 1
        names = shared.balance_names[position], shared.total_names[position]
        part = (*names, capacity, share.amount_milli, share.period_ms, offered, scale)
        if limit.kind == "rate":
            rates[share.name] = part
            if not limit.enforce:
                epochs[share.name] = 0
        if position < len(shared.limits) and (not limit.hold_seconds or joined.slot_name):
            parts[share.name] = part
    numbers = (*shared.balance_names, *shared.total_names, _WRITE_COUNTER)
    return PreparedTakes(
        key=layout.key,
        layout=layout,
        terms=terms,
        from_ms=from_ms,
        until_ms=until_ms,
        parts=parts,
        rates=rates,
        solvent_count=len(parts) if rates.keys() <= parts.keys() else 0,
        epochs=epochs,
        lifetime_ms=terms.ttl_multiplier * shared.fill_time_ms if terms.ttl_multiplier else None,
        size=len(item),
        numbers=(*numbers, joined.cohort) if joined.cohort else numbers,
        slot_name=joined.slot_name,
        joined=joined,
    )


def _joined_cohort(layout: StoredLayout, item: Item, now_ms: int) -> PreparedCohort:
    """Return the cohort that slots join now; ``_NO_COHORT`` if there is none yet, or if one has to be written off."""
    shared = layout.shared
    for position in shared.slots:
        share = shared.shares[position]
        limit, name = share.limit, share.name
        end_s = cohort_end_s(limit, now_ms)
        until_ms = (end_s - limit.hold_seconds) * 1000
        cohort = attributes.cohort_attribute(name, end_s)
        first_s = min([one.end_s for one in map(attributes.parse_cohort_attribute, item) if one is not None], default=0)
        unusual = position >= len(shared.limits) or not limit.enforce
        if unusual or cohort not in item or first_s * 1000 <= now_ms:
            return _NO_COHORT
        return PreparedCohort(
            name,
            shared.balance_names[position],
            share.capacity_milli,
            attributes.IN_USE_MARK + name,
            cohort,
            end_s,
            limit.hold_seconds * 500,
            until_ms - limit.cohort_seconds * 1000 + 1,
            min(until_ms, first_s * 1000 - 1),
        )
    return _NO_COHORT


class PreparedAdmitted(AdmittedMixed):
    """A prepared take of ``consume`` that was applied. Most leases end before its claims are needed."""

    __slots__ = ("consume", "prepared")

    # The class that it extends is frozen, which makes an assignment cost as much as the rest of the result.
    __setattr__ = object.__setattr__

    def __init__(self, prepared: PreparedTakes, consume: Mapping[str, int]) -> None:
        self.prepared = prepared
        self.consume = consume

    if not TYPE_CHECKING:

        @property
        def terms(self) -> EffectiveLimits:
            """The limits that it was judged by."""
            return self.prepared.terms

        @property
        def birth(self) -> int | None:
            """The birth number of the bucket."""
            return self.prepared.layout.birth

        @property
        def claims(self) -> tuple[Claim, ...]:
            """The slots that it took."""
            slot_name = self.prepared.slot_name
            held = self.consume.get(slot_name)
            return (Claim(0, slot_name, self.prepared.joined.end_s, held * 1000),) if held else ()

        @property
        def charges(self) -> tuple[EpochCharge, ...]:
            """What it has charged to quotas and soft rate limits."""
            epochs = self.prepared.epochs
            return tuple(
                [
                    EpochCharge(0, name, epochs[name], amount * 1000)
                    for name, amount in self.consume.items()
                    if name in epochs
                ]
            )


class PreparedWrite(DirectUpdate):
    """A write that computes the item itself, and is refused if it cannot."""

    __slots__ = ()

    # Properties, and no ``__getattr__``: a class that has one reads all of its attributes at half the speed.
    if not TYPE_CHECKING:

        @property
        def add(self) -> Mapping[str, int]:
            """The attributes that it may change, each by nothing."""
            return dict.fromkeys(self.written_names(), 0)

        @property
        def set(self) -> Mapping[str, Any]:
            """Nothing."""
            return {}

        @property
        def remove(self) -> tuple[str, ...]:
            """Nothing."""
            return ()

        @property
        def when(self) -> Conditions:
            """Conditions that no item meets."""
            return _NEVER


class PreparedTake(PreparedWrite):
    """A prepared take. ``taken`` is the item ``seen`` after it; another item is computed when it is stored."""

    __slots__ = ("_at_ms", "_consume", "_nonce", "_seen", "_taken", "prepared")

    def __init__(
        self,
        prepared: PreparedTakes,
        consume: Mapping[str, int],
        at_ms: int,
        nonce: int,
        seen: Item,
        taken: dict[str, Any],
    ) -> None:
        self.key = prepared.key
        self.prepared = prepared
        self._consume = consume
        self._at_ms = at_ms
        self._nonce = nonce
        self._seen = seen
        self._taken = taken

    def written_names(self) -> tuple[str, ...]:
        """Return the names of all attributes that it writes."""
        return (*self.prepared.numbers, _NONCE)

    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the take; None if it may be refused, or is not the usual case."""
        if item is self._seen:
            return self._taken
        prepared = self.prepared
        return prepared.after_take(item, self._consume, self._at_ms, self._nonce) if prepared.fits(item) else None


class PreparedReturn(PreparedWrite):
    """The write that returns the slots of a prepared take."""

    __slots__ = ("_milli", "_nonce", "_prepared")

    def __init__(self, prepared: PreparedTakes, milli: int, nonce: int) -> None:
        self.key = prepared.key
        self._prepared = prepared
        self._milli = milli
        self._nonce = nonce

    def written_names(self) -> tuple[str, ...]:
        """Return the names of all attributes that it writes."""
        joined = self._prepared.joined
        return _WRITE_COUNTER, _NONCE, joined.balance, joined.cohort

    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the write; None if the bucket or its cohort is not the one that was taken from."""
        prepared, milli = self._prepared, self._milli
        joined = prepared.joined
        balance, cohort = joined.balance, joined.cohort
        new = {**item}
        try:
            found, held, writes = new[balance], new[cohort], new[_WRITE_COUNTER]
            if new[_BIRTH] != prepared.layout.birth:
                return None
        except KeyError:
            return None
        if found.__class__ is not int or held.__class__ is not int or held < milli or writes.__class__ is not int:
            return None
        new[balance] = found + milli
        new[cohort] = held - milli
        new[_WRITE_COUNTER] = writes + 1
        new[_NONCE] = self._nonce
        return new
