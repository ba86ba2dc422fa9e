"""Who has limits of his own, and for what: lists in order, whole, page by page, and right whatever was changed."""

from random import Random

import pytest

from zae_limiter import Limit, RateLimiter, Repository, ValidationError

from .clients import another, everything_in
from .rivals import Overtaken, Sparing

LIMITS = [Limit.per_second("rps", 10)]
OTHERS = [Limit.per_second("rps", 20)]
ENTITIES = ["a", "a-1", "b", "user-1", "user-10", "user-2", "zoe"]
RESOURCES = ["claude", "gpt-4", "_default_"]


async def entities(repo, resource="gpt-4"):
    """List all entities at once."""
    found, cursor = await repo.list_entities_with_custom_limits(resource)
    assert cursor is None
    return found


async def pages(repo, size, resource="gpt-4"):
    """List entities page by page."""
    found, cursor = await repo.list_entities_with_custom_limits(resource, size)
    listed = [found]
    while cursor is not None:
        found, cursor = await repo.list_entities_with_custom_limits(resource, limit=size, cursor=cursor)
        listed.append(found)
    return listed


@pytest.fixture
async def peopled(repo):
    """A repository where several entities have limits of their own for one resource."""
    for entity_id in reversed(ENTITIES):
        await repo.set_limits(entity_id, LIMITS, "gpt-4")
    return repo


async def test_where_nothing_is_stored_nothing_is_listed(repo):
    """Empty lists, and no next page."""
    assert ([], None) == await repo.list_entities_with_custom_limits("gpt-4")
    assert ([], []) == (await repo.list_resources_with_entity_configs(), await repo.list_resources_with_defaults())


async def test_entities_are_listed_in_order(peopled):
    """Whatever the order in which they got their limits."""
    assert sorted(ENTITIES) == await entities(peopled)


async def test_only_entities_with_limits_for_the_resource_are_listed(repo):
    """Limits for another resource, or for all without their own, are another list."""
    await repo.set_limits("user-1", LIMITS, "gpt-4")
    await repo.set_limits("user-2", LIMITS, "gpt-4-turbo")
    await repo.set_limits("user-3", LIMITS)
    await repo.set_resource_defaults("gpt-4", LIMITS)
    await repo.set_system_defaults(LIMITS)

    assert [["user-1"], ["user-2"], ["user-3"], []] == [
        await entities(repo, resource) for resource in ("gpt-4", "gpt-4-turbo", "_default_", "gpt")
    ]


@pytest.mark.parametrize("size", range(1, len(ENTITIES) + 2))
async def test_pages_are_full_and_lead_to_every_entity_once(peopled, size):
    """The last page says that it is the last, though it be full."""
    everyone = sorted(ENTITIES)

    assert [everyone[start : start + size] for start in range(0, len(everyone), size)] == await pages(peopled, size)


async def test_a_list_goes_on_where_its_last_entity_was_deleted(peopled):
    """A cursor is a place in the order, not an entity."""
    first, cursor = await peopled.list_entities_with_custom_limits("gpt-4", 3)
    await peopled.delete_limits(first[-1], "gpt-4")
    rest, _ = await peopled.list_entities_with_custom_limits("gpt-4", cursor=cursor)

    assert sorted(ENTITIES) == first + rest


@pytest.mark.parametrize("cursor", ["", "x", "user-1", "日本", 5, b"x", "!" * 5_000])
async def test_what_is_no_cursor_is_refused(peopled, cursor):
    """And said to be the cursor's fault."""
    with pytest.raises(ValidationError) as caught:
        await peopled.list_entities_with_custom_limits("gpt-4", cursor=cursor)

    assert "cursor" == caught.value.field


async def test_a_cursor_of_another_list_is_refused(peopled):
    """It would skip entities without a word."""
    _, cursor = await peopled.list_entities_with_custom_limits("gpt-4", 1)

    with pytest.raises(ValidationError, match="gpt-5"):
        await peopled.list_entities_with_custom_limits("gpt-5", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "5"])
async def test_what_is_no_length_of_a_page_is_refused(repo, limit):
    """A page has at least one entity."""
    with pytest.raises(ValidationError, match="limit"):
        await repo.list_entities_with_custom_limits("gpt-4", limit)


@pytest.mark.parametrize("resource", ["", "4gpt", "a#b", None])
async def test_what_is_no_resource_is_refused(repo, resource):
    """As everywhere."""
    with pytest.raises(ValidationError, match="resource"):
        await repo.list_entities_with_custom_limits(resource)


@pytest.mark.parametrize("size", [None, 1, 2, 3, 5, 7, 8])
async def test_short_answers_of_a_table_make_no_short_pages(peopled, size):
    """A page is as long as was asked for, in however many answers it comes."""
    everyone, step = sorted(ENTITIES), size or len(ENTITIES)

    assert [everyone[start : start + step] for start in range(0, len(everyone), step)] == await pages(
        another(peopled, Sparing), size
    )


async def test_deleted_limits_are_not_listed_until_they_are_set_again(peopled):
    """A tombstone is no limit."""
    await peopled.delete_limits("b", "gpt-4")
    without = await entities(peopled)
    await peopled.set_limits("b", OTHERS, "gpt-4")

    assert (sorted(set(ENTITIES) - {"b"}), sorted(ENTITIES)) == (without, await entities(peopled))


async def test_resources_are_listed_while_somebody_has_limits_for_them(repo):
    """Until the last has gone, in order, and with what stands for all resources."""
    await repo.set_limits("user-1", LIMITS, "gpt-4")
    await repo.set_limits("user-2", LIMITS, "gpt-4")
    await repo.set_limits("user-2", LIMITS, "claude")
    await repo.set_limits("user-2", LIMITS)
    found = [await repo.list_resources_with_entity_configs()]
    for whose in (("user-1", "gpt-4"), ("user-2", "_default_"), ("user-2", "gpt-4"), ("user-2", "claude")):
        await repo.delete_limits(*whose)
        found.append(await repo.list_resources_with_entity_configs())

    assert [
        ["_default_", "claude", "gpt-4"],
        ["_default_", "claude", "gpt-4"],
        ["claude", "gpt-4"],
        ["claude"],
        [],
    ] == found


async def test_resources_with_defaults_are_a_list_of_their_own(repo):
    """Limits of entities are not in it, nor the system's."""
    await repo.set_resource_defaults("gpt-4", LIMITS)
    await repo.set_resource_defaults("claude", LIMITS)
    await repo.set_limits("user-1", LIMITS, "other")
    await repo.set_system_defaults(LIMITS)
    both = await repo.list_resources_with_defaults()
    await repo.delete_resource_defaults("gpt-4")

    assert (["claude", "gpt-4"], ["claude"]) == (both, await repo.list_resources_with_defaults())


async def test_setting_and_deleting_again_and_again_counts_once(repo):
    """The registries count records, not changes."""
    for _ in range(3):
        for _ in range(3):
            await repo.set_limits("user-1", LIMITS, "gpt-4")
            await repo.set_resource_defaults("gpt-4", LIMITS)
        listed = await repo.list_resources_with_entity_configs(), await repo.list_resources_with_defaults()
        for _ in range(3):
            await repo.delete_limits("user-1", "gpt-4")
            await repo.delete_resource_defaults("gpt-4")
        unlisted = await repo.list_resources_with_entity_configs(), await repo.list_resources_with_defaults()

        assert ((["gpt-4"], ["gpt-4"]), ([], [])) == (listed, unlisted)


def counted_in(repo):
    """Return what the registry of entities' limits counts, by resource."""
    (registry,) = [item for key, item in everything_in(repo).items() if key[1] == "#ENTITY_CONFIG_RESOURCES"]
    return {name.removeprefix("r_"): value for name, value in registry.items() if name.startswith("r_")}


@pytest.mark.parametrize("seed", range(5))
async def test_lists_tell_what_is_stored_after_any_changes_by_any_client(repo, seed):
    """Three clients, each with a memory of its own, set and delete as they like."""
    chance, clients, stored = Random(seed), [repo, another(repo), another(repo)], set()
    for _ in range(80):
        client = chance.choice(clients)
        record = chance.choice(ENTITIES), chance.choice(RESOURCES)
        if chance.random() < 0.5:
            await client.set_limits(record[0], LIMITS, record[1])
            stored.add(record)
        else:
            await client.delete_limits(*record)
            stored.discard(record)

    reader = chance.choice(clients)
    expected = {resource: sorted(entity for entity, other in stored if other == resource) for resource in RESOURCES}
    assert expected == {resource: await entities(reader, resource) for resource in RESOURCES}
    assert sorted(filter(expected.get, RESOURCES)) == await reader.list_resources_with_entity_configs()
    assert {resource: len(found) for resource, found in expected.items()} == {
        resource: counted_in(repo).get(resource, 0) for resource in RESOURCES
    }


@pytest.mark.parametrize("mine", ["set", "delete"])
@pytest.mark.parametrize("theirs", ["set", "delete"])
@pytest.mark.parametrize("whose", ["user-1", "user-2"])
@pytest.mark.parametrize("before", [True, False])
async def test_a_change_that_is_overtaken_counts_right(repo, mine, theirs, whose, before):
    """The registry is written with the record, so whatever gets between is counted once."""
    other, slow = another(repo), another(repo, Overtaken)
    stored = {"user-1"} if before else set()
    for entity_id in stored:
        await repo.set_limits(entity_id, LIMITS, "gpt-4")

    def change(client, kind, entity_id):
        if kind == "set":
            return client.set_limits(entity_id, OTHERS, "gpt-4")
        return client.delete_limits(entity_id, "gpt-4")

    slow.scope.table.overtakers = [lambda: change(other, theirs, whose)]
    await change(slow, mine, "user-1")
    if not slow.scope.table.overtakers:
        stored = stored | {whose} if theirs == "set" else stored - {whose}
    stored = stored | {"user-1"} if mine == "set" else stored - {"user-1"}

    assert sorted(stored) == await entities(repo)
    assert (["gpt-4"] if stored else []) == await repo.list_resources_with_entity_configs()


async def test_two_clients_at_once_leave_the_registry_right(repo):
    """Both set and delete the same record, and one of their own, at the same time."""
    parallel = repo.scope.client.parallel

    async def work(client, own):
        for _ in range(15):
            await client.set_limits("shared", LIMITS, "gpt-4")
            await client.set_limits(own, LIMITS, "gpt-4")
            await client.delete_limits("shared", "gpt-4")
            await client.delete_limits(own, "gpt-4")
        await client.set_limits(own, LIMITS, "gpt-4")
        await client.delete_limits("shared", "gpt-4")

    one, two = another(repo), another(repo)
    await parallel.run([lambda: work(one, "user-1"), lambda: work(two, "user-2")])

    assert ["user-1", "user-2"] == await entities(repo)
    assert {"gpt-4": 2} == counted_in(repo)


async def test_many_clients_that_change_one_record_at_once_all_get_their_turn(repo):
    """Whoever was overtaken waits a little before he tries again."""
    parallel = repo.scope.client.parallel

    async def work(clients):
        if len(clients) > 1:
            half = len(clients) // 2
            await parallel.run([lambda: work(clients[:half]), lambda: work(clients[half:])])
        else:
            for _ in range(5):
                await clients[0].set_limits("shared", LIMITS, "gpt-4")

    await work([another(repo) for _ in range(16)])

    assert 80 == len(await repo.get_audit_events("shared", 100))
    assert {"gpt-4": 1} == counted_in(repo)


async def test_the_limiter_lists_what_its_repository_does(peopled):
    """The verbs are the same."""
    limiter = RateLimiter(peopled)

    assert await entities(peopled) == await entities(limiter)
    assert ["gpt-4"] == await limiter.list_resources_with_entity_configs()
    assert [] == await limiter.list_resources_with_defaults()


async def test_lists_survive_closing(tmp_path):
    """A file keeps its registries and its indexes."""
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    async with await Repository.open(url) as first:
        await first.set_limits("user-1", LIMITS, "gpt-4")
        await first.set_resource_defaults("claude", LIMITS)

    async with await Repository.open(url) as second:
        assert ["user-1"] == await entities(second)
        assert ["gpt-4"] == await second.list_resources_with_entity_configs()
        assert ["claude"] == await second.list_resources_with_defaults()
