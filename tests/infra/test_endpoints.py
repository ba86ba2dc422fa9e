"""A local AWS is recognised by its address, and an engine that only has DynamoDB raises clear errors."""

import pytest

from tests.dynamodb.engines import ENGINES, EngineAbsentError, fresh_table_name, running
from tests.dynamodb.trees import session
from tests.infra.conftest import clients_at
from zae_limiter import InfrastructureError, RateLimiterUnavailable, StackOperationError, SyncRepository
from zae_limiter.infra.clients import is_local
from zae_limiter.infra.discovery import list_limiters
from zae_limiter.infra.function import AggregatorFunction
from zae_limiter.infra.stack import Stack


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
def test_a_private_or_local_address_is_local(url: str) -> None:
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
def test_an_aws_or_public_address_is_not_local(url: str) -> None:
    assert not is_local(url)


def test_clients_are_local_if_their_endpoint_is() -> None:
    assert clients_at("http://localhost:4566").is_local("lambda")


class TestDynamoDbOnly:
    """A service that the engine lacks raises a package error."""

    @pytest.fixture(params=ENGINES)
    def url(self, request: pytest.FixtureRequest) -> str:
        try:
            return running(request.param).url
        except EngineAbsentError as absent:
            pytest.skip(str(absent))

    def test_an_engine_without_cloudformation_and_lambda_raises_package_errors(self, url: str) -> None:
        clients = clients_at(url)

        with pytest.raises(StackOperationError, match="my-app"):
            Stack("my-app", clients).describe()
        with pytest.raises(StackOperationError, match="my-app-aggregator"):
            AggregatorFunction("my-app", clients).code_sha256()
        with pytest.raises(RateLimiterUnavailable):
            list_limiters(clients)

    def test_a_stack_cannot_be_built_on_an_engine_without_cloudformation(self, url: str) -> None:
        with pytest.raises(InfrastructureError):
            SyncRepository.builder(fresh_table_name(), "us-east-1", endpoint_url=url, session=session()).build()

    def test_an_existing_table_on_an_engine_without_cloudformation_is_used(self, url: str) -> None:
        name = fresh_table_name()
        place = f"dynamodb://{name}?region=us-east-1&endpoint_url={url}&create=true"
        SyncRepository.open(place, session=session(), deadline_s=20).close()
        builder = SyncRepository.builder(name, "us-east-1", endpoint_url=url, session=session())
        with builder.deadline_s(20).build() as repo:
            status = repo.get_status()

        assert (True, None, "ACTIVE", name) == (
            status.available,
            status.stack_status,
            status.table_status,
            status.name,
        )
