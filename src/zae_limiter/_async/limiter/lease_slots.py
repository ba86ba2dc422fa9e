"""What a lease does with slots: they are renewed while it is open, and returned at its end."""

from collections.abc import Callable, Mapping, Sequence

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter.lease_facts import LeaseFacts
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import Charge, HeldBucket
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.tracked import AdmittedMixed

NO_SLOTS: Mapping[BucketId, SlotHold] = {}


class LeaseSlots(LeaseFacts):
    """The slots of a lease."""

    __slots__ = ()

    @property
    def lost(self) -> bool:
        """True if slots of the lease were not renewed in time, so that others may use them now.

        That happens if the process was paused, or if the store was unavailable for longer than the hold.
        """
        return any(self._client.slots.is_lost(hold) for hold in self._slots.values())

    def _open_slots(self, taken: Sequence[HeldBucket]) -> bool:
        """Begin to renew the slots that were taken; return False if there are none, or if the lease has ended."""
        slots = dict(self._slots)
        for one in taken:
            if isinstance(one.admitted, AdmittedMixed) and one.admitted.claims:
                hold = slots.get(one.bucket)
                if hold is None:
                    slots[one.bucket] = self._client.slots.open(one.bucket, one.admitted, self._loss_notifier())
                elif not self._client.slots.add(hold, one.admitted):
                    return False
        if slots:
            self._slots = slots
        return bool(slots)

    def _open_all_slots(self) -> bool:
        """Begin to renew all slots of a lease that was just entered; return False if it has none."""
        admitted = self._admitted
        if not self._others and isinstance(admitted, AdmittedMixed) and admitted.claims:
            # The usual case, without a search among several buckets.
            self._slots = {self._bucket: self._client.slots.open(self._bucket, admitted, self._loss_notifier())}
            return True
        return self._open_slots(self._buckets())

    def _has_returned_all_slots(self) -> bool:
        """Return whether an exit has returned the slots of the lease, perhaps at this moment."""
        return any(hold.is_closed for hold in self._slots.values())

    def _loss_notifier(self) -> Callable[[], None] | None:
        """Return what is called when slots are lost, None if the caller did not ask for it."""
        on_lost = self._on_lost
        return None if on_lost is None else runtime.notifier(on_lost, self)

    def _charges_of(self, changes: dict[str, int], held: dict[str, int]) -> list[Charge]:
        """Return changes in tokens, up or down, for each bucket of the lease; slots are only given back."""
        slots = self._slots
        if not slots:
            return [one.charge(changes, held) for one in self._buckets()] if changes else []
        charges: list[Charge] = []
        for one in self._buckets():
            hold = slots.get(one.bucket)
            names = slot_names(one, hold)
            mine = {name: amount for name, amount in changes.items() if name not in names}
            back = {name: -changes[name] for name in names if changes.get(name, 0) < 0}
            claims = [] if hold is None else self._client.slots.take_out(hold, back)
            if mine or claims:
                charges.append(one.charge(mine, held)._replace(claims=claims))
        return charges

    def _with_slots_back(self, changes: dict[str, int], held: dict[str, int]) -> dict[str, int]:
        """Return changes in tokens at the end of the lease, and all of its slots."""
        slots = self._slots
        names = {name for one in self._buckets() for name in slot_names(one, slots.get(one.bucket))}
        return {**changes, **{name: -held[name] for name in names if held.get(name)}}

    def _without_slots(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Return amounts without those of slots, which cannot be charged later: only a take gives them an end."""
        slots = self._slots
        names = {name for one in self._buckets() for name in slot_names(one, slots.get(one.bucket))}
        return {name: amount for name, amount in amounts.items() if name not in names}

    def _refuse_slots(self, verb: str, amounts: Mapping[str, int]) -> None:
        """Require amounts of other limits: a use that is known only afterwards has no meaning for slots.

        Raises:
            ValidationError: One of them is a limit of concurrent use.
        """
        slots = self._slots
        for one in self._buckets():
            terms, hold = one.admitted.terms, slots.get(one.bucket)
            for name in amounts:
                at = terms.positions.get(name)
                if (at is not None and terms.limits[at].hold_seconds) or (hold is not None and name in hold.limits):
                    reason = "is a limit of concurrent use; call consume() to take more slots, and release() for fewer"
                    raise ValidationError(verb, name, reason)


def slot_names(held: HeldBucket, hold: SlotHold | None) -> set[str]:
    """Return the limits of concurrent use of a bucket; ``hold`` are its slots, None if it gave none.

    Hazard: the bucket may have got such a limit after it was first taken from. Slots that were taken from it since must
    not be credited as tokens, because their cohort would stay in use.
    """
    names = {limit.name for limit in held.admitted.terms.limits if limit.hold_seconds}
    if hold is None:
        return names
    return names | hold.limits.keys()
