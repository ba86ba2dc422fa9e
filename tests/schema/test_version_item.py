"""The version record round-trips through an item."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Equals, ItemAbsent, ItemExists, Key

texts = st.none() | st.text(max_size=10)
kinds = st.dictionaries(st.sampled_from(["inherit", "slots", "quotas"]), st.just("0.9.0"))
records = st.builds(
    VersionRecord, st.just("1.0.0"), texts, texts, texts, texts, st.none() | st.integers(1, 3650), kinds
)


@given(records)
def test_version_record_round_trips_through_an_item(record: VersionRecord) -> None:
    """Unknown values stay None, and attributes of newer versions are ignored."""
    assert record == version_item.from_item(version_item.to_item(record) | {"new": 1})


def test_version_record_is_in_the_registry() -> None:
    """It belongs to the table, is read without an index, and no purge removes it."""
    put = version_item.create(VersionRecord("1.0.0"))

    assert Key("_/SYSTEM#", "#VERSION") == put.key == version_item.key()
    assert (ItemAbsent(),) == put.when
    assert Key("ns/SYSTEM#", "#VERSION") == version_item.key("ns")


def test_version_replace_writes_only_changes_and_requires_the_schema_that_was_seen() -> None:
    """Of two concurrent migrations one succeeds, and an update of the function is not undone."""
    update = version_item.replace(
        VersionRecord("1.1.0", "0.4.0", updated_by="ops"), VersionRecord("1.0.0", "0.4.0", updated_by="dev")
    )

    assert {"schema_version": "1.1.0", "updated_by": "ops"} == update.set
    assert (Equals("schema_version", "1.0.0"),) == update.when


def test_damaged_version_record_raises_with_the_attribute() -> None:
    """A table without a schema version is not a table of this package."""
    with pytest.raises(CorruptItemError, match="schema_version"):
        version_item.from_item({"PK": "ns/SYSTEM#", "SK": "#VERSION"})


def test_allowing_a_kind_writes_only_its_own_attribute() -> None:
    """Two operators that allow different kinds at the same time lose neither."""
    record = VersionRecord("1.0.0", updated_at="now", updated_by="ops", kinds={"inherit": "0.9.0", "slots": "0.8.0"})
    update = version_item.allow("inherit", record)

    assert {"kind_inherit": "0.9.0", "updated_at": "now", "updated_by": "ops"} == update.set
    assert (ItemExists(),) == update.when
