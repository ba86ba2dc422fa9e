"""The nearest level with limits wins, and every change raises the stamp."""

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
def test_the_nearest_level_with_limits_wins(records: ConfigRecords) -> None:
    """Entity and resource, then entity, then resource, then system; the first has all the say."""
    candidates = [(source, getattr(records, level)) for level, source in LEVELS.items()]
    having = [(source, record.limits) for source, record in candidates if record is not None and record.limits]
    expected = having[0] if having else (None, ())
    found = resolve(records)

    assert expected == (found.source, found.limits)


def test_nothing_stored_resolves_to_nothing() -> None:
    """Absent records have no limits, no stamp, no facts."""
    found = resolve(ConfigRecords())

    assert ((), 0, None, None, None) == (
        found.limits,
        found.stamp,
        found.source,
        found.on_unavailable,
        found.facts,
    )


def test_a_tombstone_is_no_level() -> None:
    """Deleting limits uncovers those of the next level."""
    records = ConfigRecords(entity_resource=ConfigRecord((), 4, deleted=True), resource=ConfigRecord(TPM, 1))

    assert ("resource", TPM, 5) == (resolve(records).source, resolve(records).limits, resolve(records).stamp)


def test_a_system_record_may_only_say_what_to_do_when_unavailable() -> None:
    """Without limits it is no source of any."""
    found = resolve(ConfigRecords(system=ConfigRecord((), 1, OnUnavailable.ALLOW)))

    assert (None, OnUnavailable.ALLOW) == (found.source, found.on_unavailable)


def test_what_to_do_when_unavailable_is_the_systems_to_say() -> None:
    """It holds whichever level the limits come from."""
    records = ConfigRecords(
        entity_resource=ConfigRecord(RPM, 1, OnUnavailable.ALLOW),
        system=ConfigRecord(TPM, 1, OnUnavailable.BLOCK),
    )

    assert OnUnavailable.BLOCK == resolve(records).on_unavailable


def test_a_deleted_system_record_says_nothing() -> None:
    """A tombstone keeps its version and nothing else."""
    records = ConfigRecords(system=ConfigRecord((), 3, OnUnavailable.ALLOW, deleted=True))

    assert resolve(records).on_unavailable is None


def test_facts_of_a_deleted_entity_are_none() -> None:
    """Its tombstone only counts for the stamp."""
    alive = EntityFacts("parent", True, 1)
    dead = EntityFacts(None, False, 2, deleted=True)

    assert alive == resolve(ConfigRecords(meta=alive)).facts
    assert (None, 2) == (resolve(ConfigRecords(meta=dead)).facts, resolve(ConfigRecords(meta=dead)).stamp)


@given(some.config_record_sets, st.sampled_from([*LEVELS, "meta"]))
def test_any_change_at_any_level_raises_the_stamp(records: ConfigRecords, level: str) -> None:
    """Creating, changing and deleting all raise a version, so no clock is needed to tell newer from older."""
    first = EntityFacts(None, False, 1) if level == "meta" else ConfigRecord(RPM, 1)
    before = getattr(records, level)
    after = first if before is None else replace(before, version=before.version + 1)

    assert resolve(records).stamp < resolve(replace(records, **{level: after})).stamp


@given(some.resources, some.entity_ids)
def test_a_cursor_leads_back_to_its_entity(resource: str, entity_id: str) -> None:
    """It is text that survives a URL."""
    cursor = make_cursor(resource, entity_id)

    assert entity_id == entity_of_cursor(cursor, resource)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", cursor)


@pytest.mark.parametrize(
    "cursor",
    [None, 5, "", "x", "user-1", "日本", "!!!!", "x" * 2_000, make_cursor("other", "u"), make_cursor("gpt-4", "a#b")],
)
def test_what_is_no_cursor_is_refused(cursor: object) -> None:
    """One of another list, too: it would skip entities without a word."""
    with pytest.raises(ValidationError, match="cursor"):
        entity_of_cursor(cursor, "gpt-4")
