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
    Block,
    ConfigRecord,
    ConfigRecords,
    EntityFacts,
    Links,
    ResolvedLimits,
    check_inherit,
    entity_of_cursor,
    make_cursor,
    resolve,
    resolve_all_resources,
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
    found = resolve(records, "gpt-4")

    assert first == found.source
    assert [expected[name] for name in sorted(expected)] == list(zip(found.limits, found.sources, strict=True))


def test_resolve_without_inherit_drops_the_limits_of_the_next_level() -> None:
    """A level is complete, unless it says otherwise."""
    records = ConfigRecords(entity_resource=ConfigRecord(RPM, 1), system=ConfigRecord(TPM, 1))

    assert RPM == resolve(records, "gpt-4").limits


def test_resolve_with_inherit_adds_the_limits_that_the_next_level_names() -> None:
    """A limit that both name comes from the nearer one."""
    raised = (Limit.per_minute("rpm", 500),)
    records = ConfigRecords(entity_resource=ConfigRecord(raised, 1, inherit=True), system=ConfigRecord((*RPM, *TPM), 1))
    found = resolve(records, "gpt-4")

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
    found = resolve(ConfigRecords(), "gpt-4")

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

    assert ("resource", TPM, 5) == (
        resolve(records, "gpt-4").source,
        resolve(records, "gpt-4").limits,
        resolve(records, "gpt-4").stamp,
    )


def test_system_record_without_limits_only_sets_on_unavailable() -> None:
    """It is not a source of limits."""
    found = resolve(ConfigRecords(system=ConfigRecord((), 1, OnUnavailable.ALLOW)), "gpt-4")

    assert (None, OnUnavailable.ALLOW) == (found.source, found.on_unavailable)


def test_on_unavailable_comes_from_the_system_record() -> None:
    """The level of the limits makes no difference."""
    records = ConfigRecords(
        entity_resource=ConfigRecord(RPM, 1, OnUnavailable.ALLOW),
        system=ConfigRecord(TPM, 1, OnUnavailable.BLOCK),
    )

    assert OnUnavailable.BLOCK == resolve(records, "gpt-4").on_unavailable


def test_deleted_system_record_sets_no_on_unavailable() -> None:
    """A tombstone keeps only its version."""
    records = ConfigRecords(system=ConfigRecord((), 3, OnUnavailable.ALLOW, deleted=True))

    assert resolve(records, "gpt-4").on_unavailable is None


def test_facts_of_a_deleted_entity_are_none() -> None:
    """Its tombstone counts only for the stamp."""
    alive = EntityFacts("parent", True, 1)
    dead = EntityFacts(None, False, 2, deleted=True)

    assert alive == resolve(ConfigRecords(meta=alive), "gpt-4").facts
    assert (None, 2) == (
        resolve(ConfigRecords(meta=dead), "gpt-4").facts,
        resolve(ConfigRecords(meta=dead), "gpt-4").stamp,
    )


@given(some.config_record_sets, st.sampled_from([*LEVELS, "meta"]))
def test_any_change_at_any_level_raises_the_stamp(records: ConfigRecords, level: str) -> None:
    """Creating, changing and deleting all raise a version, so no clock is needed to order them."""
    first = EntityFacts(None, False, 1) if level == "meta" else ConfigRecord(RPM, 1)
    before = getattr(records, level)
    after = first if before is None else replace(before, version=before.version + 1)

    assert resolve(records, "gpt-4").stamp < resolve(replace(records, **{level: after}), "gpt-4").stamp


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


CHILD = EntityFacts("org-1", True, 1)


def test_an_entity_without_parent_block_and_other_buckets_has_no_links() -> None:
    """Its requests take from one bucket, which is the fastest case."""
    facts = EntityFacts(None, False, 1)
    without_cascade = EntityFacts("org-1", False, 1)

    assert resolve(ConfigRecords(), "gpt-4").links is None
    assert resolve(ConfigRecords(meta=facts), "gpt-4").links is None
    assert resolve(ConfigRecords(meta=without_cascade), "gpt-4").links is None


def test_links_name_the_parent_that_an_entity_cascades_to() -> None:
    """An entity cascades for all resources, or for those that are listed."""
    listed = replace(CHILD, cascade_resources=("gpt-4",))

    assert Links("org-1") == resolve(ConfigRecords(meta=CHILD), "gpt-4").links
    assert Links("org-1") == resolve(ConfigRecords(meta=listed), "gpt-4").links
    assert resolve(ConfigRecords(meta=listed), "gpt-5").links is None


@pytest.mark.parametrize("level", ["entity_all", "resource_all"])
def test_limits_across_resources_are_linked_even_without_an_entity_record(level: str) -> None:
    """An entity may have limits without having been created."""
    records = ConfigRecords(**{level: ConfigRecord(RPM, 1)})
    deleted = ConfigRecords(**{level: ConfigRecord((), 1, deleted=True)})

    assert Links(all_resources=True) == resolve(records, "gpt-4").links
    assert resolve(deleted, "gpt-4").links is None
    assert Links("org-1", all_resources=True) == resolve(replace(records, meta=CHILD), "gpt-4").links


def test_limits_across_resources_come_from_their_own_records_only() -> None:
    """Those of ``_default_`` and of the system are meant for one resource each."""
    records = ConfigRecords(
        entity_default=ConfigRecord(RPM, 5), system=ConfigRecord(RPM, 7), resource_all=ConfigRecord(TPM, 2), meta=CHILD
    )

    found = resolve_all_resources(records)
    own = resolve_all_resources(replace(records, entity_all=ConfigRecord(RPM, 4)))

    assert (TPM, "resource", 3) == (found.limits, found.source, found.stamp)
    assert (RPM, "entity", 7) == (own.limits, own.source, own.stamp)
    assert Links() == found.links
    assert found.facts is None


def test_limits_across_resources_raise_the_stamp_of_every_bucket() -> None:
    """So a client with an older configuration notices them at its next take."""
    before = ConfigRecords(system=ConfigRecord(RPM, 1))

    assert 3 == resolve(replace(before, entity_all=ConfigRecord(RPM, 2)), "gpt-4").stamp
    assert 3 == resolve(replace(before, resource_all=ConfigRecord(RPM, 2)), "gpt-4").stamp


def test_links_have_the_blocks_of_the_resource_and_the_bypass() -> None:
    """Blocks of other resources do not matter."""
    blocks = (Block(), Block("gpt-4"), Block("gpt-5"))
    facts = EntityFacts(None, False, 1, blocks=blocks, bypass=True)

    assert Links(blocks=blocks[:2], bypass=True) == resolve(ConfigRecords(meta=facts), "gpt-4").links


@pytest.mark.parametrize(
    ("block", "refuses"),
    [
        (Block(), True),
        (Block("gpt-4"), True),
        (Block("gpt-5"), False),
        (Block(until_ms=1_001), True),
        (Block(until_ms=1_000), False),
    ],
)
def test_block_refuses_its_resource_until_its_end(block: Block, refuses: bool) -> None:
    """The end is not part of the block."""
    assert refuses is block.refuses("gpt-4", 1_000)
