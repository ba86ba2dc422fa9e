"""Config records round-trip through items, and every write raises the version that it requires."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.config import ConfigRecord, ConfigRecords, EntityFacts
from zae_limiter.core.entity import Entity
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable
from zae_limiter.schema import attributes, config_item, entity_item, keys
from zae_limiter.schema.operations import Equals, ItemAbsent, Key, Page, Query, Update

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 9_000)
SYSTEM = config_item.system_place("ns")
RESOURCE = config_item.resource_place("ns", "gpt-4")
ENTITY = config_item.entity_place("ns", "user-1", "gpt-4")
LIVE = ConfigRecord((RPM,), 3)
DEAD = ConfigRecord((), 3, deleted=True)

levels = st.sampled_from([SYSTEM, RESOURCE, ENTITY])


@given(levels, some.config_records)
def test_config_record_round_trips_through_an_item(place: config_item.ConfigPlace, record: ConfigRecord) -> None:
    """Limits are returned in the order of their names."""
    found = config_item.from_item(config_item.to_item(place, record))

    assert sorted(record.limits, key=lambda limit: limit.name) == list(found.limits)
    assert (record.version, record.deleted, record.inherit) == (found.version, found.deleted, found.inherit)
    assert record.on_unavailable == found.on_unavailable


def test_resource_config_item_is_that_of_the_specification() -> None:
    """Capacity and amount in tokens, the period in seconds."""
    expected = {
        "PK": "ns/RESOURCE#gpt-4",
        "SK": "#CONFIG",
        "resource": "gpt-4",
        "l_rpm_cp": 100,
        "l_rpm_ra": 100,
        "l_rpm_rp": 60,
        "config_version": 3,
        "GSI4PK": "ns",
        "GSI4SK": "ns/RESOURCE#gpt-4",
    }

    assert expected == config_item.to_item(RESOURCE, LIVE)


def test_system_config_item_contains_on_unavailable() -> None:
    """It is stored as plain text."""
    item = config_item.to_item(SYSTEM, ConfigRecord((), 1, OnUnavailable.BLOCK))

    assert ("ns/SYSTEM#", "#CONFIG", "block") == (item["PK"], item["SK"], item["on_unavailable"])
    assert str is type(item["on_unavailable"])


def test_entity_config_item_is_indexed_by_its_resource() -> None:
    """The third index lists the entities with limits of their own."""
    item = config_item.to_item(ENTITY, LIVE)

    assert ("ns/ENTITY#user-1", "#CONFIG#gpt-4") == (item["PK"], item["SK"])
    assert ("ns/ENTITY_CONFIG#gpt-4", "user-1") == (item["GSI3PK"], item["GSI3SK"])


def test_config_tombstone_is_only_in_the_namespace_index() -> None:
    """It keeps its version and no limits."""
    expected = {
        "PK": "ns/ENTITY#user-1",
        "SK": "#CONFIG#gpt-4",
        "entity_id": "user-1",
        "resource": "gpt-4",
        "config_version": 4,
        "deleted": True,
        "GSI4PK": "ns",
        "GSI4SK": "ns/ENTITY#user-1",
    }

    assert expected == config_item.tombstone(ENTITY, LIVE).item


@given(some.config_records, some.limit_sets())
def test_config_write_requires_and_raises_the_version_that_was_seen(
    seen: ConfigRecord, limits: tuple[Limit, ...]
) -> None:
    """Of two concurrent writers, one succeeds and the other is refused."""
    for put in (config_item.write(RESOURCE, limits, seen), config_item.tombstone(RESOURCE, seen)):
        assert seen.version + 1 == put.item["config_version"]
        assert (Equals("config_version", seen.version),) == put.when


def test_first_config_write_has_version_one() -> None:
    """It is refused if a record exists after all."""
    put = config_item.write(SYSTEM, [RPM], None, OnUnavailable.ALLOW)

    assert ConfigRecord((RPM,), 1, OnUnavailable.ALLOW) == config_item.from_item(put.item)
    assert (ItemAbsent(),) == put.when


@pytest.mark.parametrize("seen", [None, DEAD])
def test_new_config_record_is_counted_in_the_registry(seen: ConfigRecord | None) -> None:
    """The registry lists resources without a scan."""
    expected = Update(
        Key("ns/SYSTEM#", "#ENTITY_CONFIG_RESOURCES"),
        add={"r_gpt-4": 1},
        set={"GSI4PK": "ns", "GSI4SK": "ns/SYSTEM#"},
    )

    assert expected == config_item.register(ENTITY, seen)
    assert config_item.unregister(ENTITY, seen) is None


def test_deleted_config_record_is_subtracted_from_the_registry() -> None:
    """Only a record that was counted is subtracted."""
    expected = Update(
        Key("ns/SYSTEM#", "#RESOURCES"),
        add={"r_gpt-4": -1},
        set={"GSI4PK": "ns", "GSI4SK": "ns/SYSTEM#"},
    )

    assert expected == config_item.unregister(RESOURCE, LIVE)
    assert config_item.register(RESOURCE, LIVE) is None


def test_system_config_record_is_in_no_registry() -> None:
    """There is only one."""
    assert config_item.register(SYSTEM, None) is None
    assert config_item.unregister(SYSTEM, LIVE) is None


def test_registry_lists_resources_with_a_count_above_zero() -> None:
    """Resources with a count of zero are not listed."""
    item = {"PK": "ns/SYSTEM#", "SK": "#RESOURCES", "GSI4PK": "ns", "r_gpt-4": 2, "r_a/b": 1, "r_old": 0}

    assert ["a/b", "gpt-4"] == config_item.registered(item)
    assert [] == config_item.registered({})


@given(st.sets(some.resources, max_size=5))
def test_registry_lists_every_valid_name_unchanged(resources: set[str]) -> None:
    """A resource is the name of an attribute, beside those of the record itself."""
    own = {"PK": "ns/SYSTEM#", "SK": "#RESOURCES", **keys.gsi4_attributes("ns/SYSTEM#")}
    columns = {attributes.registry_column(resource): 1 for resource in resources}

    assert set() == own.keys() & columns.keys()
    assert sorted(resources) == config_item.registered(own | columns)


def test_damaged_registry_raises_corrupt_item() -> None:
    """A counter is a number."""
    with pytest.raises(CorruptItemError):
        config_item.registered({"r_gpt-4": "2"})


def test_unknown_attributes_of_a_config_item_are_ignored() -> None:
    """A newer version may add some."""
    item = config_item.to_item(RESOURCE, LIVE) | {"new": 1, "l_rpm_zz": 7, "l_x": 1}

    assert LIVE == config_item.from_item(item)


@pytest.mark.parametrize(
    "damage",
    [
        {"config_version": "3"},
        {"config_version": None},
        {"l_rpm_cp": "100"},
        {"l_rpm_cp": 0},
        {"l_wcu_cp": 1, "l_wcu_ra": 1, "l_wcu_rp": 1},
        {"l_tpm_cp": 5},
        {"on_unavailable": "maybe"},
        {"deleted": 1},
    ],
)
def test_damaged_config_item_raises_with_its_key(damage: dict[str, Any]) -> None:
    """A record edited by hand never becomes an invalid limit."""
    with pytest.raises(CorruptItemError, match="ns/RESOURCE#gpt-4 #CONFIG"):
        config_item.from_item(config_item.to_item(RESOURCE, LIVE) | damage)


def test_resolution_keys_are_those_of_five_records() -> None:
    """One batch reads them all."""
    expected = config_item.ResolutionKeys(
        entity_resource=Key("ns/ENTITY#user-1", "#CONFIG#gpt-4"),
        entity_default=Key("ns/ENTITY#user-1", "#CONFIG#_default_"),
        resource=Key("ns/RESOURCE#gpt-4", "#CONFIG"),
        system=Key("ns/SYSTEM#", "#CONFIG"),
        meta=Key("ns/ENTITY#user-1", "#META"),
    )

    assert expected == config_item.resolution_keys("ns", "user-1", "gpt-4")


def test_resolution_records_are_found_by_their_keys() -> None:
    """A record that is absent or was not read is None."""
    keys = config_item.resolution_keys("ns", "user-1", "gpt-4")
    across = config_item.all_resources_keys("ns", "user-1")
    place = config_item.entity_place("ns", "user-1", "_all_")
    items = {
        keys.entity_resource: config_item.to_item(ENTITY, LIVE),
        keys.entity_default: None,
        keys.system: config_item.to_item(SYSTEM, ConfigRecord((TPM,), 2)),
        keys.meta: entity_item.to_item("ns", Entity("user-1", parent_id="org-1", cascade=True), 5),
        across.entity_all: config_item.to_item(place, LIVE),
    }
    expected = ConfigRecords(
        entity_resource=LIVE,
        system=ConfigRecord((TPM,), 2),
        meta=EntityFacts("org-1", cascade=True, version=5),
        entity_all=LIVE,
    )

    assert expected == config_item.resolution_records(keys, across, items)
    assert ConfigRecords() == config_item.resolution_records(keys, across, {})


def test_entities_query_reads_the_index_of_the_resource() -> None:
    """It starts after an entity if a page ended there."""
    start = {
        "PK": "ns/ENTITY#user-1",
        "SK": "#CONFIG#gpt-4",
        "GSI3PK": "ns/ENTITY_CONFIG#gpt-4",
        "GSI3SK": "user-1",
    }
    first = config_item.entities_query("ns", "gpt-4", 5, None)

    assert Query("ns/ENTITY_CONFIG#gpt-4", "GSI3", limit=5) == first
    assert replace(first, start=start) == config_item.entities_query("ns", "gpt-4", 5, "user-1")
    assert ["user-1"] == config_item.entities_of(Page([start], None))


def test_start_of_an_entities_query_is_the_key_of_the_record() -> None:
    """These are the keys of the record's own item."""
    item = config_item.to_item(ENTITY, LIVE)
    start = config_item.entities_query("ns", "gpt-4", None, "user-1").start

    assert start == {name: item[name] for name in ("PK", "SK", "GSI3PK", "GSI3SK")}
