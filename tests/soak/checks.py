"""The invariants after a soak, checked by the table itself and by the journals of all processes."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.many_shards import part_of, shard_of
from tests.soak.accounts import Account, Accounts
from tests.soak.promise import delays, most_in_any_window
from tests.soak.scenario import MEMBERS, NAMES, PARENT_ID, RESOURCE, Member
from zae_limiter import RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.schema.bucket_item import bucket_key

Item = dict[str, Any]
Items = dict[str, list[Item]]

# What one millisecond of the clock earns, and rounding to millitokens.
CLOCK_S = 0.002
# A write that takes at most this long does not count as late.
CALM_S = 0.25
# A debt is earned back within seconds; a bucket that takes longer was filled with another clock.
TRIES = 20
LONGEST_WAIT_S = 1.0
LONG_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Margin:
    """How close a limit came to what it may admit, and what its table has counted; in tokens.

    ``counted`` and ``acted`` are bounds: by the table, including merged shards, and by the journals.
    """

    owner: str
    allowed: float
    most: float
    counted: tuple[float, float]
    acted: tuple[float, float]

    @property
    def left(self) -> float:
        """What the limit could have admitted in addition."""
        return self.allowed - self.most


def stored(repo: SyncRepository) -> Items:
    """Return all shards of all buckets, as stored."""
    table, namespace_id = repo.scope.table, repo.scope.namespace_id
    found: Items = {}
    for entity_id in MEMBERS:
        keys = [bucket_key(namespace_id, entity_id, RESOURCE, shard) for shard in range(MOST_SHARDS)]
        found[entity_id] = [item for item in table.batch_get(keys, consistent=True) if item is not None]
    return found


def total(items: list[Item], name: str) -> int:
    """Return what shards have counted of a limit, in millitokens."""
    return sum(item[f"b_{name}_tc"] for item in items)


# ---------------------------------------------------------------- the table alone


def incomplete(items: Items) -> Iterator[str]:
    """Yield buckets whose shards do not fit together, or that have other limits than their entity."""
    for entity_id, shards in items.items():
        covered = sum(MOST_SHARDS // item["shard_count"] for item in shards)
        if covered != MOST_SHARDS:
            counts = {shard_of(item): item["shard_count"] for item in shards}
            yield f"{entity_id}: its shards make {covered}/{MOST_SHARDS} of a bucket: {counts}"
            continue
        for name in NAMES:
            capacities = {item[f"b_{name}_cp"] for item in shards}
            variants = {_capacity(limits, name) for limits in MEMBERS[entity_id].variants}
            if not capacities <= variants:
                yield f"{entity_id} {name}: stored capacities {capacities}, of which {variants} were ever set"
            whole = shards[0][f"b_{name}_cp"]
            shares = sum(part_of(whole, shard_of(item), item["shard_count"]) for item in shards)
            if shares != whole:
                yield f"{entity_id} {name}: the shares of its shards add up to {shares} of {whole}"


def made(first: Items, items: Items, accounts: Accounts) -> Iterator[str]:
    """Yield tokens that were created from nothing: balance plus total rises only by what is earned.

    This is exact, however late a write acted, because the clock alone raises this sum. For an entity whose limits were
    changed, the bound is the most that they earned.
    """
    for entity_id, shards in items.items():
        for name in NAMES:
            counted = total(shards, name) + accounts[entity_id, name].gone_least
            bound = _made_at_most(MEMBERS[entity_id], first[entity_id][0], shards, name)
            held = sum(item[f"b_{name}_tk"] for item in shards)
            if held + counted > bound:
                yield f"{entity_id} {name}: {held + counted - bound} millitokens were made from nothing"


def _made_at_most(member: Member, first: Item, shards: list[Item], name: str) -> int:
    """Return the most that balance plus total may be, on the current baselines of the shards."""
    if not member.is_steady:
        capacity, rate = member.most(name)
        newest = max(item["rf"] for item in shards)
        return int(capacity + rate * (newest - first["rf"]) / 1000 + sum(item["gn"] for item in shards))
    amount, period = first[f"b_{name}_ra"], first[f"b_{name}_rp"]
    earned = sum(part_of(item["rf"] * amount // period, shard_of(item), item["shard_count"]) for item in shards)
    return int(first[f"b_{name}_cp"]) + earned - first["rf"] * amount // period


def _capacity(limits: Any, name: str) -> int:
    return next(limit.capacity_milli for limit in limits if limit.name == name)


# ---------------------------------------------------------------- the table against the journals


def miscounted(items: Items, accounts: Accounts) -> Iterator[str]:
    """Yield totals below what surely acted, or above what may have acted."""
    for (entity_id, name), account in accounts.items():
        counted = total(items[entity_id], name)
        if counted + account.gone_most < account.least:
            missing = account.least - counted - account.gone_most
            yield f"{entity_id} {name}: {missing} millitokens were used that the table has not counted"
        if counted + account.gone_least > account.most:
            excess = counted + account.gone_least - account.most
            yield f"{entity_id} {name}: the table has counted {excess} millitokens that cannot have been used"


def unequal(items: Items, accounts: Accounts) -> Iterator[str]:
    """Yield limits of a parent that was charged less than its children, beyond the doubt of either."""
    children = [entity_id for entity_id, member in MEMBERS.items() if member.parent_id == PARENT_ID]
    for name in NAMES:
        below = sum(total(items[entity_id], name) for entity_id in children)
        above = total(items[PARENT_ID], name)
        doubt = sum(accounts[entity_id, name].doubt for entity_id in (*children, PARENT_ID))
        if below - above > doubt:
            yield f"{PARENT_ID} {name}: children used {below}, their parent {above}, and only {doubt} is uncertain"


def overdrawn(margins: Mapping[tuple[str, str], Margin]) -> Iterator[str]:
    """Yield limits that admitted more in some window than the promise allows."""
    for margin in margins.values():
        if margin.left < 0:
            yield (
                f"{margin.owner}: {margin.most:.1f} were admitted beyond what was earned in some window, "
                f"{margin.allowed:.1f} may be"
            )


def margins_of(items: Items, accounts: Accounts) -> dict[tuple[str, str], Margin]:
    """Return the margin of every limit."""
    found = {}
    for (entity_id, name), account in accounts.items():
        capacity, rate = MEMBERS[entity_id].most(name)
        allowed = (capacity + rate * (CALM_S + CLOCK_S)) / 1000
        late = delays(account.entries, rate / 1000, CALM_S)
        most = most_in_any_window([*account.entries, *late], rate / 1000)
        whole = total(items[entity_id], name)
        counted = ((whole + account.gone_least) / 1000, (whole + account.gone_most) / 1000)
        acted = (account.least / 1000, account.most / 1000)
        found[entity_id, name] = Margin(f"{entity_id} {name}", allowed, most, counted, acted)
    return found


def uncounted(repo: SyncRepository, items: Items, accounts: Accounts) -> Iterator[str]:
    """Yield usage that differs from the buckets' totals, if the table itself counts usage."""
    if repo.scope.table.log is None:
        return
    for entity_id, shards in items.items():
        summary = repo.get_usage_summary(entity_id=entity_id, resource=RESOURCE, window_type="hourly")
        for name in NAMES:
            account: Account = accounts[entity_id, name]
            counted = total(shards, name)
            usage = round(summary.total.get(name, 0) * 1000)
            if not counted + account.gone_least <= usage <= counted + account.gone_most:
                gone = f"{account.gone_least} to {account.gone_most}"
                yield f"{entity_id} {name}: usage is {usage}, buckets counted {counted}, and {gone} that were merged"


# ---------------------------------------------------------------- the limiter after the run


def not_working(repo: SyncRepository) -> Iterator[str]:
    """Yield buckets that admit nothing although they have tokens, or that exceed their capacity after a take."""
    limiter = SyncRateLimiter(repo)
    consume = dict.fromkeys(NAMES, 1)
    for entity_id in MEMBERS:
        # The first take may rebase it with a clock that is hardly known yet.
        admits = _admits(limiter, entity_id, consume)
        before_ms = time.time_ns() // 1_000_000
        if not (admits and _admits(limiter, entity_id, consume)):
            yield f"{entity_id}: admits nothing any more"
            continue
        for item in stored(repo)[entity_id]:
            for name in NAMES if item["shard_count"] == 1 else ():
                amount, period, since_ms = item[f"b_{name}_ra"], item[f"b_{name}_rp"], item["rf"]
                earned = max(0, before_ms * amount // period - since_ms * amount // period)
                if item[f"b_{name}_tk"] + earned > item[f"b_{name}_cp"] - 1000:
                    yield f"{entity_id} {name}: holds more than its capacity after a take"


def _admits(limiter: SyncRateLimiter, entity_id: str, consume: dict[str, int]) -> bool:
    for _ in range(TRIES):
        try:
            time.sleep(min(LONGEST_WAIT_S, limiter.time_until_available(entity_id, RESOURCE, consume)))
            with limiter.acquire(entity_id, RESOURCE, consume, on_unavailable="block"):
                return True
        except RateLimitExceeded as rejected:
            time.sleep(min(LONGEST_WAIT_S, rejected.retry_after_seconds))
        except RateLimiterUnavailable:
            continue
    return False
