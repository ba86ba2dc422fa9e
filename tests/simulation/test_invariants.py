"""The books notice: every rule that they keep is broken here once, by hand, and told of by its name."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.simulation.absences import Absences
from tests.simulation.holdings import Holdings
from tests.simulation.invariants import Books, Violation
from tests.simulation.server import Change, Sent
from zae_limiter.schema.operations import Key, Put, Ranges, Update

NOW = 1_700_000_000_000
BUCKET = ("user-1", "api")
CAPACITY, AMOUNT, PERIOD = 10_000, 1_000, 1_000
Item = dict[str, Any]


class Table:
    """A bucket that anything can be done to."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        self.books = Books(self.holdings.acted, self.holdings.forgot)
        self.holdings.may_take(BUCKET, {"rpm": 1_000})
        self.items: dict[int, Item] = {}
        self._nonce = 0

    def create(self, **more: Any) -> None:
        """Make the bucket, full."""
        item = {"rf": NOW, "gn": 1, "shard_count": 1, "cv": 1, "ld": "", "b_wcu_tc": 1, "b_rpm_tk": CAPACITY}
        item |= {"b_rpm_cp": CAPACITY, "b_rpm_ra": AMOUNT, "b_rpm_rp": PERIOD, "b_rpm_tc": 0}
        self.write({0: item | more}, kind="put")

    def write(self, items: Mapping[int, Item | None], *, kind: str = "take", **step: Any) -> None:
        """Put items in the place of those there are, in one step, None for one that goes."""
        now_ms = NOW + step.get("after_ms", 0)
        moment = (now_ms - step.get("late_ms", 0), now_ms - step.get("late_ms", 0))
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
        self.books.step(now_ms, changes, Sent("client", moment, unheard=step.get("unheard", False)))

    def spend(self, milli: int, **more: Any) -> None:
        """Take so much, rightly."""
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


def test_what_is_right_is_let_pass(table: Table) -> None:
    """Taking all, waiting, taking what was earned: nothing is wrong with that."""
    table.spend(CAPACITY)
    table.spend(3_000, after_ms=3_000)
    table.spend(-3_000, after_ms=3_001, kind="settle")

    assert CAPACITY == table.holdings.accounts[BUCKET, "rpm"].total


def test_a_take_of_more_than_there_is(table: Table) -> None:
    with pytest.raises(Violation) as caught:
        table.spend(CAPACITY + 1)

    assert "overdrawn" == kind_of(caught)


def test_a_debit_may_be_of_more_than_there_is(table: Table) -> None:
    """Debt comes from adjusting, and nothing is wrong with that."""
    table.spend(CAPACITY + 5_000, kind="settle")

    assert -5_000 == table.items[0]["b_rpm_tk"]


def test_a_take_that_is_not_subtracted(table: Table) -> None:
    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"b_rpm_tc": 1_000}})

    assert "made" == kind_of(caught)


def test_a_take_from_more_than_a_full_one(table: Table) -> None:
    """What was earned beyond the capacity is nobody's."""
    with pytest.raises(Violation) as caught:
        table.spend(1_000, after_ms=5_000)

    assert "overfull" == kind_of(caught)


def test_a_late_write_may_find_more_than_a_full_one(table: Table) -> None:
    """It was right when it was decided on."""
    table.spend(1_000, after_ms=5_000, late_ms=5_000)

    assert 9_000 == table.items[0]["b_rpm_tk"]


def test_a_write_that_is_applied_again(table: Table) -> None:
    with pytest.raises(Violation) as caught:
        table.spend(1_000, nonce=0)

    assert "twice" == kind_of(caught)


def test_a_baseline_that_moves_back(table: Table) -> None:
    """Whatever was earned since would be earned again."""
    table.spend(CAPACITY)

    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"rf": NOW - 1_000, "gn": 2}}, kind="settle", after_ms=1)

    assert "made" == kind_of(caught)


def test_a_limit_that_goes_though_it_is_not_full(table: Table) -> None:
    """Put back, it would be full."""
    table.spend(1_000)
    left = {name: value for name, value in table.items[0].items() if "rpm" not in name}

    with pytest.raises(Violation) as caught:
        table.write({0: left | {"gn": 2}}, kind="settle")

    assert "dropped" == kind_of(caught)


def test_a_bucket_that_expires_though_it_is_not_full(table: Table) -> None:
    """Made again, it would be full."""
    table.spend(2_000)
    change = Change(Key("ns/BUCKET#user-1#api#0", "#STATE"), table.items[0], None, None)

    with pytest.raises(Violation) as caught:
        table.books.expire(NOW + 1_999, change)

    assert "expiry" == kind_of(caught)


def halves(table: Table, first: int, second: int) -> dict[int, Item]:
    """The bucket as two shards that hold so much."""
    item = table.items[0] | {"shard_count": 2, "gn": 2}
    return {0: item | {"b_rpm_tk": first}, 1: item | {"b_rpm_tk": second, "b_rpm_tc": 0, "b_wcu_tc": 1}}


def test_a_split_that_gives_both_halves_too_much(table: Table) -> None:
    table.spend(5_000)

    with pytest.raises(Violation) as caught:
        table.write(halves(table, 5_000, 5_000), kind="settle")

    assert "made" == kind_of(caught)


def test_a_split_that_gives_both_their_half(table: Table) -> None:
    table.spend(5_000)
    table.write(halves(table, 2_500, 2_500), kind="settle")

    assert 2 == len(table.books.buckets[BUCKET].shards)


def test_a_split_that_leaves_a_half_in_debt(table: Table) -> None:
    """No token is made, and yet the other half could be spent."""
    table.spend(8_000)

    with pytest.raises(Violation) as caught:
        table.write(halves(table, -2_000, 4_000), kind="settle")

    assert "indebted" == kind_of(caught)


def test_a_merge_that_puts_what_overflows_into_the_room_of_the_other(table: Table) -> None:
    """What one shard could not hold is nobody's, though the other has room for it."""
    table.write(halves(table, 5_000, 5_000), kind="settle")
    table.write({1: table.items[1] | {"b_rpm_tk": 0, "b_rpm_tc": 5_000}})
    table.holdings.may_give_back(BUCKET, {"rpm": 3})
    table.write({0: table.items[0] | {"b_rpm_tk": 8_000, "b_rpm_tc": -3_000}}, kind="settle")

    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"shard_count": 1, "gn": 3, "b_rpm_tk": 8_000}, 1: None}, kind="settle")

    assert "made" == kind_of(caught)


def test_shards_that_overlap(table: Table) -> None:
    """Every number falls to one shard."""
    table.spend(5_000)
    both = halves(table, 2_500, 2_500)

    with pytest.raises(Violation) as caught:
        table.write({0: both[0]}, kind="settle")

    assert "shards" == kind_of(caught)


def test_a_limit_that_comes_back_as_a_balance_alone(table: Table) -> None:
    """A credit to a limit that is gone would leave a balance without a capacity."""
    given = {"b_tpm_tk": 1_000, "b_tpm_tc": -1_000}
    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | given}, kind="settle", add=given)

    assert "limits" == kind_of(caught)


def test_a_balance_without_a_capacity_in_a_step_that_raises_the_generation(table: Table) -> None:
    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"gn": 2, "b_tpm_tk": 1_000}})

    assert "limits" == kind_of(caught)


def test_limits_that_nobody_configured(table: Table) -> None:
    table.books.known.add(("rpm", CAPACITY, AMOUNT, PERIOD))

    with pytest.raises(Violation) as caught:
        table.write({0: table.items[0] | {"gn": 2, "b_rpm_cp": 20_000}}, kind="settle")

    assert "limits" == kind_of(caught)


def test_a_bucket_that_is_made_again_though_it_was_used_just_now(table: Table) -> None:
    """The promise is about time, whatever became of the items."""
    table.spend(CAPACITY)
    table.books.buckets[BUCKET].shards.clear()
    table.items.clear()
    table.create()

    with pytest.raises(Violation) as caught:
        table.spend(100)

    assert "promise" == kind_of(caught)


class TestAbsences:
    """Only while a bucket exists without a limit that it had may a charge of that limit be dropped."""

    def test_a_bucket_that_is_created_again_without_a_limit(self, table: Table) -> None:
        began = table.books.steps
        table.write({0: None}, kind="settle")
        other = {f"b_tpm_{field}": value for field, value in (("cp", 1), ("ra", 1), ("rp", 1), ("tk", 1), ("tc", 0))}
        bare = {"rf": NOW, "gn": 1, "shard_count": 1, "cv": 1, "ld": "", "b_wcu_tc": 1, "bi": 2}
        table.write({0: bare | other}, kind="put")

        assert table.books.lacked(BUCKET, "rpm", began)
        assert table.books.lacked(BUCKET, "rpm", table.books.steps)
        assert not table.books.lacked(BUCKET, "tpm", began)

    def test_a_bucket_that_is_deleted_lacks_nothing(self, table: Table) -> None:
        """A charge creates it."""
        table.write({0: None}, kind="settle")

        assert not table.books.lacked(BUCKET, "rpm", 0)

    def test_a_charge_that_begins_after_the_absence_is_counted(self) -> None:
        absences = Absences()
        for step, shards in enumerate(([["rpm", "tpm"]], [["tpm"]], [["tpm"], ["rpm", "tpm"]]), start=1):
            absences.stored(shards, step)

        assert absences.lacked("rpm", 2)
        assert not absences.lacked("rpm", 3)

    def test_an_absence_ends_with_the_bucket(self) -> None:
        absences = Absences()
        for step, shards in enumerate(([["rpm"]], [["tpm"]], []), start=1):
            absences.stored(shards, step)

        assert absences.lacked("rpm", 2)
        assert not absences.lacked("rpm", 3)


class TestHoldings:
    """The users' books, and the table's totals beside them."""

    def test_a_grant_that_was_not_counted(self) -> None:
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})

        with pytest.raises(Violation) as caught:
            holdings.did_take(BUCKET, {"rpm": 1})

        assert "uncounted" == kind_of(caught)

    def test_a_charge_that_nobody_asked_for(self) -> None:
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})
        holdings.acted(BUCKET, "rpm", 1_000, unheard=False)

        with pytest.raises(Violation) as caught:
            holdings.acted(BUCKET, "rpm", 1_000, unheard=False)

        assert "overcounted" == kind_of(caught)

    def test_a_charge_that_is_kept_though_it_was_refused(self) -> None:
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})
        holdings.acted(BUCKET, "rpm", 1_000, unheard=False)

        with pytest.raises(Violation) as caught:
            holdings.did_not_take(BUCKET, {"rpm": 1})

        assert "overcounted" == kind_of(caught)

    def test_a_credit_that_is_given_twice(self) -> None:
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 5})
        holdings.acted(BUCKET, "rpm", 5_000, unheard=False)
        holdings.did_take(BUCKET, {"rpm": 5})
        holdings.may_give_back(BUCKET, {"rpm": 2})
        holdings.acted(BUCKET, "rpm", -2_000, unheard=False)

        with pytest.raises(Violation) as caught:
            holdings.acted(BUCKET, "rpm", -2_000, unheard=False)

        assert "uncounted" == kind_of(caught)

    def test_a_write_that_is_never_heard_of_may_be_made_again(self) -> None:
        """Whoever sent it cannot know, so the strict side is to send it once more."""
        holdings = Holdings()
        holdings.may_take(BUCKET, {"rpm": 1})
        holdings.acted(BUCKET, "rpm", 1_000, unheard=True)
        holdings.acted(BUCKET, "rpm", 1_000, unheard=False)

        assert 2_000 == holdings.accounts[BUCKET, "rpm"].total
