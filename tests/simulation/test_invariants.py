"""Each invariant is violated once by hand, and the check reports it by its kind."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.simulation.absences import Absences
from tests.simulation.holdings import Holdings
from tests.simulation.invariants import Invariants, Violation
from tests.simulation.server import Change, Sent
from zae_limiter.schema.operations import Key, Put, Ranges, Update

NOW = 1_700_000_000_000
BUCKET = ("user-1", "api")
CAPACITY, AMOUNT, PERIOD = 10_000, 1_000, 1_000
Item = dict[str, Any]


class Table:
    """A bucket whose items a test can replace at will."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        self.invariants = Invariants(self.holdings.acted, self.holdings.forgot)
        self.holdings.may_take(BUCKET, {"rpm": 1_000})
        self.items: dict[int, Item] = {}
        self._nonce = 0

    def create(self, **more: Any) -> None:
        """Create the bucket, full."""
        item = {"rf": NOW, "gn": 1, "shard_count": 1, "cv": 1, "ld": "", "b_wcu_tc": 1, "b_rpm_tk": CAPACITY}
        item |= {"b_rpm_cp": CAPACITY, "b_rpm_ra": AMOUNT, "b_rpm_rp": PERIOD, "b_rpm_tc": 0}
        self.write({0: item | more}, kind="put")

    def write(self, items: Mapping[int, Item | None], *, kind: str = "take", **step: Any) -> None:
        """Replace items in one step; None deletes an item."""
        now_ms = NOW + step.get("after_ms", 0)
        time_bounds = (now_ms - step.get("late_ms", 0), now_ms - step.get("late_ms", 0))
        changes = []
        for number, item in items.items():
            self._nonce += step.get("nonce", 1)
            new = None if item is None else item | {"op": self._nonce}
            key = Key(f"ns/BUCKET#user-1#api#{number}", "#STATE")
            changes.append(
                Change(key, self.items.pop(number, None), new, _operation(kind, key, new, step.get("add", {})))
            )
            if new is not None:
                self.items[number] = new
        self.invariants.step(now_ms, changes, Sent("client", time_bounds, unanswered=step.get("unanswered", False)))

    def spend(self, milli: int, **more: Any) -> None:
        """Write a correct take of this many millitokens."""
        item = self.items[0]
        self.write({0: item | {"b_rpm_tk": item["b_rpm_tk"] - milli, "b_rpm_tc": item["b_rpm_tc"] + milli}}, **more)


def _operation(kind: str, key: Key, new: Item | None, add: Item) -> Any:
    if kind == "put":
        return Put(new or {})
    when = (Ranges([("b_rpm_tk", 0, None)]),) if kind == "take" else ()
    return Update(key, add, when=when)


@pytest.fixture
def table() -> Table:
    made = Table()
    made.create()
    return made


def kind_of(caught: pytest.ExceptionInfo[Violation]) -> str:
    return caught.value.kind


def test_correct_takes_and_credits_violate_nothing(table: Table) -> None:
    """Take everything, wait, take what was earned, and return it."""
    table.spend(CAPACITY)
    table.spend(3_000, after_ms=3_000)
    table.spend(-3_000, after_ms=3_001, kind="settle")

    assert CAPACITY == table.holdings.accounts[BUCKET, "rpm"].total


def test_take_of_more_than_the_balance_is_reported_as_overdrawn(table: Table) -> None:
    """A take needs the tokens."""
    with pytest.raises(Violation) as caught:
        table.spend(CAPACITY + 1)

    assert "overdrawn" == kind_of(caught)


def test_debit_of_more_than_the_balance_is_allowed(table: Table) -> None:
    """An adjustment may leave a debt."""
    table.spend(CAPACITY + 5_000, kind="settle")

    assert -5_000 == table.items[0]["b_rpm_tk"]


def test_take_that_is_not_subtracted_from_the_balance_is_reported_as_made(table: Table) -> None:
    """A take lowers the balance by what it adds to the total."""
    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"b_rpm_tc": 1_000}})

    assert "made" == kind_of(caught)


def test_take_from_a_balance_above_the_capacity_is_reported_as_overfull(table: Table) -> None:
    """Tokens earned beyond the capacity are lost."""
    with pytest.raises(Violation) as caught:
        table.spend(1_000, after_ms=5_000)

    assert "overfull" == kind_of(caught)


def test_late_take_from_a_balance_above_the_capacity_is_allowed(table: Table) -> None:
    """The write was right when the client decided on it."""
    table.spend(1_000, after_ms=5_000, late_ms=5_000)

    assert 9_000 == table.items[0]["b_rpm_tk"]


def test_write_with_the_nonce_of_the_item_is_reported_as_twice(table: Table) -> None:
    """A write that the item shows as applied is not applied again."""
    with pytest.raises(Violation) as caught:
        table.spend(1_000, nonce=0)

    assert "twice" == kind_of(caught)


def test_baseline_that_moves_back_is_reported_as_made(table: Table) -> None:
    """It would earn the same span again."""
    table.spend(CAPACITY)

    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"rf": NOW - 1_000, "gn": 2}}, kind="settle", after_ms=1)

    assert "made" == kind_of(caught)


def test_removal_of_a_limit_that_is_not_full_is_reported_as_dropped(table: Table) -> None:
    """If the limit were added again, it would be full."""
    table.spend(1_000)
    left = {name: value for name, value in table.items[0].items() if "rpm" not in name}

    with pytest.raises(Violation) as caught:
        table.write({0: left | {"gn": 2}}, kind="settle")

    assert "dropped" == kind_of(caught)


def test_expiry_of_a_bucket_that_is_not_full_is_reported_as_expiry(table: Table) -> None:
    """If the bucket were created again, it would be full."""
    table.spend(2_000)
    change = Change(Key("ns/BUCKET#user-1#api#0", "#STATE"), table.items[0], None, None)

    with pytest.raises(Violation) as caught:
        table.invariants.expire(NOW + 1_999, change)

    assert "expiry" == kind_of(caught)


def halves(table: Table, first: int, second: int) -> dict[int, Item]:
    """Return the bucket as two shards with these balances."""
    item = table.items[0] | {"shard_count": 2, "gn": 2}
    return {0: item | {"b_rpm_tk": first}, 1: item | {"b_rpm_tk": second, "b_rpm_tc": 0, "b_wcu_tc": 1}}


def test_split_whose_halves_hold_more_than_the_whole_is_reported_as_made(table: Table) -> None:
    """A split divides the balance and adds nothing."""
    table.spend(5_000)

    with pytest.raises(Violation) as caught:
        table.write(halves(table, 5_000, 5_000), kind="settle")

    assert "made" == kind_of(caught)


def test_split_whose_halves_hold_the_whole_is_allowed(table: Table) -> None:
    """Both halves get half of the balance."""
    table.spend(5_000)
    table.write(halves(table, 2_500, 2_500), kind="settle")

    assert 2 == len(table.invariants.buckets[BUCKET].shards)


def test_split_that_leaves_a_half_in_debt_is_reported_as_indebted(table: Table) -> None:
    """No token is created, but the other half could be spent."""
    table.spend(8_000)

    with pytest.raises(Violation) as caught:
        table.write(halves(table, -2_000, 4_000), kind="settle")

    assert "indebted" == kind_of(caught)


def test_merge_that_moves_overflow_into_the_other_shard_is_reported_as_made(table: Table) -> None:
    """What one shard could not hold is lost, even if the other has room for it."""
    table.write(halves(table, 5_000, 5_000), kind="settle")
    table.write({1: table.items[1] | {"b_rpm_tk": 0, "b_rpm_tc": 5_000}})
    table.holdings.may_give_back(BUCKET, {"rpm": 3})
    table.write({0: table.items[0] | {"b_rpm_tk": 8_000, "b_rpm_tc": -3_000}}, kind="settle")

    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"shard_count": 1, "gn": 3, "b_rpm_tk": 8_000}, 1: None}, kind="settle")

    assert "made" == kind_of(caught)


def test_shards_that_overlap_are_reported_as_shards(table: Table) -> None:
    """Every number belongs to exactly one shard."""
    table.spend(5_000)
    both = halves(table, 2_500, 2_500)

    with pytest.raises(Violation) as caught:
        table.write({0: both[0]}, kind="settle")

    assert "shards" == kind_of(caught)


def test_credit_to_a_limit_that_the_bucket_lacks_is_reported_as_limits(table: Table) -> None:
    """It would leave a balance without a capacity."""
    given = {"b_tpm_tk": 1_000, "b_tpm_tc": -1_000}
    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | given}, kind="settle", add=given)

    assert "limits" == kind_of(caught)


def test_balance_without_a_capacity_in_a_new_generation_is_reported_as_limits(table: Table) -> None:
    """A write that changes the limits keeps every balance complete."""
    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"gn": 2, "b_tpm_tk": 1_000}})

    assert "limits" == kind_of(caught)


def test_limit_that_was_never_configured_is_reported_as_limits(table: Table) -> None:
    """A bucket has only limits that were configured."""
    table.invariants.known.add(("rpm", CAPACITY, AMOUNT, PERIOD))

    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"gn": 2, "b_rpm_cp": 20_000}}, kind="settle")

    assert "limits" == kind_of(caught)


def test_bucket_recreated_full_just_after_its_use_breaks_the_promise(table: Table) -> None:
    """The promise is about time, whatever happens to the items."""
    table.spend(CAPACITY)
    table.invariants.buckets[BUCKET].shards.clear()
    table.items.clear()
    table.create()

    with pytest.raises(Violation) as caught:
        table.spend(100)

    assert "promise" == kind_of(caught)


class TestAbsences:
    """A charge of a limit may be dropped only while the bucket exists without that limit."""

    def test_bucket_recreated_without_a_limit_lacks_that_limit(self, table: Table) -> None:
        """Since the deletion, and until the limit is added again."""
        began = table.invariants.steps
        table.write({0: None}, kind="settle")
        other = {f"b_tpm_{field}": value for field, value in (("cp", 1), ("ra", 1), ("rp", 1), ("tk", 1), ("tc", 0))}
        bare = {"rf": NOW, "gn": 1, "shard_count": 1, "cv": 1, "ld": "", "b_wcu_tc": 1, "bi": 2}
        table.write({0: bare | other}, kind="put")

        assert table.invariants.lacked(BUCKET, "rpm", began)
        assert table.invariants.lacked(BUCKET, "rpm", table.invariants.steps)
        assert not table.invariants.lacked(BUCKET, "tpm", began)

    def test_deleted_bucket_lacks_no_limit(self, table: Table) -> None:
        """A charge creates the bucket again."""
        table.write({0: None}, kind="settle")

        assert not table.invariants.lacked(BUCKET, "rpm", 0)

    def test_absence_that_ended_before_a_charge_began_does_not_count(self) -> None:
        """A charge that begins after an absence must be counted."""
        absences = Absences()
        for step, shards in enumerate(([["rpm", "tpm"]], [["tpm"]], [["tpm"], ["rpm", "tpm"]]), start=1):
            absences.stored(shards, step)

        assert absences.lacked("rpm", 2)
        assert not absences.lacked("rpm", 3)

    def test_absence_ends_when_the_bucket_is_deleted(self) -> None:
        """A bucket that does not exist lacks no limit."""
        absences = Absences()
        for step, shards in enumerate(([["rpm"]], [["tpm"]], []), start=1):
            absences.stored(shards, step)

        assert absences.lacked("rpm", 2)
        assert not absences.lacked("rpm", 3)


class TestHoldings:
    """The table's totals stay within what users were granted."""

    def test_grant_missing_in_the_table_is_reported_as_uncounted(self) -> None:
        """What a user was granted must be in the total."""
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})

        with pytest.raises(Violation) as caught:
            holdings.did_take(BUCKET, {"rpm": 1})

        assert "uncounted" == kind_of(caught)

    def test_charge_that_was_not_requested_is_reported_as_overcounted(self) -> None:
        """The total never exceeds what users requested."""
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})
        holdings.acted(BUCKET, "rpm", 1_000, unanswered=False)

        with pytest.raises(Violation) as caught:
            holdings.acted(BUCKET, "rpm", 1_000, unanswered=False)

        assert "overcounted" == kind_of(caught)

    def test_charge_kept_after_a_refusal_is_reported_as_overcounted(self) -> None:
        """What a user was refused must not be in the total."""
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})
        holdings.acted(BUCKET, "rpm", 1_000, unanswered=False)

        with pytest.raises(Violation) as caught:
            holdings.did_not_take(BUCKET, {"rpm": 1})

        assert "overcounted" == kind_of(caught)

    def test_credit_applied_twice_is_reported_as_uncounted(self) -> None:
        """A credit lowers the total once."""
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 5})
        holdings.acted(BUCKET, "rpm", 5_000, unanswered=False)
        holdings.did_take(BUCKET, {"rpm": 5})
        holdings.may_give_back(BUCKET, {"rpm": 2})
        holdings.acted(BUCKET, "rpm", -2_000, unanswered=False)

        with pytest.raises(Violation) as caught:
            holdings.acted(BUCKET, "rpm", -2_000, unanswered=False)

        assert "uncounted" == kind_of(caught)

    def test_unanswered_write_may_be_applied_twice(self) -> None:
        """Its sender cannot know whether it was applied, so a retry is allowed."""
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})
        holdings.acted(BUCKET, "rpm", 1_000, unanswered=True)
        holdings.acted(BUCKET, "rpm", 1_000, unanswered=False)

        assert 2_000 == holdings.accounts[BUCKET, "rpm"].total
