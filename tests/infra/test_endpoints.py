"""What is on this machine or next to it is told from AWS by its address."""

import pytest

from tests.infra.conftest import clients_at
from zae_limiter.infra.clients import is_local


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:4566",
        "http://127.0.0.1:4566",
        "http://[::1]:4566",
        "http://192.168.1.7:4566",
        "http://localstack:4566",
        "http://host.docker.internal:4566",
        "https://localhost.localstack.cloud:4566",
        "http://aws.localhost",
    ],
)
def test_local(url: str) -> None:
    assert is_local(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://lambda.us-east-1.amazonaws.com",
        "https://lambda.cn-north-1.amazonaws.com.cn",
        "https://lambda.us-east-1.api.aws",
        "https://vpce-1a2b-3c4d.lambda.us-east-1.vpce.amazonaws.com",
        "https://54.240.1.1",
    ],
)
def test_not_local(url: str) -> None:
    assert not is_local(url)


def test_it_is_asked_of_where_calls_go() -> None:
    assert clients_at("http://localhost:4566").is_local("lambda")
