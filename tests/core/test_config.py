"""The most specific level with limits applies, and every change raises the stamp."""

import pickle
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.config import (
    ALL_ENTITIES,
    ConfigRecord,
    ConfigRecords,
    EntityFacts,
    ResolvedLimits,
    check_inherit,
    entity_of_cursor,
    make_cursor,
    resolve,
)
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable

RPM = (Limit.per_minute("rpm", 100),)
TPM = (Limit.per_minute("tpm", 9_000),)
LEVELS = {"entity_resource": "entity", "entity_default": "entity_default", "resource": "resource", "system": "system"}


@given(some.config_record_sets)
def test_resolve_uses_the_most_specific_level_with_limits(records: ConfigRecords) -> None:
    """Entity and resource, then entity, resource and system; a level that inherits adds what follows."""
    expected: dict[str, tuple[Limit, str]] = {}
    first = None
    for level, source in LEVELS.items():
        record = getattr(records, level)
        if record is None or record.deleted or not record.limits:
            continue
        first = first or source
        for limit in record.limits:
            expected.setdefault(limit.name, (limit, source))
        if not record.inherit:
            break
    found = resolve(records)

    assert first == found.source
    assert [expected[name] for name in sorted(expected)] == list(zip(found.limits, found.sources, strict=True))


def test_resolve_without_inherit_drops_the_limits_of_the_next_level() -> None:
    """A level is complete, unless it says otherwise."""
    records = ConfigRecords(entity_resource=ConfigRecord(RPM, 1), system=ConfigRecord(TPM, 1))

    assert RPM == resolve(records).limits


def test_resolve_with_inherit_adds_the_limits_that_the_next_level_names() -> None:
    """A limit that both name comes from the nearer one."""
    raised = (Limit.per_minute("rpm", 500),)
    records = ConfigRecords(entity_resource=ConfigRecord(raised, 1, inherit=True), system=ConfigRecord((*RPM, *TPM), 1))
    found = resolve(records)

    assert (*raised, *TPM) == found.limits
    assert ("entity", ("entity", "system")) == (found.source, found.sources)


def test_resolved_limits_unpack_to_three_and_survive_pickling() -> None:
    """The levels of the limits are an attribute beside the three."""
    resolved = ResolvedLimits([*RPM, *TPM], None, "entity", {"rpm": "entity", "tpm": "system"})
    limits, on_unavailable, source = pickle.loads(pickle.dumps(resolved))

    assert ([*RPM, *TPM], None, "entity") == (limits, on_unavailable, source)
    assert {"rpm": "entity", "tpm": "system"} == pickle.loads(pickle.dumps(resolved)).sources
    assert {"rpm": "system"} == ResolvedLimits([*RPM], None, "system").sources
    assert {} == ResolvedLimits(None, None, None).sources
    assert {} == resolved._replace(source="system").sources


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


@given(some.resources, some.resources, some.entity_ids)
def test_cursor_of_another_resource_raises(resource: str, other: str, entity_id: str) -> None:
    """No entity id makes a cursor look like that of another list."""
    assume(resource != other)

    with pytest.raises(ValidationError, match="cursor"):
        entity_of_cursor(make_cursor(other, entity_id), resource)


@pytest.mark.parametrize(
    "cursor",
    [None, 5, "", "x", "user-1", "日本", "!!!!", "x" * 2_000, make_cursor("other", "u"), make_cursor("gpt-4", "a#b")],
)
def test_invalid_cursor_raises(cursor: object) -> None:
    """A cursor of another list would silently skip entities."""
    with pytest.raises(ValidationError, match="cursor"):
        entity_of_cursor(cursor, "gpt-4")


def test_cursor_of_all_entities_is_not_one_of_a_resource() -> None:
    """The two lists have different entities."""
    assert "user-1" == entity_of_cursor(make_cursor(ALL_ENTITIES, "user-1"), ALL_ENTITIES)
    with pytest.raises(ValidationError, match="must come from a list of all entities"):
        entity_of_cursor(make_cursor("gpt-4", "user-1"), ALL_ENTITIES)


@pytest.mark.parametrize("value", ["no", 1, 0, None])
def test_inherit_that_is_no_boolean_raises(value: object) -> None:
    """A text such as "no" would inherit."""
    check_inherit(True)
    check_inherit(False)

    with pytest.raises(ValidationError) as caught:
        check_inherit(value)

    assert ("inherit", value) == (caught.value.field, caught.value.value)
