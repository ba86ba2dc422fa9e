"""Read the VPCs of a region, and decide what the network of a load test needs.

Lambda gives workers no public address, so in a public subnet they reach AWS through endpoints only.
The master on Fargate has a public address there. In a subnet without a route to the internet it
cannot pull a public image.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.loadtest.load_options import LoadOptions, NetworkPlan

_EVERYWHERE = ("0.0.0.0/0", "::/0")
_LOCATION = "the networks of this region"
# What the master calls besides the gateway endpoints, by the last part of the service's name.
_MASTER_SERVICES = ("ecr.api", "ecr.dkr", "lambda", "logs", "ecs", "ssmmessages")


class Reach(Enum):
    """How a subnet reaches the internet."""

    PUBLIC = "public"
    """Through an internet gateway, which needs a public address."""
    NAT = "private with NAT"
    """Through a NAT gateway, or another gateway of the account."""
    ISOLATED = "private without NAT"


@dataclass(frozen=True, slots=True)
class Vpc:
    """A VPC; its name is empty if it has none."""

    vpc_id: str
    name: str
    cidr: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet, and the route table that it uses; that is empty if it is unknown."""

    subnet_id: str
    zone: str
    cidr: str
    route_table_id: str
    reach: Reach


@dataclass(frozen=True, slots=True)
class VpcEndpoint:
    """An endpoint of a VPC for a service of AWS, such as ``dynamodb``."""

    endpoint_id: str
    service: str
    route_table_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """A VPC with its subnets and endpoints."""

    vpc_id: str
    subnets: tuple[Subnet, ...]
    endpoints: tuple[VpcEndpoint, ...]

    def without(self, endpoint_ids: Collection[str]) -> "Network":
        """Return the network without these endpoints, which belong to the stack itself."""
        others = tuple(one for one in self.endpoints if one.endpoint_id not in endpoint_ids)
        return Network(self.vpc_id, self.subnets, others)

    def chosen(self, subnet_ids: Sequence[str]) -> tuple[Subnet, ...]:
        """Return subnets by their ids.

        Raises:
            ValidationError: The VPC has no such subnet.
        """
        known = {one.subnet_id: one for one in self.subnets}
        for subnet_id in subnet_ids:
            if subnet_id not in known:
                raise ValidationError("subnet_ids", subnet_id, f"must be a subnet of {self.vpc_id}: {_listed(known)}")
        return tuple(known[subnet_id] for subnet_id in subnet_ids)

    def has(self, service: str) -> bool:
        """Return whether the VPC has an endpoint for a service."""
        return any(one.service == service for one in self.endpoints)


def suggested_subnets(network: Network) -> tuple[str, ...]:
    """Return subnets that need no options: all public ones, else all with NAT, else all."""
    for reach in Reach:
        found = tuple(one.subnet_id for one in network.subnets if one.reach is reach)
        if found:
            return found
    return ()


def plan_network(options: LoadOptions, network: Network, *, is_local: bool) -> NetworkPlan:
    """Decide what the network of a load test needs. A local AWS pulls no image and has no routes.

    Raises:
        ValidationError: A subnet is not in the VPC, or the master could not pull its image.
    """
    subnets = network.chosen(options.subnet_ids)
    isolated = [one.subnet_id for one in subnets if one.reach is Reach.ISOLATED]
    if isolated and not is_local and not options.build_image:
        reason = (
            f"{', '.join(isolated)} has no route to the internet, so the master cannot pull its public image; pass "
            "build_image=True, which needs docker, or choose other subnets"
        )
        raise ValidationError("build_image", options.build_image, reason)
    tables = sorted({one.route_table_id for one in subnets} - {""})
    gateways = options.dynamodb_endpoint and bool(tables)
    plan = NetworkPlan(
        assign_public_ip=any(one.reach is Reach.PUBLIC for one in subnets),
        create_dynamodb_endpoint=gateways and not network.has("dynamodb"),
        create_s3_endpoint=gateways and not network.has("s3"),
        create_ssm_endpoint=options.ssm_endpoint and not network.has("ssmmessages"),
        route_table_ids=tuple(tables),
    )
    return plan if is_local else replace(plan, notes=tuple(_notes(subnets, network, plan)))


def _notes(subnets: Iterable[Subnet], network: Network, plan: NetworkPlan) -> Iterator[str]:
    yield from _gateway_notes(subnets, network, plan)
    yield from _isolation_notes(subnets, network, plan)


def _gateway_notes(subnets: Iterable[Subnet], network: Network, plan: NetworkPlan) -> Iterator[str]:
    """Yield the gateway endpoints that workers without NAT need and that nothing provides."""
    needed = {one.route_table_id for one in subnets if one.reach is not Reach.NAT} - {""}
    created = {"dynamodb": plan.create_dynamodb_endpoint, "s3": plan.create_s3_endpoint}
    for service, is_created in created.items():
        if is_created:
            continue
        served = {table for one in network.endpoints if one.service == service for table in one.route_table_ids}
        missing = sorted(needed - served)
        if missing:
            yield (
                f"Workers cannot reach {service}: add the route tables {', '.join(missing)} to a gateway endpoint of "
                f"{network.vpc_id}"
            )


def _isolation_notes(subnets: Iterable[Subnet], network: Network, plan: NetworkPlan) -> Iterator[str]:
    if not any(one.reach is Reach.ISOLATED for one in subnets):
        return
    missing = [service for service in _MASTER_SERVICES if not network.has(service)]
    if plan.create_ssm_endpoint and "ssmmessages" in missing:
        missing.remove("ssmmessages")
    if missing:
        yield f"The master cannot start before {network.vpc_id} has interface endpoints for {', '.join(missing)}"


def reach_of(routes: Iterable[Mapping[str, Any]]) -> Reach:
    """Return how the default routes of a route table reach the internet."""
    targets = [
        str(value)
        for route in routes
        if route.get("DestinationCidrBlock", route.get("DestinationIpv6CidrBlock")) in _EVERYWHERE
        and route.get("State", "active") == "active"
        for name, value in route.items()
        if name.endswith("Id")
    ]
    if any(target.startswith("igw-") for target in targets):
        return Reach.PUBLIC
    return Reach.NAT if targets else Reach.ISOLATED


def read_vpcs(clients: Clients) -> list[Vpc]:
    """Return the VPCs of a region, the default one first.

    Raises:
        StorageError: AWS refuses the call, or cannot be reached.
    """
    told = _pages(clients, "describe_vpcs", "Vpcs")
    found = [Vpc(one["VpcId"], _name_of(one), one["CidrBlock"], bool(one.get("IsDefault"))) for one in told]
    return sorted(found, key=lambda one: (not one.is_default, one.name, one.vpc_id))


def read_network(clients: Clients, vpc_id: str) -> Network:
    """Return a VPC with its subnets and endpoints.

    Raises:
        ValidationError: There is no such VPC, or it has no subnets.
        StorageError: AWS refuses the call, or cannot be reached.
    """
    inside = [{"Name": "vpc-id", "Values": [vpc_id]}]
    tables = _pages(clients, "describe_route_tables", "RouteTables", inside)
    subnets = [_subnet_of(one, tables) for one in _pages(clients, "describe_subnets", "Subnets", inside)]
    if not subnets:
        known = _listed(one.vpc_id for one in read_vpcs(clients))
        raise ValidationError("vpc_id", vpc_id, f"must be a VPC of this region with subnets: {known}")
    told = _pages(clients, "describe_vpc_endpoints", "VpcEndpoints", inside)
    # A local AWS may ignore the filter.
    kept = [one for one in told if one.get("VpcId") == vpc_id and one.get("State") not in ("deleting", "deleted")]
    endpoints = tuple(map(_endpoint_of, kept))
    return Network(vpc_id, tuple(sorted(subnets, key=lambda one: (one.zone, one.subnet_id))), endpoints)


def _subnet_of(told: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Subnet:
    table = _table_of(told["SubnetId"], tables)
    return Subnet(
        told["SubnetId"],
        told.get("AvailabilityZone", ""),
        told["CidrBlock"],
        "" if table is None else table["RouteTableId"],
        reach_of([] if table is None else table["Routes"]),
    )


def _table_of(subnet_id: str, tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the route table of a subnet; without one of its own it uses the main table of the VPC."""
    joined = [(table, one) for table in tables for one in table.get("Associations", [])]
    own = [table for table, one in joined if one.get("SubnetId") == subnet_id]
    main = [table for table, one in joined if one.get("Main")]
    return next(iter([*own, *main]), None)


def _endpoint_of(told: Mapping[str, Any]) -> VpcEndpoint:
    """Return an endpoint; the service is the part of its name after the region: ``ecr.api``."""
    service = told["ServiceName"].partition("com.amazonaws.")[2].partition(".")[2] or told["ServiceName"]
    return VpcEndpoint(told["VpcEndpointId"], service, tuple(told.get("RouteTableIds", [])))


def _pages(
    clients: Clients, action: str, field: str, filters: list[dict[str, Any]] | None = None
) -> list[Mapping[str, Any]]:
    chosen = {} if filters is None else {"Filters": filters}
    try:
        pages = clients.of("ec2").get_paginator(action).paginate(**chosen)
        return [one for page in pages for one in page.get(field, [])]
    except FAILURES as failed:
        raise StorageError(_LOCATION, reason_of(failed)) from failed


def _name_of(told: Mapping[str, Any]) -> str:
    return next((str(tag["Value"]) for tag in told.get("Tags", []) if tag["Key"] == "Name"), "")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "it has none"
