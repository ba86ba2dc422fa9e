"""A stack on a local AWS: created, read, updated and deleted, and the errors if that fails."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import botocore.session
import pytest

from tests.infra.conftest import clients_at
from zae_limiter.core.errors import (
    InfrastructureNotFoundError,
    InvalidNameError,
    StackAlreadyExistsError,
    StackCreationError,
    StackOperationError,
    StorageError,
    ValidationError,
)
from zae_limiter.infra import naming, tags
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.event_log import EventLog
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.progress import StackEvent
from zae_limiter.infra.provision import provide_missing
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.stack_state import Deletion, StackState
from zae_limiter.infra.template import limiter_template

SMALL = StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False)
ServiceClient = Callable[[str], Any]

BROKEN_PART = """
  Broken:
    Type: AWS::Logs::LogStream
    DependsOn: [Table, ArchiveBucket]
    Properties:
      LogGroupName: a-group-that-does-not-exist
"""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Add a resource to the template that AWS refuses after the others exist."""
    whole = limiter_template()
    head, outputs, tail = whole.partition("Outputs:\n")

    def break_it() -> None:
        monkeypatch.setattr("zae_limiter.infra.stack.limiter_template", lambda: head + BROKEN_PART + outputs + tail)

    return break_it


class TestCreating:
    def test_deploy_creates_every_resource_with_its_options(self, stack: Stack, client: ServiceClient) -> None:
        """The template is deployed unchanged, and the resources show their settings."""
        options = StackOptions(
            create_iam_roles=True, lambda_memory=512, snapshot_windows="monthly", log_retention_days=7
        )
        state = stack.deploy(options).state
        function = client("lambda").get_function_configuration(FunctionName=state.outputs["AggregatorFunctionName"])
        log_group = f"/aws/lambda/{stack.name}-aggregator"
        (logs,) = client("logs").describe_log_groups(logGroupNamePrefix=log_group)["logGroups"]
        table = client("dynamodb").describe_table(TableName=stack.name)["Table"]

        assert "CREATE_COMPLETE" == state.status
        assert (512, 60, "zae_limiter_aggregator.handler.handler") == (
            function["MemorySize"],
            function["Timeout"],
            function["Handler"],
        )
        assert "monthly" == function["Environment"]["Variables"]["SNAPSHOT_WINDOWS"]
        assert state.outputs["ArchiveBucketName"] == function["Environment"]["Variables"]["ARCHIVE_BUCKET"]
        assert 7 == logs["retentionInDays"]
        assert {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"} == table["StreamSpecification"]
        assert {"GSI1", "GSI2", "GSI3", "GSI4"} == {index["IndexName"] for index in table["GlobalSecondaryIndexes"]}
        assert state.outputs["StreamArn"] == table["LatestStreamArn"]

    def test_policies_and_roles_are_named_after_the_stack(self, stack: Stack, client: ServiceClient) -> None:
        outputs = stack.deploy(StackOptions(create_iam_roles=True, role_name_format="pb-{}")).state.outputs
        attached = client("iam").list_attached_role_policies(RoleName=f"pb-{stack.name}-app")["AttachedPolicies"]

        assert outputs["AppRoleArn"].endswith(f":role/pb-{stack.name}-app")
        assert outputs["NamespaceAcquirePolicyArn"].endswith(f":policy/{stack.name}-ns-acq")
        assert [outputs["AcquireOnlyPolicyArn"]] == [policy["PolicyArn"] for policy in attached]

    def test_the_table_stream_invokes_the_aggregator(self, stack: Stack, client: ServiceClient) -> None:
        outputs = stack.deploy(StackOptions()).state.outputs
        found = client("lambda").list_event_source_mappings(FunctionName=naming.function_name(stack.name))
        (mapping,) = found["EventSourceMappings"]

        assert outputs["StreamArn"] == mapping["EventSourceArn"]
        assert 2 == len(mapping["FilterCriteria"]["Filters"])
        assert mapping["DestinationConfig"]["OnFailure"]["Destination"].endswith(f":{stack.name}-aggregator-dlq")

    def test_items_of_a_deployed_table_expire(self, stack: Stack, client: ServiceClient) -> None:
        """This includes engines that ignore the setting in the template."""
        stack.deploy(SMALL)
        described = client("dynamodb").describe_time_to_live(TableName=stack.name)["TimeToLiveDescription"]

        assert ("ENABLED", "ttl") == (described["TimeToLiveStatus"], described["AttributeName"])

    def test_deploy_reports_every_event_in_order_and_once(self, stack: Stack) -> None:
        """The events range from the start of the stack to its end."""
        heard: list[StackEvent] = []
        stack.deploy(SMALL, heard.append)

        assert [
            (stack.name, "CREATE_IN_PROGRESS"),
            ("Table", "CREATE_IN_PROGRESS"),
            ("Table", "CREATE_COMPLETE"),
            (stack.name, "CREATE_COMPLETE"),
        ] == [(event.logical_id, event.status) for event in heard]

    def test_a_stack_has_the_users_tags_and_those_of_a_limiter(self, stack: Stack) -> None:
        said = stack.deploy(StackOptions(enable_aggregator=False, tags={"team": "a"})).state.tags

        assert ("a", stack.name, "limiter") == (said["team"], said[tags.NAME], said[tags.TYPE])

    def test_create_of_an_existing_stack_is_refused(self, stack: Stack) -> None:
        stack.create(SMALL)

        with pytest.raises(StackAlreadyExistsError):
            stack.create(SMALL)

    def test_two_concurrent_deployments_both_succeed(self, stack_name: str, clients: Clients) -> None:
        """The second waits for the first."""
        done: list[str] = []
        start = threading.Barrier(2)

        def deploy() -> None:
            start.wait()
            done.append(Stack(stack_name, clients).deploy(SMALL).state.status)

        clients.of("cloudformation")
        clients.of("dynamodb")
        threads = [threading.Thread(target=deploy) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert ["CREATE_COMPLETE"] * 2 == done


class TestFailing:
    def test_a_failed_deployment_reports_the_first_failed_resource(
        self, stack: Stack, broken: Callable[[], None]
    ) -> None:
        """Cancelled resources and the rollback are not the reason."""
        broken()

        with pytest.raises(StackCreationError, match=r"Broken \(AWS::Logs::LogStream\): .*group") as caught:
            stack.deploy(StackOptions())

        assert any("Broken" in line for line in caught.value.events)

    def test_a_failed_creation_is_removed_and_can_be_repeated(
        self, stack: Stack, client: ServiceClient, broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is left, not even the archive. The same call succeeds once the cause is fixed."""
        broken()
        with pytest.raises(StackCreationError):
            stack.deploy(StackOptions())
        buckets = [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]]

        assert [] == [bucket for bucket in buckets if bucket.startswith(stack.name)]
        assert "ROLLBACK_COMPLETE" == stack.require().status
        assert stack.table_facts() is None

        monkeypatch.undo()
        assert "CREATE_COMPLETE" == stack.deploy(StackOptions()).state.status

    def test_a_failed_update_leaves_the_stack_unchanged(self, stack: Stack, broken: Callable[[], None]) -> None:
        stack.deploy(StackOptions())
        broken()

        with pytest.raises(StackOperationError, match="Broken"):
            stack.deploy(StackOptions(lambda_memory=512))

        found = stack.require()
        assert ("UPDATE_ROLLBACK_COMPLETE", "256") == (found.status, found.parameters["LambdaMemory"])

    def test_an_update_after_a_failed_update_succeeds(
        self, stack: Stack, broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stack.deploy(StackOptions())
        broken()
        with pytest.raises(StackOperationError):
            stack.deploy(StackOptions(lambda_memory=512))
        monkeypatch.undo()

        assert "512" == stack.deploy(StackOptions(lambda_memory=512)).state.parameters["LambdaMemory"]

    def test_role_names_are_checked_before_anything_is_created(self, stack: Stack) -> None:
        with pytest.raises(ValidationError, match="role_name_format"):
            stack.deploy(StackOptions(role_name_format="x" * 60 + "{}"))

        assert stack.describe() is None

    @pytest.mark.parametrize("name", ["my_app", "1app", "n" * 56])
    def test_a_stack_with_an_invalid_name_is_refused(self, clients: Clients, name: str) -> None:
        with pytest.raises(InvalidNameError):
            Stack(name, clients)

    def test_a_stack_operation_on_an_unavailable_aws_raises_an_error(self, stack_name: str) -> None:
        """The error names the endpoint, and the call returns soon."""
        with pytest.raises(StackOperationError, match=r"Could not .*127\.0\.0\.1"):
            Stack(stack_name, clients_at("http://127.0.0.1:9")).describe()

    def test_a_stack_operation_without_credentials_raises_an_error(
        self, stack_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)

        with pytest.raises(StorageError, match="AWS_ACCESS_KEY_ID"):
            Stack(stack_name, Clients("us-east-1", None, botocore.session.Session())).describe()


class TestForeignStacks:
    """A stack of another application may have the same name; it is never changed."""

    @pytest.fixture
    def other(self, stack: Stack, client: ServiceClient) -> StackState:
        resources = {"Nothing": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}
        client("cloudformation").create_stack(StackName=stack.name, TemplateBody=json.dumps({"Resources": resources}))
        found = stack.wait()
        assert found is not None
        return found

    @pytest.mark.parametrize(
        "verb", [lambda stack: stack.deploy(SMALL), lambda stack: stack.update(), lambda stack: stack.delete()]
    )
    def test_a_stack_of_another_application_is_never_changed(
        self, stack: Stack, other: StackState, verb: Callable[[Stack], object]
    ) -> None:
        with pytest.raises(StackOperationError, match="not a limiter"):
            verb(stack)

        assert other == stack.describe()

    def test_a_function_of_another_stack_is_never_changed(
        self, stack: Stack, other: StackState, clients: Clients
    ) -> None:
        """A function with the name of an aggregator does not get its code."""
        with pytest.raises(StackOperationError, match="not a limiter"):
            provide_missing(stack.name, clients)

        assert other == stack.describe()

    def test_a_limiter_stack_without_tags_is_recognised(self, stack: Stack, client: ServiceClient) -> None:
        """So is a stack that was deployed from the template by another tool."""
        parameters = [
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in template_parameters(stack.name, SMALL).items()
        ]
        client("cloudformation").create_stack(
            StackName=stack.name, TemplateBody=limiter_template(), Parameters=parameters
        )

        assert stack.deploy(SMALL).changed
        assert stack.name == stack.require().tags[tags.NAME]


class TestUpdating:
    def test_an_update_with_the_same_options_changes_nothing(self, stack: Stack) -> None:
        first = stack.deploy(SMALL)
        second = stack.deploy(SMALL)

        assert (True, False) == (first.changed, second.changed)
        assert first.state.stack_id == second.state.stack_id

    def test_an_update_applies_other_options(self, stack: Stack, client: ServiceClient) -> None:
        """Existing resources and their content stay."""
        stack.deploy(StackOptions())
        heard: list[StackEvent] = []
        done = stack.deploy(StackOptions(lambda_timeout=120, enable_alarms=False), heard.append)
        function = client("lambda").get_function_configuration(FunctionName=naming.function_name(stack.name))
        alarms = client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{stack.name}-")["MetricAlarms"]

        assert done.changed
        assert "UPDATE_COMPLETE" == done.state.status == heard[-1].status
        assert (120, []) == (function["Timeout"], alarms)

    def test_an_update_can_add_and_remove_the_aggregator(self, stack: Stack) -> None:
        without = stack.deploy(StackOptions(enable_aggregator=False)).state.outputs
        added = stack.deploy(StackOptions()).state.outputs
        removed = stack.deploy(StackOptions(enable_aggregator=False)).state.outputs

        assert without == removed
        assert {"AggregatorFunctionName", "ArchiveBucketName"} <= added.keys() - without.keys()

    def test_an_update_without_options_keeps_the_options_of_the_stack(self, stack: Stack) -> None:
        """An upgrade to a newer template does not know the original options."""
        stack.deploy(StackOptions(enable_aggregator=False, pitr_recovery_days=9, tags={"team": "a"}))
        state = stack.update().state

        assert ("9", "a") == (state.parameters["PitrRecoveryDays"], state.tags["team"])

    def test_an_update_of_a_missing_stack_is_refused(self, stack: Stack) -> None:
        with pytest.raises(InfrastructureNotFoundError, match=f"zae-limiter deploy --name {stack.name}"):
            stack.update()

    def test_table_facts_describe_the_table_of_the_stack(self, stack: Stack) -> None:
        assert stack.table_facts() is None

        stack.deploy(SMALL)
        facts = stack.table_facts()

        assert facts is not None
        assert ("ACTIVE", 0) == (facts.status, facts.item_count)


class TestFollowing:
    def test_following_an_operation_ends_although_a_later_one_has_begun(
        self, stack: Stack, client: ServiceClient
    ) -> None:
        """A late reader finds events of newer operations first. Its own operation is never the latest again."""
        stack_id = stack.deploy(SMALL).state.stack_id
        (newest, *_) = client("cloudformation").describe_stack_events(StackName=stack_id)["StackEvents"]
        stack.update(replace(SMALL, pitr_recovery_days=9))
        events = EventLog(client("cloudformation"), stack_id, newest["ClientRequestToken"])
        heard = [(event.logical_id, event.status) for event in events.fresh()]

        assert (stack.name, "CREATE_IN_PROGRESS") == heard[0]
        assert (stack.name, "CREATE_COMPLETE") == heard[-1]
        assert [] == events.fresh()


class TestDeleting:
    def test_the_archive_outlives_the_stack(self, stack: Stack, client: ServiceClient) -> None:
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]
        client("s3").put_object(Bucket=bucket, Key="audit/1", Body=b"{}")
        heard: list[StackEvent] = []

        assert Deletion(existed=True, archive_kept=bucket) == stack.delete(listener=heard.append)
        assert "DELETE_COMPLETE" == heard[-1].status
        assert stack.describe() is None
        assert stack.table_facts() is None
        assert b"{}" == client("s3").get_object(Bucket=bucket, Key="audit/1")["Body"].read()

    def test_deleting_the_archive_removes_all_its_objects(self, stack: Stack, client: ServiceClient) -> None:
        """It has more than one page of objects."""
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]
        for number in range(5):
            client("s3").put_object(Bucket=bucket, Key=f"audit/{number}", Body=b"{}")

        assert Deletion(existed=True, archive_kept=None) == stack.delete(keep_archive=False)
        assert bucket not in [one["Name"] for one in client("s3").list_buckets()["Buckets"]]

    def test_the_archive_is_deleted_although_the_stack_was_deleted_meanwhile(
        self, stack: Stack, clients: Clients, client: ServiceClient
    ) -> None:
        """This also applies to a repeated deletion after an interrupt; otherwise the bucket would be orphaned."""
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]

        class Overtaken(Stack):
            def describe(self) -> StackState | None:
                found = super().describe()
                stack.delete()
                return found

        assert Deletion(existed=True, archive_kept=None) == Overtaken(stack.name, clients).delete(keep_archive=False)
        assert bucket not in [one["Name"] for one in client("s3").list_buckets()["Buckets"]]

    def test_an_archive_that_cannot_be_deleted_is_named(
        self, stack: Stack, clients: Clients, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After the stack is deleted, nothing else names the bucket."""
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]
        monkeypatch.setitem(clients._made, "s3", clients_at("http://127.0.0.1:9").of("s3"))

        with pytest.raises(StackOperationError, match=f"the stack was deleted, but not its archive bucket {bucket}"):
            stack.delete(keep_archive=False)
        assert stack.describe() is None

    def test_deleting_a_missing_stack_succeeds(self, stack: Stack) -> None:
        stack.deploy(SMALL)
        stack.delete()

        assert Deletion(existed=False, archive_kept=None) == stack.delete()

    def test_a_protected_stack_is_not_deleted(self, stack: Stack) -> None:
        """The error says how to remove the protection."""
        stack.deploy(StackOptions(enable_aggregator=False, enable_deletion_protection=True))

        with pytest.raises(StackOperationError, match="enable_deletion_protection=False"):
            stack.delete()
        assert "CREATE_COMPLETE" == stack.require().status

        stack.deploy(StackOptions(enable_aggregator=False))
        assert stack.delete().existed
