"""Birth numbers: which bucket a credit reaches, what a settlement owes, and when a missing number is added."""

import pytest

from tests.many_shards import after_split
from tests.one_bucket import NOON, Item, after, apply, at, created, settling, stored, taking, view, without_birth
from zae_limiter.core.bucket_changes import Settlement, settle, summed
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Refused
from zae_limiter.core.rebase import missing_birth
from zae_limiter.core.view import Admitted
from zae_limiter.schema import bucket_writes

RPM = Limit("rpm", 100, 100, 60)
TPM = Limit("tpm", 9, 1, 60)
TERMS = stored(RPM, TPM)
CREDIT = (("rpm", 4_000),)
DEBIT = (("rpm", 1_000),)


def written(item: Item, settlement: Settlement) -> bucket_writes.Update | None:
    """Return the write of a settlement to a bucket as it was seen, None if nothing of it is due."""
    seen = view(item)
    parts = settle(seen, settlement, at(NOON), 0)
    return bucket_writes.settle(seen, parts, 77) if parts.parts else None


class TestDue:
    """What a bucket with a given birth number is debited or credited."""

    @pytest.mark.parametrize(("birth", "credits"), [(5, CREDIT), (6, ()), (None, ())])
    def test_credits_are_due_only_to_the_bucket_with_their_birth_number(
        self, birth: int | None, credits: tuple[tuple[str, int], ...]
    ) -> None:
        """A bucket without a birth number is a different one."""
        assert credits == Settlement((), CREDIT, 5).due(birth).credits

    @pytest.mark.parametrize("birth", [5, None])
    def test_credits_of_a_bucket_without_birth_number_reach_any_bucket(self, birth: int | None) -> None:
        """This is how all credits worked before birth numbers."""
        assert CREDIT == Settlement((), CREDIT).due(birth).credits

    @pytest.mark.parametrize("birth", [5, 6, None])
    def test_debits_are_due_to_any_bucket(self, birth: int | None) -> None:
        """Consumption is always counted, in the bucket that exists."""
        assert DEBIT == Settlement(DEBIT, (), 5).due(birth).debits

    def test_debits_and_credits_of_the_same_bucket_are_netted(self) -> None:
        """Per limit; amounts that cancel out are left out."""
        owed = Settlement((("rpm", 3), ("tpm", 1), ("rpd", 7)), (("rpm", 1), ("tpm", 5), ("rpd", 7)), 5)

        assert Settlement((("rpm", 2),), (("tpm", 4),), 5) == owed.due(5)

    def test_debits_are_due_in_full_if_the_credits_are_not_due(self) -> None:
        """A credit for another bucket must not reduce a debit of this one."""
        assert Settlement((("rpm", 3),)) == Settlement((("rpm", 3),), (("rpm", 1),), 5).due(6)

    def test_sum_keeps_debits_and_credits_of_a_limit_apart(self) -> None:
        """The birth number of the bucket decides later whether they are netted."""
        owed = [Settlement((("rpm", 3),), (("tpm", 5),), 5), Settlement((("rpm", 1), ("tpm", 2)), (("tpm", 4),), 5)]

        assert Settlement((("rpm", 4), ("tpm", 2)), (("tpm", 9),), 5) == summed(owed)


class TestCredit:
    """The write of a credit."""

    def test_credit_requires_the_birth_number_of_the_bucket_that_was_debited(self) -> None:
        """A bucket recreated since it was seen refuses it."""
        item = created(TERMS, {"rpm": 10}, birth=5)
        write = written(item, Settlement((), CREDIT, 5))
        assert write is not None

        assert isinstance(apply(write, item), Applied)
        assert isinstance(apply(write, created(TERMS, {"rpm": 10}, birth=6)), Refused)
        assert isinstance(apply(write, without_birth(item)), Refused)

    def test_credit_has_no_condition_on_the_generation(self) -> None:
        """It is applied even if the bucket was rebased or split since it was seen."""
        item = created(TERMS, {"rpm": 10}, birth=5)
        write = written(item, Settlement((), CREDIT, 5))
        assert write is not None

        assert isinstance(apply(write, {**item, "gn": 8, "rf": NOON + 5, "cv": 9}), Applied)

    def test_credit_for_a_bucket_that_was_replaced_is_not_written(self) -> None:
        """There is nothing left to write."""
        assert written(created(TERMS, birth=6), Settlement((), CREDIT, 5)) is None

    def test_credit_with_a_debit_requires_the_birth_number_of_the_view(self) -> None:
        """The condition of the debit covers the credit."""
        item = created(TERMS, {"rpm": 10}, birth=5)
        write = written(item, Settlement((("tpm", 1_000),), CREDIT, 5))
        assert write is not None

        assert isinstance(apply(write, item), Applied)
        assert isinstance(apply(write, {**item, "bi": 6}), Refused)


class TestMissingBirthNumber:
    """The birth number that a rebase adds."""

    def test_missing_birth_number_of_shard_0_is_the_drawn_number(self) -> None:
        """An older version created the bucket."""
        item = without_birth(created(TERMS))

        assert 9 == missing_birth(view(item).layout, None, 9)

    def test_bucket_with_a_birth_number_keeps_it(self) -> None:
        """A rebase creates no new bucket."""
        assert missing_birth(view(created(TERMS)).layout, None, 9) is None

    def test_missing_birth_number_of_other_shards_is_that_of_shard_0(self) -> None:
        """None while shard 0 has none or was not seen: two clients would draw two numbers."""
        items = after_split({0: created(TERMS, birth=5)}, 0, at(NOON))
        layout = view(without_birth(items[1])).layout

        assert 5 == missing_birth(layout, view(items[0]).layout, 9)
        assert missing_birth(layout, view(without_birth(items[0])).layout, 9) is None
        assert missing_birth(layout, None, 9) is None


def test_layout_returns_itself_as_the_grant_of_its_own_terms() -> None:
    """Other terms that agree with the bucket get a separate grant."""
    item, agreeing = created(TERMS, birth=5), stored(RPM, TPM)
    layout = view(item, terms=TERMS).layout

    assert layout is layout.admitted_by(TERMS)
    assert (TERMS, 5) == (layout.terms, layout.birth)
    assert Admitted(agreeing, 5) == layout.admitted_by(agreeing)
    assert Admitted(TERMS, None) == view(without_birth(item)).layout.admitted_by(TERMS)


def test_every_write_that_changes_the_layout_raises_the_generation() -> None:
    """Conditions on birth number and generation cover baseline, stamp, digest and shard count."""
    item = created(TERMS)
    rebased = taking(view(item), stored(RPM, stamp=2), {"rpm": 1}, at(NOON + 5))
    plain = [taking(view(item), TERMS, {"rpm": 1}, at(NOON)), settling(view(item), at(NOON), debits={"rpm": 1})]
    shards = after_split({0: after(rebased, item)}, 0, at(NOON))

    assert item["gn"] < after(rebased, item)["gn"] < min(shard["gn"] for shard in shards.values())
    assert not [name for write in plain if write for name in ("rf", "cv", "ld", "shard_count") if name in write.set]
