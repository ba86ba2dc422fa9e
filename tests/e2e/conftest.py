"""A local AWS per test process, with limiters whose names no other test uses."""

import pytest

from tests.dynamodb.engines import EngineAbsentError, running
from tests.e2e.deployment import Deployment, new_deployment


@pytest.fixture(scope="session")
def aws_url() -> str:
    try:
        return running("aws").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="module")
def deployment(aws_url: str) -> Deployment:
    """Return a limiter that is deployed with its aggregator, from the command line."""
    deployment = new_deployment(aws_url)
    deployment.printed("deploy", "--no-alarms", "--usage-interval-seconds", "0")
    return deployment
