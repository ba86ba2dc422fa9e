"""Describe the usual writes of an acquire on an embedded table, which applies them without reading their conditions."""

from collections.abc import Sequence
from typing import Any

from zae_limiter.core.acquire import MixedTake, Take
from zae_limiter.core.add_or_set import Add
from zae_limiter.core.bucket_changes import Settling
from zae_limiter.core.outcome import Item
from zae_limiter.core.slots import SlotRelease
from zae_limiter.core.tracked import TrackedTake
from zae_limiter.schema import attributes, bucket_writes, keys
from zae_limiter.schema.bucket_item import BucketView, StoredLayout
from zae_limiter.schema.operations import DirectUpdate, Key

_WRITE_COUNTER, _NONCE, _TTL = attributes.WRITE_COUNTER, attributes.NONCE, attributes.TTL
_STATE = keys.sk_state()
_new_tuple = tuple.__new__


class BucketTake(DirectUpdate):
    """The write of ``take``. Its changes and conditions are made when they are read.

    An embedded table applies it by ``applied_to``, and reads neither unless that is refused.
    """

    __slots__ = ("_nonce", "_taking", "_view")

    def __init__(self, view: BucketView, taking: Take, nonce: int) -> None:
        self.key = _new_tuple(Key, (view.layout.pk, _STATE))
        self._view = view
        self._taking = taking
        self._nonce = nonce

    def __getattr__(self, name: str) -> Any:
        """Make the changes and conditions; Python calls this for an attribute that was never assigned."""
        return getattr(bucket_writes.take(self._view, self._taking, self._nonce), name)

    def written_names(self) -> tuple[str, ...] | None:
        """Return the names of all attributes that the take writes, None if it removes one."""
        taking, shared = self._taking, self._view.layout.shared
        if taking.expires_s is None:
            return None
        bounds = taking.bounds
        if len(bounds) == len(shared.balance_names):
            return shared.names_of_full_take
        return shared.names_of_take([bound[0] for bound in bounds])

    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the take; None if it may be refused, or is not the usual case."""
        taking, layout = self._taking, self._view.layout
        if taking.solvent:
            return None
        balance_names, total_names = layout.shared.balance_names, layout.shared.total_names
        try:
            if layout.guard.read(item) != layout.guard.values:
                return None
            new = {**item}
            for position, taken, low, high, balance in taking.bounds:
                name, total_name = balance_names[position], total_names[position]
                found, total = item[name], item[total_name]
                if type(found) is not int or found < low or (high is not None and found > high):
                    return None
                if type(total) is not int:
                    return None
                new[name] = found - taken if balance is None else balance
                new[total_name] = total + taken
            writes = item[_WRITE_COUNTER]
        except KeyError:
            return None
        if type(writes) is not int:
            return None
        new[_WRITE_COUNTER] = writes + 1
        new[_NONCE] = self._nonce
        if taking.expires_s is None:
            new.pop(_TTL, None)
        else:
            new[_TTL] = taking.expires_s
        return new


class BucketMixedTake(BucketTake):
    """The write of ``take`` to a bucket with limits of several kinds."""

    __slots__ = ()

    _taking: MixedTake

    def written_names(self) -> tuple[str, ...] | None:
        """Return the names of all attributes that the take writes, None if it removes one."""
        names, layout, slots = super().written_names(), self._view.layout, self._taking.slots
        if names is None or any(one.expired for one in slots):
            return None
        shares = layout.shared.shares
        for one in slots:
            cohort_name = attributes.cohort_attribute(shares[one.position].name, one.end_s)
            names += (layout.balance_names[one.position], layout.total_names[one.position], cohort_name)
        for tracked in self._taking.tracked:
            names += (layout.balance_names[tracked.part.position], layout.total_names[tracked.part.position])
        return names

    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the take; None if it may be refused, or is not the usual case."""
        taking, layout = self._taking, self._view.layout
        expires_s = item.get(_TTL)
        if expires_s is not None and taking.expires_s is not None and expires_s > taking.expires_s:
            return None
        new = super().applied_to(item)
        if new is None:
            return None
        return new if _applies_tracked(taking.tracked, layout, new) and self._applies_slots(new) else None

    def _applies_slots(self, new: dict[str, Any]) -> bool:
        """Change the slots of an item; False if the take may be refused, or is not the usual case."""
        layout = self._view.layout
        for one in self._taking.slots:
            balance_name, total_name = layout.balance_names[one.position], layout.total_names[one.position]
            cohort_name = attributes.cohort_attribute(layout.shared.shares[one.position].name, one.end_s)
            found, total, joined = new.get(balance_name), new.get(total_name), new.get(cohort_name, 0)
            if one.expired or type(found) is not int or type(total) is not int or type(joined) is not int:
                return False
            if one.low is not None and found < one.low:
                return False
            new[balance_name] = found + one.change
            new[total_name] = total + one.taken
            new[cohort_name] = joined + one.taken
        return True


def _applies_tracked(takes: Sequence[TrackedTake], layout: StoredLayout, new: dict[str, Any]) -> bool:
    """Change quotas and soft limits of an item; False if the take may be refused."""
    for one in takes:
        part = one.part
        balance_name, total_name = layout.balance_names[part.position], layout.total_names[part.position]
        found, total = new.get(balance_name), new.get(total_name)
        if type(found) is not int or type(total) is not int:
            return False
        if (part.low is not None and found < part.low) or (part.high is not None and found > part.high):
            return False
        new[balance_name] = found + part.change if isinstance(part, Add) else part.balance
        new[total_name] = total + part.spent
    return True


class SlotReturn(DirectUpdate):
    """The write that returns slots of one limit. Its changes and conditions are made when they are read."""

    __slots__ = ("_nonce", "_release", "_view")

    def __init__(self, view: BucketView, release: SlotRelease, nonce: int) -> None:
        self.key = _new_tuple(Key, (view.layout.pk, _STATE))
        self._view = view
        self._release = release
        self._nonce = nonce

    def __getattr__(self, name: str) -> Any:
        """Make the changes and conditions; Python calls this for an attribute that was never assigned."""
        settling = Settling([], held=False, birth=self._view.layout.birth, releases=(self._release,))
        return getattr(bucket_writes.settle(self._view, settling, self._nonce), name)

    def written_names(self) -> tuple[str, ...] | None:
        """Return the names of all attributes that it writes."""
        name, end_s, _ = self._release
        cohort_name = attributes.cohort_attribute(name, end_s)
        return _WRITE_COUNTER, _NONCE, attributes.bucket_attribute(name, attributes.TOKENS), cohort_name

    def applied_to(self, item: Item) -> dict[str, Any] | None:
        """Return the item after the write; None if it may be refused."""
        name, end_s, milli = self._release
        balance_name, cohort_name = (
            attributes.bucket_attribute(name, attributes.TOKENS),
            attributes.cohort_attribute(name, end_s),
        )
        found, held, writes = item.get(balance_name), item.get(cohort_name), item.get(_WRITE_COUNTER)
        if type(found) is not int or type(held) is not int or held < milli or type(writes) is not int:
            return None
        birth = self._view.layout.birth
        if birth is None or item.get(attributes.BIRTH) != birth:
            return None
        new = {**item}
        new[balance_name] = found + milli
        new[cohort_name] = held - milli
        new[_WRITE_COUNTER] = writes + 1
        new[_NONCE] = self._nonce
        return new
