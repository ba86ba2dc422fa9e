"""The version record survives being an item."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Equals, ItemAbsent, Key

texts = st.none() | st.text(max_size=10)
records = st.builds(VersionRecord, st.just("1.0.0"), texts, texts, texts, texts)


@given(records)
def test_a_version_record_survives_being_an_item(record: VersionRecord) -> None:
    """What is not known stays unknown, and what a newer version adds is ignored."""
    assert record == version_item.from_item(version_item.to_item("ns", record) | {"new": 1})


def test_the_record_stands_beside_the_system_config() -> None:
    """It is found without an index."""
    put = version_item.create("ns", VersionRecord("1.0.0"))

    assert Key("ns/SYSTEM#", "#VERSION") == put.key == version_item.key("ns")
    assert (ItemAbsent(),) == put.when


def test_a_record_replaces_only_the_one_that_was_seen() -> None:
    """Two migrations at once do not both run to the end."""
    put = version_item.replace("ns", VersionRecord("1.1.0"), VersionRecord("1.0.0"))

    assert "1.1.0" == put.item["schema_version"]
    assert (Equals("schema_version", "1.0.0"),) == put.when


def test_a_damaged_record_is_a_named_error() -> None:
    """A table without a schema version is not one of ours."""
    with pytest.raises(CorruptItemError, match="schema_version"):
        version_item.from_item({"PK": "ns/SYSTEM#", "SK": "#VERSION"})
