"""A stack on a local AWS: created, read back, updated, deleted, and what is said when that fails."""

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
from zae_limiter.infra.stack import Deletion, Stack, StackState
from zae_limiter.infra.template import limiter_template

SMALL = StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False)
ServiceClient = Callable[[str], Any]

BROKEN_PART = """
  Broken:
    Type: AWS::Logs::LogStream
    DependsOn: [Table, ArchiveBucket]
    Properties:
      LogGroupName: nobody-made-this-group
"""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the template ask for something that AWS refuses, when the rest of it stands."""
    whole = limiter_template()
    head, outputs, tail = whole.partition("Outputs:\n")

    def break_it() -> None:
        monkeypatch.setattr("zae_limiter.infra.stack.limiter_template", lambda: head + BROKEN_PART + outputs + tail)

    return break_it


class TestCreating:
    def test_every_part_stands_as_it_was_chosen(self, stack: Stack, client: ServiceClient) -> None:
        """The template is deployed as it is, and its parts say so themselves."""
        options = StackOptions(
            create_iam_roles=True, lambda_memory=512, snapshot_windows="monthly", log_retention_days=7
        )
        state = stack.deploy(options).state
        function = client("lambda").get_function_configuration(FunctionName=state.outputs["AggregatorFunctionName"])
        (logs,) = client("logs").describe_log_groups(logGroupNamePrefix=naming.log_group_name(stack.name))["logGroups"]
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

    def test_policies_and_roles_are_named_after_it(self, stack: Stack, client: ServiceClient) -> None:
        outputs = stack.deploy(StackOptions(create_iam_roles=True, role_name_format="pb-{}")).state.outputs
        attached = client("iam").list_attached_role_policies(RoleName=f"pb-{stack.name}-app")["AttachedPolicies"]

        assert outputs["AppRoleArn"].endswith(f":role/pb-{stack.name}-app")
        assert outputs["NamespaceAcquirePolicyArn"].endswith(f":policy/{stack.name}-ns-acq")
        assert [outputs["AcquireOnlyPolicyArn"]] == [policy["PolicyArn"] for policy in attached]

    def test_the_stream_starts_the_aggregator(self, stack: Stack, client: ServiceClient) -> None:
        outputs = stack.deploy(StackOptions()).state.outputs
        found = client("lambda").list_event_source_mappings(FunctionName=naming.function_name(stack.name))
        (mapping,) = found["EventSourceMappings"]

        assert outputs["StreamArn"] == mapping["EventSourceArn"]
        assert 2 == len(mapping["FilterCriteria"]["Filters"])
        assert mapping["DestinationConfig"]["OnFailure"]["Destination"].endswith(
            f":{naming.dead_letter_queue_name(stack.name)}"
        )

    def test_items_expire(self, stack: Stack, client: ServiceClient) -> None:
        """Also on an engine that does not do what the template says of it."""
        stack.deploy(SMALL)
        told = client("dynamodb").describe_time_to_live(TableName=stack.name)["TimeToLiveDescription"]

        assert ("ENABLED", "ttl") == (told["TimeToLiveStatus"], told["AttributeName"])

    def test_every_step_is_told_in_order_and_once(self, stack: Stack) -> None:
        """From the beginning of the stack to its end."""
        heard: list[StackEvent] = []
        stack.deploy(SMALL, heard.append)

        assert [
            (stack.name, "CREATE_IN_PROGRESS"),
            ("Table", "CREATE_IN_PROGRESS"),
            ("Table", "CREATE_COMPLETE"),
            (stack.name, "CREATE_COMPLETE"),
        ] == [(event.logical_id, event.status) for event in heard]

    def test_it_is_tagged_by_its_operator_and_to_be_found(self, stack: Stack) -> None:
        said = stack.deploy(StackOptions(enable_aggregator=False, tags={"team": "a"})).state.tags

        assert ("a", stack.name, "limiter") == (said["team"], said[tags.NAME], said[tags.TYPE])

    def test_one_that_is_there_is_not_created_again(self, stack: Stack) -> None:
        stack.create(SMALL)

        with pytest.raises(StackAlreadyExistsError):
            stack.create(SMALL)

    def test_two_that_deploy_at_once_both_have_it(self, stack_name: str, clients: Clients) -> None:
        """Whoever comes second waits for the first."""
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
    def test_the_first_failure_is_the_reason(self, stack: Stack, broken: Callable[[], None]) -> None:
        """Not what was cancelled because of it, nor that it was rolled back."""
        broken()

        with pytest.raises(StackCreationError, match=r"Broken \(AWS::Logs::LogStream\): .*group") as caught:
            stack.deploy(StackOptions())

        assert any("Broken" in line for line in caught.value.events)

    def test_what_failed_is_taken_back_and_tried_anew(
        self, stack: Stack, client: ServiceClient, broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is left, not even the archive, and once the reason is gone the same call succeeds."""
        broken()
        with pytest.raises(StackCreationError):
            stack.deploy(StackOptions())
        buckets = [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]]

        assert [] == [bucket for bucket in buckets if bucket.startswith(stack.name)]
        assert "ROLLBACK_COMPLETE" == stack.require().status
        assert stack.table_facts() is None

        monkeypatch.undo()
        assert "CREATE_COMPLETE" == stack.deploy(StackOptions()).state.status

    def test_a_failed_update_leaves_the_stack_as_it_was(self, stack: Stack, broken: Callable[[], None]) -> None:
        stack.deploy(StackOptions())
        broken()

        with pytest.raises(StackOperationError, match="Broken"):
            stack.deploy(StackOptions(lambda_memory=512))

        found = stack.require()
        assert ("UPDATE_ROLLBACK_COMPLETE", "256") == (found.status, found.parameters["LambdaMemory"])

    def test_after_a_failed_update_another_one_may_come(
        self, stack: Stack, broken: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stack.deploy(StackOptions())
        broken()
        with pytest.raises(StackOperationError):
            stack.deploy(StackOptions(lambda_memory=512))
        monkeypatch.undo()

        assert "512" == stack.deploy(StackOptions(lambda_memory=512)).state.parameters["LambdaMemory"]

    def test_names_are_checked_before_anything_is_made(self, stack: Stack) -> None:
        with pytest.raises(ValidationError, match="role_name_format"):
            stack.deploy(StackOptions(role_name_format="x" * 60 + "{}"))

        assert stack.describe() is None

    @pytest.mark.parametrize("name", ["my_app", "1app", "n" * 56])
    def test_a_name_that_no_stack_can_have(self, clients: Clients, name: str) -> None:
        with pytest.raises(InvalidNameError):
            Stack(name, clients)

    def test_nobody_answers(self, stack_name: str) -> None:
        """It is said where, and nothing waits for long."""
        with pytest.raises(StackOperationError, match=r"Could not .*127\.0\.0\.1"):
            Stack(stack_name, clients_at("http://127.0.0.1:9")).describe()

    def test_no_credentials(self, stack_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)

        with pytest.raises(StorageError, match="AWS_ACCESS_KEY_ID"):
            Stack(stack_name, Clients("us-east-1", None, botocore.session.Session())).describe()


class TestStacksOfOthers:
    """A name may be somebody else's stack's; it is left as it is."""

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
    def test_they_are_never_touched(self, stack: Stack, other: StackState, verb: Callable[[Stack], object]) -> None:
        with pytest.raises(StackOperationError, match="not a limiter"):
            verb(stack)

        assert other == stack.describe()

    def test_nor_are_their_functions(self, stack: Stack, other: StackState, clients: Clients) -> None:
        """One that is called as an aggregator would be is not given its code."""
        with pytest.raises(StackOperationError, match="not a limiter"):
            provide_missing(stack.name, clients)

        assert other == stack.describe()

    def test_one_of_ours_without_tags_is_ours(self, stack: Stack, client: ServiceClient) -> None:
        """So is what was deployed from the template by other means."""
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
    def test_the_same_options_change_nothing(self, stack: Stack) -> None:
        first = stack.deploy(SMALL)
        second = stack.deploy(SMALL)

        assert (True, False) == (first.changed, second.changed)
        assert first.state.stack_id == second.state.stack_id

    def test_other_options_are_put_in_place(self, stack: Stack, client: ServiceClient) -> None:
        """What was made stays, with what is in it."""
        stack.deploy(StackOptions())
        heard: list[StackEvent] = []
        done = stack.deploy(StackOptions(lambda_timeout=120, enable_alarms=False), heard.append)
        function = client("lambda").get_function_configuration(FunctionName=naming.function_name(stack.name))
        alarms = client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{stack.name}-")["MetricAlarms"]

        assert done.changed
        assert "UPDATE_COMPLETE" == done.state.status == heard[-1].status
        assert (120, []) == (function["Timeout"], alarms)

    def test_an_aggregator_can_be_added_and_taken_away(self, stack: Stack) -> None:
        without = stack.deploy(StackOptions(enable_aggregator=False)).state.outputs
        added = stack.deploy(StackOptions()).state.outputs
        away = stack.deploy(StackOptions(enable_aggregator=False)).state.outputs

        assert without == away
        assert {"AggregatorFunctionName", "ArchiveBucketName"} <= added.keys() - without.keys()

    def test_without_options_those_it_has_are_kept(self, stack: Stack) -> None:
        """So does whoever brings a stack to a newer template, not knowing how it was made."""
        stack.deploy(StackOptions(enable_aggregator=False, pitr_recovery_days=9, tags={"team": "a"}))
        state = stack.update().state

        assert ("9", "a") == (state.parameters["PitrRecoveryDays"], state.tags["team"])

    def test_without_a_stack_there_is_nothing_to_update(self, stack: Stack) -> None:
        with pytest.raises(InfrastructureNotFoundError, match=f"zae-limiter deploy --name {stack.name}"):
            stack.update()

    def test_the_table_tells_of_itself(self, stack: Stack) -> None:
        assert stack.table_facts() is None

        stack.deploy(SMALL)
        facts = stack.table_facts()

        assert facts is not None
        assert ("ACTIVE", 0) == (facts.status, facts.item_count)


class TestFollowing:
    def test_work_is_heard_to_its_end_though_others_have_begun_theirs(
        self, stack: Stack, client: ServiceClient
    ) -> None:
        """Who looks late finds newer work of others first; waiting for one's own to show would never end."""
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

    def test_an_archive_that_is_not_wanted_goes_with_all_that_is_in_it(
        self, stack: Stack, client: ServiceClient
    ) -> None:
        """More than one page of it."""
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]
        for number in range(5):
            client("s3").put_object(Bucket=bucket, Key=f"audit/{number}", Body=b"{}")

        assert Deletion(existed=True, archive_kept=None) == stack.delete(keep_archive=False)
        assert bucket not in [one["Name"] for one in client("s3").list_buckets()["Buckets"]]

    def test_it_goes_though_somebody_else_has_deleted_the_stack_meanwhile(
        self, stack: Stack, clients: Clients, client: ServiceClient
    ) -> None:
        """Also one's own deletion, called again after it was interrupted: else the bucket would be nobody's."""
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]

        class Overtaken(Stack):
            def describe(self) -> StackState | None:
                found = super().describe()
                stack.delete()
                return found

        assert Deletion(existed=True, archive_kept=None) == Overtaken(stack.name, clients).delete(keep_archive=False)
        assert bucket not in [one["Name"] for one in client("s3").list_buckets()["Buckets"]]

    def test_an_archive_that_stays_against_ones_will_is_named(
        self, stack: Stack, clients: Clients, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When the stack is gone nothing else tells which bucket it was."""
        bucket = stack.deploy(StackOptions()).state.outputs["ArchiveBucketName"]
        monkeypatch.setitem(clients._made, "s3", clients_at("http://127.0.0.1:9").of("s3"))

        with pytest.raises(StackOperationError, match=f"the stack was deleted, but not its archive bucket {bucket}"):
            stack.delete(keep_archive=False)
        assert stack.describe() is None

    def test_deleting_nothing_is_no_error(self, stack: Stack) -> None:
        stack.deploy(SMALL)
        stack.delete()

        assert Deletion(existed=False, archive_kept=None) == stack.delete()

    def test_a_protected_stack_stays(self, stack: Stack) -> None:
        """Until its operator says otherwise; the error says how."""
        stack.deploy(StackOptions(enable_aggregator=False, enable_deletion_protection=True))

        with pytest.raises(StackOperationError, match="enable_deletion_protection=False"):
            stack.delete()
        assert "CREATE_COMPLETE" == stack.require().status

        stack.deploy(StackOptions(enable_aggregator=False))
        assert stack.delete().existed
