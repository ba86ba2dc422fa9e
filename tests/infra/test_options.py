"""Stack options are validated before anything is created."""

from typing import Any

import pytest

from zae_limiter.core.errors import InvalidNameError, ValidationError
from zae_limiter.infra.options import StackOptions, template_parameters

BAD_CHOICES: list[tuple[str, object]] = [
    ("snapshot_windows", "hourly,weekly"),
    ("snapshot_windows", ""),
    ("snapshot_windows", ["hourly"]),
    ("usage_interval_seconds", -1),
    ("usage_interval_seconds", 301),
    ("usage_retention_days", 0),
    ("audit_retention_days", 3651),
    ("audit_archive_glacier_days", -1),
    ("pitr_recovery_days", 36),
    ("pitr_recovery_days", "7"),
    ("log_retention_days", 31),
    ("log_retention_days", 30.0),
    ("lambda_timeout", 901),
    ("lambda_memory", 64),
    ("lambda_duration_threshold_pct", 101),
    ("enable_alarms", "no"),
    ("enable_tracing", 1),
    ("alarm_sns_topic", "alarms"),
    ("warning_sns_topic", "warnings"),
    ("aggregator_role_arn", "mine"),
    ("permission_boundary", "arn:aws:s3:::bucket"),
    ("permission_boundary", "a b"),
    ("permission_boundary", ""),
    ("role_name_format", "pb-"),
    ("role_name_format", "{}-{}"),
    ("policy_name_format", "p b{}"),
    ("policy_name_format", "x" * 119 + "{}"),
    ("tags", ["team"]),
]


@pytest.mark.parametrize(("name", "value"), BAD_CHOICES)
def test_an_invalid_stack_option_is_refused_by_its_name(name: str, value: Any) -> None:
    """The error names the option, and so the flag to change."""
    with pytest.raises(ValidationError) as caught:
        StackOptions(**{name: value})

    assert name == caught.value.field


BAD_TAGS: list[object] = [
    *({"": "a"}, {"aws:team": "a"}, {"zae-limiter:name": "a"}),
    *({"team": "a" * 257}, {"k" * 129: "a"}, {"a#": "b"}, {"team": 3}),
    {str(number): "a" for number in range(41)},
]


@pytest.mark.parametrize("tags", BAD_TAGS)
def test_invalid_and_reserved_tags_are_refused(tags: Any) -> None:
    """A user cannot replace the tags by which stacks are found."""
    with pytest.raises(ValidationError, match="tag"):
        StackOptions(tags=tags)


class TestIam:
    def test_an_aggregator_without_iam_requires_a_role(self) -> None:
        """The error names both alternatives."""
        with pytest.raises(ValidationError, match=r"aggregator_role_arn.*enable_aggregator=False"):
            StackOptions(create_iam=False)

    def test_iam_roles_without_iam_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="create_iam_roles"):
            StackOptions(create_iam=False, enable_aggregator=False, create_iam_roles=True)

    def test_a_stack_without_iam_and_aggregator_is_valid(self) -> None:
        parameters = template_parameters("my-app", StackOptions(create_iam=False, enable_aggregator=False))

        assert ("false", "false") == (parameters["CreateIam"], parameters["EnableAggregator"])

    def test_a_role_name_that_is_too_long_for_iam_is_refused(self) -> None:
        """Stack names have up to 55 characters with the shortest format, and fewer with a longer one."""
        name = "n" * 55
        template_parameters(name, StackOptions())

        with pytest.raises(ValidationError, match="64"):
            template_parameters(name, StackOptions(role_name_format="pb-{}-PowerUser"))

    def test_a_policy_name_may_be_longer_than_a_role_name(self) -> None:
        with pytest.raises(ValidationError, match="128"):
            template_parameters("n" * 55, StackOptions(policy_name_format="x" * 90 + "{}"))

    def test_names_of_roles_that_are_not_created_are_not_checked(self) -> None:
        options = StackOptions(create_iam=False, enable_aggregator=False, role_name_format="pb-{}-PowerUser")

        assert "pb-" == template_parameters("n" * 55, options)["RoleNamePrefix"]


@pytest.mark.parametrize("name", ["rate_limits", "my.app", "123app", "n" * 56, "", "ä"])
def test_an_invalid_stack_name_is_refused(name: str) -> None:
    """A name has up to 55 letters, digits and hyphens, and starts with a letter."""
    with pytest.raises(InvalidNameError):
        template_parameters(name, StackOptions())


def test_snapshot_windows_are_normalised() -> None:
    """Spaces and repetitions are removed."""
    parameters = template_parameters("my-app", StackOptions(snapshot_windows="hourly, daily,hourly"))

    assert "hourly,daily" == parameters["SnapshotWindows"]
