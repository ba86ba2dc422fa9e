"""What is in doubt widens the bounds in the honest direction, and in no other."""

from typing import Any

import pytest

from tests.soak.accounts import Account, accounts_of
from tests.soak.journal import Doubt, Merge, Record, Step, Transaction
from tests.soak.stores import Outage

S = 1_000_000_000
RESTART = Outage("restart", 10 * S, 11 * S, forgets=True)


def account(record: Record, entity_id: str = "solo", *outages: Outage) -> Account:
    return accounts_of(record, outages)[entity_id, "tpm"]


def step(kind: Any, tokens: int, outcome: Any, entity_id: str = "solo") -> Step:
    return Step(kind, entity_id, {"tpm": tokens}, S, 2 * S, outcome)


@pytest.mark.parametrize(
    ("kind", "tokens", "outcome", "bounds"),
    [
        ("take", 5, "ok", (5, 5)),
        ("take", 5, "rejected", (0, 0)),
        ("take", 5, "unavailable", (0, 5)),
        ("take", 5, "degraded", (0, 5)),
        ("take", 5, "lost", (0, 5)),
        ("take", 5, None, (0, 5)),
        ("settle", 5, "ok", (5, 5)),
        ("settle", 5, "unavailable", (0, 5)),
        ("settle", -5, "ok", (-5, -5)),
        ("settle", -5, "lost", (-5, 0)),
        ("settle", -5, None, (-5, 0)),
    ],
)
def test_a_step_counts_as_far_as_it_is_known_to_have_acted(
    kind: str, tokens: int, outcome: str | None, bounds: tuple[int, int]
) -> None:
    """Charges in doubt may have acted, credits in doubt may not have."""
    found = account(Record(steps=[step(kind, tokens, outcome)]))

    assert bounds == (found.least // 1000, found.most // 1000)


def test_a_parent_is_charged_what_its_children_are() -> None:
    """Every step of a child is one of its parent."""
    record = Record(steps=[step("take", 5, "ok", "kid-0"), step("take", 2, "ok", "kid-1")])

    assert [5000, 2000, 7000] == [account(record, entity_id).least for entity_id in ("kid-0", "kid-1", "family")]


def test_a_write_whose_answer_was_lost_may_count_twice_or_not_at_all() -> None:
    """Only the most grows: what is sent again is a charge, and what is not is a credit."""
    record = Record(doubts=[Doubt(S, "solo", {"tpm": 3000}), Doubt(S, "solo", {"tpm": -2000})])
    found = account(record)

    assert (0, 5000) == (found.least, found.most)


@pytest.mark.parametrize(
    ("times", "bounds"), [((9 * S, 12 * S), (-2000, 0)), ((1 * S, 2 * S), (0, 0)), ((12 * S, 13 * S), (0, 0))]
)
def test_a_transaction_may_be_made_twice_by_a_store_that_forgot_its_token(
    times: tuple[int, int], bounds: tuple[int, int]
) -> None:
    """Only where it was under way meanwhile."""
    record = Record(transactions=[Transaction([("solo", {"tpm": -2000})], *times)])
    found = account(record, "solo", RESTART)

    assert bounds == (found.least, found.most)


@pytest.mark.parametrize(
    ("merged", "over", "times", "gone"),
    [
        (True, 0, (1 * S, 2 * S), (7000, 7000)),
        (False, 0, (1 * S, 2 * S), (0, 0)),
        (None, 0, (1 * S, 2 * S), (0, 7000)),
        (True, 500, (1 * S, 2 * S), (6000, 7500)),
        (False, 0, (9 * S, 12 * S), (0, 7000)),
    ],
)
def test_what_went_with_a_merged_shard_is_known_as_far_as_it_was_seen(
    merged: bool | None, over: int, times: tuple[int, int], gone: tuple[int, int]
) -> None:
    """One that was full may have been given back to until it went; who asks again may be refused what was done."""
    record = Record(steps=[Step("settle", "wide", {"tpm": -1}, S, 2 * S, "ok")])
    record.merges.append(Merge("wide", {"tpm": 7000}, {"tpm": over}, *times, merged=merged))
    found = account(record, "wide", RESTART)

    assert gone == (found.gone_least, found.gone_most)
