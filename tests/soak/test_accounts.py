"""A step in doubt widens the bounds of an account only in the direction in which it may have acted."""

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
def test_account_of_a_step_in_doubt_counts_charges_as_possible(
    kind: str, tokens: int, outcome: str | None, bounds: tuple[int, int]
) -> None:
    """A charge in doubt may have acted, a credit in doubt may not have."""
    found = account(Record(steps=[step(kind, tokens, outcome)]))

    assert bounds == (found.least // 1000, found.most // 1000)


def test_account_of_a_parent_includes_the_charges_of_its_children() -> None:
    """Every step of a child is also a step of its parent."""
    record = Record(steps=[step("take", 5, "ok", "kid-0"), step("take", 2, "ok", "kid-1")])

    assert [5000, 2000, 7000] == [account(record, entity_id).least for entity_id in ("kid-0", "kid-1", "family")]


def test_account_of_an_unanswered_write_may_count_it_twice_or_never() -> None:
    """Only the upper bound grows: a charge may be sent again, and a credit may be lost."""
    record = Record(doubts=[Doubt(S, "solo", {"tpm": 3000}), Doubt(S, "solo", {"tpm": -2000})])
    found = account(record)

    assert (0, 5000) == (found.least, found.most)


@pytest.mark.parametrize(
    ("times", "bounds"), [((9 * S, 12 * S), (-2000, 0)), ((1 * S, 2 * S), (0, 0)), ((12 * S, 13 * S), (0, 0))]
)
def test_account_of_a_transaction_sent_to_a_forgetful_store_may_count_it_twice(
    times: tuple[int, int], bounds: tuple[int, int]
) -> None:
    """Only if the transaction was in flight while the store lost its token."""
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
def test_account_of_a_merged_shard_has_the_totals_of_its_last_read(
    merged: bool | None, over: int, times: tuple[int, int], gone: tuple[int, int]
) -> None:
    """A full shard may have been credited until its deletion, and a retried merge may be refused."""
    record = Record(steps=[Step("settle", "wide", {"tpm": -1}, S, 2 * S, "ok")])
    record.merges.append(Merge("wide", {"tpm": 7000}, {"tpm": over}, *times, merged=merged))
    found = account(record, "wide", RESTART)

    assert gone == (found.gone_least, found.gone_most)
