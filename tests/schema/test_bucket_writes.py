"""The writers of a bucket item: what each writes, and under which condition."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests import strategies as some
from tests.one_bucket import (
    NOON,
    OWNER,
    after,
    apply,
    at,
    created,
    own,
    settling,
    step,
    stored,
    taking,
    view,
    without_birth,
)
from zae_limiter.core.acquire import Rebase, Take
from zae_limiter.core.config import EntityFacts, Links, Resolution
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Missing, Refused
from zae_limiter.core.top_up import TopUp
from zae_limiter.core.view import own_effective_limits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_writes import Signature, create, rebase, sent_again
from zae_limiter.schema.operations import AttributeExists, Put, Update
from zae_limiter.tables import evaluate

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS, RPM)
CHILD = own_effective_limits(
    Resolution((), 3, None, None, EntityFacts("org-1", True, 1), links=Links("org-1")), (RPS,), 0
)


def make_take(item: dict[str, Any]) -> Update:
    return taking(view(item), TERMS, {"rps": 1}, at(NOON))


def make_debit(item: dict[str, Any]) -> Update:
    write = settling(view(item), at(NOON), debits={"rps": 1})
    assert write is not None
    return write


def make_credit(item: dict[str, Any]) -> Update:
    write = settling(view(item), at(NOON), credits={"rps": 1})
    assert write is not None
    return write


def make_rebase(item: dict[str, Any]) -> Update:
    return taking(view(item), stored(RPS, RPM, stamp=2), {"rps": 1}, at(NOON))


EVERY = pytest.mark.parametrize("writer", [make_take, make_debit, make_credit, make_rebase])
HOLDING = pytest.mark.parametrize("writer", [make_take, make_debit, make_rebase])
Writer = Callable[[dict[str, Any]], Update]


@EVERY
def test_every_write_increments_the_write_counter_and_sets_its_nonce(writer: Writer) -> None:
    """The counter shows the rate of all writes; the nonce identifies a write with a lost response."""
    item = created(TERMS)
    write = writer(item)
    new = after(write, item)

    assert (1, 2) == (item["b_wcu_tc"], new["b_wcu_tc"])
    assert new["op"] == write.set["op"] != item["op"]


@EVERY
def test_update_of_a_missing_bucket_returns_missing(writer: Writer) -> None:
    """No update creates a bucket."""
    assert Missing() == apply(writer(created(TERMS)), {})


@EVERY
def test_every_update_names_each_attribute_once_and_no_key(writer: Writer) -> None:
    """No attribute is added to, set and removed in one write."""
    write = writer(created(TERMS, {"rpm": 3}))
    names = [*write.add, *write.set, *write.remove]

    assert len(names) == len(set(names))
    assert not [name for name in names if name in ("PK", "SK") or name.startswith("GSI")]


@HOLDING
@pytest.mark.parametrize("change", [{"bi": 0}, {"gn": 2}], ids=str)
def test_take_debit_and_rebase_require_birth_number_and_generation(writer: Writer, change: dict[str, Any]) -> None:
    """The bucket must be unchanged since it was seen."""
    item = created(TERMS)

    assert isinstance(apply(writer(item), item), Applied)
    assert isinstance(apply(writer(item), {**item, **change}), Refused)


@HOLDING
@pytest.mark.parametrize(
    "change", [{"rf": NOON - 1}, {"cv": 0}, {"shard_count": 2}, {"ld": "other"}, {"gn": 2}], ids=str
)
def test_writes_to_an_item_without_birth_number_require_five_attributes(writer: Writer, change: dict[str, Any]) -> None:
    """Baseline, stamp, shard count, digest and generation."""
    item = without_birth(created(TERMS))

    assert isinstance(apply(writer(item), item), Applied)
    assert isinstance(apply(writer(item), {**item, **change}), Refused)


@EVERY
def test_write_that_is_sent_again_is_applied_once(writer: Writer) -> None:
    """If the first was applied, the second finds its own nonce and is refused."""
    item = created(TERMS)
    write = writer(item)
    again = sent_again(write, 99)

    assert isinstance(apply(again, item), Applied)
    assert isinstance(apply(again, after(write, item)), Refused)
    assert again == sent_again(again, 98)


def test_create_sent_again_has_its_nonce_and_another_birth_number() -> None:
    """The item of the first attempt refuses it; after a delete it creates another bucket."""
    write = create(OWNER, TERMS, {}, NOON, Signature(7, 70))
    again = sent_again(write, 71)

    assert isinstance(again, Put)
    assert Refused(write.item) == apply(again, dict(write.item))
    assert [(7, 70), (7, 71)] == [(one.item["op"], one.item["bi"]) for one in (write, again)]
    assert again.when == write.when


@given(limits=some.limit_sets(), now_ms=some.times_ms)
def test_create_writes_a_complete_item_that_is_full_except_for_the_take(limits: tuple[Limit, ...], now_ms: int) -> None:
    """It requires that there is no item."""
    first = sorted(limits, key=lambda limit: limit.name)[0]
    write = create(OWNER, stored(*limits), {first.name: first.capacity_milli}, now_ms, Signature(1, 1))
    item = write.item

    assert isinstance(write, Put)
    assert isinstance(apply(write, {}), Applied)
    for limit in limits:
        spent = first.capacity_milli if limit is first else 0
        assert (limit.capacity_milli - spent, spent) == (item[f"b_{limit.name}_tk"], item[f"b_{limit.name}_tc"])
        assert (limit.capacity_milli, limit.refill_amount_milli, limit.refill_period_ms) == (
            item[f"b_{limit.name}_cp"],
            item[f"b_{limit.name}_ra"],
            item[f"b_{limit.name}_rp"],
        )


def test_created_bucket_has_the_keys_of_three_indexes() -> None:
    """By resource, by entity and by namespace."""
    item = created(TERMS)

    assert {
        "PK": "ns000000000/BUCKET#user-1#gpt-4#0",
        "SK": "#STATE",
        "GSI2PK": "ns000000000/RESOURCE#gpt-4",
        "GSI2SK": "BUCKET#user-1#0",
        "GSI3PK": "ns000000000/ENTITY#user-1",
        "GSI3SK": "BUCKET#gpt-4#0",
        "GSI4PK": "ns000000000",
        "GSI4SK": "ns000000000/BUCKET#user-1#gpt-4#0",
        "entity_id": "user-1",
        "resource": "gpt-4",
    }.items() <= item.items()


def test_rebase_removes_the_parent_of_an_entity_without_one() -> None:
    """Parent and cascade are those of the newest limits."""
    item = created(CHILD)
    orphan = after(taking(view(item), own(RPS, stamp=4), {}, at(NOON)), item)

    assert ("org-1", True) == (item["parent_id"], item["cascade"])
    assert ("parent_id" in orphan, orphan["cascade"]) == (False, False)


@pytest.mark.parametrize(("birth", "expected"), [(None, None), (77, 77)])
def test_rebase_adds_the_birth_number_that_it_is_given(birth: int | None, expected: int | None) -> None:
    """For an item of an older version; None adds nothing."""
    item = without_birth(created(TERMS))
    decided = step(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON))
    assert isinstance(decided, Rebase)
    rebased = after(rebase(view(item), replace(decided.rebasing, birth=birth), 9), item)

    assert expected == rebased.get("bi")


def test_rebase_adds_the_parent_of_an_entity_that_got_one() -> None:
    """Parent and cascade are those of the newest limits."""
    item = created(own(RPS, stamp=2))

    item = after(taking(view(item), CHILD, {"rps": 1}, at(NOON)), item)

    assert ("org-1", True, CHILD.digest, 3) == (item["parent_id"], item["cascade"], item["ld"], item["cv"])


def test_take_changes_no_attribute_that_an_index_projects() -> None:
    """It costs exactly one write."""
    item = created(TERMS)
    new = after(make_take(item), item)

    assert {"b_wcu_tc", "b_rps_tc", "b_rps_tk", "op"} == {name for name in new if new[name] != item[name]}


def test_top_up_is_refused_after_any_other_write() -> None:
    """The write counter stands for the whole item."""
    item = created(TERMS)
    seen = view(item, TERMS)
    top_up = TopUp(Take([(0, 1_000, -(10**9), 10**9, None)], None, ()), [500] + [0] * (len(TERMS.limits) - 1))
    write = bucket_writes.top_up(seen, top_up, 99)
    new = after(write, item)
    name = seen.layout.balance_names[0]

    assert item[name] - 500 == new[name]
    assert isinstance(apply(write, {**item, "b_wcu_tc": item["b_wcu_tc"] + 1}), Refused)


def test_count_adds_to_the_totals_and_leaves_the_balances() -> None:
    """It requires the bucket that was seen, and that it still has the limits."""
    item = created(TERMS, {"rps": 3})
    counting = bucket_writes.count(view(item, NOON), [(1, 5_000)], 77)

    after = evaluate.apply(counting, item)
    assert isinstance(after, dict)
    assert {"b_wcu_tc": 2, "b_rps_tc": 8_000, "op": 77} == {
        name: value for name, value in after.items() if item.get(name) != value
    }
    assert isinstance(evaluate.apply(counting, {**item, "bi": item["bi"] + 1}), Refused)
    assert isinstance(evaluate.apply(counting, {name: item[name] for name in item if name != "b_rps_tk"}), Refused)


def test_count_of_an_older_item_requires_its_limits_only() -> None:
    """An item that an older version created has no birth number."""
    item = {name: value for name, value in created(TERMS).items() if name != "bi"}

    assert (AttributeExists("b_rpm_tk"),) == bucket_writes.count(view(item, NOON), [(0, 5_000)], 77).when
