"""What must hold in every state of the model of slots."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.model.slots_configs import TICK_MS, SlotConfig
from tests.model.slots_state import Lease, State

SUM, BACKED, PROMISED, BOUNDED, STOLEN, KEPT = "sum", "backed", "promised", "bounded", "stolen", "kept"
"""The invariants.

- sum (I1): on every item, the balance and all cohorts add up to the shard's share of the capacity; no cohort is below 0
- backed (I2): for every future time, the slots that leases rely on beyond it are counted in cohorts that end beyond it
- promised: leases hold at most the largest capacity in force since the oldest of them was taken
- bounded: no slot is counted beyond one hold and one width after the latest time that a client may assume
- kept: a take of a client with a reserve leaves its part of it free, on every shard that it takes from
- stolen: a client that was answered that its write was applied is right
"""

ALL = frozenset((SUM, BACKED, PROMISED, BOUNDED, KEPT))


class ViolationError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {text}")


def share_of(whole: int, shard: int, count: int) -> int:
    """Return a shard's share of whole slots, in millislots. It is written again here, as the rule says."""
    slots = whole // 1000
    return (slots if count == 1 else (slots + 1 - shard) // 2) * 1000


def cohorts_in(item: Mapping[str, Any], name: str) -> dict[int, int]:
    """Return the cohorts of a limit by their end."""
    prefix = f"b_{name}_h"
    return {
        int(key[len(prefix) :]): value
        for key, value in item.items()
        if key.startswith(prefix) and key[len(prefix) :].isdigit()
    }


def check_item(config: SlotConfig, item: Mapping[str, Any], shard: int, checked: frozenset[str] = ALL) -> None:
    """Check one item: I1."""
    if not item or SUM not in checked:
        return
    for name in names_of(config):
        cohorts, balance = cohorts_in(item, name), item.get(f"b_{name}_tk")
        if any(milli < 0 for milli in cohorts.values()):
            raise ViolationError(SUM, f"a cohort of {name} is negative: {cohorts}")
        if balance is None:
            if any(cohorts.values()):
                raise ViolationError(SUM, f"the removed limit {name} has slots in use: {cohorts}")
            continue
        share = share_of(item[f"b_{name}_cp"], shard, item["shard_count"])
        if balance + sum(cohorts.values()) != share:
            raise ViolationError(SUM, f"{balance} free and {cohorts} in use of {share} of {name} on shard {shard}")


def check_kept(
    config: SlotConfig, item: Mapping[str, Any], shard: int, now_ms: int, checked: frozenset[str] = ALL
) -> None:
    """Check the item after a take of a client with a reserve."""
    if config.reserve is None or KEPT not in checked:
        return
    for name in names_of(config):
        free = item[f"b_{name}_tk"] + sum(
            milli for end_s, milli in cohorts_in(item, name).items() if end_s * 1000 <= now_ms
        )
        whole = -(-item[f"b_{name}_cp"] * config.reserve.numerator // config.reserve.denominator // 1000) * 1000
        least = share_of(whole, shard, item["shard_count"])
        if free < least:
            raise ViolationError(KEPT, f"{free} of {name} are free on shard {shard}, {least} are reserved")


def names_of(config: SlotConfig) -> list[str]:
    """Return the names of all limits of concurrent use."""
    return sorted({one.name for limits in config.versions for one in limits if one.hold_seconds})


def relied_on(leases: Iterable[Lease], name: str, at_ms: int) -> int:
    """Return the slots of which leases rely on an end after a time, in millislots."""
    return sum(
        claim.milli
        for lease in leases
        for claim in lease.claims
        if lease.counted and claim.name == name and claim.end_s * 1000 > at_ms
    )


def check_state(
    config: SlotConfig, state: State, items: Sequence[Mapping[str, Any]], checked: frozenset[str] = ALL
) -> None:
    """Check I2, the promise, and the ends of all cohorts."""
    now_ms = config.base_ms + state.tick * TICK_MS
    leases = [client.lease for client in state.clients if client.lease is not None and client.lease.counted]
    latest_s = now_ms // 1000 + max(late for _, late in config.clocks) * TICK_MS // 1000 + config.longest_s
    for name in names_of(config):
        cohorts = [one for item in items for one in cohorts_in(item, name).items()]
        if BOUNDED in checked and any(milli and end_s > latest_s for end_s, milli in cohorts):
            raise ViolationError(BOUNDED, f"slots of {name} end after {latest_s}: {cohorts}")
        if not leases:
            continue
        ends_ms = {claim.end_s * 1000 - 1 for lease in leases for claim in lease.claims}
        for at_ms in {now_ms, *(one for one in ends_ms if one > now_ms)}:
            relied = relied_on(leases, name, at_ms)
            backed = sum(milli for end_s, milli in cohorts if end_s * 1000 > at_ms)
            if relied > backed and BACKED in checked:
                raise ViolationError(BACKED, f"{relied} of {name} are relied on beyond {at_ms}, {backed} are counted")
        held = relied_on(leases, name, now_ms)
        holders = [lease for lease in leases if relied_on([lease], name, now_ms)]
        most = max((milli for lease in holders for one, milli in lease.most if one == name), default=0)
        if held > most and PROMISED in checked:
            raise ViolationError(PROMISED, f"{held} of {name} are held, of at most {most}")
