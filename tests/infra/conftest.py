"""A local AWS per test process, and stack names that no other test uses."""

from collections.abc import Callable
from typing import Any

import botocore.session
import pytest

from tests.dynamodb.engines import Engine, EngineAbsentError, fresh_table_name, running
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.stack import Stack


@pytest.fixture(scope="session")
def aws() -> Engine:
    try:
        return running("aws")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


def clients_at(url: str, region: str = "us-east-1") -> Clients:
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    return Clients(region, url, session)


@pytest.fixture
def clients(aws: Engine) -> Clients:
    return clients_at(aws.url)


@pytest.fixture
def stack_name() -> str:
    return fresh_table_name()


@pytest.fixture
def stack(clients: Clients, stack_name: str) -> Stack:
    return Stack(stack_name, clients)


@pytest.fixture
def client(clients: Clients) -> Callable[[str], Any]:
    return clients.of
