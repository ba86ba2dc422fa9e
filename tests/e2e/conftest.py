"""A local AWS, one per test process, with limiters in it that no other test names."""

import pytest

from tests.dynamodb.engines import EngineAbsentError, running
from tests.e2e.stage import Stage, fresh_stage


@pytest.fixture(scope="session")
def aws_url() -> str:
    try:
        return running("aws").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="module")
def stage(aws_url: str) -> Stage:
    """A limiter that is deployed with its aggregator, from the command line."""
    stage = fresh_stage(aws_url)
    stage.told("deploy", "--no-alarms")
    return stage
