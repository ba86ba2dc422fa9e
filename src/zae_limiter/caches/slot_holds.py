"""The slots that the open leases of a client hold, and when they are renewed. Nothing here waits.

A lease runs in its own thread or loop, and renewals run on another thread. So everything is done under one lock. If a
lease ends while its slots are renewed, their end is not known yet. The renewal then returns them.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from weakref import ref

from zae_limiter.caches.buckets import BucketId
from zae_limiter.core.limit import Limit
from zae_limiter.core.slots import Claim, SlotRenewal, cohort_end_s, taken_from
from zae_limiter.core.tracked import AdmittedMixed
from zae_limiter.core.view import EffectiveLimits

_RETRY_MS = 250
"""After a renewal that was not answered, the next one follows after this many milliseconds."""


OnLost = Callable[[], None] | None
"""What is called when slots are lost; None if nothing is."""


class SlotHold:
    """The slots that a lease holds of one bucket since ``since_ms``.

    ``changed_claims`` replace those of the take; None if they are the same. ``renewals`` is the number of renewals in
    flight, and ``owed`` are slots to return once they have ended. ``is_closed`` is True once the lease has returned all
    of them, and ``is_final`` if they cannot be renewed any more. ``jitter`` is drawn when it is needed.
    """

    # Defaults of the class, and no slots. Most leases end before anything of this changes. Assigning all of it would
    # cost as much as returning the slots.
    changed_limits: Mapping[str, Limit] | None = None
    jitter: float | None = None
    on_lost: OnLost = None
    owed: dict[str, int] | None = None
    retry_ms = 0
    is_closed = False
    is_final = False
    is_lost = False

    def __init__(self, bucket: BucketId, admitted: AdmittedMixed, since_ms: int) -> None:
        self.bucket = bucket
        self.admitted = admitted
        self.since_ms = since_ms
        # These are read by every release, which is faster with values of their own.
        self.changed_claims: Sequence[Claim] | None = None
        self.renewals = 0

    @property
    def claims(self) -> Sequence[Claim]:
        """The slots that are held."""
        # Not stored here: another thread may close the hold at this moment, and would be undone.
        changed = self.changed_claims
        return self.admitted.claims if changed is None else changed

    @property
    def limits(self) -> Mapping[str, Limit]:
        """The limits of concurrent use, by name."""
        changed = self.changed_limits
        return _slot_limits(self.admitted) if changed is None else changed

    @property
    def terms(self) -> EffectiveLimits:
        """The limits that the take was judged by."""
        return self.admitted.terms

    @property
    def birth(self) -> int | None:
        """The birth number of the bucket."""
        return self.admitted.birth

    @property
    def end_ms(self) -> int | None:
        """When the first of the slots end, None if none are held."""
        return min((claim.end_s for claim in self.claims), default=0) * 1000 or None

    @property
    def earliest_ms(self) -> int:
        """The earliest time at which the slots are renewed."""
        claims = self.claims
        if len(claims) == 1:
            return self.since_ms + self.hold_ms(claims[0].name) // 2
        return self.since_ms + min([self.hold_ms(claim.name) for claim in claims], default=0) // 2

    def hold_ms(self, name: str) -> int:
        """Return how many milliseconds slots of a limit are held without a renewal."""
        return self.limits[name].hold_seconds * 1000

    def due_ms(self) -> int | None:
        """Return when the slots are renewed: between two thirds and one third of the hold before their end.

        None if they are not renewed. Calls that are shorter than half the hold are never renewed.
        """
        if self.is_final or not self.claims:
            return None
        first = min(self.claims, key=lambda claim: claim.end_s)
        hold_ms = self.hold_ms(first.name)
        before_end_ms = int(hold_ms * (1 + (self.jitter or 0.0)) / 3)
        return max(self.retry_ms, self.since_ms + hold_ms // 2, first.end_s * 1000 - before_end_ms)


class SlotGroup(NamedTuple):
    """The slots of one shard that are renewed in one write, the leases that hold them, and their first end."""

    bucket: BucketId
    shard: int
    birth: int | None
    renewals: tuple[SlotRenewal, ...]
    holds: Sequence[SlotHold]
    end_ms: int


class SlotHolds:
    """The slots that the open leases of one client hold."""

    def __init__(self, draw: Callable[[], float]) -> None:
        # By identity. Hazard: an interrupt may end a lease without its exit, and a caller may drop one. The slots of a
        # lease that does not exist any more must not be renewed forever, so the references are weak.
        self._holds: dict[int, ref[SlotHold]] = {}
        self._draw = draw
        # Reentrant: a thread that is interrupted while it holds the lock can still enter again.
        self._mutex = threading.RLock()

    def renew(self) -> None:
        """Forget everything in a copy of the process: the original renews and returns its slots."""
        self._mutex = threading.RLock()
        self._holds = {}

    def open(self, bucket: BucketId, admitted: AdmittedMixed, since_ms: int, on_lost: OnLost) -> SlotHold:
        """Keep the slots of a lease until they are taken out."""
        hold = SlotHold(bucket, admitted, since_ms)
        hold.on_lost = on_lost
        hold.jitter = self._draw()
        self.keep(hold)
        return hold

    def keep(self, hold: SlotHold) -> None:
        """Keep the slots of a lease until they are taken out."""
        # Without the lock, because every take of slots runs this: it is one step.
        self._holds[id(hold)] = ref(hold)

    def add(self, hold: SlotHold, admitted: AdmittedMixed) -> bool:
        """Add slots that a lease has taken since, perhaps of limits that the bucket did not have before.

        False if the lease has ended.
        """
        with self._mutex:
            if hold.is_closed:
                return False
            hold.changed_limits = {**hold.limits, **_slot_limits(admitted)}
            hold.changed_claims = (*hold.claims, *admitted.claims)
            self._holds[id(hold)] = ref(hold)
            return True

    def take_out(self, hold: SlotHold, amounts: Mapping[str, int]) -> list[Claim]:
        """Remove slots that are returned now. If they are being renewed, the renewal returns them."""
        with self._mutex:
            if hold.renewals:
                owed = hold.owed or {}
                hold.owed = {**owed, **{name: owed.get(name, 0) + amount for name, amount in amounts.items()}}
                return []
            gone, hold.changed_claims = taken_from(hold.claims, amounts)
            self._drop_if_empty(hold)
            return gone

    def close(self, hold: SlotHold, changed: Sequence[Claim] | None) -> bool:
        """Remove all slots of a lease, which the caller returns; ``changed`` are its changed claims, as the caller saw.

        False if they are being renewed, or were changed since, or are not kept any more. Then another exit was faster,
        or this is a copy of the process.
        """
        with self._mutex:
            if hold.renewals or hold.changed_claims is not changed or self._holds.pop(id(hold), None) is None:
                return False
            hold.changed_claims = ()
            hold.is_closed = True
            return True

    def open_again(self, hold: SlotHold) -> None:
        """Keep the slots of a closed lease again, because they could not be returned yet."""
        with self._mutex:
            hold.changed_claims = None
            hold.is_closed = False
            self._holds[id(hold)] = ref(hold)

    def lost(self, late_ms: int) -> list[SlotHold]:
        """Return the leases that have lost slots since the last call: their end has passed, at the latest time."""
        with self._mutex:
            found = [
                hold
                for hold in self._existing()
                if not hold.is_lost and hold.end_ms is not None and hold.end_ms <= late_ms
            ]
            for hold in found:
                hold.is_lost = hold.is_final = True
            return found

    def next_ms(self) -> int | None:
        """Return when the next slots are due or end, None if no lease holds any."""
        with self._mutex:
            found = [one for hold in self._existing() for one in (hold.due_ms(), _end_of(hold)) if one is not None]
            return min(found, default=None)

    def begin(self, late_ms: int) -> list[SlotGroup]:
        """Return what is to be renewed at ``late_ms``, the latest possible time. ``end`` must follow for each group.

        If one lease of a bucket is due, all others are renewed in the same write.
        """
        with self._mutex:
            existing = self._existing()
            due = {
                (hold.bucket, hold.birth)
                for hold in existing
                if not hold.renewals and (at_ms := hold.due_ms()) is not None and at_ms <= late_ms
            }
            shards: dict[tuple[BucketId, int | None, int], list[SlotHold]] = {}
            for hold in existing:
                if (hold.bucket, hold.birth) in due and not hold.renewals and not hold.is_final:
                    for shard in {claim.shard for claim in hold.claims}:
                        shards.setdefault((hold.bucket, hold.birth, shard), []).append(hold)
            groups = [_group(key, holds, late_ms) for key, holds in shards.items()]
            for group in groups:
                for hold in group.holds:
                    hold.renewals += 1
            return groups

    def end(
        self, group: SlotGroup, moved: Mapping[tuple[str, int], list[Claim]] | None, late_ms: int
    ) -> list[tuple[SlotHold, list[Claim]]]:
        """Note the result of a renewal, and return the slots of leases that have ended meanwhile.

        ``moved`` are the slots that those of a limit and an end have become; None if the table did not answer.
        """
        returned: list[tuple[SlotHold, list[Claim]]] = []
        with self._mutex:
            for hold in group.holds:
                if moved is None:
                    hold.retry_ms = late_ms + _RETRY_MS
                else:
                    self._move(hold, group.shard, moved)
                hold.renewals -= 1
                if hold.owed and not hold.renewals:
                    gone, hold.changed_claims = taken_from(hold.claims, hold.owed)
                    hold.owed = None
                    returned.append((hold, gone))
                self._drop_if_empty(hold)
        return returned

    def _move(self, hold: SlotHold, shard: int, moved: Mapping[tuple[str, int], list[Claim]]) -> None:
        """Replace the claims of a lease by its part of what was renewed."""
        claims: list[Claim] = []
        for claim in hold.claims:
            parts = moved.get((claim.name, claim.end_s)) if claim.shard == shard else None
            if parts is None:
                claims.append(claim)
                continue
            left = claim.milli
            for index, part in enumerate(parts):
                some = min(left, part.milli)
                if some:
                    claims.append(part._replace(milli=some))
                    parts[index] = part._replace(milli=part.milli - some)
                    left -= some
            if left:
                # These slots are gone. The lease notices that at their end.
                hold.is_final = True
                claims.append(claim._replace(milli=left))
        hold.changed_claims = claims

    def _existing(self) -> list[SlotHold]:
        """Return the slots of leases that still exist, and forget the others."""
        found: list[SlotHold] = []
        # Copied in one step, because leases that are entered do not wait for the lock.
        for key, one in self._holds.copy().items():
            hold = one()
            if hold is not None:
                if hold.jitter is None:
                    hold.jitter = self._draw()
                found.append(hold)
            elif self._holds.get(key) is one:
                del self._holds[key]
        return found

    def _drop_if_empty(self, hold: SlotHold) -> None:
        if not hold.claims and not hold.renewals:
            self._holds.pop(id(hold), None)


def _slot_limits(admitted: AdmittedMixed) -> dict[str, Limit]:
    return {limit.name: limit for limit in admitted.terms.limits if limit.hold_seconds}


def _end_of(hold: SlotHold) -> int | None:
    """Return when a lease may lose slots, None if it has lost them already."""
    return None if hold.is_lost else hold.end_ms


def _group(key: tuple[BucketId, int | None, int], holds: Sequence[SlotHold], late_ms: int) -> SlotGroup:
    bucket, birth, shard = key
    sums: dict[tuple[str, int, int], int] = {}
    for hold in holds:
        for claim in hold.claims:
            later_s = cohort_end_s(hold.limits[claim.name], late_ms)
            if claim.shard == shard and claim.end_s < later_s:
                moving = (claim.name, claim.end_s, later_s)
                sums[moving] = sums.get(moving, 0) + claim.milli
    renewals = tuple([SlotRenewal(*moving, milli) for moving, milli in sums.items()])
    end_ms = min([one.end_s for one in renewals], default=0) * 1000
    return SlotGroup(bucket, shard, birth, renewals, holds, end_ms)
