"""The writes of a split and a merge: correct for what was seen, and refused if that has changed."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.many_shards import Item, after_merge, after_split, applied, grown, level, merging, splitting
from tests.one_bucket import NOON, after, at, created, stored, taking, view, without_birth
from zae_limiter.core.config import EntityFacts, Links, Resolution
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import effective_limits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import stored_layout_of
from zae_limiter.tables import evaluate

RPM = Limit("rpm", 100, 100, 60)
TPM = Limit("tpm", 9, 1, 60)
TERMS = stored(RPM, TPM, ttl=7)

NOT_SHARED = ("op", "b_wcu_tc")


def refused(operation: Any, item: Item) -> bool:
    """Return whether a table would refuse a write."""
    return not isinstance(evaluate.apply(operation, item), dict)


def split_writes(seen: Mapping[int, Item], shard: int = 0, now_ms: int = NOON) -> tuple[Any, Any]:
    """Return the writes of a split of the shards as they were seen."""
    return bucket_writes.split(view(dict(seen[shard])), splitting(dict(seen), shard, at(now_ms)), 99)


def merge_writes(seen: Mapping[int, Item], now_ms: int = NOON) -> tuple[Any, Any]:
    """Return the writes of a merge of shards 0 and 1 as they were seen."""
    decided = merging(dict(seen), 0, 1, at(now_ms))
    assert decided is not None
    return bucket_writes.merge(view(seen[0]), view(seen[1]), decided, 99)


class TestSplit:
    """One transaction of an update and a put."""

    def test_split_copies_everything_but_number_balances_and_totals(self) -> None:
        """Limits, stamp, baseline and parent are the same; totals and writes start at zero."""
        facts = EntityFacts("org-1", True, 2)
        terms = effective_limits(Resolution((RPM, TPM), 3, "system", None, facts, links=Links("org-1")), 7)
        assert terms is not None
        items = after_split({0: created(terms, {"rpm": 7})}, 0, at(NOON))
        own = {*NOT_SHARED, "PK", "GSI2SK", "GSI3SK", "GSI4SK", "b_rpm_tk", "b_tpm_tk", "b_rpm_tc", "b_tpm_tc"}

        assert set(items[0]) == set(items[1])
        assert {name: items[0][name] for name in items[0].keys() - own} == {
            name: items[1][name] for name in items[1].keys() - own
        }
        assert (0, 0, 1) == (items[1]["b_rpm_tc"], items[1]["b_tpm_tc"], items[1]["b_wcu_tc"])
        assert ("org-1", True) == (items[1]["parent_id"], items[1]["cascade"])
        assert (1, 2) == (stored_layout_of(items[1]).shard, stored_layout_of(items[1]).shard_count)

    def test_split_copies_dormant_limits_and_the_highest_capacity(self) -> None:
        """Both shards have them."""
        client = created(stored(RPM, TPM), {"rpm": 50, "tpm": 5})
        small = stored(Limit("tpm", 3, 1, 60), stamp=2)
        item = after(taking(view(client), small, {"tpm": 0}, at(NOON)), client)
        items = after_split({0: item}, 0, at(NOON))

        assert [True, True] == [one["b_rpm_dm"] for one in items.values()]
        assert [9_000, 9_000] == [one["b_tpm_hc"] for one in items.values()]

    def test_split_removes_the_ttl(self) -> None:
        """Shard 0 alone would be recreated full next to the others."""
        item = created(TERMS)
        items = after_split({0: item}, 0, at(NOON))

        assert "ttl" in item
        assert not any("ttl" in one for one in items.values())

    def test_split_keeps_the_totals_and_counts_one_write(self) -> None:
        """A split consumes nothing."""
        item = created(TERMS, {"rpm": 7})
        items = after_split({0: item}, 0, at(NOON))

        assert (7_000, 2) == (items[0]["b_rpm_tc"], items[0]["b_wcu_tc"])

    @given(seen=st.integers(-50_000, 100_000), true=st.integers(-50_000, 150_000), gap=st.integers(0, 50_000))
    def test_split_is_applied_only_if_it_creates_and_loses_no_token(self, seen: int, true: int, gap: int) -> None:
        """If the balance has changed, it is refused or the sum is the same."""
        item, now_ms = created(stored(RPM)), NOON + gap
        old, new = split_writes({0: {**item, "b_rpm_tk": seen}}, now_ms=now_ms)
        before = {**item, "b_rpm_tk": true}
        if not refused(old, before):
            halves = [level(one, "rpm", now_ms) for one in (applied(old, before), applied(new, {}))]

            assert sum(halves) == level(before, "rpm", now_ms)
            assert min(halves) >= min(0, level(before, "rpm", now_ms))

    @given(seen=st.integers(-50_000, 100_000), gap=st.integers(0, 50_000))
    def test_split_of_an_unchanged_shard_is_applied_without_loss(self, seen: int, gap: int) -> None:
        """The sum of the levels is the same."""
        item = {**created(stored(RPM)), "b_rpm_tk": seen}
        items = after_split({0: item}, 0, at(NOON + gap))

        assert level(item, "rpm", NOON + gap) == sum(level(one, "rpm", NOON + gap) for one in items.values())

    def test_split_of_an_item_without_birth_number_adds_none(self) -> None:
        """Only a rebase adds one, to shard 0 first."""
        items = after_split({0: without_birth(created(TERMS))}, 0, at(NOON))

        assert [False, False] == ["bi" in item for item in items.values()]

    @pytest.mark.parametrize("held", ["bi", "gn"])
    def test_split_requires_birth_number_and_generation(self, held: str) -> None:
        """It is refused if the shard was rebased, split, merged or recreated since."""
        item = created(TERMS)
        old, _ = split_writes({0: item})

        assert refused(old, {**item, held: item[held] + 1})

    def test_split_is_refused_if_the_new_shard_exists(self) -> None:
        """Of two concurrent splits, one is applied."""
        items = grown(TERMS, [0])
        _, new = split_writes({0: created(TERMS)})

        assert refused(new, items[1])


class TestMerge:
    """One transaction of an update and a delete."""

    def test_merge_does_not_add_the_totals_of_the_removed_shard(self) -> None:
        """Its consumption was counted when it was used."""
        items = grown(TERMS, [0])
        items = {shard: after(taking(view(item), TERMS, {"rpm": 3}, at(NOON)), item) for shard, item in items.items()}
        merged = after_merge(items, 0, 1, at(NOON))

        assert {0} == set(merged)
        assert (3_000, items[0]["b_wcu_tc"] + 1) == (merged[0]["b_rpm_tc"], merged[0]["b_wcu_tc"])

    def test_merge_keeps_highest_capacity_and_fill_time_of_either_shard(self) -> None:
        """The larger value of the two is kept."""
        items = grown(TERMS, [0])
        items[1] |= {"b_rpm_hc": 500_000, "tf": 10**9}
        merged = after_merge(items, 0, 1, at(NOON))

        assert (500_000, 10**9) == (merged[0]["b_rpm_hc"], merged[0]["tf"])
        assert "b_tpm_hc" not in merged[0]

    def test_shard_that_is_split_off_again_has_another_layout(self) -> None:
        """A client that saw the earlier one does not mistake it for the same."""
        items = grown(TERMS, [0])
        items[1] |= {"gn": items[1]["gn"] + 2}
        again = after_split(after_merge(items, 0, 1, at(NOON)), 0, at(NOON))

        assert not view(items[1]).layout.describes(again[1])

    @given(
        seen=st.tuples(st.integers(-50_000, 99_000), st.integers(-50_000, 99_000)),
        true=st.tuples(st.integers(-50_000, 99_000), st.integers(-50_000, 99_000)),
        moved=st.tuples(st.booleans(), st.booleans()),
    )
    def test_merge_is_applied_only_if_it_creates_no_token(
        self, seen: tuple[int, int], true: tuple[int, int], moved: tuple[bool, bool]
    ) -> None:
        """If the balances have changed, it is refused or the sum does not increase."""
        items, now_ms = grown(stored(RPM), [0]), NOON + 3_000
        views = {shard: {**item, "b_rpm_tk": seen[shard]} for shard, item in items.items()}
        now = {shard: {**item, "b_rpm_tk": (true if moved[shard] else seen)[shard]} for shard, item in items.items()}
        stays, goes = merge_writes(views, now_ms)
        if not refused(stays, now[0]) and not refused(goes, now[1]):
            merged = applied(stays, now[0])

            assert level(merged, "rpm", now_ms) <= sum(level(one, "rpm", now_ms) for one in now.values())

    @pytest.mark.parametrize("held", ["bi", "gn"])
    def test_merge_requires_birth_number_and_generation_of_both_shards(self, held: str) -> None:
        """It is refused if either was rebased, split, merged or recreated since."""
        items = grown(TERMS, [0])
        stays, goes = merge_writes(items)
        changed = [{**item, held: item[held] + 1} for item in items.values()]

        assert refused(stays, changed[0])
        assert refused(goes, changed[1])
