"""Every key can be parsed to the parts it was built from."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter import schema
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import keys

window_keys = st.builds(lambda kind, at_ms: window_at(kind, at_ms).key, st.sampled_from(WINDOW_TYPES), some.times_ms)
audit_ids = some.entity_ids | st.just("$SYSTEM") | some.resources.map("$RESOURCE:{}".format)

SCOPED = [
    (keys.pk_entity, keys.parse_entity_pk, some.entity_ids),
    (keys.pk_audit, keys.parse_audit_pk, audit_ids),
    (keys.gsi1_pk_parent, keys.parse_gsi1_pk_parent, some.entity_ids),
]
NAMED = [
    (keys.sk_config, keys.parse_entity_config_sk, some.resources | st.just("_default_")),
    (keys.sk_audit, keys.parse_audit_sk, st.just("1704117600000-00000000000000ff")),
    (keys.sk_namespace, keys.parse_namespace_sk, some.namespaces),
    (keys.sk_nsid, keys.parse_nsid_sk, some.namespace_ids),
]
PARSERS = [
    keys.parse_bucket_pk,
    keys.parse_usage_sk,
    *(parse for _, parse, _ in [*SCOPED, *NAMED]),
]
OTHER_KEYS = [
    *("", "/", "#", "ns", "ns/", "ns/OTHER#a", "/ENTITY#a", "ns/ENTITY#"),
    *("ns/BUCKET#a#b", "ns/BUCKET#a#b#x", "ns/BUCKET#a#b#²", "ns/BUCKET#a#b#0#1"),
    *("ns/BUCKET#a#b#64", "ns/BUCKET#a#b#007", f"ns/BUCKET#a#b#{'1' * 5_000}", "BUCKET#a#64"),
    *("#USAGE#", "#USAGE#gpt-4", "#USAGE##2024", "USAGE#2024"),
    *("BUCKET#a", "BUCKET##1", "BUCKET#a#", "BUCKET#a#x", "#CONFIG", "#CONFIG#", "#AUDIT#", "CHILD#"),
]


def test_keys_are_those_of_the_specification() -> None:
    """Other tools that read the table depend on them."""
    built = [
        keys.pk_system("ns"),
        keys.pk_registry(),
        keys.pk_resource("ns", "gpt-4"),
        keys.pk_entity("ns", "user-1"),
        keys.pk_bucket("ns", "user-1", "gpt-4", 0),
        keys.pk_audit("ns", "$SYSTEM"),
        keys.sk_state(),
        keys.sk_meta(),
        keys.sk_version(),
        keys.sk_resources(),
        keys.sk_entity_config_resources(),
        keys.sk_config(),
        keys.sk_config("gpt-4"),
        keys.sk_usage("gpt-4", "2024-01-01T14:00:00Z"),
        keys.sk_audit("event"),
        keys.sk_credit("ticket-1"),
        keys.sk_namespace("tenant"),
        keys.sk_nsid("a7x3kq00000"),
    ]

    assert [
        "ns/SYSTEM#",
        "_/SYSTEM#",
        "ns/RESOURCE#gpt-4",
        "ns/ENTITY#user-1",
        "ns/BUCKET#user-1#gpt-4#0",
        "ns/AUDIT#$SYSTEM",
        "#STATE",
        "#META",
        "#VERSION",
        "#RESOURCES",
        "#ENTITY_CONFIG_RESOURCES",
        "#CONFIG",
        "#CONFIG#gpt-4",
        "#USAGE#gpt-4#2024-01-01T14:00:00Z",
        "#AUDIT#event",
        "#CREDIT#ticket-1",
        "#NAMESPACE#tenant",
        "#NSID#a7x3kq00000",
    ] == built


def test_index_keys_are_those_of_the_specification() -> None:
    """Each index serves one query."""
    built = [
        keys.gsi1_pk_parent("ns", "org-1"),
        keys.gsi1_sk_child("user-1"),
        keys.gsi2_pk_resource("ns", "gpt-4"),
        keys.gsi2_sk_bucket("user-1", 3),
        keys.gsi2_sk_usage("2024-01", "user-1"),
        keys.gsi3_pk_entity_config("ns", "gpt-4"),
        keys.gsi3_sk_entity("user-1"),
        keys.gsi3_pk_entity("ns", "user-1"),
        keys.gsi3_sk_bucket("gpt-4", 3),
        keys.gsi4_pk("ns"),
        keys.gsi4_sk("ns/ENTITY#user-1"),
        keys.gsi4_sk_entity("user-1"),
        keys.gsi4_sk_audit("1704117600000-00000000000000ff"),
        keys.gsi4_sk_usage("2024-01", "user-1", "gpt-4"),
    ]

    assert [
        "ns/PARENT#org-1",
        "CHILD#user-1",
        "ns/RESOURCE#gpt-4",
        "BUCKET#user-1#3",
        "USAGE#2024-01#user-1",
        "ns/ENTITY_CONFIG#gpt-4",
        "user-1",
        "ns/ENTITY#user-1",
        "BUCKET#gpt-4#3",
        "ns",
        "ns/ENTITY#user-1",
        "ENTITY#user-1",
        "AUDIT#1704117600000-00000000000000ff",
        "USAGE#2024-01#user-1#gpt-4",
    ] == built


@given(some.namespace_ids, some.entity_ids, some.resources, some.shard_ids)
def test_bucket_key_is_parsed_to_its_parts(namespace_id: str, entity_id: str, resource: str, shard_id: int) -> None:
    """Entity ids may contain colons and resources slashes."""
    pk = keys.pk_bucket(namespace_id, entity_id, resource, shard_id)

    assert keys.BucketKey(namespace_id, entity_id, resource, shard_id) == keys.parse_bucket_pk(pk)
    assert namespace_id == keys.parse_namespace_id(pk)


@pytest.mark.parametrize(("build", "parse", "names"), SCOPED, ids=[build.__name__ for build, _, _ in SCOPED])
@given(data=st.data())
def test_partition_key_is_parsed_to_namespace_and_name(
    build: Callable[[str, str], str],
    parse: Callable[[str], keys.Scoped | None],
    names: st.SearchStrategy[str],
    data: st.DataObject,
) -> None:
    """The namespace id ends at the first slash."""
    namespace_id, name = data.draw(some.namespace_ids), data.draw(names)

    assert keys.Scoped(namespace_id, name) == parse(build(namespace_id, name))


@pytest.mark.parametrize(("build", "parse", "names"), NAMED, ids=[build.__name__ for build, _, _ in NAMED])
@given(data=st.data())
def test_sort_key_is_parsed_to_its_name(
    build: Callable[[str], str],
    parse: Callable[[str], str | None],
    names: st.SearchStrategy[str],
    data: st.DataObject,
) -> None:
    """The name follows the prefix."""
    name = data.draw(names)

    assert name == parse(build(name))


@given(some.resources, window_keys)
def test_usage_key_is_parsed_to_name_and_window(resource: str, window_key: str) -> None:
    """Window keys contain colons."""
    assert keys.UsageSortKey(resource, window_key) == keys.parse_usage_sk(keys.sk_usage(resource, window_key))


@given(some.namespace_ids, some.resources)
def test_namespace_index_attributes_contain_the_id_and_the_whole_key(namespace_id: str, resource: str) -> None:
    """Every item has them; an item of a list has its own sort key."""
    pk = keys.pk_resource(namespace_id, resource)

    assert {"GSI4PK": keys.gsi4_pk(namespace_id), "GSI4SK": keys.gsi4_sk(pk)} == keys.gsi4_attributes(pk)
    assert {"GSI4PK": keys.gsi4_pk(namespace_id), "GSI4SK": "ENTITY#a"} == keys.gsi4_attributes(pk, "ENTITY#a")


@given(some.resources, some.shard_ids)
def test_index_keys_of_all_shards_share_a_prefix(resource: str, shard_id: int) -> None:
    """A query by prefix finds no resource whose name only starts alike."""
    prefix = keys.gsi3_sk_bucket_prefix(resource)

    assert keys.gsi3_sk_bucket(resource, shard_id).startswith(prefix)
    assert not keys.gsi3_sk_bucket(f"{resource}x", shard_id).startswith(prefix)


@pytest.mark.parametrize("parse", PARSERS, ids=[parse.__name__ for parse in PARSERS])
@pytest.mark.parametrize("key", OTHER_KEYS)
def test_parser_returns_none_for_a_key_of_another_kind(parse: Callable[[str], object], key: str) -> None:
    """It never raises."""
    assert parse(key) is None


def test_namespace_id_of_a_key_without_one_is_none() -> None:
    """Every partition key of this table has one."""
    assert keys.parse_namespace_id("ENTITY#a") is None


@given(some.namespace_ids, some.namespaces)
def test_audit_events_of_namespaces_are_in_the_registry(namespace_id: str, name: str) -> None:
    """They can be read from every namespace, and are purged with none."""
    assert f"_/AUDIT#$NAMESPACE:{name}" == keys.pk_audit(namespace_id, f"$NAMESPACE:{name}")


@pytest.mark.parametrize(
    ("expected", "built"),
    [
        ("ns/SYSTEM#", schema.pk_system("ns")),
        ("_/SYSTEM#", schema.pk_system(schema.RESERVED_NAMESPACE)),
        ("ns/RESOURCE#gpt-4", schema.pk_resource("ns", "gpt-4")),
        ("ns/ENTITY#user-1", schema.pk_entity("ns", "user-1")),
        ("ns/BUCKET#user-1#gpt-4#0", schema.pk_bucket("ns", "user-1", "gpt-4", 0)),
        ("#STATE", schema.sk_state()),
        ("#CONFIG", schema.sk_config()),
        ("#CONFIG#gpt-4", schema.sk_config("gpt-4")),
        ("#ENTITY_CONFIG_RESOURCES", schema.sk_entity_config_resources()),
        ("#NAMESPACE#tenant", schema.sk_namespace("tenant")),
        ("#NSID#a7x3kq", schema.sk_nsid("a7x3kq")),
        ("ns/ENTITY#user-1", schema.gsi3_pk_entity("ns", "user-1")),
        ("BUCKET#gpt-4#0", schema.gsi3_sk_bucket("gpt-4", 0)),
        (("ns", "user-1", "gpt-4", 0), schema.parse_bucket_pk("ns/BUCKET#user-1#gpt-4#0")),
    ],
)
def test_specified_key_builder_is_imported_from_the_schema_package(expected: object, built: object) -> None:
    """A program that reads the table itself builds the documented keys."""
    assert expected == built
