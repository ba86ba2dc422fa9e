"""The most specific level with limits applies, and every change raises the stamp."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.config import ConfigRecord, ConfigRecords, EntityFacts, entity_of_cursor, make_cursor, resolve
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable

RPM = (Limit.per_minute("rpm", 100),)
TPM = (Limit.per_minute("tpm", 9_000),)
LEVELS = {"entity_resource": "entity", "entity_default": "entity_default", "resource": "resource", "system": "system"}


@given(some.config_record_sets)
def test_resolve_uses_the_most_specific_level_with_limits(records: ConfigRecords) -> None:
    """Entity and resource, then entity, resource and system; levels are not merged."""
    candidates = [(source, getattr(records, level)) for level, source in LEVELS.items()]
    having = [(source, record.limits) for source, record in candidates if record is not None and record.limits]
    expected = having[0] if having else (None, ())
    found = resolve(records)

    assert expected == (found.source, found.limits)


def test_resolve_without_records_returns_no_limits() -> None:
    """Absent records have no limits, stamp or facts."""
    found = resolve(ConfigRecords())

    assert ((), 0, None, None, None) == (
        found.limits,
        found.stamp,
        found.source,
        found.on_unavailable,
        found.facts,
    )


def test_resolve_skips_a_tombstone_but_counts_its_version() -> None:
    """Deleting limits makes those of the next level apply."""
    records = ConfigRecords(entity_resource=ConfigRecord((), 4, deleted=True), resource=ConfigRecord(TPM, 1))

    assert ("resource", TPM, 5) == (resolve(records).source, resolve(records).limits, resolve(records).stamp)


def test_system_record_without_limits_only_sets_on_unavailable() -> None:
    """It is not a source of limits."""
    found = resolve(ConfigRecords(system=ConfigRecord((), 1, OnUnavailable.ALLOW)))

    assert (None, OnUnavailable.ALLOW) == (found.source, found.on_unavailable)


def test_on_unavailable_comes_from_the_system_record() -> None:
    """The level of the limits makes no difference."""
    records = ConfigRecords(
        entity_resource=ConfigRecord(RPM, 1, OnUnavailable.ALLOW),
        system=ConfigRecord(TPM, 1, OnUnavailable.BLOCK),
    )

    assert OnUnavailable.BLOCK == resolve(records).on_unavailable


def test_deleted_system_record_sets_no_on_unavailable() -> None:
    """A tombstone keeps only its version."""
    records = ConfigRecords(system=ConfigRecord((), 3, OnUnavailable.ALLOW, deleted=True))

    assert resolve(records).on_unavailable is None


def test_facts_of_a_deleted_entity_are_none() -> None:
    """Its tombstone counts only for the stamp."""
    alive = EntityFacts("parent", True, 1)
    dead = EntityFacts(None, False, 2, deleted=True)

    assert alive == resolve(ConfigRecords(meta=alive)).facts
    assert (None, 2) == (resolve(ConfigRecords(meta=dead)).facts, resolve(ConfigRecords(meta=dead)).stamp)


@given(some.config_record_sets, st.sampled_from([*LEVELS, "meta"]))
def test_any_change_at_any_level_raises_the_stamp(records: ConfigRecords, level: str) -> None:
    """Creating, changing and deleting all raise a version, so no clock is needed to order them."""
    first = EntityFacts(None, False, 1) if level == "meta" else ConfigRecord(RPM, 1)
    before = getattr(records, level)
    after = first if before is None else replace(before, version=before.version + 1)

    assert resolve(records).stamp < resolve(replace(records, **{level: after})).stamp


@given(some.resources, some.entity_ids)
def test_cursor_round_trips_and_is_url_safe(resource: str, entity_id: str) -> None:
    """It can be passed in a URL."""
    cursor = make_cursor(resource, entity_id)

    assert entity_id == entity_of_cursor(cursor, resource)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", cursor)


@pytest.mark.parametrize(
    "cursor",
    [None, 5, "", "x", "user-1", "日本", "!!!!", "x" * 2_000, make_cursor("other", "u"), make_cursor("gpt-4", "a#b")],
)
def test_invalid_cursor_raises(cursor: object) -> None:
    """A cursor of another list would silently skip entities."""
    with pytest.raises(ValidationError, match="cursor"):
        entity_of_cursor(cursor, "gpt-4")
