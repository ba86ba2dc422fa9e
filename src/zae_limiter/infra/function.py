"""Find and replace the code of the Lambda functions of stacks. Blocking."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import botocore.exceptions

from zae_limiter.core.errors import InfrastructureNotFoundError, StackOperationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.infra import naming
from zae_limiter.infra.clients import FAILURES, Clients, reason_of

_PATIENCE = {"Delay": 1, "MaxAttempts": 300}
_MOST_TRIES = 10


@dataclass(frozen=True, slots=True)
class UploadedPackage:
    """A package that was uploaded to a bucket before, because it is too large for a call."""

    bucket: str
    key: str


class LambdaFunction:
    """A function of one stack, by its name."""

    def __init__(self, name: str, stack_name: str, clients: Clients) -> None:
        self._stack_name = stack_name
        self._clients = clients
        self.name = name

    def code_sha256(self) -> str | None:
        """Return the digest of the function's package, None if there is no function.

        Raises:
            StackOperationError: AWS refuses the call, or cannot be reached.
        """
        client = self._clients.of("lambda")
        with self._translated():
            try:
                return str(client.get_function_configuration(FunctionName=self.name)["CodeSha256"])
            except client.exceptions.ResourceNotFoundException:
                return None

    def upload(self, package: bytes, *, force: bool = False, uploaded: UploadedPackage | None = None) -> bool:
        """Upload a package and wait until the function runs it; False if it did already, unless ``force``.

        Lambda reads the package from a bucket if ``uploaded`` is given.

        Raises:
            InfrastructureNotFoundError: There is no function.
            StackOperationError: AWS refuses the call, or the function does not start; the message has the reason.
        """
        # A conflict means that another deployment changes the function. Then check again, because
        # it may have uploaded the same code.
        for _ in range(_MOST_TRIES):
            runs = self.code_sha256()
            if runs is None:
                raise InfrastructureNotFoundError(self._stack_name, self._clients.region)
            if runs == package_sha256(package) and not force:
                return False
            if self._replace_code(_code(package, uploaded)):
                return True
        reason = f"the function {self.name}: other deployments keep changing it; retry later"
        raise StackOperationError(self._stack_name, reason)

    def _replace_code(self, code: Mapping[str, Any]) -> bool:
        """Replace the code and wait until the function runs it; False if another deployment was faster."""
        client = self._clients.of("lambda")
        with self._translated():
            # A function that is being updated rejects another update.
            self._await(client, "function_active_v2")
            self._await(client, "function_updated_v2")
            try:
                client.update_function_code(FunctionName=self.name, **code)
            except client.exceptions.ResourceConflictException:
                return False
            self._await(client, "function_updated_v2")
        return True

    def _await(self, client: Any, waiter: str) -> None:
        try:
            client.get_waiter(waiter).wait(FunctionName=self.name, WaiterConfig=_PATIENCE)
        except botocore.exceptions.WaiterError as error:
            last = getattr(error, "last_response", None) or {}
            configuration = last.get("Configuration", last)
            reason = configuration.get("LastUpdateStatusReason") or configuration.get("StateReason") or str(error)
            raise StackOperationError(self._stack_name, f"the function {self.name}: {reason}") from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of AWS as errors of this package."""
        try:
            yield
        except FAILURES as failed:
            raise StackOperationError(self._stack_name, f"the function {self.name}: {reason_of(failed)}") from failed


class AggregatorFunction(LambdaFunction):
    """The aggregator function of one stack."""

    def __init__(self, stack_name: str, clients: Clients) -> None:
        super().__init__(naming.function_name(stack_name), stack_name, clients)


def package_sha256(package: bytes) -> str:
    """Return the digest of a package in the format of Lambda."""
    return base64.b64encode(hashlib.sha256(package).digest()).decode()


def _code(package: bytes, uploaded: UploadedPackage | None) -> dict[str, Any]:
    """Return the arguments that name the code in a call."""
    return {"ZipFile": package} if uploaded is None else {"S3Bucket": uploaded.bucket, "S3Key": uploaded.key}
