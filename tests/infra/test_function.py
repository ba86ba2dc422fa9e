"""Code is uploaded to the aggregator's function only if it differs."""

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


def test_the_same_code_is_uploaded_once(stack: Stack, clients: Clients) -> None:
    stack.deploy(StackOptions())
    function = AggregatorFunction(stack.name, clients)
    first, second = package_of("first = 1"), package_of("second = 2")

    assert [True, False, True] == [function.upload(package) for package in (first, first, second)]
    assert package_sha256(second) == function.code_sha256()


def test_an_update_of_the_stack_keeps_the_uploaded_code(stack: Stack, clients: Clients) -> None:
    """The code in the template never changes, so CloudFormation does not replace it."""
    stack.deploy(StackOptions())
    function, package = AggregatorFunction(stack.name, clients), package_of("first = 1")
    function.upload(package)
    stack.deploy(StackOptions(lambda_memory=512))

    assert package_sha256(package) == function.code_sha256()


def test_an_upload_without_a_function_is_refused(stack: Stack, clients: Clients) -> None:
    stack.deploy(StackOptions(enable_aggregator=False))
    function = AggregatorFunction(stack.name, clients)

    assert function.code_sha256() is None
    with pytest.raises(InfrastructureNotFoundError, match=stack.name):
        function.upload(package_of("first = 1"))


class ConflictingUpdate:
    """Answer an update as AWS does during another update; ``meanwhile`` is that other update."""

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


class TestConcurrentUploads:
    """Many clients start with new code at the same time, and all of them see the old code."""

    @pytest.fixture
    def function(self, stack: Stack, clients: Clients) -> AggregatorFunction:
        role = "arn:aws:iam::000000000000:role/mine"
        stack.deploy(StackOptions(enable_alarms=False, create_iam=False, aggregator_role_arn=role))
        return AggregatorFunction(stack.name, clients)

    def test_an_upload_after_a_concurrent_one_finds_the_code_in_place(
        self, function: AggregatorFunction, stack: Stack, clients: Clients, aws: Engine
    ) -> None:
        package = package_of("first = 1")
        rival = ConflictingUpdate(1, lambda: AggregatorFunction(stack.name, clients_at(aws.url)).upload(package))
        clients.of("lambda").meta.events.register("before-call.lambda.UpdateFunctionCode", rival)

        assert not function.upload(package)
        assert package_sha256(package) == function.code_sha256()

    def test_an_upload_replaces_other_code_after_a_concurrent_update(
        self, function: AggregatorFunction, clients: Clients
    ) -> None:
        package = package_of("first = 1")
        clients.of("lambda").meta.events.register("before-call.lambda.UpdateFunctionCode", ConflictingUpdate(3))

        assert function.upload(package)
        assert package_sha256(package) == function.code_sha256()

    def test_an_upload_gives_up_after_many_conflicts(self, function: AggregatorFunction, clients: Clients) -> None:
        clients.of("lambda").meta.events.register("before-call.lambda.UpdateFunctionCode", ConflictingUpdate(1000))

        with pytest.raises(StackOperationError, match="other deployments keep changing it; retry later"):
            function.upload(package_of("first = 1"))


def test_a_function_of_an_unavailable_aws_raises_an_error() -> None:
    with pytest.raises(StackOperationError, match=r"my-app-aggregator.*127\.0\.0\.1"):
        AggregatorFunction("my-app", clients_at("http://127.0.0.1:9")).code_sha256()
