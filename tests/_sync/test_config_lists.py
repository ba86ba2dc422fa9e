"""Who has limits of his own, and for what: lists in order, whole, page by page, and right whatever was changed."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError

from .clients import another, everything_in
from .rivals import Overtaken, Sparing

LIMITS = [Limit.per_second("rps", 10)]
OTHERS = [Limit.per_second("rps", 20)]
ENTITIES = ["a", "a-1", "b", "user-1", "user-10", "user-2", "zoe"]
RESOURCES = ["claude", "gpt-4", "_default_"]


def entities(repo, resource="gpt-4"):
    """List all entities at once."""
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
def peopled(repo):
    """A repository where several entities have limits of their own for one resource."""
    for entity_id in reversed(ENTITIES):
        repo.set_limits(entity_id, LIMITS, "gpt-4")
    return repo


def test_where_nothing_is_stored_nothing_is_listed(repo):
    """Empty lists, and no next page."""
    assert ([], None) == repo.list_entities_with_custom_limits("gpt-4")
    assert ([], []) == (repo.list_resources_with_entity_configs(), repo.list_resources_with_defaults())


def test_entities_are_listed_in_order(peopled):
    """Whatever the order in which they got their limits."""
    assert sorted(ENTITIES) == entities(peopled)


def test_only_entities_with_limits_for_the_resource_are_listed(repo):
    """Limits for another resource, or for all without their own, are another list."""
    repo.set_limits("user-1", LIMITS, "gpt-4")
    repo.set_limits("user-2", LIMITS, "gpt-4-turbo")
    repo.set_limits("user-3", LIMITS)
    repo.set_resource_defaults("gpt-4", LIMITS)
    repo.set_system_defaults(LIMITS)

    assert [["user-1"], ["user-2"], ["user-3"], []] == [
        entities(repo, resource) for resource in ("gpt-4", "gpt-4-turbo", "_default_", "gpt")
    ]


@pytest.mark.parametrize("size", range(1, len(ENTITIES) + 2))
def test_pages_are_full_and_lead_to_every_entity_once(peopled, size):
    """The last page says that it is the last, though it be full."""
    everyone = sorted(ENTITIES)

    assert [everyone[start : start + size] for start in range(0, len(everyone), size)] == pages(peopled, size)


def test_a_list_goes_on_where_its_last_entity_was_deleted(peopled):
    """A cursor is a place in the order, not an entity."""
    first, cursor = peopled.list_entities_with_custom_limits("gpt-4", 3)
    peopled.delete_limits(first[-1], "gpt-4")
    rest, _ = peopled.list_entities_with_custom_limits("gpt-4", cursor=cursor)

    assert sorted(ENTITIES) == first + rest


@pytest.mark.parametrize("cursor", ["", "x", "user-1", "日本", 5, b"x", "!" * 5_000])
def test_what_is_no_cursor_is_refused(peopled, cursor):
    """And said to be the cursor's fault."""
    with pytest.raises(ValidationError) as caught:
        peopled.list_entities_with_custom_limits("gpt-4", cursor=cursor)

    assert "cursor" == caught.value.field


def test_a_cursor_of_another_list_is_refused(peopled):
    """It would skip entities without a word."""
    _, cursor = peopled.list_entities_with_custom_limits("gpt-4", 1)

    with pytest.raises(ValidationError, match="gpt-5"):
        peopled.list_entities_with_custom_limits("gpt-5", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "5"])
def test_what_is_no_length_of_a_page_is_refused(repo, limit):
    """A page has at least one entity."""
    with pytest.raises(ValidationError, match="limit"):
        repo.list_entities_with_custom_limits("gpt-4", limit)


@pytest.mark.parametrize("resource", ["", "4gpt", "a#b", None])
def test_what_is_no_resource_is_refused(repo, resource):
    """As everywhere."""
    with pytest.raises(ValidationError, match="resource"):
        repo.list_entities_with_custom_limits(resource)


@pytest.mark.parametrize("size", [None, 1, 2, 3, 5, 7, 8])
def test_short_answers_of_a_table_make_no_short_pages(peopled, size):
    """A page is as long as was asked for, in however many answers it comes."""
    everyone, step = sorted(ENTITIES), size or len(ENTITIES)

    assert [everyone[start : start + step] for start in range(0, len(everyone), step)] == pages(
        another(peopled, Sparing), size
    )


def test_deleted_limits_are_not_listed_until_they_are_set_again(peopled):
    """A tombstone is no limit."""
    peopled.delete_limits("b", "gpt-4")
    without = entities(peopled)
    peopled.set_limits("b", OTHERS, "gpt-4")

    assert (sorted(set(ENTITIES) - {"b"}), sorted(ENTITIES)) == (without, entities(peopled))


def test_resources_are_listed_while_somebody_has_limits_for_them(repo):
    """Until the last has gone, in order, and with what stands for all resources."""
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


def test_resources_with_defaults_are_a_list_of_their_own(repo):
    """Limits of entities are not in it, nor the system's."""
    repo.set_resource_defaults("gpt-4", LIMITS)
    repo.set_resource_defaults("claude", LIMITS)
    repo.set_limits("user-1", LIMITS, "other")
    repo.set_system_defaults(LIMITS)
    both = repo.list_resources_with_defaults()
    repo.delete_resource_defaults("gpt-4")

    assert (["claude", "gpt-4"], ["claude"]) == (both, repo.list_resources_with_defaults())


def test_setting_and_deleting_again_and_again_counts_once(repo):
    """The registries count records, not changes."""
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


def counted_in(repo):
    """Return what the registry of entities' limits counts, by resource."""
    (registry,) = [item for key, item in everything_in(repo).items() if key[1] == "#ENTITY_CONFIG_RESOURCES"]
    return {name.removeprefix("r_"): value for name, value in registry.items() if name.startswith("r_")}


@pytest.mark.parametrize("seed", range(5))
def test_lists_tell_what_is_stored_after_any_changes_by_any_client(repo, seed):
    """Three clients, each with a memory of its own, set and delete as they like."""
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
        resource: counted_in(repo).get(resource, 0) for resource in RESOURCES
    }


@pytest.mark.parametrize("mine", ["set", "delete"])
@pytest.mark.parametrize("theirs", ["set", "delete"])
@pytest.mark.parametrize("whose", ["user-1", "user-2"])
@pytest.mark.parametrize("before", [True, False])
def test_a_change_that_is_overtaken_counts_right(repo, mine, theirs, whose, before):
    """The registry is written with the record, so whatever gets between is counted once."""
    other, slow = another(repo), another(repo, Overtaken)
    stored = {"user-1"} if before else set()
    for entity_id in stored:
        repo.set_limits(entity_id, LIMITS, "gpt-4")

    def change(client, kind, entity_id):
        if kind == "set":
            return client.set_limits(entity_id, OTHERS, "gpt-4")
        return client.delete_limits(entity_id, "gpt-4")

    slow.scope.table.overtakers = [lambda: change(other, theirs, whose)]
    change(slow, mine, "user-1")
    if not slow.scope.table.overtakers:
        stored = stored | {whose} if theirs == "set" else stored - {whose}
    stored = stored | {"user-1"} if mine == "set" else stored - {"user-1"}

    assert sorted(stored) == entities(repo)
    assert (["gpt-4"] if stored else []) == repo.list_resources_with_entity_configs()


def test_two_clients_at_once_leave_the_registry_right(repo):
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
    assert {"gpt-4": 2} == counted_in(repo)


def test_many_clients_that_change_one_record_at_once_all_get_their_turn(repo):
    """Whoever was overtaken waits a little before he tries again."""
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
    assert {"gpt-4": 1} == counted_in(repo)


def test_the_limiter_lists_what_its_repository_does(peopled):
    """The verbs are the same."""
    limiter = SyncRateLimiter(peopled)

    assert entities(peopled) == entities(limiter)
    assert ["gpt-4"] == limiter.list_resources_with_entity_configs()
    assert [] == limiter.list_resources_with_defaults()


def test_lists_survive_closing(tmp_path):
    """A file keeps its registries and its indexes."""
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    with SyncRepository.open(url) as first:
        first.set_limits("user-1", LIMITS, "gpt-4")
        first.set_resource_defaults("claude", LIMITS)

    with SyncRepository.open(url) as second:
        assert ["user-1"] == entities(second)
        assert ["gpt-4"] == second.list_resources_with_entity_configs()
        assert ["claude"] == second.list_resources_with_defaults()
