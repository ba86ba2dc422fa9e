"""The writes of a split and of a merge: each is right for what was seen, and refused where that is no more."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.many_shards import Item, after_merge, after_split, applied, grown, level, merging, splitting
from tests.one_bucket import NOON, after, at, created, stored, taking, view, without_birth
from zae_limiter.core.config import EntityFacts, Resolution
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import effective_limits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import stored_layout_of
from zae_limiter.tables import evaluate

RPM = Limit("rpm", 100, 100, 60)
TPM = Limit("tpm", 9, 1, 60)
TERMS = stored(RPM, TPM, ttl=7)

ON_THEIR_OWN = ("op", "b_wcu_tc")


def refused(operation: Any, item: Item) -> bool:
    """Say whether a table would refuse a write."""
    return not isinstance(evaluate.apply(operation, item), dict)


def split_writes(seen: Mapping[int, Item], shard: int = 0, now_ms: int = NOON) -> tuple[Any, Any]:
    """The writes of a split of what was seen."""
    return bucket_writes.split(view(dict(seen[shard])), splitting(dict(seen), shard, at(now_ms)), 99)


def merge_writes(seen: Mapping[int, Item], now_ms: int = NOON) -> tuple[Any, Any]:
    """The writes of a merge of shards 0 and 1 as they were seen."""
    decided = merging(dict(seen), 0, 1, at(now_ms))
    assert decided is not None
    return bucket_writes.merge(view(seen[0]), view(seen[1]), decided, 99)


class TestSplit:
    """One transaction of an update and a put."""

    def test_the_new_item_is_the_old_one_but_for_its_number_and_balances(self) -> None:
        """Limits, stamp, baseline, parent and all; its use and its writes are counted from the start."""
        facts = EntityFacts("org-1", True, 2)
        terms = effective_limits(Resolution((RPM, TPM), 3, "system", None, facts), 7)
        assert terms is not None
        items = after_split({0: created(terms, {"rpm": 7})}, 0, at(NOON))
        own = {*ON_THEIR_OWN, "PK", "GSI2SK", "GSI3SK", "GSI4SK", "b_rpm_tk", "b_tpm_tk", "b_rpm_tc", "b_tpm_tc"}

        assert set(items[0]) == set(items[1])
        assert {name: items[0][name] for name in items[0].keys() - own} == {
            name: items[1][name] for name in items[1].keys() - own
        }
        assert (0, 0, 1) == (items[1]["b_rpm_tc"], items[1]["b_tpm_tc"], items[1]["b_wcu_tc"])
        assert ("org-1", True) == (items[1]["parent_id"], items[1]["cascade"])
        assert (1, 2) == (stored_layout_of(items[1]).shard, stored_layout_of(items[1]).shard_count)

    def test_a_dormant_limit_is_dormant_on_both(self) -> None:
        """And the largest capacity each ever had is known to both."""
        client = created(stored(RPM, TPM), {"rpm": 50, "tpm": 5})
        small = stored(Limit("tpm", 3, 1, 60), stamp=2)
        item = after(taking(view(client), small, {"tpm": 0}, at(NOON)), client)
        items = after_split({0: item}, 0, at(NOON))

        assert [True, True] == [one["b_rpm_dm"] for one in items.values()]
        assert [9_000, 9_000] == [one["b_tpm_hc"] for one in items.values()]

    def test_a_sharded_bucket_does_not_expire(self) -> None:
        """Shard 0 alone would come back whole beside the others."""
        item = created(TERMS)
        items = after_split({0: item}, 0, at(NOON))

        assert "ttl" in item
        assert not any("ttl" in one for one in items.values())

    def test_the_use_that_was_counted_stays(self) -> None:
        """Nothing is used by a split, but a write is counted."""
        item = created(TERMS, {"rpm": 7})
        items = after_split({0: item}, 0, at(NOON))

        assert (7_000, 2) == (items[0]["b_rpm_tc"], items[0]["b_wcu_tc"])

    @given(seen=st.integers(-50_000, 100_000), true=st.integers(-50_000, 150_000), gap=st.integers(0, 50_000))
    def test_it_is_applied_only_where_no_token_is_made_or_lost(self, seen: int, true: int, gap: int) -> None:
        """Whatever became of the balance since it was seen: refused, or as much is there as was."""
        item, now_ms = created(stored(RPM)), NOON + gap
        old, new = split_writes({0: {**item, "b_rpm_tk": seen}}, now_ms=now_ms)
        before = {**item, "b_rpm_tk": true}
        if not refused(old, before):
            halves = [level(one, "rpm", now_ms) for one in (applied(old, before), applied(new, {}))]

            assert sum(halves) == level(before, "rpm", now_ms)
            assert min(halves) >= min(0, level(before, "rpm", now_ms))

    @given(seen=st.integers(-50_000, 100_000), gap=st.integers(0, 50_000))
    def test_it_is_applied_to_what_was_seen(self, seen: int, gap: int) -> None:
        """Then nothing is lost."""
        item = {**created(stored(RPM)), "b_rpm_tk": seen}
        items = after_split({0: item}, 0, at(NOON + gap))

        assert level(item, "rpm", NOON + gap) == sum(level(one, "rpm", NOON + gap) for one in items.values())

    def test_shard_of_an_item_without_birth_number_has_none(self) -> None:
        """Only a rebase adds one, to shard 0 first."""
        items = after_split({0: without_birth(created(TERMS))}, 0, at(NOON))

        assert [False, False] == ["bi" in item for item in items.values()]

    @pytest.mark.parametrize("held", ["bi", "gn"])
    def test_it_holds_on_to_what_was_seen(self, held: str) -> None:
        """Rebased, split, merged or re-created since: refused."""
        item = created(TERMS)
        old, _ = split_writes({0: item})

        assert refused(old, {**item, held: item[held] + 1})

    def test_a_shard_that_is_there_is_not_put_again(self) -> None:
        """Two who split at once must not both."""
        items = grown(TERMS, [0])
        _, new = split_writes({0: created(TERMS)})

        assert refused(new, items[1])


class TestMerge:
    """One transaction of an update and a delete."""

    def test_use_that_was_counted_is_not_counted_again(self) -> None:
        """That of the shard that goes was counted when it was used."""
        items = grown(TERMS, [0])
        items = {shard: after(taking(view(item), TERMS, {"rpm": 3}, at(NOON)), item) for shard, item in items.items()}
        merged = after_merge(items, 0, 1, at(NOON))

        assert {0} == set(merged)
        assert (3_000, items[0]["b_wcu_tc"] + 1) == (merged[0]["b_rpm_tc"], merged[0]["b_wcu_tc"])

    def test_what_either_remembers_both_remember(self) -> None:
        """The largest capacity, and the longest time to fill."""
        items = grown(TERMS, [0])
        items[1] |= {"b_rpm_hc": 500_000, "tf": 10**9}
        merged = after_merge(items, 0, 1, at(NOON))

        assert (500_000, 10**9) == (merged[0]["b_rpm_hc"], merged[0]["tf"])
        assert "b_tpm_hc" not in merged[0]

    def test_a_shard_that_comes_back_is_another(self) -> None:
        """Who saw it before it went does not take it for the same, though it was rebased more often than the other."""
        items = grown(TERMS, [0])
        items[1] |= {"gn": items[1]["gn"] + 2}
        again = after_split(after_merge(items, 0, 1, at(NOON)), 0, at(NOON))

        assert not view(items[1]).layout.describes(again[1])

    @given(
        seen=st.tuples(st.integers(-50_000, 99_000), st.integers(-50_000, 99_000)),
        true=st.tuples(st.integers(-50_000, 99_000), st.integers(-50_000, 99_000)),
        moved=st.tuples(st.booleans(), st.booleans()),
    )
    def test_it_is_applied_only_where_it_makes_no_token(
        self, seen: tuple[int, int], true: tuple[int, int], moved: tuple[bool, bool]
    ) -> None:
        """Whatever became of the balances since they were seen: refused, or no more is there than was."""
        items, now_ms = grown(stored(RPM), [0]), NOON + 3_000
        views = {shard: {**item, "b_rpm_tk": seen[shard]} for shard, item in items.items()}
        now = {shard: {**item, "b_rpm_tk": (true if moved[shard] else seen)[shard]} for shard, item in items.items()}
        stays, goes = merge_writes(views, now_ms)
        if not refused(stays, now[0]) and not refused(goes, now[1]):
            merged = applied(stays, now[0])

            assert level(merged, "rpm", now_ms) <= sum(level(one, "rpm", now_ms) for one in now.values())

    @pytest.mark.parametrize("held", ["bi", "gn"])
    def test_it_holds_on_to_what_was_seen_of_both(self, held: str) -> None:
        """Rebased, split, merged or re-created since: refused, whichever of them was."""
        items = grown(TERMS, [0])
        stays, goes = merge_writes(items)
        changed = [{**item, held: item[held] + 1} for item in items.values()]

        assert refused(stays, changed[0])
        assert refused(goes, changed[1])
