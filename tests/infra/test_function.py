"""The aggregator's function is given its code, and given it again only when it is other code."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.infra.conftest import clients_at
from zae_limiter.core.errors import InfrastructureNotFoundError, StackOperationError
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack import Stack


def package_of(text: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as package:
        package.writestr("code.py", text)
    return written.getvalue()


def test_code_is_uploaded_once(stack: Stack, clients: Clients) -> None:
    stack.deploy(StackOptions())
    function = AggregatorFunction(stack.name, clients)
    first, second = package_of("first = 1"), package_of("second = 2")

    assert [True, False, True] == [function.upload(package) for package in (first, first, second)]
    assert package_sha256(second) == function.code_sha256()


def test_an_update_of_the_stack_keeps_the_code(stack: Stack, clients: Clients) -> None:
    """What the template says of the code never changes, so CloudFormation leaves it alone."""
    stack.deploy(StackOptions())
    function, package = AggregatorFunction(stack.name, clients), package_of("first = 1")
    function.upload(package)
    stack.deploy(StackOptions(lambda_memory=512))

    assert package_sha256(package) == function.code_sha256()


def test_without_a_function_there_is_nothing_to_upload_to(stack: Stack, clients: Clients) -> None:
    stack.deploy(StackOptions(enable_aggregator=False))
    function = AggregatorFunction(stack.name, clients)

    assert function.code_sha256() is None
    with pytest.raises(InfrastructureNotFoundError, match=stack.name):
        function.upload(package_of("first = 1"))


class Rival:
    """Answers an update as AWS does while somebody else's is under way; ``meanwhile`` is what that one does."""

    status_code = 409

    def __init__(self, times: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.times = times
        self.meanwhile = meanwhile

    def __call__(self, **_: Any) -> Any:
        if self.times == 0:
            return None
        self.times -= 1
        self.meanwhile()
        conflict = {"Code": "ResourceConflictException", "Message": "An update is in progress"}
        return self, {"Error": conflict, "ResponseMetadata": {"HTTPStatusCode": 409}}


class TestManyAtOnce:
    """A fleet is restarted with a new client: all of them see the old code, one is first."""

    @pytest.fixture
    def function(self, stack: Stack, clients: Clients) -> AggregatorFunction:
        role = "arn:aws:iam::000000000000:role/mine"
        stack.deploy(StackOptions(enable_alarms=False, create_iam=False, aggregator_role_arn=role))
        return AggregatorFunction(stack.name, clients)

    def test_who_comes_second_finds_the_code_in_place(
        self, function: AggregatorFunction, stack: Stack, clients: Clients, aws: Engine
    ) -> None:
        package = package_of("first = 1")
        rival = Rival(1, lambda: AggregatorFunction(stack.name, clients_at(aws.url)).upload(package))
        clients.of("lambda").meta.events.register("before-call.lambda.UpdateFunctionCode", rival)

        assert not function.upload(package)
        assert package_sha256(package) == function.code_sha256()

    def test_other_code_is_replaced_after_it(self, function: AggregatorFunction, clients: Clients) -> None:
        package = package_of("first = 1")
        clients.of("lambda").meta.events.register("before-call.lambda.UpdateFunctionCode", Rival(3))

        assert function.upload(package)
        assert package_sha256(package) == function.code_sha256()

    def test_nobody_tries_for_ever(self, function: AggregatorFunction, clients: Clients) -> None:
        clients.of("lambda").meta.events.register("before-call.lambda.UpdateFunctionCode", Rival(1000))

        with pytest.raises(StackOperationError, match="other deployments keep changing it; retry later"):
            function.upload(package_of("first = 1"))


def test_nobody_answers() -> None:
    with pytest.raises(StackOperationError, match=r"my-app-aggregator.*127\.0\.0\.1"):
        AggregatorFunction("my-app", clients_at("http://127.0.0.1:9")).code_sha256()
