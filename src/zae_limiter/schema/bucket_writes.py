"""Describe all writes to a bucket item: take, top up, settle, create, rebase, split, merge, reset, operator credit.

Every writer adds 1 to the write counter and stores its nonce. All but a pure credit *hold*: they
require the birth number and the generation that the client saw. So the numbers that were computed
from the view fit the item. A writer that changes the baseline, the stamp, the digest or the shard
count must also raise the generation.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.core.acquire import MixedTake, Take
from zae_limiter.core.add_or_set import Add, Part
from zae_limiter.core.bucket import LimitShare
from zae_limiter.core.bucket_changes import Settling, expiry_s
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.rebase import Rebasing, longest_fill_ms
from zae_limiter.core.slots import MixedView, cohort_end_s
from zae_limiter.core.splitting import Merging, Splitting
from zae_limiter.core.top_up import TopUp
from zae_limiter.core.tracked import balance_from_full
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import attributes, keys, slot_writes
from zae_limiter.schema.bucket_item import BucketView, StoredLayout
from zae_limiter.schema.limit_options import limit_fields, stored_options
from zae_limiter.schema.operations import (
    AbsentOrAtMost,
    AtLeast,
    AtMost,
    AttributeAbsent,
    AttributeExists,
    Between,
    Condition,
    Delete,
    Differs,
    Equals,
    ItemAbsent,
    Key,
    Put,
    Ranges,
    Update,
)

if TYPE_CHECKING:
    from zae_limiter.core.operator_actions import Filled

_WRITE_COUNTER, _NONCE, _TTL = attributes.WRITE_COUNTER, attributes.NONCE, attributes.TTL
_STATE = keys.sk_state()
_new_tuple = tuple.__new__
_REMOVE_TTL: tuple[str, ...] = (_TTL,)


@dataclass(frozen=True, slots=True)
class Owner:
    """The namespace, entity and resource of a bucket."""

    namespace_id: str
    entity_id: str
    resource: str


class Signature(NamedTuple):
    """The numbers that identify a create and its bucket: the nonce, and the birth number."""

    nonce: int
    birth: int


def take(view: BucketView, taking: Take, nonce: int) -> Update:
    """Return the write that takes from a bucket."""
    layout = view.layout
    shared = layout.shared
    balance_names, total_names = shared.balance_names, shared.total_names
    add = {_WRITE_COUNTER: 1}
    put: dict[str, Any] = {_NONCE: nonce}
    ranges: list[tuple[str, int, int | None]] = []
    for position, taken, low, high, balance in taking.bounds:
        name = balance_names[position]
        add[total_names[position]] = taken
        if balance is None:
            add[name] = -taken
        else:
            put[name] = balance
        ranges.append((name, low, high))
    if type(taking) is MixedTake:
        return slot_writes.take(view, taking, add, put, ranges)
    # Every take sets or removes the expiry. A stale expiry could delete a bucket before it is full.
    removed = _REMOVE_TTL
    if taking.expires_s is not None:
        put[_TTL] = taking.expires_s
        removed = ()
        for position, floor in taking.solvent:
            ranges.append((balance_names[position], floor, None))
    # ``Ranges`` must not be empty, so a take of nothing only has the guard. The key is
    # ``layout.key``, inlined because this runs for every acquire.
    key = _new_tuple(Key, (layout.pk, _STATE))
    return Update(key, add, put, removed, (layout.guard, Ranges(ranges)) if ranges else (layout.guard,))


def top_up(view: BucketView, topping: TopUp, nonce: int) -> Update:
    """Return the write that takes from a bucket and returns what its creation withheld.

    It requires the write counter that was seen. Every writer raises the counter, so an equal
    counter means that the item is unchanged.
    """
    update = take(view, topping.taking, nonce)
    add = dict(update.add)
    for name, milli in zip(view.layout.balance_names, topping.returned, strict=True):
        add[name] = add.get(name, 0) + milli
    unchanged = Equals(_WRITE_COUNTER, view.writes)
    return Update(update.key, add, update.set, update.remove, (*update.when, unchanged))


def take_and_settle(view: BucketView, taking: Take, parts: Sequence[Part], nonce: int) -> Update:
    """Return the write that takes from a bucket, and settles limits that it does not take from."""
    layout = view.layout
    update = take(view, taking, nonce)
    if not parts:
        return update
    add, put = dict(update.add), dict(update.set)
    when: list[Condition] = list(update.when)
    for part in parts:
        _write_part(layout, part, add, put)
        when.append(_condition(layout.balance_names[part.position], part))
    return Update(update.key, add, put, update.remove, tuple(when))


def sent_again(write: Put | Update, birth: int) -> Put | Update:
    """Return a write to send again after its response was lost. If it was applied, its nonce refuses it.

    A create gets the new birth number ``birth``, because both creates may be applied, with a delete
    in between.
    """
    # A create needs no nonce condition: it requires that the item is absent.
    if isinstance(write, Put):
        return Put({**write.item, attributes.BIRTH: birth}, write.when)
    unless_applied = Differs(attributes.NONCE, write.set[attributes.NONCE])
    if unless_applied in write.when:
        return write
    return Update(write.key, write.add, write.set, write.remove, (*write.when, unless_applied))


def settle(view: BucketView, settling: Settling, nonce: int) -> Update:
    """Return the write that charges debits and gives credits. Only a debit holds, and only a debit ends the expiry.

    A pure credit requires the birth number of the bucket that was charged. A release does too, and that its cohort has
    the slots: another holder may have those that are returned already.
    """
    layout = view.layout
    add = {attributes.WRITE_COUNTER: 1}
    put: dict[str, Any] = {attributes.NONCE: nonce}
    # A debit may leave a debt, which an expired bucket would forget. So it removes the expiry.
    # Credits fit any layout, so they do not hold.
    when: list[Condition] = [layout.guard] if settling.held else []
    if settling.birth is not None and not settling.held:
        when.append(Equals(attributes.BIRTH, settling.birth))
    for part in settling.parts:
        _write_part(layout, part, add, put)
        when.append(_condition(layout.balance_names[part.position], part))
    slot_writes.release(settling.releases, add, when)
    return Update(layout.key, add, put, (attributes.TTL,) if settling.held else (), tuple(when))


def count(view: BucketView, amounts: Sequence[tuple[int, int]], nonce: int) -> Update:
    """Return the write that counts use of limits by position, in millitokens, and leaves their balances as they are."""
    layout = view.layout
    add = {_WRITE_COUNTER: 1} | {layout.total_names[position]: milli for position, milli in amounts}
    when: list[Condition] = [AttributeExists(layout.balance_names[position]) for position, _ in amounts]
    if layout.birth is not None:
        when.append(Equals(attributes.BIRTH, layout.birth))
    return Update(layout.key, add, {_NONCE: nonce}, (), tuple(when))


def create(owner: Owner, terms: EffectiveLimits, spent: dict[str, int], now_ms: int, signature: Signature) -> Put:
    """Return the write that creates a bucket with ``spent`` millitokens taken, by limit.

    Every create has a new birth number, so that credits reach only the bucket that was charged.
    """
    item = _identity(owner, 0)
    item[attributes.BASELINE] = now_ms
    item[attributes.SHARD_COUNT] = 1
    item[attributes.GENERATION] = 1
    item[attributes.BIRTH] = signature.birth
    item[attributes.WRITE_COUNTER] = 1
    item[attributes.NONCE] = signature.nonce
    _put_terms(item, terms)
    item[attributes.FILL_TIME] = fill_time_ms = longest_fill_ms(terms.limits)
    for limit in terms.limits:
        taken = spent.get(limit.name, 0)
        _put_limit(item, limit)
        item[attributes.balance_attribute(limit)] = balance_from_full(LimitShare.of(limit), taken, now_ms)
        item[attributes.bucket_attribute(limit.name, attributes.TOTAL_CONSUMED)] = taken
        if taken and limit.hold_seconds:
            item[attributes.cohort_attribute(limit.name, cohort_end_s(limit, now_ms))] = taken
    owes = any(item.get(attributes.bucket_attribute(limit.name, attributes.TOKENS), 0) < 0 for limit in terms.limits)
    if terms.ttl_multiplier and not owes:
        item[attributes.TTL] = expiry_s(now_ms, fill_time_ms, terms.ttl_multiplier)
    return Put(item, (ItemAbsent(),))


def rebase(view: BucketView, rebasing: Rebasing, nonce: int) -> Update:
    """Return the write that moves a bucket to other limits, and takes from it if the parts say so."""
    layout = view.layout
    add = {attributes.WRITE_COUNTER: 1}
    put: dict[str, Any] = {attributes.NONCE: nonce, attributes.BASELINE: rebasing.start_ms}
    put[attributes.GENERATION] = layout.generation + 1
    if rebasing.birth is not None:
        put[attributes.BIRTH] = rebasing.birth
    remove: list[str] = []
    when: list[Condition] = [layout.guard]
    for part in rebasing.parts:
        _write_part(layout, part, add, put)
        when.append(_condition(layout.balance_names[part.position], part))
    for position, floor in rebasing.dropped:
        when.append(AtLeast(layout.balance_names[position], floor))
        dropped = layout.shared.shares[position].limit
        remove += sorted(attributes.bucket_attribute(dropped.name, field) for field in limit_fields(dropped))
    for position, cohorts in rebasing.freed:
        slot_writes.remove_cohorts(layout.shared.shares[position].name, cohorts, remove, when)
    for joined in rebasing.joined:
        add[attributes.cohort_attribute(joined.name, joined.end_s)] = joined.milli
    for fresh in rebasing.added:
        balance = attributes.balance_attribute(fresh.baseline.limit)
        when.append(AttributeAbsent(balance))
        put[balance] = fresh.balance
        add[attributes.bucket_attribute(fresh.baseline.name, attributes.TOTAL_CONSUMED)] = fresh.spent
    _rewrite_terms(layout, rebasing, put, remove)
    if isinstance(view, MixedView) and rebasing.expires_s is not None:
        when.append(AbsentOrAtMost(attributes.TTL, rebasing.expires_s))
    return Update(layout.key, add, put, tuple(remove), tuple(when))


def split(view: BucketView, splitting: Splitting, nonce: int) -> tuple[Update, Put]:
    """Return the two writes of the transaction that splits a shard: of the old shard and of the new one."""
    layout = view.layout
    add = {attributes.WRITE_COUNTER: 1}
    put = _recounted(layout, splitting.shard_count, nonce)
    when: list[Condition] = [layout.guard]
    for part in splitting.parts:
        _write_part(layout, part, add, put)
        when.append(_condition(layout.balance_names[part.position], part))
    for name, end_s, milli in slot_writes.moved_cohorts(layout, splitting.cohorts):
        attribute = attributes.cohort_attribute(name, end_s)
        add[attribute] = -milli
        when.append(AtLeast(attribute, milli))
    old = Update(layout.key, add, put, (attributes.TTL,), tuple(when))
    return old, Put(_split_off(layout, splitting, nonce), (ItemAbsent(),))


def merge(staying: BucketView, leaving: BucketView, merging: Merging, nonce: int) -> tuple[Update, Delete]:
    """Return the two writes of the transaction that merges two shards: of the one that stays and of the other."""
    layout = staying.layout
    add = {attributes.WRITE_COUNTER: 1}
    put = _recounted(layout, merging.shard_count, nonce)
    # Hazard: a later split creates the deleted shard again with the same birth number. Its
    # generation must then be higher than any that a client has seen, on either shard.
    put[attributes.GENERATION] = max(layout.generation, leaving.layout.generation) + 1
    put |= {attributes.BASELINE: merging.start_ms, attributes.FILL_TIME: merging.fill_time_ms}
    when: list[Condition] = [layout.guard]
    for part in merging.parts:
        _write_part(layout, part, add, put)
        when.append(_condition(layout.balance_names[part.position], part))
    for share, highest in zip(layout.shared.shares, merging.highest, strict=True):
        if highest > share.limit.capacity_milli:
            put[attributes.bucket_attribute(share.name, attributes.HIGHEST_CAPACITY)] = highest
    for name, end_s, milli in slot_writes.moved_cohorts(layout, merging.cohorts):
        add[attributes.cohort_attribute(name, end_s)] = milli
    names = leaving.layout.balance_names
    ranges = [(name, low, high) for name, (low, high) in zip(names, merging.leaving, strict=True)]
    as_seen: list[Condition] = []
    for position, cohorts in merging.seen.items():
        slot_writes.remove_cohorts(leaving.layout.shared.shares[position].name, cohorts, [], as_seen)
    gone = Delete(leaving.layout.key, (leaving.layout.guard, Ranges(ranges), *as_seen))
    return Update(layout.key, add, put, (), tuple(when)), gone


def reset(view: BucketView, filled: "Sequence[Filled]", nonce: int) -> Update:
    """Return the write that fills limits of a shard. All shards of a bucket are written in one transaction.

    The expiry stays as it is: a limit that is filled never needs longer until it is full.
    """
    layout = view.layout
    # Hazard: a write that was decided before may set a level that it saw. The new generation refuses it.
    put: dict[str, Any] = {_NONCE: nonce, attributes.GENERATION: layout.generation + 1}
    when: list[Condition] = [layout.guard]
    for position, balance, low in filled:
        name = layout.balance_names[position]
        put[name] = balance
        if low is not None:
            when.append(AtLeast(name, low))
    return Update(layout.key, {_WRITE_COUNTER: 1}, put, (), tuple(when))


def operator_credit(view: BucketView, parts: Sequence[Add], nonce: int) -> Update:
    """Return the write that gives back what was spent, and takes it off the totals.

    Unlike the credit of a lease it holds, because its bounds follow from the layout. It is part of a transaction with
    the record of the credit.
    """
    layout = view.layout
    add = {_WRITE_COUNTER: 1}
    put: dict[str, Any] = {_NONCE: nonce}
    when: list[Condition] = [layout.guard]
    for part in parts:
        _write_part(layout, part, add, put)
        when.append(_condition(layout.balance_names[part.position], part))
    return Update(layout.key, add, put, (), tuple(when))


def _recounted(layout: StoredLayout, shard_count: int, nonce: int) -> dict[str, Any]:
    """Return the attributes of a shard with a new count. The new generation refuses writes based on older views."""
    return {
        attributes.NONCE: nonce,
        attributes.SHARD_COUNT: shard_count,
        attributes.GENERATION: layout.generation + 1,
    }


def _split_off(layout: StoredLayout, splitting: Splitting, nonce: int) -> dict[str, Any]:
    """Return the item of a new shard, which differs from the old one in its number and its balances."""
    bucket = keys.parse_bucket_pk(layout.pk)
    assert bucket is not None, "a stored layout has the key of a bucket"
    item = _identity(Owner(bucket.namespace_id, bucket.entity_id, bucket.resource), splitting.new_shard)
    item |= _recounted(layout, splitting.shard_count, nonce)
    item[attributes.BASELINE] = layout.start_ms
    item[attributes.WRITE_COUNTER] = 1
    if layout.birth is not None:
        item[attributes.BIRTH] = layout.birth
    item[attributes.STAMP] = layout.stamp
    item[attributes.OWN_LIMITS_DIGEST] = layout.digest
    item[attributes.CASCADE] = layout.cascade
    item[attributes.FILL_TIME] = layout.fill_time_ms
    if layout.parent_id is not None:
        item[attributes.PARENT_ID] = layout.parent_id
    for position, part in enumerate(layout.shared.shares):
        _put_limit(item, part.limit)
        name = part.name
        item[layout.balance_names[position]] = splitting.new_balances[position]
        item[layout.total_names[position]] = 0
        for end_s, milli in splitting.cohorts.get(position, ()):
            item[attributes.cohort_attribute(name, end_s)] = milli
        if position >= len(layout.limits):
            item[attributes.bucket_attribute(name, attributes.DORMANT)] = True
        if layout.highest[position] > part.limit.capacity_milli:
            item[attributes.bucket_attribute(name, attributes.HIGHEST_CAPACITY)] = layout.highest[position]
    return item


def _rewrite_terms(layout: StoredLayout, rebasing: Rebasing, put: dict[str, Any], remove: list[str]) -> None:
    """Write the limits and entity facts that a bucket is moved to."""
    terms = rebasing.terms
    for limit in terms.limits:
        _put_limit(put, limit)
        position = layout.position(limit.name)
        if position is not None and position >= len(layout.limits):
            remove.append(attributes.bucket_attribute(limit.name, attributes.DORMANT))
        highest = attributes.bucket_attribute(limit.name, attributes.HIGHEST_CAPACITY)
        if limit.name in rebasing.highest:
            put[highest] = rebasing.highest[limit.name]
        else:
            remove.append(highest)
        if position is not None:
            gone = stored_options(layout.shared.shares[position].limit).keys() - stored_options(limit).keys()
            remove += sorted(attributes.bucket_attribute(limit.name, field) for field in gone)
    for position in rebasing.dormant:
        # A dormant limit refills up to the largest capacity it ever had, and is removed once it is
        # that full.
        name = layout.shared.shares[position].name
        put[attributes.bucket_attribute(name, attributes.DORMANT)] = True
        if position in layout.shared.quotas:
            continue
        put[attributes.bucket_attribute(name, attributes.CAPACITY)] = layout.highest[position]
        remove.append(attributes.bucket_attribute(name, attributes.HIGHEST_CAPACITY))
    _put_terms(put, terms)
    put[attributes.FILL_TIME] = rebasing.fill_time_ms
    if terms.parent_id is None:
        remove.append(attributes.PARENT_ID)
    if rebasing.expires_s is None:
        remove.append(attributes.TTL)
    else:
        put[attributes.TTL] = rebasing.expires_s


def _write_part(layout: StoredLayout, part: Part, add: dict[str, int], put: dict[str, Any]) -> None:
    position = part.position
    add[layout.total_names[position]] = part.spent
    if isinstance(part, Add):
        add[layout.balance_names[position]] = part.change
    else:
        put[layout.balance_names[position]] = part.balance


def _condition(name: str, part: Part) -> Condition:
    """Return the condition that a balance is in the range in which a part is right."""
    if part.high is None:
        return AttributeExists(name) if part.low is None else AtLeast(name, part.low)
    return AtMost(name, part.high) if part.low is None else Between(name, part.low, part.high)


def _identity(owner: Owner, shard: int) -> dict[str, Any]:
    """Return the key and index attributes of a bucket item."""
    namespace_id, entity_id, resource = owner.namespace_id, owner.entity_id, owner.resource
    pk = keys.pk_bucket(namespace_id, entity_id, resource, shard)
    return {
        "PK": pk,
        "SK": keys.sk_state(),
        "GSI2PK": keys.gsi2_pk_resource(namespace_id, resource),
        "GSI2SK": keys.gsi2_sk_bucket(entity_id, shard),
        "GSI3PK": keys.gsi3_pk_entity(namespace_id, entity_id),
        "GSI3SK": keys.gsi3_sk_bucket(resource, shard),
        "GSI4PK": keys.gsi4_pk(namespace_id),
        "GSI4SK": keys.gsi4_sk(pk),
        attributes.ENTITY_ID: entity_id,
        attributes.RESOURCE: resource,
    }


def _put_terms(put: dict[str, Any], terms: EffectiveLimits) -> None:
    put[attributes.STAMP] = terms.stamp
    put[attributes.OWN_LIMITS_DIGEST] = terms.digest
    put[attributes.CASCADE] = terms.cascade
    if terms.parent_id is not None:
        put[attributes.PARENT_ID] = terms.parent_id


def _put_limit(put: dict[str, Any], limit: Limit) -> None:
    for field, value in stored_options(limit).items():
        put[attributes.bucket_attribute(limit.name, field)] = value
    if limit.schedule is not None:
        put[attributes.bucket_attribute(limit.name, attributes.QUOTA_AMOUNT)] = limit.capacity
        put[attributes.bucket_attribute(limit.name, attributes.QUOTA_SCHEDULE)] = limit.schedule.text
        return
    put[attributes.bucket_attribute(limit.name, attributes.CAPACITY)] = limit.capacity_milli
    if limit.hold_seconds:
        put[attributes.bucket_attribute(limit.name, attributes.HOLD)] = limit.hold_seconds
        return
    put[attributes.bucket_attribute(limit.name, attributes.REFILL_AMOUNT)] = limit.refill_amount_milli
    put[attributes.bucket_attribute(limit.name, attributes.REFILL_PERIOD)] = limit.refill_period_ms
