"""Given options change only themselves; the others keep what the stack has."""

from dataclasses import fields, replace
from typing import Any

import pytest

from zae_limiter.core.errors import StackOperationError, ValidationError
from zae_limiter.infra import tags
from zae_limiter.infra.given_options import (
    KEEP_ALL,
    GivenOptions,
    OptionChange,
    as_given,
    has_options,
    kept_parameters,
    option_changes,
    own_tags,
    stored_options,
)
from zae_limiter.infra.options import StackOptions, template_parameters

ROLE = "arn:aws:iam::123456789012:role/mine"
OTHERS = StackOptions(
    snapshot_windows="monthly",
    usage_interval_seconds=10,
    usage_retention_days=7,
    audit_retention_days=8,
    enable_aggregator=False,
    pitr_recovery_days=0,
    log_retention_days=14,
    lambda_timeout=30,
    lambda_memory=512,
    enable_alarms=False,
    alarm_sns_topic="arn:aws:sns:us-east-1:123456789012:alarms",
    warning_sns_topic="arn:aws:sns:us-east-1:123456789012:warnings",
    lambda_duration_threshold_pct=55,
    permission_boundary="team-boundary",
    role_name_format="a{}z",
    policy_name_format="b{}y",
    enable_audit_archival=False,
    audit_archive_glacier_days=9,
    enable_tracing=True,
    create_iam_roles=True,
    aggregator_role_arn=ROLE,
    enable_deletion_protection=True,
    tags={"team": "search"},
)
WITHOUT_IAM = StackOptions(create_iam=False, enable_aggregator=False)


def read(options: StackOptions, **parameters: str) -> StackOptions:
    """Return the options that a stack with these options is read as."""
    said = tags.limiter_tags("my-app", "1.2.3", options.tags)
    return stored_options("my-app", template_parameters("my-app", options) | parameters, said)


class TestStoredOptions:
    def test_this_test_changes_every_option_but_one(self) -> None:
        """``create_iam`` conflicts with others, so it has a case of its own."""
        same = {one.name for one in fields(StackOptions)} - {
            one.option for one in option_changes(StackOptions(), OTHERS)
        }

        assert {"create_iam"} == same

    @pytest.mark.parametrize(
        "options",
        [
            StackOptions(),
            OTHERS,
            WITHOUT_IAM,
            StackOptions(permission_boundary="arn:aws:iam::aws:policy/PowerUserAccess"),
        ],
    )
    def test_the_options_of_a_stack_are_read_as_they_were_deployed(self, options: StackOptions) -> None:
        """From its parameters and its tags."""
        assert options == read(options)

    @pytest.mark.parametrize("timeout", [1, 7, 60, 900])
    @pytest.mark.parametrize("percent", [1, 33, 80, 100])
    def test_the_threshold_of_the_duration_alarm_is_read_exactly(self, timeout: int, percent: int) -> None:
        """It is stored in milliseconds."""
        chosen = StackOptions(lambda_timeout=timeout, lambda_duration_threshold_pct=percent)

        assert percent == read(chosen).lambda_duration_threshold_pct

    @pytest.mark.parametrize(("threshold_ms", "expected"), [("1", 1), ("999999", 100), ("30100", 50)])
    def test_a_threshold_of_another_tool_is_read_as_the_nearest_percentage(
        self, threshold_ms: str, expected: int
    ) -> None:
        """Another tool may set any number of milliseconds."""
        assert expected == read(StackOptions(), DurationAlarmThresholdMs=threshold_ms).lambda_duration_threshold_pct

    def test_a_parameter_that_an_older_template_lacks_has_its_default(self) -> None:
        assert StackOptions(lambda_memory=512) == stored_options("my-app", {"LambdaMemory": "512"}, {})

    @pytest.mark.parametrize("parameters", [{}, {"OfTheirOwn": "1"}])
    def test_a_stack_without_our_parameters_has_no_options_to_keep(self, parameters: dict[str, str]) -> None:
        """The CDK makes such stacks. A deployment with defaults would reset its options."""
        assert not has_options(parameters)
        with pytest.raises(StackOperationError, match=r"options are unknown.*CDK.*stack_options\(StackOptions\(\)\)"):
            stored_options("my-app", parameters, {})

    @pytest.mark.parametrize("broken", [{"LambdaMemory": "much"}, {"AlarmSnsTopicArn": "arn:a:sns:b:c:d e"}])
    def test_an_unreadable_option_of_a_stack_is_an_error_that_says_what_to_do(self, broken: dict[str, str]) -> None:
        with pytest.raises(StackOperationError, match=r"cannot be kept.*stack_options\(StackOptions\(\)\)"):
            read(StackOptions(), **broken)

    def test_only_the_tags_of_the_operator_are_options(self) -> None:
        said = tags.limiter_tags("my-app", "1.2.3", {"team": "search"}) | {"aws:cloudformation:stack-name": "my-app"}

        assert {"team": "search"} == own_tags(said)


class TestGivenOptions:
    def test_options_that_are_not_given_keep_the_stored_value(self) -> None:
        assert replace(OTHERS, lambda_memory=1024) == GivenOptions({"lambda_memory": 1024}).over(OTHERS)
        assert OTHERS == KEEP_ALL.over(OTHERS)

    def test_options_that_are_not_given_have_their_default_on_a_new_stack(self) -> None:
        assert StackOptions(lambda_memory=1024) == GivenOptions({"lambda_memory": 1024}).over(None)

    def test_reset_restores_the_default_of_every_option_that_is_not_given(self) -> None:
        assert StackOptions(lambda_memory=1024) == GivenOptions({"lambda_memory": 1024}, reset=True).over(OTHERS)

    def test_stack_options_give_every_option(self) -> None:
        """``stack_options(StackOptions())`` is the way to reset a stack."""
        assert StackOptions() == as_given(StackOptions()).over(OTHERS)

    @pytest.mark.parametrize(
        ("chosen", "stored", "expected"),
        [
            ({}, None, (False, False)),
            ({}, StackOptions(create_iam_roles=True), (False, False)),
            ({"aggregator_role_arn": ROLE}, None, (True, False)),
            ({}, StackOptions(aggregator_role_arn=ROLE), (True, False)),
            ({"aggregator_role_arn": None}, StackOptions(aggregator_role_arn=ROLE), (False, False)),
        ],
    )
    def test_no_iam_turns_off_the_aggregator_unless_it_has_a_role(
        self, chosen: dict[str, Any], stored: StackOptions | None, expected: tuple[bool, bool]
    ) -> None:
        """The function would have no role. Roles are off as well."""
        given = GivenOptions({"create_iam": False, **chosen})
        after = given.over(stored)

        assert expected == (after.enable_aggregator, after.create_iam_roles)
        assert expected[0] != given.drops_aggregator(stored)

    @pytest.mark.parametrize(
        ("given", "stored"),
        [
            (KEEP_ALL, None),
            (GivenOptions({"create_iam": False, "enable_aggregator": False}), None),
            (GivenOptions({"create_iam": False}), WITHOUT_IAM),
        ],
    )
    def test_no_iam_drops_no_aggregator_that_was_off_or_turned_off(
        self, given: GivenOptions, stored: StackOptions | None
    ) -> None:
        assert not given.drops_aggregator(stored)

    @pytest.mark.parametrize(
        ("chosen", "stored", "field"),
        [
            ({"create_iam": False, "enable_aggregator": True}, None, "create_iam"),
            ({"enable_aggregator": True}, WITHOUT_IAM, "create_iam"),
            ({"create_iam_roles": True}, WITHOUT_IAM, "create_iam_roles"),
            ({"lambda_memory": 64}, OTHERS, "lambda_memory"),
        ],
    )
    def test_a_given_option_that_contradicts_a_stored_one_is_refused(
        self, chosen: dict[str, Any], stored: StackOptions | None, field: str
    ) -> None:
        with pytest.raises(ValidationError) as caught:
            GivenOptions(chosen).over(stored)

        assert field == caught.value.field

    @pytest.mark.parametrize(
        "chosen",
        [
            {"lambda_memory": 64},
            {"create_iam": "no"},
            {"create_iam": False, "create_iam_roles": True},
            {"create_iam": False, "enable_aggregator": True, "aggregator_role_arn": None},
        ],
    )
    def test_check_refuses_options_that_are_valid_on_no_stack(self, chosen: dict[str, Any]) -> None:
        """Without knowing the stack."""
        with pytest.raises(ValidationError):
            GivenOptions(chosen).check()

    @pytest.mark.parametrize("chosen", [{}, {"create_iam": False, "enable_aggregator": True}, {"create_iam": False}])
    def test_check_accepts_options_that_are_valid_on_some_stack(self, chosen: dict[str, Any]) -> None:
        GivenOptions(chosen).check()


class TestChanges:
    def test_changes_are_the_options_that_differ(self) -> None:
        after = replace(OTHERS, enable_deletion_protection=False, tags={})

        assert [
            OptionChange("enable_deletion_protection", True, False),
            OptionChange("tags", {"team": "search"}, {}),
        ] == option_changes(OTHERS, after)
        assert [] == option_changes(OTHERS, read(OTHERS))

    def test_parameters_of_unchanged_options_are_kept_as_they_are(self) -> None:
        """A stored text that options cannot express stays, such as a threshold in milliseconds."""
        stored = template_parameters("my-app", StackOptions()) | {"DurationAlarmThresholdMs": "30100", "Mine": "1"}
        before = stored_options("my-app", stored, {})
        after = replace(before, lambda_memory=512)

        assert stored.keys() - {"LambdaMemory", "Mine"} == kept_parameters("my-app", before, after, stored)

    def test_a_parameter_that_depends_on_two_options_changes_with_each(self) -> None:
        stored = template_parameters("my-app", OTHERS)
        after = replace(OTHERS, lambda_timeout=60)

        assert {"LambdaTimeout", "DurationAlarmThresholdMs"} == stored.keys() - kept_parameters(
            "my-app", OTHERS, after, stored
        )

    def test_a_reset_keeps_no_parameter(self) -> None:
        assert frozenset() == kept_parameters("my-app", None, StackOptions(), template_parameters("my-app", OTHERS))
