"""The resources of the template, by default and with options; other tests deploy it to a local AWS."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.resolved import Resolved, parsed
from zae_limiter.core.sharding import wants_split
from zae_limiter.infra import naming
from zae_limiter.infra.options import LOG_RETENTION_DAYS, StackOptions, template_parameters
from zae_limiter.infra.template import MOST_BYTES, limiter_template
from zae_limiter.tables.dynamodb.requests import Calls

# One or more regions of five partitions.
REGIONS = ["us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1", "eusc-de-east-1", "us-iso-east-1"]


def resolved(name: str = "my-app", **chosen: Any) -> Resolved:
    return Resolved(name, template_parameters(name, StackOptions(**chosen)))


class TestAsWritten:
    def test_the_template_passes_cfn_lint_in_every_partition(self, tmp_path: Path) -> None:
        """Regions of five partitions are checked."""
        path = tmp_path / "limiter.yaml"
        path.write_text(limiter_template(), encoding="utf-8")
        linter = Path(sys.executable).with_name("cfn-lint")
        done = subprocess.run([linter, "--regions", *REGIONS, "--", path], capture_output=True, text=True, check=False)

        assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)

    def test_the_template_names_no_partition(self) -> None:
        """ARNs use the partition of the stack."""
        assert "arn:aws" not in limiter_template()

    def test_the_template_is_small_enough_to_be_sent_inline(self) -> None:
        """No bucket is needed for it."""
        assert len(limiter_template().encode()) < MOST_BYTES

    def test_the_template_uses_only_functions_of_local_engines(self) -> None:
        """String operations are done before deployment."""
        text = limiter_template()

        assert [] == [name for name in ("Fn::", "!Select", "!Split", "!FindInMap", "!ImportValue") if name in text]

    def test_the_template_defaults_equal_the_default_options(self) -> None:
        """The template alone makes the same stack as the default options."""
        defaults = {name: str(body["Default"]) for name, body in parsed()["Parameters"].items()}

        assert template_parameters("my-app", StackOptions()) == defaults

    def test_the_template_allows_the_same_ranges_as_the_options(self) -> None:
        assert list(LOG_RETENTION_DAYS) == parsed()["Parameters"]["LogRetentionDays"]["AllowedValues"]


class TestTable:
    def test_the_table_of_the_template_equals_that_of_a_client(self) -> None:
        """Keys and indexes are those of a table created without a stack."""
        made = json.loads(Calls("my-app").create_table().body)
        described = resolved().properties("Table")

        assert made == {name: described[name] for name in made}

    def test_the_table_of_the_template_has_a_stream_and_time_to_live(self) -> None:
        table = resolved().properties("Table")

        assert {"StreamViewType": "NEW_AND_OLD_IMAGES"} == table["StreamSpecification"]
        assert {"AttributeName": "ttl", "Enabled": True} == table["TimeToLiveSpecification"]

    @pytest.mark.parametrize(
        ("days", "expected"),
        [
            (7, {"PointInTimeRecoveryEnabled": True, "RecoveryPeriodInDays": "7"}),
            (0, {"PointInTimeRecoveryEnabled": False}),
        ],
    )
    def test_point_in_time_recovery_is_configurable(self, days: int, expected: dict[str, object]) -> None:
        """It covers this many days, or is disabled."""
        table = resolved(pitr_recovery_days=days).properties("Table")

        assert expected == table["PointInTimeRecoverySpecification"]

    @pytest.mark.parametrize("protected", [True, False])
    def test_deletion_protection_is_configurable(self, protected: bool) -> None:
        table = resolved(enable_deletion_protection=protected).properties("Table")

        assert protected is table["DeletionProtectionEnabled"]


class TestAggregator:
    def test_a_template_without_the_aggregator_has_none_of_its_resources(self) -> None:
        """No function, queue, log group, role or archive."""
        stack = resolved(enable_aggregator=False)
        kinds = {one["Type"].rpartition("::")[0] for one in stack.resources.values()}

        assert {"AWS::DynamoDB", "AWS::CloudWatch", "AWS::IAM"} == kinds
        assert {"TableReadThrottleAlarm", "TableWriteThrottleAlarm"} == set(stack.of_type("AWS::CloudWatch::Alarm"))
        assert not [name for name in stack.outputs if name.startswith(("Aggregator", "Archive"))]

    def test_a_failing_batch_is_bisected_retried_and_sent_to_the_queue(self) -> None:
        """Records that fail permanently are isolated first."""
        source = resolved().properties("AggregatorEventSource")

        assert source["BisectBatchOnFunctionError"] is True
        assert 0 < source["MaximumRetryAttempts"] < 1000
        assert ["ReportBatchItemFailures"] == source["FunctionResponseTypes"]
        assert {"OnFailure": {"Destination": "AggregatorDeadLetterQueue.Arn"}} == source["DestinationConfig"]

    @pytest.mark.parametrize(("archived", "expected"), [(True, ["#STATE", {"prefix": "#AUDIT#"}]), (False, ["#STATE"])])
    def test_the_stream_filter_selects_buckets_and_archived_records(
        self, archived: bool, expected: list[object]
    ) -> None:
        """Other records never invoke the function."""
        filters = resolved(enable_audit_archival=archived).properties("AggregatorEventSource")["FilterCriteria"]
        patterns = [json.loads(one["Pattern"]) for one in filters["Filters"]]

        assert expected == [key for pattern in patterns for key in pattern["dynamodb"]["Keys"]["SK"]["S"]]

    def test_only_records_removed_by_time_to_live_are_archived(self) -> None:
        """An event that a user deletes is not archived as expired."""
        filters = resolved().properties("AggregatorEventSource")["FilterCriteria"]["Filters"]
        expired = json.loads(filters[1]["Pattern"])

        assert ["REMOVE"] == expired["eventName"]
        assert {"type": ["Service"], "principalId": ["dynamodb.amazonaws.com"]} == expired["userIdentity"]

    @pytest.mark.parametrize(("interval_s", "window_s"), [(0, 2), (1, 1), (60, 60), (300, 300)])
    def test_records_wait_for_the_interval(self, interval_s: int, window_s: int) -> None:
        """An interval of 0 is a window of 2 seconds: without a window, the function would run four times a second."""
        source = resolved(usage_interval_seconds=interval_s).properties("AggregatorEventSource")

        assert window_s == int(source["MaximumBatchingWindowInSeconds"])

    def test_a_bucket_to_split_fills_a_batch_within_125_hundredths_of_a_second(self) -> None:
        """So a long interval does not delay a split: a bucket that fills a batch more slowly is not split."""
        source = resolved().properties("AggregatorEventSource")
        slower = source["BatchSize"] / 1.25 - 1

        assert not wants_split(slower, most_per_s=1_000, shard_count=1)
        assert wants_split(slower + 1, most_per_s=1_000, shard_count=1)

    @pytest.mark.parametrize(("interval_s", "age_ms"), [(0, "60000"), (60, "120000"), (300, "360000")])
    def test_the_age_alarm_threshold_is_a_minute_above_the_interval(self, interval_s: int, age_ms: str) -> None:
        """A record that waits for the interval is not late."""
        stack = resolved(usage_interval_seconds=interval_s)

        assert age_ms == stack.properties("AggregatorIteratorAgeAlarm")["Threshold"]

    def test_the_duration_alarm_threshold_is_a_share_of_the_timeout(self) -> None:
        stack = resolved(lambda_timeout=120, lambda_duration_threshold_pct=75)

        assert "90000" == stack.properties("AggregatorDurationAlarm")["Threshold"]
        assert "120" == stack.properties("AggregatorFunction")["Timeout"]

    @pytest.mark.parametrize(("traced", "mode"), [(True, "Active"), (False, "PassThrough")])
    def test_tracing_is_configurable(self, traced: bool, mode: str) -> None:
        """Only a traced function may send traces."""
        stack = resolved(enable_tracing=traced)
        policies = [policy["PolicyName"] for policy in stack.properties("AggregatorRole")["Policies"]]

        assert {"Mode": mode} == stack.properties("AggregatorFunction")["TracingConfig"]
        assert traced is ("trace" in policies)


class TestWarnings:
    def test_the_function_may_only_send_events_of_its_own_source(self) -> None:
        """It cannot pretend to be another service of the account."""
        (aggregate, *_) = resolved().properties("AggregatorRole")["Policies"]
        (warn,) = (one for one in aggregate["PolicyDocument"]["Statement"] if one["Sid"] == "Warn")

        assert (["events:PutEvents"], {"StringEquals": {"events:source": "zae-limiter"}}) == (
            warn["Action"],
            warn["Condition"],
        )
        assert warn["Resource"].endswith(":event-bus/default")

    @pytest.mark.parametrize("topic", [None, "arn:aws:sns:us-east-1:123456789012:warnings"])
    def test_the_function_may_publish_to_the_topic_if_there_is_one(self, topic: str | None) -> None:
        """The topic of alarms is not used."""
        stack = resolved(warning_sns_topic=topic, alarm_sns_topic="arn:aws:sns:us-east-1:123456789012:alarms")
        policies = {one["PolicyName"]: one for one in stack.properties("AggregatorRole")["Policies"]}
        allowed = [one["PolicyDocument"]["Statement"][0] for name, one in policies.items() if name == "notify"]

        expected = [] if topic is None else [(["sns:Publish"], topic)]

        assert expected == [(one["Action"], one["Resource"]) for one in allowed]
        environment = stack.properties("AggregatorFunction")["Environment"]["Variables"]
        assert (topic or "") == environment["WARNING_TOPIC_ARN"]


class TestAlarms:
    def test_every_alarm_notifies_the_topic(self) -> None:
        topic = "arn:aws:sns:us-east-1:123456789012:alarms"
        alarms = resolved(alarm_sns_topic=topic).of_type("AWS::CloudWatch::Alarm")

        assert 6 == len(alarms)
        assert [[topic]] * 6 == [alarm["AlarmActions"] for alarm in alarms.values()]

    def test_alarms_without_a_topic_notify_no_topic(self) -> None:
        assert all("AlarmActions" not in alarm for alarm in resolved().of_type("AWS::CloudWatch::Alarm").values())

    def test_alarms_can_be_disabled(self) -> None:
        assert {} == resolved(enable_alarms=False).of_type("AWS::CloudWatch::Alarm")


class TestIam:
    def test_policies_are_named_by_their_format(self) -> None:
        """All six policies are always created."""
        policies = resolved(policy_name_format="pb-{}-x").of_type("AWS::IAM::ManagedPolicy")
        expected = {naming.policy_name("my-app", policy, "pb-{}-x") for policy in naming.POLICIES}

        assert expected == {policy["ManagedPolicyName"] for policy in policies.values()}

    def test_roles_are_created_on_request_and_named_by_their_format(self) -> None:
        roles = resolved(create_iam_roles=True, role_name_format="pb-{}-x").of_type("AWS::IAM::Role")
        expected = {naming.role_name("my-app", role, "pb-{}-x") for role in naming.ROLES}

        assert expected == {role["RoleName"] for role in roles.values()}

    def test_by_default_only_the_aggregator_has_a_role(self) -> None:
        assert ["my-app-aggr"] == [role["RoleName"] for role in resolved().of_type("AWS::IAM::Role").values()]

    @pytest.mark.parametrize(
        ("boundary", "expected"),
        [
            ("arn:aws:iam::aws:policy/PowerUserAccess", "arn:aws:iam::aws:policy/PowerUserAccess"),
            ("team/bounds", "arn:aws-cn:iam::123456789012:policy/team/bounds"),
        ],
    )
    def test_every_role_has_the_permission_boundary(self, boundary: str, expected: str) -> None:
        """It is given by ARN, or by name in the account and partition of the stack."""
        roles = resolved(create_iam_roles=True, permission_boundary=boundary).of_type("AWS::IAM::Role")

        assert [expected] * 4 == [role["PermissionsBoundary"] for role in roles.values()]

    def test_by_default_no_role_has_a_permission_boundary(self) -> None:
        assert "PermissionsBoundary" not in resolved().properties("AggregatorRole")

    def test_a_given_aggregator_role_is_used(self) -> None:
        role = "arn:aws:iam::123456789012:role/mine"
        stack = resolved(aggregator_role_arn=role)

        assert {} == stack.of_type("AWS::IAM::Role")
        assert role == stack.properties("AggregatorFunction")["Role"]
        assert role == stack.outputs["AggregatorRoleArn"]

    def test_a_template_without_iam_has_no_iam_resources(self) -> None:
        """The aggregator then uses a given role."""
        stack = resolved(create_iam=False, aggregator_role_arn="arn:aws:iam::123456789012:role/mine")

        assert [] == [name for name, one in stack.resources.items() if one["Type"].startswith("AWS::IAM::")]
        assert "AggregatorFunction" in stack.resources

    def test_no_policy_allows_all_actions_of_a_service(self) -> None:
        """Actions are listed one by one."""
        stack = resolved(create_iam_roles=True, enable_tracing=True)
        documents = [one["PolicyDocument"] for one in stack.of_type("AWS::IAM::ManagedPolicy").values()]
        documents += [one["PolicyDocument"] for one in stack.properties("AggregatorRole")["Policies"]]
        actions = [action for one in documents for said in one["Statement"] for action in said["Action"]]

        assert len(actions) > 20
        assert [] == [action for action in actions if "*" in action]


class TestArchive:
    def test_the_archive_name_is_chosen_by_cloudformation(self) -> None:
        """Bucket names are global."""
        assert "BucketName" not in resolved().properties("ArchiveBucket")

    def test_the_archive_is_retained_when_the_stack_is_deleted(self) -> None:
        assert "RetainExceptOnCreate" == parsed()["Resources"]["ArchiveBucket"]["DeletionPolicy"]

    def test_the_archive_moves_objects_to_glacier(self) -> None:
        (rule,) = resolved(audit_archive_glacier_days=30).properties("ArchiveBucket")["LifecycleConfiguration"]["Rules"]

        assert [{"StorageClass": "GLACIER", "TransitionInDays": "30"}] == rule["Transitions"]
