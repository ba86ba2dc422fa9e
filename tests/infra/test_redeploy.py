"""An existing stack on a local AWS keeps the options that a deployment does not give."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from zae_limiter.core.errors import StackOperationError, ValidationError
from zae_limiter.infra import naming, tags
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.given_options import KEEP_ALL, GivenOptions
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.provision import provide
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.stack_state import Deletion
from zae_limiter.infra.template import limiter_template

ServiceClient = Callable[[str], Any]

SMALL = StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False)
SMALL_CHOSEN = {"enable_aggregator": False, "enable_alarms": False, "create_iam": False}
CHOSEN = StackOptions(
    enable_deletion_protection=True,
    lambda_memory=512,
    lambda_timeout=120,
    lambda_duration_threshold_pct=55,
    enable_audit_archival=False,
    usage_retention_days=7,
    pitr_recovery_days=9,
    role_name_format="pb-{}",
    tags={"team": "search"},
)

BROKEN_PART = """
  Broken:
    Type: AWS::Logs::LogStream
    DependsOn: Table
    Properties:
      LogGroupName: a-group-that-does-not-exist
Outputs:
"""


def described(stack: Stack, client: ServiceClient) -> dict[str, Any]:
    """Return what AWS reports about a stack: its description, its template, its table and its function."""
    table = client("dynamodb").describe_table(TableName=stack.name)["Table"]
    function = client("lambda").get_function_configuration(FunctionName=naming.function_name(stack.name))
    return {
        "stack": stack.require(),
        "template": client("cloudformation").get_template(StackName=stack.name)["TemplateBody"],
        "table": table,
        "backups": client("dynamodb").describe_continuous_backups(TableName=stack.name)["ContinuousBackupsDescription"],
        "function": {name: value for name, value in function.items() if name != "ResponseMetadata"},
    }


class TestDeploy:
    def test_a_deployment_without_options_changes_nothing(
        self, stack: Stack, clients: Clients, client: ServiceClient
    ) -> None:
        """Every part of the stack stays as it was, and the table stays protected from deletion."""
        provide(stack.name, clients, CHOSEN)
        before = described(stack, client)
        done = provide(stack.name, clients, KEEP_ALL)
        after = described(stack, client)

        assert (False, False) == (done.stack_changed, done.code_changed)
        assert before == after
        assert after["table"]["DeletionProtectionEnabled"]
        assert CHOSEN == done.options

    def test_a_given_option_changes_only_itself(self, stack: Stack) -> None:
        before = stack.deploy(CHOSEN).state
        after = stack.deploy(GivenOptions({"lambda_memory": 1024})).state

        assert {"LambdaMemory": "1024"} == dict(after.parameters.items() - before.parameters.items())
        assert (before.tags, before.parameters.keys()) == (after.tags, after.parameters.keys())

    def test_a_threshold_of_another_tool_stays(self, stack: Stack, client: ServiceClient) -> None:
        """It is no whole percentage, so options cannot express it."""
        stack.deploy(SMALL)
        parameters = [
            {"ParameterKey": name, "ParameterValue": "30100"}
            if name == "DurationAlarmThresholdMs"
            else {"ParameterKey": name, "UsePreviousValue": True}
            for name in stack.require().parameters
        ]
        client("cloudformation").update_stack(
            StackName=stack.name, TemplateBody=limiter_template(), Parameters=parameters, Tags=[]
        )
        stack.wait()
        after = stack.deploy(GivenOptions({"pitr_recovery_days": 9})).state

        assert ("30100", "9") == (after.parameters["DurationAlarmThresholdMs"], after.parameters["PitrRecoveryDays"])

    def test_a_reset_restores_the_default_of_every_option_that_is_not_given(self, stack: Stack) -> None:
        stack.deploy(CHOSEN)
        reset = stack.deploy(GivenOptions({"lambda_memory": 1024}, reset=True)).state
        created = Stack(f"{stack.name}b", stack._clients).deploy(StackOptions(lambda_memory=1024)).state

        assert created.parameters == reset.parameters
        assert "team" not in reset.tags

    def test_an_option_that_contradicts_a_stored_one_changes_nothing(self, stack: Stack) -> None:
        before = stack.deploy(SMALL).state

        with pytest.raises(ValidationError, match="aggregator_role_arn"):
            stack.deploy(GivenOptions({"enable_aggregator": True}))
        assert before == stack.require()

    def test_a_stack_without_our_parameters_is_refused_until_it_is_reset(
        self, stack: Stack, client: ServiceClient
    ) -> None:
        """The CDK makes such stacks. Their options cannot be read, so they would be lost."""
        resources = {"Nothing": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}
        template = json.dumps({"Description": "zae-limiter: mine", "Resources": resources})
        client("cloudformation").create_stack(StackName=stack.name, TemplateBody=template)
        before = stack.wait()

        with pytest.raises(StackOperationError, match="options are unknown"):
            stack.deploy(GivenOptions({"lambda_memory": 1024}))
        assert before == stack.describe()
        assert stack.deploy(GivenOptions(SMALL_CHOSEN, reset=True)).changed

    def test_a_stack_whose_creation_failed_is_replaced_with_the_given_options_alone(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its own options may be the reason of the failure."""
        whole = limiter_template()
        broken = whole.replace("Outputs:\n", BROKEN_PART)
        monkeypatch.setattr("zae_limiter.infra.stack.limiter_template", lambda: broken)
        with pytest.raises(StackOperationError):
            stack.deploy(GivenOptions(SMALL_CHOSEN | {"pitr_recovery_days": 9}))
        monkeypatch.undo()

        with pytest.raises(StackOperationError, match="deploy it and wait"):
            stack.begin(GivenOptions(SMALL_CHOSEN))
        assert "35" == stack.deploy(GivenOptions(SMALL_CHOSEN)).state.parameters["PitrRecoveryDays"]


class TestBegin:
    def test_begin_returns_before_a_new_stack_is_created(self, stack: Stack) -> None:
        """A later deployment waits for it, and keeps its options."""
        begun = stack.begin(GivenOptions(SMALL_CHOSEN | {"pitr_recovery_days": 9}))
        done = stack.deploy(KEEP_ALL)

        assert begun.changed
        assert begun.state.status in ("CREATE_IN_PROGRESS", "CREATE_COMPLETE")
        assert ("9", stack.name) == (done.state.parameters["PitrRecoveryDays"], done.state.tags[tags.NAME])

    def test_begin_updates_an_existing_stack_with_the_given_options(self, stack: Stack) -> None:
        stack.deploy(SMALL)
        unchanged, changed = stack.begin(KEEP_ALL), stack.begin(GivenOptions({"pitr_recovery_days": 9}))
        found = stack.wait()

        assert (False, True) == (unchanged.changed, changed.changed)
        assert found is not None
        assert "9" == found.parameters["PitrRecoveryDays"]

    @pytest.mark.parametrize(
        "operation",
        [lambda stack: stack.begin(KEEP_ALL), lambda stack: stack.begin_deletion()],
        ids=["begin", "delete"],
    )
    def test_begin_during_another_operation_is_refused(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch, operation: Callable[[Stack], object]
    ) -> None:
        """It cannot wait for that operation."""
        stack.deploy(SMALL)
        cloudformation = stack._clients.of("cloudformation")
        honest = cloudformation.describe_stacks

        def busy(**named: Any) -> Any:
            told = honest(**named)
            told["Stacks"][0]["StackStatus"] = "UPDATE_IN_PROGRESS"
            return told

        monkeypatch.setattr(cloudformation, "describe_stacks", busy)

        with pytest.raises(StackOperationError, match="in progress; retry when that has ended"):
            operation(stack)

    def test_begin_deletion_returns_before_the_stack_is_gone(self, stack: Stack) -> None:
        """A missing stack is not an error, as with ``delete``."""
        stack.deploy(SMALL)
        begun = stack.begin_deletion()
        again = stack.begin_deletion()

        assert Deletion(existed=True, archive_kept=None) == begun
        assert stack.wait() is None
        assert Deletion(existed=False, archive_kept=None) == stack.begin_deletion()
        assert again.archive_kept is None

    def test_begin_deletion_of_a_protected_stack_is_refused(self, stack: Stack) -> None:
        stack.deploy(GivenOptions(SMALL_CHOSEN | {"enable_deletion_protection": True}))

        with pytest.raises(StackOperationError, match="protected from deletion"):
            stack.begin_deletion()
