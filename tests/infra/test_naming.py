"""Resources are named after the stack, as the specification requires."""

import pytest

from zae_limiter.infra import naming


def test_resources_are_named_after_the_stack() -> None:
    assert "my-app" == naming.table_name("my-app")
    assert "my-app-aggregator" == naming.function_name("my-app")


def test_name_formats_are_applied_to_roles_and_policies() -> None:
    assert "pb-my-app-aggr-PowerUser" == naming.role_name("my-app", "aggr", "pb-{}-PowerUser")
    assert "my-app-ns-acq" == naming.policy_name("my-app", "ns-acq")


@pytest.mark.parametrize(("stack", "user"), [("my-app", "my-app"), ("ZAEL-my-app", "my-app"), ("ZAELapp", "ZAELapp")])
def test_the_old_prefix_is_not_part_of_the_users_name(stack: str, user: str) -> None:
    assert user == naming.user_name(stack)


def test_role_suffixes_fit_the_longest_stack_name() -> None:
    """A role name is at most 8 characters longer than the longest stack name, including the hyphen."""
    assert max(map(len, naming.ROLES)) <= naming.LONGEST_ROLE_NAME - 55 - 1
