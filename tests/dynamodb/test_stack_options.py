"""A built limiter keeps the stack options that the builder does not set; ``create_stack`` and ``delete_stack``."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.engines import Engine, EngineAbsentError, fresh_table_name, running
from tests.dynamodb.sides import PATIENCE_S, REGION, Side
from tests.dynamodb.trees import KINDS, session, tree
from zae_limiter import (
    InfrastructureNotFoundError,
    Limit,
    RepositoryClosedError,
    StackOperationError,
    StackOptions,
    SyncRepository,
    ValidationError,
)
from zae_limiter.core.settings import make_settings
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.stack import Stack

LIMITS = [Limit.per_day("rpm", 10)]
BARE = StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False)
PROTECTED = StackOptions(
    enable_aggregator=False,
    enable_alarms=False,
    create_iam=False,
    enable_deletion_protection=True,
    audit_retention_days=7,
    tags={"team": "search"},
)


@pytest.fixture
def aws() -> Engine:
    try:
        return running("aws")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def name() -> str:
    return fresh_table_name()


@pytest.fixture
def stack(name: str, aws: Engine) -> Stack:
    return Stack(name, Clients(REGION, aws.url, session()))


@pytest.fixture(params=KINDS)
def side(request: pytest.FixtureRequest, name: str, aws: Engine) -> Iterator[Side]:
    with tree(request.param) as started:
        yield Side(started, name, aws.url)


def retention_days(side: Side) -> int:
    """Return how many days a client keeps audit events."""
    with side.connect() as repo:
        days: int = repo.scope.settings.audit_retention_days
    return days


class TestBuild:
    def test_build_keeps_the_options_that_it_does_not_set(self, side: Side, stack: Stack) -> None:
        """Among them the protection from deletion, and the retention that the clients apply."""
        side.build(side.builder().stack_options(PROTECTED)).close()
        before = stack.require()
        side.build(side.builder().usage_retention_days(30)).close()
        after = stack.require()

        assert {"UsageRetentionDays": "30"} == dict(after.parameters.items() - before.parameters.items())
        assert before.tags == after.tags
        assert 7 == retention_days(side)

    def test_build_with_stack_options_resets_every_option(self, side: Side, stack: Stack) -> None:
        """``stack_options(StackOptions())`` sets all options to their default, and other methods some of them."""
        side.build(side.builder().stack_options(PROTECTED)).close()
        reset = side.builder().stack_options(StackOptions()).enable_aggregator(False).enable_alarms(False)
        side.build(reset).close()
        after = stack.require()

        assert ("false", "true") == (after.parameters["EnableDeletionProtection"], after.parameters["CreateIam"])
        assert "team" not in after.tags
        assert 90 == retention_days(side)

    def test_build_without_iam_creates_no_aggregator(self, side: Side, stack: Stack) -> None:
        """The function would have no role."""
        with side.build(side.builder().create_iam(False).enable_alarms(False)) as repo:
            assert repo.get_version_record().lambda_version is None
        assert "AggregatorFunctionName" not in stack.require().outputs

    def test_build_with_an_option_that_contradicts_the_stack_changes_nothing(self, side: Side, stack: Stack) -> None:
        before = stack.deploy(BARE).state

        with pytest.raises(ValidationError, match="create_iam_roles"):
            side.build(side.builder().create_iam_roles())
        assert before == stack.require()


class TestCreateStack:
    def test_create_stack_of_a_connected_repository_changes_no_option(self, side: Side, stack: Stack) -> None:
        """It has set none, so the stack keeps its own."""
        side.build(side.builder().stack_options(PROTECTED)).close()
        before = stack.require()
        with side.connect() as repo:
            repo.create_stack()

        assert before == stack.require()

    def test_create_stack_updates_the_stack_to_the_options_of_the_builder(self, side: Side, stack: Stack) -> None:
        """Another deployment has changed them. Options of others stay."""
        heard: list[Any] = []
        with side.build(side.builder().stack_options(BARE)) as repo:
            side.build(side.builder().usage_retention_days(30)).close()
            repo.create_stack(heard.append)
        with side.build(side.builder().pitr_recovery_days(9)) as repo:
            side.build(side.builder().usage_retention_days(30).pitr_recovery_days(10)).close()
            repo.create_stack()
        after = stack.require().parameters

        assert "UPDATE_COMPLETE" == heard[-1].status
        assert ("30", "9") == (after["UsageRetentionDays"], after["PitrRecoveryDays"])

    def test_create_stack_creates_a_stack_that_was_deleted(self, side: Side, stack: Stack) -> None:
        """The limiter can be used again, with an empty table."""
        with side.build(side.builder().stack_options(BARE)) as repo:
            repo.set_system_defaults(LIMITS)
            stack.delete()
            repo.create_stack()
        with side.connect() as other:
            assert ([], None) == other.get_system_defaults()

    def test_create_stack_of_a_deprecated_repository_deploys_its_options(
        self, side: Side, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(make_settings.__kwdefaults__, "deadline_s", PATIENCE_S)
        repo = side.named("repository", stack_options=BARE)
        repo.create_stack()

        assert "false" == stack.require().parameters["EnableAggregator"]
        repo.delete_stack()
        assert stack.describe() is None
        with pytest.raises(RepositoryClosedError):
            repo.create_stack()


class TestDeleteStack:
    def test_delete_stack_deletes_the_stack_and_closes_the_repository(self, side: Side, stack: Stack) -> None:
        heard: list[Any] = []
        repo = side.build(side.builder().stack_options(BARE))
        repo.delete_stack(listener=heard.append)

        assert stack.describe() is None
        assert "DELETE_COMPLETE" == heard[-1].status
        with pytest.raises(RepositoryClosedError):
            repo.get_system_defaults()
        with pytest.raises(InfrastructureNotFoundError):
            side.connect()

    def test_delete_stack_of_a_protected_stack_leaves_the_repository_open(self, side: Side, stack: Stack) -> None:
        with side.build(side.builder().stack_options(PROTECTED)) as repo:
            with pytest.raises(StackOperationError, match="protected from deletion"):
                repo.delete_stack()

            assert repo.ping()

    def test_delete_stack_of_another_namespace_closes_all(self, name: str, aws: Engine) -> None:
        """They share the table, which is gone."""
        builder = SyncRepository.builder(name, REGION, endpoint_url=aws.url, session=session()).deadline_s(PATIENCE_S)
        repo = builder.stack_options(BARE).build()
        repo.register_namespace("tenant")
        repo.namespace("tenant").delete_stack()

        with pytest.raises(RepositoryClosedError):
            repo.get_system_defaults()

    def test_delete_stack_keeps_the_archive_unless_asked(self, side: Side, stack: Stack) -> None:
        builder = side.builder().enable_alarms(False)
        buckets = []
        for keep in (True, False):
            repo = side.build(builder)
            buckets.append(stack.require().outputs["ArchiveBucketName"])
            repo.delete_stack(keep_archive=keep)
        left = {one["Name"] for one in stack._clients.of("s3").list_buckets()["Buckets"]}

        assert [True, False] == [bucket in left for bucket in buckets]
