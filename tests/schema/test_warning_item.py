"""The record of the thresholds that were reached is read as it was written, and only one writer marks each."""

from typing import Any

import pytest

from tests.one_bucket import after, apply
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.outcome import Refused
from zae_limiter.core.warnings import WarningMark
from zae_limiter.schema import warning_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key

BUCKET = BucketKey("ns", "user-1", "gpt-4", 3)
FIRST = {("spend", 800): WarningMark(3_397_593_600, 1_700_000_000_000)}
TTL_S = 1_800_000_000


def marked(item: dict[str, Any], marks: Any = None, ttl_s: int = TTL_S) -> dict[str, Any]:
    """Return the record after a write that must be applied."""
    return after(warning_item.mark(BUCKET, marks or FIRST, item, ttl_s), item)


def test_record_of_marks_is_the_same_for_all_shards() -> None:
    """A threshold is reached by the sum of the shards."""
    keys = [warning_item.warned_key(BUCKET._replace(shard_id=shard)) for shard in (0, 3)]

    assert [Key("ns/ENTITY#user-1", "#WARNED#gpt-4")] * 2 == keys


def test_new_record_of_marks_is_that_of_the_specification() -> None:
    """Period and time of each threshold, and the attributes of every record."""
    expected = {
        "PK": "ns/ENTITY#user-1",
        "SK": "#WARNED#gpt-4",
        "entity_id": "user-1",
        "resource": "gpt-4",
        "GSI4PK": "ns",
        "GSI4SK": "ns/ENTITY#user-1",
        "ttl": 1_800_000_000,
        "w_spend_800": "3397593600 1700000000000",
    }

    assert expected == marked({})


def test_marks_of_a_record_are_read_as_they_were_written() -> None:
    """Limit names may contain underscores, and other attributes are ignored."""
    second = {("a_b", 1000): WarningMark(0, 5)}

    assert FIRST | second == warning_item.marks_of(marked(marked({}), second))
    assert {} == warning_item.marks_of({})


@pytest.mark.parametrize("seen", [{}, marked({})], ids=["absent", "marked"])
def test_mark_that_another_writer_has_changed_meanwhile_is_refused(seen: dict[str, Any]) -> None:
    """Only one of them sends the warning."""
    stored = marked(seen, {("spend", 800): WarningMark(3_402_777_600, 1_701_400_000_000)})
    late = warning_item.mark(BUCKET, FIRST, seen, TTL_S)

    assert isinstance(apply(late, stored), Refused)


def test_mark_of_another_threshold_meanwhile_is_applied() -> None:
    """Writers of different warnings do not wait for each other."""
    second = {("spend", 1000): WarningMark(3_397_593_600, 1_700_000_000_001)}
    stored = marked({}, second)

    assert FIRST | second == warning_item.marks_of(after(warning_item.mark(BUCKET, FIRST, {}, TTL_S), stored))


@pytest.mark.parametrize(("ttl_s", "stored_s"), [(TTL_S - 1, TTL_S), (TTL_S + 1, TTL_S + 1)])
def test_expiry_of_a_record_of_marks_never_falls(ttl_s: int, stored_s: int) -> None:
    """Another limit may need its marks longer."""
    assert stored_s == marked(marked({}), ttl_s=ttl_s)["ttl"]


@pytest.mark.parametrize(
    "damage",
    [
        5,
        None,
        "",
        "7",
        "7 ",
        " 7",
        "-1 7",
        "7 7 7",
        "7 1.5",
        "\u0661 7",
        "\u00b2 7",
        f"7 {'1' * 5_000}",
    ],
)
def test_damaged_mark_raises_with_its_attribute(damage: object) -> None:
    """A forged number may be longer than the longest one that Python parses."""
    with pytest.raises(CorruptItemError, match="w_spend_800"):
        warning_item.marks_of({**marked({}), "w_spend_800": damage})
