"""No name of an entity or a resource lets a principal reach a partition that its policy does not include.

A policy matches the start or a part of a partition key, and names may contain slashes and colons.
"""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import strategies as some
from tests.infra.request_recorder import TABLE
from tests.infra.resolved import Resolved
from tests.infra.simulator import Request, allows
from tests.infra.test_policies import POLICIES, TAG
from zae_limiter.core.audit import resource_audit_id
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.schema import keys

STACK = Resolved("my-app", template_parameters("my-app", StackOptions()))
DOCUMENTS = {name: STACK.properties(logical)["PolicyDocument"] for name, logical in POLICIES.items()}
INDEX = f"{TABLE}/index/GSI1"
WRITES = ("dynamodb:PutItem", "dynamodb:UpdateItem")
READS = ("dynamodb:GetItem", "dynamodb:BatchGetItem")

# The namespace of another tenant is often a part of the name.
entity_ids = some.entity_ids | st.sampled_from(
    ["a/victim00000/BUCKET", "a/_/SYSTEM", "a/BUCKET", "a|_/AUDIT", "a/ENTITY"]
)
resources = some.resources | st.sampled_from(["@victim00000/BUCKET", "a/_/SYSTEM", "a/BUCKET", "a:_/AUDIT"])


def partitions(namespace_id: str, entity_id: str, resource: str) -> dict[str, str]:
    """Return every partition key that contains a name, by the word after its namespace."""
    return {
        "BUCKET": keys.pk_bucket(namespace_id, entity_id, resource, 0),
        "ENTITY": keys.pk_entity(namespace_id, entity_id),
        "RESOURCE": keys.pk_resource(namespace_id, resource),
        "AUDIT": keys.pk_audit(namespace_id, entity_id),
        "AUDIT of a resource": keys.pk_audit(namespace_id, resource_audit_id(resource)),
    }


def index_partitions(namespace_id: str, entity_id: str, resource: str) -> list[str]:
    """Return every index partition that contains a name."""
    return [
        keys.gsi1_pk_parent(namespace_id, entity_id),
        keys.gsi2_pk_resource(namespace_id, resource),
        keys.gsi3_pk_entity(namespace_id, entity_id),
        keys.gsi3_pk_entity_config(namespace_id, resource),
    ]


def may(policy: str, action: str, pk: str, tag: str, resource: str = TABLE) -> bool:
    """Return whether a policy allows a call on a partition to a principal of a namespace."""
    return allows(DOCUMENTS[policy], Request(action, resource, frozenset({pk})), {TAG: tag})


@pytest.mark.parametrize("policy", ["ns-acq", "ns-full", "ns-read"])
@given(
    own=some.namespace_ids, other=st.just("victim00000") | some.namespace_ids, entity_id=entity_ids, resource=resources
)
def test_a_tenant_reaches_no_partition_of_another_whatever_its_names(
    policy: str, own: str, other: str, entity_id: str, resource: str
) -> None:
    """The namespace id ends at the first slash of a key."""
    assume(own != other)
    actions = (*READS, *WRITES, "dynamodb:DeleteItem", "dynamodb:Query")
    theirs = partitions(other, entity_id, resource).values()
    indexed = index_partitions(other, entity_id, resource)

    assert [] == [(action, pk) for action in actions for pk in theirs if may(policy, action, pk, own)]
    assert [] == [pk for pk in indexed if may(policy, "dynamodb:Query", pk, own, INDEX)]


@given(own=some.namespace_ids, entity_id=entity_ids, resource=resources)
def test_a_tenant_reaches_its_own_partitions_whatever_its_names(own: str, entity_id: str, resource: str) -> None:
    """No name looks like a key of the registry, which is denied."""
    ours = partitions(own, entity_id, resource).values()
    indexed = index_partitions(own, entity_id, resource)
    writes = (*WRITES, "dynamodb:DeleteItem")

    assert [] == [pk for pk in ours for action in (*READS, *writes) if not may("ns-full", action, pk, own)]
    assert [] == [pk for pk in indexed if not may("ns-full", "dynamodb:Query", pk, own, INDEX)]


@pytest.mark.parametrize("policy", ["acq", "ns-acq"])
@given(own=some.namespace_ids, entity_id=entity_ids, resource=resources)
def test_an_acquire_policy_writes_only_buckets_whatever_the_names(
    policy: str, own: str, entity_id: str, resource: str
) -> None:
    """The pattern of buckets ends with a number sign, which is in no name."""
    found = partitions(own, entity_id, resource)
    writable = {kind for kind, pk in found.items() for action in WRITES if may(policy, action, pk, own)}
    readable = {kind for kind, pk in found.items() for action in READS if may(policy, action, pk, own)}

    assert {"BUCKET"} == writable
    assert {"BUCKET", "ENTITY", "RESOURCE"} == readable
