"""Create, update, describe and delete the stack that runs load tests of a limiter. Blocking."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from zae_limiter.core.errors import InfrastructureNotFoundError, StackOperationError
from zae_limiter.infra import naming, tags
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.infra.cloudformation_stack import (
    PATIENCE_S,
    CloudFormationStack,
    StackListener,
    StackRequest,
    empty_bucket,
    ignore,
    parameter_list,
)
from zae_limiter.infra.discovery import LimiterInfo, list_limiters
from zae_limiter.infra.given_options import own_tags
from zae_limiter.infra.progress import StackStep
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.stack_state import StackResult
from zae_limiter.infra.template import load_template
from zae_limiter.loadtest.load_options import (
    LoadOptions,
    LoadOutputs,
    NetworkPlan,
    limiter_under_test,
    load_parameters,
    load_stack_name,
    outputs_of,
    stored_load_options,
)
from zae_limiter.loadtest.networks import Network, plan_network, read_network

_OWN_ENDPOINTS = ("DynamoDbEndpointId", "S3EndpointId", "SsmEndpointId")
# A worker that is still running may write while the bucket is emptied.
_DELETE_TRIES = 3


class LoadTestNotFoundError(InfrastructureNotFoundError):
    """The limiter with this name has no load test stack."""

    def __str__(self) -> str:
        where = "" if self.region is None else f" in {self.region}"
        advice = f"zae-limiter loadtest deploy --name {self.name} -C DIR"
        return f"There is no load test of the limiter {self.name!r}{where}. Deploy it with: {advice}"


@dataclass(frozen=True, slots=True)
class LoadTestInfo:
    """A load test stack, and the number of masters that it runs now; None if that is unknown."""

    stack: LimiterInfo
    running_masters: int | None


class LoadStack(CloudFormationStack):
    """The stack that tests one limiter."""

    stack_type = tags.LOAD_TEST
    described = "a load test"

    def __init__(self, limiter_name: str, clients: Clients, *, patience_s: float = PATIENCE_S) -> None:
        """Refer to the load test of a limiter, which need not exist.

        Raises:
            InvalidNameError: The name is not a valid stack name.
        """
        self.limiter = Stack(limiter_name, clients, patience_s=patience_s)
        super().__init__(load_stack_name(naming.user_name(limiter_name)), clients, patience_s=patience_s)

    def template(self) -> str:
        """Return the template of load tests."""
        return load_template()

    def outputs(self) -> LoadOutputs:
        """Return the resources of the stack.

        Raises:
            LoadTestNotFoundError: There is no stack.
            StackOperationError: The stack is incomplete, or not a load test.
        """
        found = self.require()
        self.own(found)
        return outputs_of(found)

    def stored_options(self) -> dict[str, Any]:
        """Return the options that a deployment keeps unless they are given; empty if there is no stack.

        Raises:
            StackOperationError: The stack is not a load test.
        """
        found = self.own(self.describe())
        if found is None or self._possible_step(found) is not StackStep.UPDATE:
            return {}
        return stored_load_options(found.parameters)

    def network(self, vpc_id: str) -> Network:
        """Return a VPC, without the endpoints that this stack created.

        Raises:
            ValidationError: There is no such VPC.
        """
        found = self.describe()
        own = {} if found is None else found.outputs
        return read_network(self._clients, vpc_id).without({own[name] for name in _OWN_ENDPOINTS if name in own})

    def plan(self, options: LoadOptions) -> NetworkPlan:
        """Return what the network needs.

        Raises:
            ValidationError: The subnets are not in the VPC, or need another image.
        """
        return plan_network(options, self.network(options.vpc_id), is_local=self._clients.is_local("ecs"))

    def deploy(self, options: LoadOptions, listener: StackListener = ignore) -> StackResult:
        """Create the stack, or update an existing one to these options. Waits for operations of others first.

        Raises:
            InfrastructureNotFoundError: There is no limiter with this name.
            ValidationError: An option does not fit the network, or a derived name is too long.
            StackOperationError: The operation is not possible; the message says why and what to do.
        """
        limiter = self.limiter.require()
        self.limiter.own(limiter)
        parameters = load_parameters(limiter_under_test(limiter), options, self.plan(options))
        said = own_tags(limiter.tags) | tags.load_test_tags(naming.user_name(limiter.name), _version())
        request = StackRequest(parameter_list(parameters), tags.to_list(said))
        found = self.own(self.wait(listener))
        step = self._possible_step(found)
        if step is StackStep.UPDATE:
            changed = self._update(lambda _: request, listener)
            return StackResult(self.require(), changed)
        if step is StackStep.REPLACE:
            self.delete(listener)
        self._create(request, listener)
        return StackResult(self.require(), changed=True)

    def delete(self, listener: StackListener = ignore) -> bool:
        """Stop the master, empty the bucket and delete the stack; False if it does not exist.

        Raises:
            StackOperationError: The deletion failed; the message has the reason.
        """
        found = self.own(self.wait(listener))
        if found is None:
            return False
        self._stop_master(found.outputs)
        for remaining in reversed(range(_DELETE_TRIES)):
            self._empty(found.outputs.get("BucketName"))
            try:
                self._delete(found, listener)
            except StackOperationError:
                if not remaining or not self._has_objects(found.outputs.get("BucketName")):
                    raise
            else:
                break
        return True

    def _not_found(self) -> InfrastructureNotFoundError:
        return LoadTestNotFoundError(naming.user_name(self.limiter.name), self._clients.region)

    def _stop_master(self, outputs: Mapping[str, str]) -> None:
        """Scale the service to zero, so that the master does not write to the bucket any more."""
        if "ServiceName" not in outputs:
            return
        with suppress(*FAILURES):
            self._clients.of("ecs").update_service(
                cluster=outputs["ClusterName"], service=outputs["ServiceName"], desiredCount=0
            )

    def _empty(self, bucket: str | None) -> None:
        if bucket is None:
            return
        try:
            empty_bucket(self._clients.of("s3"), bucket)
        except FAILURES as failed:
            raise StackOperationError(self.name, f"cannot empty the bucket {bucket}: {reason_of(failed)}") from failed

    def _has_objects(self, bucket: str | None) -> bool:
        if bucket is None:
            return False
        with suppress(*FAILURES):
            return bool(self._clients.of("s3").list_objects_v2(Bucket=bucket, MaxKeys=1).get("KeyCount"))
        return False


def list_load_tests(clients: Clients) -> list[LoadTestInfo]:
    """Return the load test stacks of a region, sorted by name.

    Raises:
        ValidationError: No region is configured.
        InfrastructureError: There are no credentials, or AWS refuses the call or cannot be reached.
    """
    return [LoadTestInfo(one, _running(clients, one.stack_name)) for one in list_limiters(clients, tags.LOAD_TEST)]


def _running(clients: Clients, cluster: str) -> int | None:
    """Return the number of tasks of a cluster, None if AWS refuses to tell it."""
    try:
        return len(clients.of("ecs").list_tasks(cluster=cluster, desiredStatus="RUNNING")["taskArns"])
    except FAILURES:
        return None


def _version() -> str:
    return metadata.version("zae-limiter")
