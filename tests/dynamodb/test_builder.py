"""Limiters are built, connected and updated on a complete local AWS, with the async and sync APIs."""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import Any

import pytest

from tests.dynamodb.engines import Engine, EngineAbsentError, fresh_table_name, running
from tests.dynamodb.sides import PATIENCE_S, REGION, Side
from tests.dynamodb.trees import KINDS, session, tree
from zae_limiter import (
    IncompatibleSchemaError,
    InfrastructureNotFoundError,
    Limit,
    NamespaceNotFoundError,
    StackOptions,
    SyncRepository,
    ValidationError,
    VersionMismatchError,
)
from zae_limiter._sync.store.versions import VersionStore
from zae_limiter.core.settings import make_settings
from zae_limiter.core.version import SCHEMA_VERSION, VersionRecord
from zae_limiter.infra import clients as infra_clients
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.template import limiter_template
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Delete, Put

LIMITS = [Limit.per_day("rpm", 10)]
OWN = metadata.version("zae-limiter")
OLD, NEW = "0.0.0", "999.0.0"
ROLE = "arn:aws:iam::000000000000:role/mine"
LEAN = StackOptions(enable_alarms=False, enable_audit_archival=False, create_iam=False, aggregator_role_arn=ROLE)
BARE = StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False)


@pytest.fixture(scope="session")
def aws() -> Engine:
    try:
        return running("aws")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def clients(aws: Engine) -> Clients:
    return Clients(REGION, aws.url, session())


@pytest.fixture
def name() -> str:
    return fresh_table_name()


@pytest.fixture
def stack(name: str, clients: Clients) -> Stack:
    return Stack(name, clients)


@pytest.fixture(params=KINDS)
def side(request: pytest.FixtureRequest, name: str, aws: Engine) -> Iterator[Side]:
    with tree(request.param) as started:
        yield Side(started, name, aws.url)


@pytest.fixture
def old_function(name: str, stack: Stack, clients: Clients, aws: Engine) -> AggregatorFunction:
    """A stack that was built by an older client."""
    stack.deploy(LEAN)
    set_record(name, aws.url, VersionRecord(SCHEMA_VERSION, lambda_version=OLD))
    return AggregatorFunction(name, clients)


@functools.cache
def own_code() -> str:
    """The digest of the function code of this client."""
    return package_sha256(build_package())


def set_record(name: str, url: str, record: VersionRecord) -> None:
    """Put a version record as another client would, with the default namespace."""
    with at(name, url) as repo:
        repo.scope.table.write(Put(version_item.to_item(record)))


def at(name: str, url: str) -> SyncRepository:
    place = f"dynamodb://{name}?region={REGION}&endpoint_url={url}&create=true"
    return SyncRepository.open(place, session=session(), deadline_s=PATIENCE_S)


def lambda_version(repo: Any) -> str | None:
    found: str | None = repo.get_version_record().lambda_version
    return found


class TestBuild:
    def test_build_creates_everything_for_a_first_lease(self, side: Side, stack: Stack, clients: Clients) -> None:
        """One call creates the stack, the function's code, the version record and the namespace.

        Then any client can connect.
        """
        heard: list[Any] = []
        builder = side.builder().enable_alarms(False).enable_audit_archival(False)
        with side.wait(builder.build(heard.append)) as built:
            built.set_system_defaults(LIMITS)
            record = built.get_version_record()
            with side.connect() as connected, side.limiter(connected).acquire("user-1", "gpt-4", {"rpm": 3}):
                pass
            left = side.limiter(built).available("user-1", "gpt-4")
        runs = AggregatorFunction(stack.name, clients).code_sha256()
        stack.delete()

        assert {"rpm": 7} == left
        assert (SCHEMA_VERSION, OWN) == (record.schema_version, record.lambda_version)
        assert own_code() == runs
        assert "CREATE_COMPLETE" == heard[-1].status
        with pytest.raises(InfrastructureNotFoundError, match=stack.name):
            side.connect()

    def test_a_built_limiter_has_the_given_name(self, side: Side, stack: Stack) -> None:
        with side.build(side.builder().stack_options(BARE)) as repo:
            limiter = side.limiter(repo)

            assert {stack.name} == {repo.stack_name, repo.table_name, limiter.stack_name, limiter.table_name}
            assert repo.capabilities.supports_infrastructure_management
            repo.ensure_infrastructure()

    def test_status_of_a_built_limiter_shows_stack_table_and_versions(
        self, side: Side, stack: Stack, clients: Clients
    ) -> None:
        """After the stack was deleted, the limiter is reported as unavailable."""
        with side.build(side.builder().stack_options(LEAN)) as repo:
            status = side.limiter(repo).get_status()
            stack.delete()
            gone = repo.get_status()

        assert (True, "CREATE_COMPLETE", "ACTIVE", True) == (
            status.available,
            status.stack_status,
            status.table_status,
            status.aggregator_enabled,
        )
        assert (stack.name, REGION, SCHEMA_VERSION, OWN, OWN) == (
            status.name,
            status.region,
            status.schema_version,
            status.lambda_version,
            status.client_version,
        )
        assert (False, None, None, stack.name) == (gone.available, gone.stack_status, gone.table_status, gone.name)

    def test_build_requires_a_registered_namespace_except_the_default(self, side: Side) -> None:
        with pytest.raises(NamespaceNotFoundError):
            side.build(side.builder().stack_options(BARE).namespace("tenant"))
        with side.build() as repo:
            repo.register_namespace("tenant")
        with side.build(side.builder().namespace("tenant")) as tenant:
            assert "tenant" == tenant.scope.namespace

    def test_build_with_stack_options_creates_the_stack_with_them(self, side: Side, stack: Stack) -> None:
        side.build(side.builder().stack_options(BARE)).close()
        side.build(side.builder().stack_options(BARE).usage_retention_days(30)).close()

        assert "30" == stack.require().parameters["UsageRetentionDays"]

    def test_connect_uses_the_audit_retention_of_the_deployment(self, side: Side, stack: Stack) -> None:
        """A later build without options keeps it."""
        side.build(side.builder().stack_options(BARE).audit_retention_days(7)).close()
        for opening in (side.connect, side.build):
            with opening() as repo:
                assert 7 == repo.scope.settings.audit_retention_days

    def test_build_without_options_keeps_an_existing_stack(self, side: Side, stack: Stack) -> None:
        stack.deploy(replace(BARE, usage_retention_days=30))
        side.build().close()
        side.build().close()

        assert "30" == stack.require().parameters["UsageRetentionDays"]

    @pytest.mark.parametrize("has_record", [True, False])
    def test_build_on_a_table_without_a_stack_creates_no_stack(
        self, side: Side, stack: Stack, aws: Engine, has_record: bool
    ) -> None:
        """It adds a missing version record."""
        with at(stack.name, aws.url) as made:
            if not has_record:
                made.scope.table.write(Delete(version_item.key()))
        with side.build() as repo:
            assert SCHEMA_VERSION == repo.get_version_record().schema_version
        assert stack.describe() is None

    def test_build_completes_an_interrupted_deployment(self, side: Side, stack: Stack, clients: Clients) -> None:
        """The stack exists, but the function has no code and the table is empty."""
        stack.deploy(LEAN)
        with side.build() as repo:
            assert OWN == lambda_version(repo)
        assert own_code() == AggregatorFunction(stack.name, clients).code_sha256()

    def test_build_records_the_aggregator_of_a_stack_without_parameters(
        self, side: Side, stack: Stack, clients: Clients
    ) -> None:
        """The CDK makes such stacks, with fixed values in place of parameters."""
        clients.of("cloudformation").create_stack(
            StackName=stack.name,
            TemplateBody=limiter_template()
            .replace("  EnableAggregator:\n", "  OfTheirOwn:\n")
            .replace("!Ref EnableAggregator", '"true"'),
            Parameters=[{"ParameterKey": "EnableAlarms", "ParameterValue": "false"}],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        found = stack.wait()
        with side.build() as repo:
            assert OWN == lambda_version(repo)
        assert found is not None
        assert "EnableAggregator" not in found.parameters
        assert own_code() == AggregatorFunction(stack.name, clients).code_sha256()

    def test_build_with_invalid_options_creates_nothing(self, side: Side, stack: Stack) -> None:
        with pytest.raises(ValidationError, match="lambda_memory"):
            side.build(side.builder().lambda_memory(64))

        assert stack.describe() is None

    def test_build_without_an_aggregator_clears_its_recorded_version(
        self, side: Side, old_function: AggregatorFunction
    ) -> None:
        with side.build(side.builder().stack_options(BARE)) as repo:
            assert lambda_version(repo) is None
        assert old_function.code_sha256() is None
        side.connect(auto_update=True).close()


class TestVersions:
    @pytest.mark.parametrize(
        ("record", "error"),
        [
            (VersionRecord("3.0.0"), IncompatibleSchemaError),
            (VersionRecord("0.9.0"), IncompatibleSchemaError),
            (VersionRecord(SCHEMA_VERSION, client_min_version=NEW), VersionMismatchError),
        ],
    )
    def test_an_incompatible_version_is_neither_opened_nor_changed(
        self, side: Side, stack: Stack, aws: Engine, record: VersionRecord, error: type[Exception]
    ) -> None:
        before = stack.deploy(BARE).state
        set_record(stack.name, aws.url, record)

        with pytest.raises(error):
            side.connect()
        with pytest.raises(error):
            side.build(side.builder().stack_options(BARE).usage_retention_days(30))
        assert before.parameters == stack.require().parameters

    def test_an_old_aggregator_function_on_a_local_endpoint_is_not_updated_automatically(
        self, side: Side, old_function: AggregatorFunction
    ) -> None:
        before = old_function.code_sha256()
        with side.connect() as repo:
            assert OLD == lambda_version(repo)
        with side.build() as repo:
            assert OLD == lambda_version(repo)
        assert before == old_function.code_sha256()

    def test_an_old_aggregator_function_on_a_local_endpoint_is_updated_on_request(
        self, side: Side, old_function: AggregatorFunction
    ) -> None:
        with side.connect(auto_update=True) as repo:
            assert OWN == lambda_version(repo)
        assert own_code() == old_function.code_sha256()

    def test_build_updates_an_old_aggregator_function(self, side: Side, old_function: AggregatorFunction) -> None:
        with side.build(side.builder().auto_update(True)) as repo:
            assert OWN == lambda_version(repo)
        assert own_code() == old_function.code_sha256()

    def test_a_forbidden_update_of_an_old_aggregator_function_raises_a_mismatch(
        self, side: Side, old_function: AggregatorFunction
    ) -> None:
        before = old_function.code_sha256()
        for opening in (
            lambda: side.connect(auto_update=False),
            lambda: side.build(side.builder().auto_update(False)),
            lambda: side.build(side.builder().auto_update(False).lambda_memory(512)),
        ):
            with pytest.raises(VersionMismatchError, match=rf"stack {OLD} .*the aggregator is older.*upgrade"):
                opening()
        assert before == old_function.code_sha256()

    def test_a_newer_aggregator_function_is_kept(self, side: Side, stack: Stack, clients: Clients, aws: Engine) -> None:
        """An older client neither replaces its code nor is refused."""
        stack.deploy(LEAN)
        set_record(stack.name, aws.url, VersionRecord(SCHEMA_VERSION, lambda_version=NEW))
        function = AggregatorFunction(stack.name, clients)
        before = function.code_sha256()
        side.connect(auto_update=True).close()
        with side.build(side.builder().auto_update(True).stack_options(LEAN).lambda_memory(512)) as repo:
            assert NEW == lambda_version(repo)
        assert before == function.code_sha256()


class TestOnAws:
    """Without a named or local endpoint, an old function is updated unless that is forbidden."""

    @pytest.fixture(autouse=True)
    def _as_on_aws(self, monkeypatch: pytest.MonkeyPatch, aws: Engine) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url)
        monkeypatch.setattr(infra_clients, "is_local", lambda url: url != aws.url)

    def test_an_old_aggregator_function_on_aws_is_updated_automatically(
        self, side: Side, old_function: AggregatorFunction
    ) -> None:
        with side.connect(endpoint_url=None) as repo:
            assert OWN == lambda_version(repo)
        assert own_code() == old_function.code_sha256()

    def test_an_old_aggregator_function_with_a_named_endpoint_is_not_updated(
        self, side: Side, old_function: AggregatorFunction
    ) -> None:
        """A private endpoint is only for DynamoDB, and the location of functions is unknown."""
        before = old_function.code_sha256()
        with side.connect() as repo:
            assert OLD == lambda_version(repo)
        assert before == old_function.code_sha256()

    def test_an_aggregator_function_that_cannot_be_updated_does_not_stop_limiting(
        self, side: Side, stack: Stack, aws: Engine, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The function does not exist any more. The log gives the reason."""
        stack.deploy(BARE)
        set_record(stack.name, aws.url, VersionRecord(SCHEMA_VERSION, lambda_version=OLD))
        with side.connect(endpoint_url=None) as repo:
            assert OLD == lambda_version(repo)
        assert f"the aggregator of {stack.name} stays at version {OLD}, older than this client's {OWN}" in caplog.text
        with pytest.raises(InfrastructureNotFoundError):
            side.connect(endpoint_url=None, auto_update=True)

    def test_a_local_endpoint_in_the_environment_is_local(
        self, side: Side, old_function: AggregatorFunction, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("AWS_ENDPOINT_URL", side._place["endpoint_url"])
        before = old_function.code_sha256()
        with side.connect(endpoint_url=None) as repo:
            assert OLD == lambda_version(repo)
        assert before == old_function.code_sha256()


class TestDeprecated:
    @pytest.fixture(autouse=True)
    def long_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Use a long deadline: deprecated constructors have none, and the default is too short on a busy machine."""
        monkeypatch.setitem(make_settings.__kwdefaults__, "deadline_s", PATIENCE_S)

    def test_a_deprecated_repository_is_constructed_then_deployed(self, side: Side, stack: Stack) -> None:
        repo = side.named("repository", stack_options=BARE)
        before = stack.describe()
        repo.ensure_infrastructure()
        repo.set_system_defaults(LIMITS)
        limiter = side.limiter(repo)
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            assert {"rpm": 1} == lease.consumed
        limiter.close()

        assert before is None
        assert "false" == stack.require().parameters["EnableAggregator"]

    def test_a_deprecated_limiter_is_opened_by_its_first_call(self, side: Side, stack: Stack) -> None:
        """With stack options it is deployed too."""
        with side.named("limiter", stack_options=BARE, on_unavailable="allow") as limiter:
            limiter.set_system_defaults(LIMITS)
            with limiter.acquire("user-1", "gpt-4", {"rpm": 2}) as lease:
                assert {"rpm": 2} == lease.consumed
        other = side.named("limiter")
        with other.acquire("user-1", "gpt-4", {"rpm": 3}) as lease:
            lease.adjust(rpm=1)
        left = other.available("user-1", "gpt-4")
        other.close()

        assert {"rpm": 4} == left

    def test_a_deprecated_limiter_opens_its_unopened_repository(self, side: Side, stack: Stack) -> None:
        stack.deploy(BARE)
        side.build().close()
        repo = side.named("repository")
        limiter = side.limiter(repo)

        assert limiter.is_available(PATIENCE_S)
        assert SCHEMA_VERSION == limiter.get_version_record().schema_version
        assert SCHEMA_VERSION == repo.get_version_record().schema_version
        limiter.close()

    def test_a_deprecated_limiter_without_options_creates_nothing(self, side: Side, stack: Stack) -> None:
        limiter = side.named("limiter")
        verbs: list[Callable[[], Any]] = [limiter.get_system_defaults, lambda: limiter.available("user-1", "gpt-4")]
        for verb in verbs:
            with pytest.raises(InfrastructureNotFoundError, match=stack.name):
                verb()
        limiter.close()

        assert stack.describe() is None

    def test_a_deprecated_limiter_that_failed_to_open_opens_later(self, side: Side, stack: Stack) -> None:
        limiter = side.named("limiter")
        with pytest.raises(InfrastructureNotFoundError):
            limiter.get_system_defaults()
        stack.deploy(BARE)
        side.build().close()

        assert ([], None) == limiter.get_system_defaults()
        limiter.close()


def test_two_concurrent_builds_both_succeed(name: str, aws: Engine, stack: Stack) -> None:
    """The later one waits for the other."""

    def build(_: int) -> VersionRecord | None:
        builder = SyncRepository.builder(name, REGION, endpoint_url=aws.url, session=session()).deadline_s(PATIENCE_S)
        with builder.stack_options(LEAN).build() as repo:
            return VersionStore(repo.scope.client).read()

    with ThreadPoolExecutor(2) as pool:
        records = list(pool.map(build, range(2)))

    assert [OWN, OWN] == [record.lambda_version for record in records if record is not None]
