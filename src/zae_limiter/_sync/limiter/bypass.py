"""Takes of entities with a bypass, which no bucket rejects.

Each limit is charged if its level suffices. Otherwise its use is only counted, and its balance stays as it is. So an
entity with a bypass uses up what is there, but its takes leave no debt for others under the same parent.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Collection, Sequence

from zae_limiter._sync.limiter.client import BucketClient
from zae_limiter._sync.store.buckets import ShardId
from zae_limiter.caches.request import NOTHING_TAKEN, AcquireRequest, Cascaded, Charge, HeldBucket, Owed
from zae_limiter.core.errors import AmountExceedsCapacityError, NoLimitsInForceError, ZAELimiterError
from zae_limiter.core.levels import lacks
from zae_limiter.core.names import check_amount
from zae_limiter.core.outcome import Applied
from zae_limiter.core.view import Admitted, EffectiveLimits
from zae_limiter.schema import bucket_writes

_log = logging.getLogger("zae_limiter")

_TRIES = 4
"""A bucket is tried this many times while other clients take in between; then the rest is only counted."""


def take(client: BucketClient, request: AcquireRequest, parts: Sequence[AcquireRequest]) -> Cascaded:
    """Take what is there from all buckets of a request, one after the other, and count the rest.

    The names of the request were checked.

    Raises:
        ValidationError: An amount is not a whole number, or is too large.
        RateLimiterUnavailable: The table did not answer; what was taken before is given back.
    """
    # No capacity bounds these amounts, so they are checked here.
    for name, amount in request.consume.items():
        check_amount(f"consume[{name}]", amount)
    held: list[HeldBucket] = []
    try:
        for part in parts:
            _take_from(client, part, held)
    except BaseException:
        give_back(client, _given_back(request, held))
        raise
    # The bucket of the entity is among the others, which keep what was only counted.
    return Cascaded(NOTHING_TAKEN, held)


def give_back(client: BucketClient, charges: Sequence[Charge]) -> None:
    """Credit what was taken, even if the caller is cancelled; a failure is logged.

    The caller gets the reason why the request failed.
    """
    try:
        client.see_through(lambda: settle(client, charges))
    except ZAELimiterError as error:
        _log.warning("Not given back: %s: %s", [(one.held.bucket, one.changes) for one in charges], error)


def charges_of(request: AcquireRequest, taken: Cascaded) -> list[Charge]:
    """Return the changes that give back what a request has taken."""
    return _given_back(request, list(taken.others))


def _given_back(request: AcquireRequest, held: Sequence[HeldBucket]) -> list[Charge]:
    changes = {name: -amount for name, amount in request.consume.items()}
    return [Charge(one, changes) for one in held]


def _take_from(client: BucketClient, part: AcquireRequest, held: list[HeldBucket]) -> None:
    """Take from one bucket, and count what it lacks; nothing is added to ``held`` if no limits are in force."""
    try:
        admitted, charged = _charge(client, part)
    except NoLimitsInForceError:
        return
    positions = admitted.terms.positions
    counted = {name: amount for name, amount in part.consume.items() if name in positions and name not in charged}
    # Before it is counted: a caller that is cancelled meanwhile gives back what was charged, and takes the count back.
    held.append(HeldBucket(part.bucket, admitted, positions, frozenset(counted)))
    used = {name: amount for name, amount in counted.items() if amount}
    if used:
        client.see_through(lambda: _count(client, part.bucket, admitted.terms, used, part.until_s))


def _charge(client: BucketClient, part: AcquireRequest) -> tuple[Admitted, Collection[str]]:
    """Charge each limit of a bucket whose level suffices, and return the names of the charged limits.

    Raises:
        NoLimitsInForceError: No limits are in force.
        RateLimiterUnavailable: The table did not answer.
    """
    known = part.known.terms if part.known is not None else None
    terms = known or client.resolver.terms(part.bucket, part.own, part.until_s)
    wanted = _within_capacity(part.consume, terms)
    for _ in range(_TRIES):
        if not wanted:
            break
        try:
            taken = client.take_part(part._replace(consume=wanted, partly=True, reserve=None))
        except AmountExceedsCapacityError:
            # A capacity was lowered meanwhile. The attempt has read that, unless the cache is off.
            part = part._replace(known=None)
            terms = client.resolver.terms(part.bucket, part.own, part.until_s)
            wanted = _within_capacity(wanted, terms)
            continue
        if isinstance(taken, Admitted):
            return taken, wanted.keys() & taken.terms.positions.keys()
        terms = taken.terms
        level_of = {level.name: level for level in taken.levels}
        wanted = {
            name: amount
            for name, amount in wanted.items()
            if name in level_of and not lacks(level_of[name], amount * 1000, taken.judged)
        }
    return Admitted(terms, None), ()


def _within_capacity(consume: dict[str, int], terms: EffectiveLimits) -> dict[str, int]:
    """Return the amounts of those limits that could admit them."""
    capacities = {limit.name: limit.capacity for limit in terms.limits}
    return {name: amount for name, amount in consume.items() if amount <= capacities.get(name, -1)}


def settle(client: BucketClient, charges: Sequence[Charge]) -> None:
    """Settle changes in tokens, up or down, with buckets that were taken from with a bypass.

    A limit that was only counted is counted again. A debit is charged if it leaves a debt of one capacity at most.

    Raises:
        RateLimiterUnavailable: The table did not answer.
    """
    owed: list[Owed] = []
    until_s = client.until_s()
    for held, changes, claims in charges:
        counted = {name: amount for name, amount in changes.items() if amount and name in held.names}
        charged = {name: amount for name, amount in counted.items() if _is_charged(client, held, name, amount)}
        settlements = held.settlements(charged, claims)
        owed += [Owed(held.bucket, one, held.admitted.terms, until_s) for one in settlements]
        rest = {name: amount for name, amount in counted.items() if name not in charged}
        if rest:
            _count(client, held.bucket, held.admitted.terms, rest, until_s)
    if owed:
        client.settle_all(owed)


def _is_charged(client: BucketClient, held: HeldBucket, name: str, amount: int) -> bool:
    """Return whether a change is charged or credited, by the cached view; otherwise it is only counted."""
    if name in (held.counted or ()):
        return False
    statuses = client.levels.held_statuses(held.bucket, held.admitted.terms, {}, {})
    left = [status.available + status.limit.capacity for status in statuses if status.limit_name == name]
    return amount < 0 or not left or amount <= left[0]


def _count(
    client: BucketClient, bucket: tuple[str, str], terms: EffectiveLimits, used: dict[str, int], until_s: float
) -> None:
    """Count use that no balance is charged for. If that fails, this is logged."""
    shard_id: ShardId = (bucket, 0)
    buckets = client.buckets
    try:
        view = buckets.remembered(bucket) or buckets.look(shard_id, terms, until_s)
        if view is None:
            creation = bucket_writes.create(buckets.owner(bucket), terms, {}, client.now()[1], buckets.signature())
            buckets.create(creation, until_s)
            view = buckets.look(shard_id, terms, until_s, newest=True)
        if view is None:
            return
        known = [(view.layout.position(name), amount * 1000) for name, amount in used.items()]
        amounts = [(position, milli) for position, milli in known if position is not None]
        update = bucket_writes.count(view, amounts, next(client.nonces))
        # Never sent again: use that is counted twice would be reported twice.
        result = buckets.result_of(update, client.context.table.write(update, until_s), None, until_s)
        if isinstance(result, Applied):
            buckets.learn(shard_id, result.new, terms, amounts)
        else:
            _log.warning("Not counted: %s of %s: the bucket has changed", used, bucket)
    except ZAELimiterError as error:
        _log.warning("Not counted: %s of %s: %s", used, bucket, error)
