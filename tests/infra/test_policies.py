"""The six policies allow exactly the requests of their users, and none of other namespaces.

Every method of a client runs on an engine, and its requests are recorded. A simulator then
evaluates each policy.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.dynamodb import engines
from tests.dynamodb.trees import session
from tests.infra.conftest import clients_at
from tests.infra.request_recorder import TABLE, Recorder, requests_of
from tests.infra.resolved import Resolved
from tests.infra.simulator import Request, actions, allows
from tests.old_buckets import OldLimit, old_bucket
from zae_limiter import Entity, Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter._sync import dynamodb_table
from zae_limiter._sync.upgrade import upgrade
from zae_limiter.core.version import VersionRecord
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.stack import Stack
from zae_limiter.schema import entity_item, version_item
from zae_limiter.schema.operations import Put

TAG = "zael_namespace_id"
LIMITS = [Limit.per_day("rpm", 1_000), Limit.per_day("tpm", 1_000)]
MOST_THROTTLES = 200
POLICIES = {
    "acq": "AcquireOnlyPolicy",
    "full": "FullAccessPolicy",
    "read": "ReadOnlyPolicy",
    "ns-acq": "NamespaceAcquirePolicy",
    "ns-full": "NamespaceFullAccessPolicy",
    "ns-read": "NamespaceReadOnlyPolicy",
}


@dataclass(frozen=True, slots=True)
class SentRequests:
    """The recorded requests of each kind of method, and the namespace of the calls."""

    namespace_id: str
    acquire: list[Request]
    look: list[Request]
    change: list[Request]
    registry_looks: list[Request]
    registry: list[Request]

    @property
    def everything(self) -> list[Request]:
        return [*self.acquire, *self.look, *self.change, *self.registry_looks, *self.registry]


def acquire(repo: SyncRepository, recorder: Recorder) -> None:
    """Acquire in every way: alone, in debt, rejected, with a parent, and on several shards."""
    limiter = SyncRateLimiter(repo)
    for entity_id in ("user", "child"):
        for amount in (1, 20):
            with limiter.acquire(entity_id, "gpt-4", {"rpm": amount, "tpm": amount}) as lease:
                lease.adjust(tpm=5)
                lease.consume(rpm=1)
                lease.release(rpm=1)
            with limiter.acquire(entity_id, "gpt-4", {"rpm": amount}) as lease:
                lease.adjust(rpm=-1)
    with contextlib.suppress(ZeroDivisionError), limiter.acquire("user", "gpt-4", {"rpm": 1}):
        raise ZeroDivisionError
    with limiter.acquire("own", "gpt-4", {"rps": 1}, limits=[Limit.per_second("rps", 5)]):
        pass
    with limiter.acquire("own", "gpt-4", {"rps": 1}, limits=[Limit.per_second("rps", 6)]):
        pass
    split(limiter, recorder)
    with limiter.acquire("hot", "gpt-4", {"rpm": 700}) as lease:
        lease.adjust(rpm=600)
    with pytest.raises(RateLimitExceeded), limiter.acquire("hot", "gpt-4", {"rpm": 900}):
        pass
    limiter.available("hot", "gpt-4")
    limiter.time_until_available("user", "gpt-4", {"rpm": 900})
    assert limiter.is_available()


def split(limiter: SyncRateLimiter, recorder: Recorder) -> None:
    """Split a bucket by throttling its writes; only some throttled writes split it."""
    for _ in range(MOST_THROTTLES):
        recorder.throttles = 1
        with limiter.acquire("hot", "gpt-4", {"rpm": 0}):
            pass
        if any("#hot#gpt-4#1" in key for request in recorder.requests for key in request.leading_keys or ()):
            return
    raise AssertionError("it was never split")


def look(repo: SyncRepository) -> None:
    """Call every method that only reads, in one namespace."""
    repo.get_entity("user")
    repo.get_children("parent")
    repo.get_limits("user")
    repo.list_entities_with_custom_limits("gpt-4")
    repo.list_resources_with_entity_configs()
    repo.get_resource_defaults("gpt-4")
    repo.list_resources_with_defaults()
    repo.get_system_defaults()
    repo.resolve_limits("user", "gpt-4")
    repo.get_buckets("user")
    repo.get_balances("user")
    repo.get_resource_capacity("gpt-4", "rpm")
    repo.get_usage_snapshots("user")
    repo.get_usage_snapshots(resource="gpt-4")
    repo.get_usage_summary("user")
    repo.get_audit_events("user")
    repo.list_entities()
    repo.get_usage_snapshots()
    repo.get_usage_summary()
    repo.get_audit_events()
    repo.ping()


def change(repo: SyncRepository) -> None:
    """Call every method that writes, in one namespace."""
    repo.create_entity("new-parent")
    repo.create_entity("new", parent_id="new-parent", cascade=True)
    repo.set_limits("new", LIMITS, "gpt-4")
    with SyncRateLimiter(repo).acquire("new", "gpt-4", {"rpm": 1}):
        pass
    repo.delete_limits("new", "gpt-4")
    repo.set_resource_defaults("gpt-3", LIMITS)
    repo.delete_resource_defaults("gpt-3")
    repo.set_system_defaults(LIMITS)
    repo.delete_system_defaults()
    repo.delete_entity("new")


def change_registry(repo: SyncRepository) -> None:
    """Call every method that changes the registry of namespaces."""
    namespace_id = repo.register_namespace("team")
    scoped = repo.namespace("team")
    scoped.set_system_defaults(LIMITS)
    repo.delete_namespace("team")
    repo.recover_namespace(namespace_id)
    repo.delete_namespace("team")
    repo.purge_namespace(namespace_id)


def make_old(repo: SyncRepository) -> None:
    """Store a bucket and an entity as older versions did."""
    limit = OldLimit(balance_milli=40_000, capacity=60, burst=90, refill_amount=1, period_s=3_600)
    record = version_item.to_item(VersionRecord("0.9.0"))
    entity = entity_item.to_item(repo.scope.namespace_id, Entity("old"), 1)
    entity["GSI4SK"] = entity["PK"]
    for item in (old_bucket(repo.scope.namespace_id, "old", "gpt-4", {"rpm": limit}), entity, record):
        repo.scope.table.write(Put(item))


def look_at_registry(repo: SyncRepository) -> None:
    repo.get_namespace("default")
    repo.list_namespaces()
    repo.list_orphan_namespaces()


@pytest.fixture(scope="module")
def sent() -> Iterator[SentRequests]:
    """The requests of all methods of a client, run on an engine."""
    url = engines.running().url
    name = engines.fresh_table_name()
    location = f"dynamodb://{name}?region=us-east-1&endpoint_url={url}&create=true"
    with SyncRepository.open(location, session=session(), deadline_s=20.0) as repo:
        repo.set_system_defaults(LIMITS)
        repo.create_entity("parent")
        repo.create_entity("child", parent_id="parent", cascade=True)
        namespace_id = repo.get_namespace("default").id
    recorder = Recorder()
    original = dynamodb_table.choose_transport

    def recorded(*arguments: Any) -> Any:
        return recorder.wrapped(original(*arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamodb_table, "choose_transport", recorded)
        patch.setattr(dynamodb_table.DynamoTable, "index_lag_s", 0.001)
        yield record_requests(recorder, namespace_id, lambda: connected(name, url))


def connected(name: str, url: str) -> SyncRepository:
    """Connect to an existing table, as ``connect`` does, with a deadline for a busy machine."""
    location = f"dynamodb://{name}?region=us-east-1&endpoint_url={url}"
    return SyncRepository.open(location, session=session(), deadline_s=20.0)


def record_requests(recorder: Recorder, namespace_id: str, connect: Callable[[], SyncRepository]) -> SentRequests:
    """Return the requests of each kind of method, made by clients with empty caches."""
    with connect() as repo:
        acquire(repo, recorder)
        acquired = recorder.taken()
        recorder.throttles = 0
    with connect() as repo:
        look(repo)
        looked = recorder.taken()
        change(repo)
        changed = recorder.taken()
        look_at_registry(repo)
        seen = recorder.taken()
        change_registry(repo)
        registered = recorder.taken()
        make_old(repo)
        recorder.taken()
        done = upgrade(repo.scope.client.location, session=session())
        assert [1, 1] == [one.moved for one in done]
    return SentRequests(namespace_id, acquired, looked, changed, seen, [*registered, *recorder.taken()])


@pytest.fixture(scope="module")
def policies() -> dict[str, Any]:
    stack = Resolved("my-app", template_parameters("my-app", StackOptions()))
    return {name: stack.properties(logical)["PolicyDocument"] for name, logical in POLICIES.items()}


def denied(document: Any, requests: list[Request], tags: dict[str, str]) -> list[Request]:
    """Return the requests that a policy denies; fail if none were recorded."""
    assert requests
    return [request for request in requests if not allows(document, request, tags)]


def elsewhere(request: Request, namespace_id: str, other: str) -> Request | None:
    """Return the same request for another namespace; None if it has no key of ours."""
    keys = request.leading_keys or frozenset()
    moved = {
        other + key[len(namespace_id) :] if key == namespace_id or key.startswith(f"{namespace_id}/") else key
        for key in keys
    }
    return None if moved == keys else replace(request, leading_keys=frozenset(moved))


class TestAllowed:
    def test_acquire_policies_allow_acquiring(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        assert [] == denied(policies["acq"], sent.acquire, {})
        assert [] == denied(policies["ns-acq"], sent.acquire, {TAG: sent.namespace_id})

    def test_read_policies_allow_every_read(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        """The registry of namespaces is readable with every policy."""
        looks = [*sent.look, *sent.registry_looks]

        assert [] == denied(policies["read"], looks, {})
        assert [] == denied(policies["ns-read"], looks, {TAG: sent.namespace_id})

    def test_the_full_policy_allows_every_call(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        assert [] == denied(policies["full"], sent.everything, {})

    def test_the_namespace_full_policy_allows_every_call_in_its_namespace(
        self, sent: SentRequests, policies: dict[str, Any]
    ) -> None:
        ours = [*sent.acquire, *sent.look, *sent.change, *sent.registry_looks]

        assert [] == denied(policies["ns-full"], ours, {TAG: sent.namespace_id})

    def test_namespace_policies_allow_index_queries_by_the_bare_id(
        self, sent: SentRequests, policies: dict[str, Any]
    ) -> None:
        """The fourth index has the items of a namespace under its id."""
        search = Request("dynamodb:Query", f"{TABLE}/index/GSI4", frozenset({"ours"}))

        assert ["ns-full", "ns-read"] == [
            name for name, document in policies.items() if name[:3] == "ns-" and allows(document, search, {TAG: "ours"})
        ]


class TestDenied:
    def test_acquire_policies_deny_changes_of_limits(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        """Every method that changes something needs a denied request. Of the items, only buckets may be written."""
        writes = [
            request
            for request in [*sent.change, *sent.registry]
            if request.action in ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem")
            and not any("/BUCKET#" in key for key in request.leading_keys or ())
        ]
        ours = {TAG: sent.namespace_id}

        assert writes == denied(policies["acq"], writes, {}) == denied(policies["ns-acq"], writes, ours)

    def test_read_policies_deny_every_write(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        reads = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query")
        writes = [request for request in sent.everything if request.action not in reads]
        ours = {TAG: sent.namespace_id}

        assert writes == denied(policies["read"], writes, {}) == denied(policies["ns-read"], writes, ours)

    def test_namespace_policies_deny_writes_of_the_registry(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        """This includes the full policy of a namespace."""
        reads = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:ConditionCheckItem")
        writes = [
            request
            for request in sent.registry
            if request.action not in reads and any(key.startswith("_/") for key in request.leading_keys or ())
        ]

        for name in ("ns-acq", "ns-full", "ns-read"):
            assert writes == denied(policies[name], writes, {TAG: sent.namespace_id}), name

    @pytest.mark.parametrize("name", ["ns-acq", "ns-full", "ns-read"])
    def test_namespace_policies_deny_access_to_other_namespaces(
        self, sent: SentRequests, policies: dict[str, Any], name: str
    ) -> None:
        """An id with the same beginning or end is another namespace."""
        mine = sent.namespace_id
        for other in ("other", f"{mine}x", f"x{mine}", mine[:-1]):
            moved = [elsewhere(request, mine, other) for request in sent.everything]
            theirs = [request for request in moved if request is not None]

            assert theirs == denied(policies[name], theirs, {TAG: mine})

    @pytest.mark.parametrize("name", ["ns-acq", "ns-full", "ns-read"])
    def test_namespace_policies_deny_a_batch_with_one_foreign_key(self, policies: dict[str, Any], name: str) -> None:
        mixed = Request("dynamodb:BatchGetItem", TABLE, frozenset({"mine/SYSTEM#", "theirs/SYSTEM#"}))

        assert [mixed] == denied(policies[name], [mixed], {TAG: "mine"})

    @pytest.mark.parametrize("name", ["ns-acq", "ns-full", "ns-read"])
    def test_namespace_policies_without_a_tag_allow_only_the_registry(
        self, sent: SentRequests, policies: dict[str, Any], name: str
    ) -> None:
        foreign = [
            request
            for request in sent.everything
            if any(not key.startswith("_/") for key in request.leading_keys or ())
        ]

        assert foreign == denied(policies[name], foreign, {})

    @pytest.mark.parametrize("action", ["Scan", "Query", "DeleteTable", "ExportTableToPointInTime", "PartiQLSelect"])
    def test_policies_deny_requests_without_keys(self, policies: dict[str, Any], action: str) -> None:
        """A condition on all keys would hold for a request without keys."""
        blind = [Request(f"dynamodb:{action}", resource, None) for resource in (TABLE, f"{TABLE}/index/GSI4")]

        for name in ("acq", "ns-acq", "ns-full", "ns-read"):
            assert blind == denied(policies[name], blind, {TAG: "mine"}), name

    @pytest.mark.parametrize("name", ["ns-acq", "ns-full", "ns-read"])
    def test_namespace_policies_allow_no_action_without_keys(self, policies: dict[str, Any], name: str) -> None:
        """Actions that are allowed with own keys are denied without keys."""
        resources = (TABLE, f"{TABLE}/index/GSI4")
        blind = [Request(action, one, None) for one in resources for action in actions(policies[name], one)]

        assert blind == denied(policies[name], blind, {TAG: "mine"})

    def test_policies_deny_access_to_other_tables(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        others = [replace(request, resource=f"other-{request.resource}") for request in sent.everything]

        for name, document in policies.items():
            assert others == denied(document, others, {TAG: sent.namespace_id}), name


class TestLeastPrivilege:
    """A policy lists an action only if some code path of its users requests it."""

    def test_policies_list_only_requested_actions_on_the_table(
        self, sent: SentRequests, policies: dict[str, Any], aws: engines.Engine
    ) -> None:
        shown = [*sent.look, *sent.registry_looks]
        tenant = [*sent.acquire, *sent.look, *sent.change, *sent.registry_looks]
        described = table_facts_requests(aws.url)
        used = {
            "acq": sent.acquire,
            "read": [*shown, *described],
            "full": [*sent.everything, *described],
            "ns-acq": sent.acquire,
            "ns-read": shown,
            "ns-full": tenant,
        }

        for name, requests in used.items():
            expected = {request.action for request in requests if request.resource == TABLE}
            assert expected == actions(policies[name], TABLE), name

    def test_policies_list_only_queries_on_the_indexes(self, sent: SentRequests, policies: dict[str, Any]) -> None:
        """Acquire policies do not list them at all."""
        index = f"{TABLE}/index/GSI1"
        searched = {request.action for request in sent.everything if request.resource != TABLE}

        assert {"dynamodb:Query"} == searched
        for name, document in policies.items():
            assert (set() if name.endswith("acq") else searched) == actions(document, index), name


def table_facts_requests(url: str) -> list[Request]:
    """Return the requests of reading the status of a stack's table."""
    clients = clients_at(url)
    found: list[Request] = []

    def record(model: Any, params: Any, **_: Any) -> None:
        found.extend(requests_of(model.name, json.loads(params["body"])))

    clients.of("dynamodb").meta.events.register("before-call.dynamodb", record)
    assert Stack("nobody-made-it", clients).table_facts() is None
    return found
