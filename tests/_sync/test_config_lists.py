"""Lists of entities and resources with limits: ordered, complete, paged, and correct after any changes."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError

from .clients import another, everything_in
from .rivals import RacedTable, ShortPagesTable

LIMITS = [Limit.per_second("rps", 10)]
OTHERS = [Limit.per_second("rps", 20)]
ENTITIES = ["a", "a-1", "b", "user-1", "user-10", "user-2", "zoe"]
RESOURCES = ["claude", "gpt-4", "_default_"]


def entities(repo, resource="gpt-4"):
    """List all entities in one call."""
    found, cursor = repo.list_entities_with_custom_limits(resource)
    assert cursor is None
    return found


def pages(repo, size, resource="gpt-4"):
    """List entities page by page."""
    found, cursor = repo.list_entities_with_custom_limits(resource, size)
    listed = [found]
    while cursor is not None:
        found, cursor = repo.list_entities_with_custom_limits(resource, limit=size, cursor=cursor)
        listed.append(found)
    return listed


@pytest.fixture
def repo_with_limits(repo):
    """A repository where several entities have limits of their own for one resource."""
    for entity_id in reversed(ENTITIES):
        repo.set_limits(entity_id, LIMITS, "gpt-4")
    return repo


def test_lists_of_an_empty_repository_are_empty(repo):
    """There is no next page either."""
    assert ([], None) == repo.list_entities_with_custom_limits("gpt-4")
    assert ([], []) == (repo.list_resources_with_entity_configs(), repo.list_resources_with_defaults())


def test_entities_with_limits_are_listed_in_alphabetical_order(repo_with_limits):
    """The order in which they got their limits makes no difference."""
    assert sorted(ENTITIES) == entities(repo_with_limits)


def test_only_entities_with_limits_for_the_resource_are_listed(repo):
    """Limits for another resource, or default limits of an entity, are separate lists."""
    repo.set_limits("user-1", LIMITS, "gpt-4")
    repo.set_limits("user-2", LIMITS, "gpt-4-turbo")
    repo.set_limits("user-3", LIMITS)
    repo.set_resource_defaults("gpt-4", LIMITS)
    repo.set_system_defaults(LIMITS)

    assert [["user-1"], ["user-2"], ["user-3"], []] == [
        entities(repo, resource) for resource in ("gpt-4", "gpt-4-turbo", "_default_", "gpt")
    ]


@pytest.mark.parametrize("size", range(1, len(ENTITIES) + 2))
def test_paging_through_entities_returns_full_pages_with_every_entity_once(repo_with_limits, size):
    """The last page has no cursor, even if it is full."""
    everyone = sorted(ENTITIES)

    assert [everyone[start : start + size] for start in range(0, len(everyone), size)] == pages(
        repo_with_limits, size
    )


def test_list_continues_after_the_last_entity_of_a_page_was_deleted(repo_with_limits):
    """A cursor is a position in the order, not an entity."""
    first, cursor = repo_with_limits.list_entities_with_custom_limits("gpt-4", 3)
    repo_with_limits.delete_limits(first[-1], "gpt-4")
    rest, _ = repo_with_limits.list_entities_with_custom_limits("gpt-4", cursor=cursor)

    assert sorted(ENTITIES) == first + rest


@pytest.mark.parametrize("cursor", ["", "x", "user-1", "日本", 5, b"x", "!" * 5_000])
def test_list_with_an_invalid_cursor_raises(repo_with_limits, cursor):
    """The error names the cursor."""
    with pytest.raises(ValidationError) as caught:
        repo_with_limits.list_entities_with_custom_limits("gpt-4", cursor=cursor)

    assert "cursor" == caught.value.field


def test_a_cursor_of_another_list_is_refused(repo_with_limits):
    """It would silently skip entities."""
    _, cursor = repo_with_limits.list_entities_with_custom_limits("gpt-4", 1)

    with pytest.raises(ValidationError, match="gpt-5"):
        repo_with_limits.list_entities_with_custom_limits("gpt-5", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "5"])
def test_list_with_an_invalid_page_size_raises(repo, limit):
    """A page has at least one entity."""
    with pytest.raises(ValidationError, match="limit"):
        repo.list_entities_with_custom_limits("gpt-4", limit)


@pytest.mark.parametrize("resource", ["", "4gpt", "a#b", None])
def test_list_with_an_invalid_resource_raises(repo, resource):
    """Lists check resource names like all other calls."""
    with pytest.raises(ValidationError, match="resource"):
        repo.list_entities_with_custom_limits(resource)


@pytest.mark.parametrize("size", [None, 1, 2, 3, 5, 7, 8])
def test_entity_page_is_full_even_if_the_table_returns_short_pages(repo_with_limits, size):
    """A page has the requested length, however many table reads it takes."""
    everyone, step = sorted(ENTITIES), size or len(ENTITIES)

    assert [everyone[start : start + step] for start in range(0, len(everyone), step)] == pages(
        another(repo_with_limits, ShortPagesTable), size
    )


def test_deleted_limits_are_not_listed_until_they_are_set_again(repo_with_limits):
    """A tombstone is not listed."""
    repo_with_limits.delete_limits("b", "gpt-4")
    without = entities(repo_with_limits)
    repo_with_limits.set_limits("b", OTHERS, "gpt-4")

    assert (sorted(set(ENTITIES) - {"b"}), sorted(ENTITIES)) == (without, entities(repo_with_limits))


def test_resource_is_listed_until_its_last_entity_limits_are_deleted(repo):
    """The list is ordered and includes the default of all resources."""
    repo.set_limits("user-1", LIMITS, "gpt-4")
    repo.set_limits("user-2", LIMITS, "gpt-4")
    repo.set_limits("user-2", LIMITS, "claude")
    repo.set_limits("user-2", LIMITS)
    found = [repo.list_resources_with_entity_configs()]
    for whose in (("user-1", "gpt-4"), ("user-2", "_default_"), ("user-2", "gpt-4"), ("user-2", "claude")):
        repo.delete_limits(*whose)
        found.append(repo.list_resources_with_entity_configs())

    assert [
        ["_default_", "claude", "gpt-4"],
        ["_default_", "claude", "gpt-4"],
        ["claude", "gpt-4"],
        ["claude"],
        [],
    ] == found


def test_list_resources_with_defaults_omits_entity_and_system_limits(repo):
    """Only resource defaults are in it."""
    repo.set_resource_defaults("gpt-4", LIMITS)
    repo.set_resource_defaults("claude", LIMITS)
    repo.set_limits("user-1", LIMITS, "other")
    repo.set_system_defaults(LIMITS)
    both = repo.list_resources_with_defaults()
    repo.delete_resource_defaults("gpt-4")

    assert (["claude", "gpt-4"], ["claude"]) == (both, repo.list_resources_with_defaults())


def test_registry_counts_records_and_not_changes(repo):
    """Repeated sets and deletes of one record count once."""
    for _ in range(3):
        for _ in range(3):
            repo.set_limits("user-1", LIMITS, "gpt-4")
            repo.set_resource_defaults("gpt-4", LIMITS)
        listed = repo.list_resources_with_entity_configs(), repo.list_resources_with_defaults()
        for _ in range(3):
            repo.delete_limits("user-1", "gpt-4")
            repo.delete_resource_defaults("gpt-4")
        unlisted = repo.list_resources_with_entity_configs(), repo.list_resources_with_defaults()

        assert ((["gpt-4"], ["gpt-4"]), ([], [])) == (listed, unlisted)


def registry_counts(repo):
    """Return the counts in the registry of entity limits, by resource."""
    (registry,) = [item for key, item in everything_in(repo).items() if key[1] == "#ENTITY_CONFIG_RESOURCES"]
    return {name.removeprefix("r_"): value for name, value in registry.items() if name.startswith("r_")}


@pytest.mark.parametrize("seed", range(5))
def test_lists_match_the_store_after_random_changes_by_three_clients(repo, seed):
    """Each client has its own cache."""
    chance, clients, stored = Random(seed), [repo, another(repo), another(repo)], set()
    for _ in range(80):
        client = chance.choice(clients)
        record = chance.choice(ENTITIES), chance.choice(RESOURCES)
        if chance.random() < 0.5:
            client.set_limits(record[0], LIMITS, record[1])
            stored.add(record)
        else:
            client.delete_limits(*record)
            stored.discard(record)

    reader = chance.choice(clients)
    expected = {resource: sorted(entity for entity, other in stored if other == resource) for resource in RESOURCES}
    assert expected == {resource: entities(reader, resource) for resource in RESOURCES}
    assert sorted(filter(expected.get, RESOURCES)) == reader.list_resources_with_entity_configs()
    assert {resource: len(found) for resource, found in expected.items()} == {
        resource: registry_counts(repo).get(resource, 0) for resource in RESOURCES
    }


@pytest.mark.parametrize("mine", ["set", "delete"])
@pytest.mark.parametrize("theirs", ["set", "delete"])
@pytest.mark.parametrize("whose", ["user-1", "user-2"])
@pytest.mark.parametrize("before", [True, False])
def test_registry_is_correct_after_a_change_that_lost_a_race(repo, mine, theirs, whose, before):
    """The registry is written with the record, so every change is counted once."""
    other, slow = another(repo), another(repo, RacedTable)
    stored = {"user-1"} if before else set()
    for entity_id in stored:
        repo.set_limits(entity_id, LIMITS, "gpt-4")

    def change(client, kind, entity_id):
        if kind == "set":
            return client.set_limits(entity_id, OTHERS, "gpt-4")
        return client.delete_limits(entity_id, "gpt-4")

    slow.scope.table.rivals = [lambda: change(other, theirs, whose)]
    change(slow, mine, "user-1")
    if not slow.scope.table.rivals:
        stored = stored | {whose} if theirs == "set" else stored - {whose}
    stored = stored | {"user-1"} if mine == "set" else stored - {"user-1"}

    assert sorted(stored) == entities(repo)
    assert (["gpt-4"] if stored else []) == repo.list_resources_with_entity_configs()


def test_registry_is_correct_after_concurrent_changes_by_two_clients(repo):
    """Both set and delete the same record, and one of their own, at the same time."""
    parallel = repo.scope.client.parallel

    def work(client, own):
        for _ in range(15):
            client.set_limits("shared", LIMITS, "gpt-4")
            client.set_limits(own, LIMITS, "gpt-4")
            client.delete_limits("shared", "gpt-4")
            client.delete_limits(own, "gpt-4")
        client.set_limits(own, LIMITS, "gpt-4")
        client.delete_limits("shared", "gpt-4")

    one, two = another(repo), another(repo)
    parallel.run([lambda: work(one, "user-1"), lambda: work(two, "user-2")])

    assert ["user-1", "user-2"] == entities(repo)
    assert {"gpt-4": 2} == registry_counts(repo)


def test_many_clients_that_change_one_record_concurrently_all_succeed(repo):
    """A client that loses a race backs off before it retries."""
    parallel = repo.scope.client.parallel

    def work(clients):
        if len(clients) > 1:
            half = len(clients) // 2
            parallel.run([lambda: work(clients[:half]), lambda: work(clients[half:])])
        else:
            for _ in range(5):
                clients[0].set_limits("shared", LIMITS, "gpt-4")

    work([another(repo) for _ in range(16)])

    assert 80 == len(repo.get_audit_events("shared", 100))
    assert {"gpt-4": 1} == registry_counts(repo)


def test_limiter_and_repository_return_the_same_lists(repo_with_limits):
    """The limiter delegates to its repository."""
    limiter = SyncRateLimiter(repo_with_limits)

    assert entities(repo_with_limits) == entities(limiter)
    assert ["gpt-4"] == limiter.list_resources_with_entity_configs()
    assert [] == limiter.list_resources_with_defaults()


def test_sqlite_file_keeps_registries_and_indexes_after_close(tmp_path):
    """A second repository on the file returns the same lists."""
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    with SyncRepository.open(url) as first:
        first.set_limits("user-1", LIMITS, "gpt-4")
        first.set_resource_defaults("claude", LIMITS)

    with SyncRepository.open(url) as second:
        assert ["user-1"] == entities(second)
        assert ["gpt-4"] == second.list_resources_with_entity_configs()
        assert ["claude"] == second.list_resources_with_defaults()
