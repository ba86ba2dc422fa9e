"""Everything is named after the stack, as the specification says."""

import pytest

from zae_limiter.infra import naming


def test_parts_are_named_after_the_stack() -> None:
    assert "my-app" == naming.table_name("my-app")
    assert "my-app-aggregator" == naming.function_name("my-app")
    assert "my-app-aggregator-dlq" == naming.dead_letter_queue_name("my-app")
    assert "/aws/lambda/my-app-aggregator" == naming.log_group_name("my-app")


def test_formats_surround_the_name() -> None:
    assert "pb-my-app-aggr-PowerUser" == naming.role_name("my-app", "aggr", "pb-{}-PowerUser")
    assert "my-app-ns-acq" == naming.policy_name("my-app", "ns-acq")


@pytest.mark.parametrize(("stack", "user"), [("my-app", "my-app"), ("ZAEL-my-app", "my-app"), ("ZAELapp", "ZAELapp")])
def test_the_old_prefix_is_not_the_users(stack: str, user: str) -> None:
    assert user == naming.user_name(stack)


def test_names_of_roles_leave_room() -> None:
    """The name of a role is at most 8 characters longer than the longest stack's, with its hyphen."""
    assert max(map(len, naming.ROLES)) <= naming.LONGEST_ROLE_NAME - 55 - 1
