"""Items that another tenant writes into the index partitions of a namespace do not affect it."""

import logging

import pytest

from zae_limiter import Limit, RateLimiter
from zae_limiter._async import embedded_table
from zae_limiter._async.store import namespaces
from zae_limiter.schema import keys
from zae_limiter.schema.operations import Key, Put

from .clients import CountingTable, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60)]
HOSTILE = "hostile0000"
MANY = 1_000


async def use(repo):
    """Store at least one item of every kind in a namespace."""
    await repo.set_system_defaults(LIMITS)
    await repo.create_entity("parent")
    for name in ("a", "m", "z"):
        await repo.create_entity(f"child-{name}", parent_id="parent")
        await repo.set_limits(f"child-{name}", LIMITS, "gpt-4")
        await take(RateLimiter(repo), {"rpm": 1}, entity_id=f"child-{name}")


async def seen(repo):
    """Return everything that is read through an index."""
    entities, cursor = [], None
    while not entities or cursor is not None:
        some, cursor = await repo.list_entities_with_custom_limits("gpt-4", limit=1, cursor=cursor)
        entities += some
    snapshots, start = [], None
    while not snapshots or start is not None:
        found, start = await repo.get_usage_snapshots(resource="gpt-4", limit=1, next_key=start)
        snapshots += found
    everyone, cursor = [], None
    while not everyone or cursor is not None:
        some, cursor = await repo.list_entities(limit=1, cursor=cursor)
        everyone += some
    latest, start = [], None
    while not latest or start is not None:
        found, start = await repo.get_usage_snapshots(limit=1, next_key=start)
        latest += found
    return [
        everyone,
        latest,
        (await repo.get_usage_summary(window_type="daily")).total,
        await repo.get_audit_events(limit=5),
        await repo.get_audit_events(limit=1_000),
        entities,
        (await repo.list_entities_with_custom_limits("gpt-4")),
        [entity.id for entity in await repo.get_children("parent")],
        [(one.resource, one.total_consumed_milli) for one in await repo.get_buckets("child-m")],
        (await repo.get_resource_capacity("gpt-4", "rpm")).entities,
        snapshots,
        (await repo.get_usage_summary(resource="gpt-4")).total,
    ]


def poison(victim_id, number):
    """Return items of another namespace, one for each index and each kind of item that is found through it."""
    pk = f"{HOSTILE}/ENTITY#e{number}"
    bucket = f"{HOSTILE}/BUCKET#e{number}#gpt-4#0"
    window = "2024-01-01T14:00:00Z"
    event = f"1700000000123-{number:016x}"
    kinds = [
        (pk, "#META", "GSI1", f"{victim_id}/PARENT#parent", f"CHILD#child-{number}"),
        (bucket, "#STATE", "GSI2", f"{victim_id}/RESOURCE#gpt-4", f"BUCKET#child-a{number}#0"),
        (pk, f"#USAGE#gpt-4#{window}", "GSI2", f"{victim_id}/RESOURCE#gpt-4", f"USAGE#{window}#e{number}"),
        (pk, "#CONFIG#gpt-4", "GSI3", f"{victim_id}/ENTITY_CONFIG#gpt-4", f"child-b{number}"),
        (f"{HOSTILE}/BUCKET#e{number}#x#0", "#STATE", "GSI3", f"{victim_id}/ENTITY#child-m", f"BUCKET#x{number}#0"),
        (f"{HOSTILE}/SYSTEM#", f"#{number}", "GSI4", victim_id, f"{victim_id}/ENTITY#x"),
        (pk, "#META", "GSI4", victim_id, f"ENTITY#child-{number}"),
        (pk, f"#USAGE#gpt-4#{window}", "GSI4", victim_id, f"USAGE#{window}#e{number}#gpt-4"),
        (f"{HOSTILE}/AUDIT#e{number}", f"#AUDIT#{event}", "GSI4", victim_id, f"AUDIT#{event}"),
    ]
    items = {}
    for pk, sk, index, partition, sort in kinds:
        claim = {f"{index}PK": partition, f"{index}SK": sort}
        items[pk, sk] = items.get((pk, sk), {"PK": pk, "SK": sk, "entity_id": "forged", "children": 1}) | claim
    yield from items.values()


async def put(repo, items):
    for item in items:
        await repo.scope.table.write(Put(item))


async def test_foreign_index_entries_are_skipped_and_logged(repo, caplog):
    """Lists, children, buckets, capacity and usage are unchanged, and a log line names the foreign namespace."""
    await use(repo)
    before = await seen(repo)
    await put(repo, poison(repo.scope.namespace_id, 1))
    with caplog.at_level(logging.WARNING, "zae_limiter"):
        after = await seen(repo)

    assert before == after
    lines = [record.getMessage() for record in caplog.records]
    assert 7 == len({line for line in lines if line.startswith("Foreign entries skipped in ") and HOSTILE in line})


async def test_delete_entity_leaves_foreign_items_unchanged(repo):
    """A bucket that another tenant claims for the entity stays, and does not stop the delete."""
    await use(repo)
    await put(repo, poison(repo.scope.namespace_id, 1))
    foreign = {key for key in everything_in(repo) if key[0].startswith(HOSTILE)}
    await repo.delete_entity("child-m")

    assert [] == await repo.get_buckets("child-m")
    assert foreign == {key for key in everything_in(repo) if key[0].startswith(HOSTILE)}


@pytest.mark.parametrize("page", [3, 500])
async def test_purge_removes_no_item_of_another_namespace(repo, monkeypatch, page):
    """It ends, counts what it removed, and leaves foreign entries in its index."""
    monkeypatch.setattr(namespaces, "_KEYS_PER_PAGE", page)
    namespace_id = await repo.register_namespace("team")
    scoped = await repo.namespace("team")
    await use(scoped)
    own = {key for key in everything_in(repo) if key[0].startswith(f"{namespace_id}/")}
    for number in range(10):
        await put(repo, poison(namespace_id, number))
    await repo.delete_namespace("team")
    everyone_else = {key for key in everything_in(repo) if not key[0].startswith(f"{namespace_id}/")}

    assert len(own) == await repo.purge_namespace(namespace_id)
    left = set(everything_in(repo))
    assert {(keys.pk_registry(), keys.sk_nsid(namespace_id))} >= everyone_else - left
    assert not left & own


@pytest.mark.parametrize("count", [10**7, 0, "many", None, [1], {"a": 1}])
async def test_purge_removes_forged_buckets(repo, count):
    """A tenant cannot block the purge of its own namespace with the items it writes there."""
    namespace_id = await repo.register_namespace("team")
    await use(await repo.namespace("team"))
    forged = {"SK": "#STATE", "shard_count": count, "GSI4PK": namespace_id}
    for shard in (0, 1, 63, 64, 10**7, "x"):
        pk = f"{namespace_id}/BUCKET#mallory#gpt-4#{shard}"
        await put(repo, [{**forged, "PK": pk, "GSI4SK": pk}])
    await repo.delete_namespace("team")
    await repo.purge_namespace(namespace_id)

    assert [] == [key for key in everything_in(repo) if key[0].startswith(f"{namespace_id}/")]


async def test_thousands_of_foreign_entries_are_skipped_in_few_calls(repo):
    """Even a page of one entry is read in full table pages, so the number of calls stays small."""
    await use(repo)
    before = await seen(repo)
    for number in range(MANY):
        await put(repo, poison(repo.scope.namespace_id, number))
    other = another(repo, CountingTable)
    after = await seen(other)

    assert before == after
    # An embedded table returns pages of at most this many entries, whatever it is asked for.
    assert other.scope.table.drain().count("query") <= 14 * MANY // embedded_table._ITEMS_PER_PAGE + 60


async def test_bucket_with_a_forged_shard_count_raises_corrupt_item_error(repo):
    """A shard count out of bounds is reported with the key of the item, and not followed."""
    await repo.set_system_defaults(LIMITS)
    limiter = RateLimiter(repo)
    await take(limiter, {"rpm": 1})
    ((key, item),) = [(key, item) for key, item in everything_in(repo).items() if "BUCKET#" in key[0]]
    await repo.scope.table.write(Put({**item, "shard_count": 10**7}))
    other = RateLimiter(another(repo))
    with pytest.raises(Exception, match="shard_count must be a power of two up to 64") as refused:
        await other.available("user-1", "gpt-4")

    assert "CorruptItemError" == type(refused.value).__name__
    assert Key(*key).pk in str(refused.value)
