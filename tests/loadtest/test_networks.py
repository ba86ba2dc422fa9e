"""How subnets reach the internet, and what a load test in them needs."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.loadtest.load_stacks import VPC, load_options, local_clients
from zae_limiter.core.errors import ValidationError
from zae_limiter.infra.clients import Clients
from zae_limiter.loadtest.networks import (
    Network,
    Reach,
    Subnet,
    VpcEndpoint,
    plan_network,
    reach_of,
    read_network,
    read_vpcs,
    suggested_subnets,
)

INSIDE = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}


def route(**target: str) -> dict[str, str]:
    return {"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target}


def subnet(name: str, reach: Reach, table: str = "rtb-1") -> Subnet:
    return Subnet(name, "us-east-1a", "10.0.0.0/24", table, reach)


def network(*subnets: Subnet, endpoints: tuple[VpcEndpoint, ...] = ()) -> Network:
    return Network("vpc-1", subnets, endpoints)


PUBLIC, NAT, ISOLATED = (
    subnet("public", Reach.PUBLIC),
    subnet("nat", Reach.NAT, "rtb-2"),
    subnet("alone", Reach.ISOLATED),
)


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ([INSIDE], Reach.ISOLATED),
        ([], Reach.ISOLATED),
        ([INSIDE, route(GatewayId="igw-1")], Reach.PUBLIC),
        ([INSIDE, route(NatGatewayId="nat-1")], Reach.NAT),
        ([INSIDE, route(TransitGatewayId="tgw-1")], Reach.NAT),
        ([INSIDE, route(NatGatewayId="nat-1") | {"State": "blackhole"}], Reach.ISOLATED),
        ([{"DestinationIpv6CidrBlock": "::/0", "GatewayId": "igw-1"}], Reach.PUBLIC),
    ],
)
def test_reach_of_a_subnet_is_that_of_its_default_route(routes: list[dict[str, str]], expected: Reach) -> None:
    assert expected is reach_of(routes)


@pytest.mark.parametrize(
    ("subnets", "expected"),
    [((ISOLATED, NAT, PUBLIC), ("public",)), ((ISOLATED, NAT), ("nat",)), ((ISOLATED,), ("alone",)), ((), ())],
)
def test_suggested_subnets_need_the_fewest_options(subnets: tuple[Subnet, ...], expected: tuple[str, ...]) -> None:
    assert expected == suggested_subnets(network(*subnets))


def test_plan_for_public_subnets_has_an_address_and_free_endpoints() -> None:
    """Workers have no public address, so they reach DynamoDB and S3 through endpoints only."""
    plan = plan_network(load_options(subnet_ids=("public",)), network(PUBLIC), is_local=False)

    assert (True, True, True, False) == (
        plan.assign_public_ip,
        plan.create_dynamodb_endpoint,
        plan.create_s3_endpoint,
        plan.create_ssm_endpoint,
    )
    assert (("rtb-1",), ()) == (plan.route_table_ids, plan.notes)


def test_plan_skips_endpoints_that_the_vpc_has() -> None:
    """A second one for the same route table would be refused."""
    endpoints = (VpcEndpoint("vpce-1", "dynamodb", ("rtb-1",)), VpcEndpoint("vpce-2", "ssmmessages"))
    options = load_options(subnet_ids=("public",), ssm_endpoint=True)
    plan = plan_network(options, network(PUBLIC, endpoints=endpoints), is_local=False)

    assert (False, True, False) == (
        plan.create_dynamodb_endpoint,
        plan.create_s3_endpoint,
        plan.create_ssm_endpoint,
    )


def test_plan_names_route_tables_that_no_endpoint_serves() -> None:
    """Otherwise the first run would show it, as a worker that does not connect."""
    endpoints = (VpcEndpoint("vpce-1", "dynamodb", ("rtb-9",)), VpcEndpoint("vpce-2", "s3", ("rtb-1",)))
    plan = plan_network(load_options(subnet_ids=("public",)), network(PUBLIC, endpoints=endpoints), is_local=False)
    (note,) = plan.notes

    assert note.startswith("Workers cannot reach dynamodb: add the route tables rtb-1")


def test_plan_without_endpoints_in_subnets_with_nat_needs_none() -> None:
    options = load_options(subnet_ids=("nat",), dynamodb_endpoint=False)
    plan = plan_network(options, network(NAT), is_local=False)

    assert (False, False, ()) == (plan.assign_public_ip, plan.create_dynamodb_endpoint, plan.notes)


def test_subnets_without_a_route_need_an_image_of_the_stack() -> None:
    """The message says what to pass; nothing was created."""
    with pytest.raises(ValidationError, match=r"alone has no route to the internet.*build_image=True") as caught:
        plan_network(load_options(subnet_ids=("nat", "alone")), network(NAT, ISOLATED), is_local=False)

    assert "build_image" == caught.value.field


def test_isolated_subnets_name_the_endpoints_that_the_master_lacks() -> None:
    """The stack creates none of them, because they are billed by the hour."""
    endpoints = tuple(VpcEndpoint(f"vpce-{name}", name) for name in ("ecr.api", "ecr.dkr", "logs"))
    options = load_options(subnet_ids=("alone",), build_image=True, ssm_endpoint=True)
    plan = plan_network(options, network(ISOLATED, endpoints=endpoints), is_local=False)

    assert ("The master cannot start before vpc-1 has interface endpoints for lambda, ecs",) == plan.notes


def test_local_aws_needs_no_route() -> None:
    """It pulls no image, and its default VPC has no gateway."""
    plan = plan_network(load_options(subnet_ids=("alone",)), network(ISOLATED), is_local=True)

    assert ((), True) == (plan.notes, plan.create_dynamodb_endpoint)


def test_subnet_of_another_vpc_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValidationError, match="must be a subnet of vpc-1: public, nat"):
        plan_network(load_options(subnet_ids=("elsewhere",)), network(PUBLIC, NAT), is_local=False)


@pytest.fixture(scope="module")
def clients() -> Clients:
    return local_clients()


class TestReading:
    """The networks of a local AWS."""

    @pytest.fixture
    def vpc(self, clients: Clients) -> Iterator[dict[str, Any]]:
        """A VPC with a public and an isolated subnet, and an endpoint."""
        ec2 = clients.of("ec2")
        made: dict[str, Any] = {"vpc": ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]}
        for name, cidr in (("public", "10.9.1.0/24"), ("alone", "10.9.2.0/24")):
            made[name] = ec2.create_subnet(VpcId=made["vpc"], CidrBlock=cidr)["Subnet"]["SubnetId"]
        made["table"] = ec2.create_route_table(VpcId=made["vpc"])["RouteTable"]["RouteTableId"]
        made["gateway"] = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=made["gateway"], VpcId=made["vpc"])
        ec2.create_route(RouteTableId=made["table"], DestinationCidrBlock="0.0.0.0/0", GatewayId=made["gateway"])
        ec2.associate_route_table(RouteTableId=made["table"], SubnetId=made["public"])
        service = "com.amazonaws.us-east-1.dynamodb"
        made["endpoint"] = ec2.create_vpc_endpoint(
            VpcId=made["vpc"], ServiceName=service, RouteTableIds=[made["table"]]
        )["VpcEndpoint"]["VpcEndpointId"]
        yield made
        ec2.delete_vpc_endpoints(VpcEndpointIds=[made["endpoint"]])

    def test_default_vpc_is_listed_first(self, clients: Clients, vpc: dict[str, Any]) -> None:
        found = read_vpcs(clients)

        assert (VPC, True) == (found[0].vpc_id, found[0].is_default)
        assert vpc["vpc"] in [one.vpc_id for one in found]

    def test_network_has_subnets_with_their_reach_and_endpoints(self, clients: Clients, vpc: dict[str, Any]) -> None:
        """A subnet without a route table of its own uses the main table."""
        found = read_network(clients, vpc["vpc"])
        reach = {one.subnet_id: one.reach for one in found.subnets}

        assert {vpc["public"]: Reach.PUBLIC, vpc["alone"]: Reach.ISOLATED} == reach
        assert (VpcEndpoint(vpc["endpoint"], "dynamodb", (vpc["table"],)),) == found.endpoints
        assert not found.without({vpc["endpoint"]}).has("dynamodb")

    def test_unknown_vpc_is_refused_with_those_that_exist(self, clients: Clients) -> None:
        with pytest.raises(ValidationError, match=VPC):
            read_network(clients, "vpc-0123")
