"""Namespaces are isolated: each sees only its own data, whatever is done in another."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded, SyncRepository
from zae_limiter.core import namespace as life
from zae_limiter.schema import namespace_item

from .clients import SettableClock

ENTITIES = ["user-1", "user-10", "abcd", "d"]
RESOURCES = ["gpt-4", "gpt-4o"]

# Ids that are prefixes of each other, and ids that look like a part of a key.
short_ids = st.text("abcd_-", min_size=1, max_size=4)
id_pairs = st.lists(short_ids | some.namespace_ids, min_size=2, max_size=2, unique=True).filter(
    lambda ids: "_" not in ids
)
changes = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["system", "resource", "entity", "forget", "take", "create"]),
    st.sampled_from(ENTITIES),
    st.sampled_from(RESOURCES),
    st.integers(1, 9),
)


def repository_of(repo, namespace_id):
    """Return a repository of the namespace with this id, registered under a unique name."""
    namespace = life.register(f"n{namespace_id.encode().hex()}", namespace_id, "2024-01-01T00:00:00.000Z")
    client = repo.scope.client
    client.table.transact(namespace_item.register(namespace), "token")
    return SyncRepository(client.scope(namespace.name, namespace_id), owns_table=False)


def apply_change(repo, what, entity_id, resource, number):
    """Make one change in a namespace."""
    limits = [Limit.per_minute("rpm", number)]
    if what == "system":
        repo.set_system_defaults(limits, principal=f"by-{number}")
    elif what == "resource":
        repo.set_resource_defaults(resource, limits)
    elif what == "entity":
        repo.set_limits(entity_id, limits, resource)
    elif what == "forget":
        repo.delete_limits(entity_id, resource)
    elif what == "create" and repo.get_entity(entity_id) is None:
        repo.create_entity(entity_id, name=f"number {number}")
    elif what == "take":
        try_to_take(SyncRateLimiter(repo), entity_id, resource)


def try_to_take(limiter, entity_id, resource):
    try:
        with limiter.acquire(entity_id, resource, {"rpm": 1}, limits=[Limit.per_minute("rpm", 3)]):
            pass
    except RateLimitExceeded:
        pass


def audit_trail(repo, audit_id):
    return [(event.action, event.principal, event.details) for event in repo.get_audit_events(audit_id)]


def everything_visible(repo):
    """Return everything that can be read in a namespace."""
    limiter = SyncRateLimiter(repo)
    seen = [
        repo.get_system_defaults(),
        repo.list_resources_with_defaults(),
        repo.list_resources_with_entity_configs(),
        audit_trail(repo, "$SYSTEM"),
    ]
    for resource in RESOURCES:
        seen += [
            repo.get_resource_defaults(resource),
            repo.list_entities_with_custom_limits(resource),
            audit_trail(repo, f"$RESOURCE:{resource}"),
        ]
    for entity_id in ENTITIES:
        seen += [repo.get_entity(entity_id), audit_trail(repo, entity_id)]
        for resource in RESOURCES:
            seen += [
                repo.resolve_limits(entity_id, resource),
                limiter.available(entity_id, resource, limits=[Limit.per_minute("rpm", 3)]),
            ]
    return seen


@settings(max_examples=60, deadline=None)
@given(id_pairs, st.lists(changes, max_size=12))
@example(["abc", "abcd"], [(0, "take", "d", "gpt-4", 1), (1, "take", "d", "gpt-4", 1), (1, "system", "d", "gpt-4", 2)])
def test_two_namespaces_on_one_table_behave_as_if_on_separate_tables(ids, done):
    """On one table, through one connection, each namespace reads what it would read on its own table."""
    together = [[], []]
    with SyncRepository.open("memory://", clock=SettableClock(), random=Random(1)) as repo:
        sides = [repository_of(repo, namespace_id) for namespace_id in ids]
        for side, *change in done:
            apply_change(sides[side], *change)
        together = [everything_visible(side) for side in sides]
        empty = everything_visible(repo)

    for side, namespace_id in enumerate(ids):
        with SyncRepository.open("memory://", clock=SettableClock(), random=Random(2)) as repo:
            alone = repository_of(repo, namespace_id)
            for _, *change in [change for change in done if change[0] == side]:
                apply_change(alone, *change)

            assert everything_visible(alone) == together[side]
    with SyncRepository.open("memory://", clock=SettableClock(), random=Random(3)) as untouched:
        assert everything_visible(untouched) == empty


@settings(max_examples=50, deadline=None)
@given(st.lists(some.namespaces, min_size=1, max_size=8, unique=True))
@example(["a", "a.", "a-", "a_", "A", "0", "a.b", "a0"])
def test_every_namespace_name_resolves_to_its_own_id(names):
    """Similar names are still listed, found and scoped separately."""
    with SyncRepository.open("memory://", clock=SettableClock(), random=Random(1)) as repo:
        ids = repo.register_namespaces(names)
        for name, namespace_id in ids.items():
            assert namespace_id == (repo.get_namespace(name)).id
            assert namespace_id == (repo.namespace(name)).scope.namespace_id

        assert sorted({*names, "default"}) == [one.name for one in repo.list_namespaces()]
        assert len(names) == len(set(ids.values()))


def test_repositories_of_one_namespace_share_table_and_caches(repo):
    """Repositories of different namespaces share the table but no cache."""
    repo.register_namespaces(["team-a", "team-b"])
    first, again, other = (
        repo.namespace("team-a"),
        repo.namespace("team-a"),
        repo.namespace("team-b"),
    )

    assert first.scope.table is again.scope.table is other.scope.table is repo.scope.table
    assert first.scope.caches is again.scope.caches
    assert first.scope.caches is not other.scope.caches
    assert first.scope.caches is not repo.scope.caches
