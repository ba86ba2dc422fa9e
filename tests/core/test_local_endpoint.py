"""Which variables lead to a local AWS."""

import pytest

from zae_limiter.core.local_endpoint import is_local, local_variables, variable_with

LOCAL = "http://127.0.0.1:4566"
STORE = f"dynamodb://my-app?region=us-east-1&endpoint_url={LOCAL}"
SET_BY_LOCAL_ENV = {
    "AWS_ENDPOINT_URL": LOCAL,
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "ZAE_LIMITER_URL": STORE,
}


@pytest.mark.parametrize(
    ("endpoint_url", "expected"),
    [
        (LOCAL, True),
        ("http://localhost:4566", True),
        ("http://[::1]:4566", True),
        ("https://dynamodb.us-east-1.amazonaws.com", False),
        ("http://127.0.0.1.example.org", False),
        ("http://[", False),
        ("", False),
        (None, False),
    ],
)
def test_endpoint_is_local_if_its_host_is_this_machine(endpoint_url, expected):
    """A name that only begins like it is another host."""
    assert expected == is_local(endpoint_url)


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({"AWS_ENDPOINT_URL": LOCAL, "ZAE_LIMITER_URL": STORE}, "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "https://example.org", "ZAE_LIMITER_URL": STORE}, "ZAE_LIMITER_URL"),
        ({"ZAE_LIMITER_URL": "sqlite:///limits.db"}, None),
        ({"ZAE_LIMITER_URL": "nonsense"}, None),
        ({}, None),
    ],
)
def test_variable_that_leads_to_an_endpoint_is_found(environment, variable):
    """Either for all of AWS, or as a part of the store's URL."""
    assert variable == variable_with(LOCAL, environment)


def test_variables_of_a_local_aws_are_all_that_it_sets():
    """So a shell leaves it completely."""
    assert [*SET_BY_LOCAL_ENV] == local_variables({**SET_BY_LOCAL_ENV, "PATH": "/bin"})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"AWS_ENDPOINT_URL": "https://example.org", "ZAE_LIMITER_URL": "sqlite:///limits.db"},
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
        ),
        (
            {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "mine"},
            ["AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "ZAE_LIMITER_URL"],
        ),
    ],
)
def test_variables_that_the_user_has_set_since_are_kept(changed, expected):
    """Other keys, another endpoint with its region, another store."""
    assert expected == local_variables(SET_BY_LOCAL_ENV | changed)


def test_variables_of_an_empty_environment_are_none():
    """There is nothing to unset."""
    assert [] == local_variables({})
