"""Make canned DynamoDB responses from a limiter on memory that did the same, and a bare update to compare with."""

import json

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.schema import entity_item, namespace_item
from zae_limiter.schema.bucket_item import bucket_key
from zae_limiter.schema.config_item import system_place
from zae_limiter.tables.dynamodb.codec import encode_item

ENTITY, RESOURCE, CONSUME = "user-1", "gpt-4", {"rpm": 1, "tpm": 500}
TABLE = "canned-limiter"
# Far below full, so that takes are added, as in the middle of a minute.
FAR_FROM_FULL = {"b_rpm_tk": {"N": "-1000000000000"}, "b_tpm_tk": {"N": "-1000000000000"}, "rf": {"N": "1"}}

UPDATE = {
    "TableName": TABLE,
    "Key": {"PK": {"S": "ns/BUCKET#user-1#gpt-4#0"}, "SK": {"S": "#STATE"}},
    "UpdateExpression": "ADD #t :n, #u :m",
    "ConditionExpression": "#t >= :least AND #u >= :least",
    "ExpressionAttributeNames": {"#t": "b_rpm_tk", "#u": "b_tpm_tk"},
    "ExpressionAttributeValues": {":n": {"N": "-1000"}, ":m": {"N": "-500000"}, ":least": {"N": "1000"}},
    "ReturnValues": "ALL_NEW",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


def location(url: str) -> str:
    """Return the URL of the table at a responder."""
    return f"dynamodb://{TABLE}?region=us-east-1&endpoint_url={url}"


def bodies() -> dict[str, bytes]:
    """Return the responses, by target."""
    with SyncRepository.open("memory://") as repository:
        limits = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
        repository.set_system_defaults(limits)
        with SyncRateLimiter(repository).acquire(ENTITY, RESOURCE, CONSUME):
            pass
        table, namespace_id = repository.scope.table, repository.scope.namespace_id
        bucket = encode_item(table.get(bucket_key(namespace_id, ENTITY, RESOURCE)))
        system = encode_item(table.get(system_place(namespace_id).key))
        registered = encode_item(table.get(namespace_item.reverse_key(namespace_id)))
        named = encode_item(table.get(namespace_item.forward_key("default")))
    bucket |= FAR_FROM_FULL
    return {
        "UpdateItem": _json({"Attributes": bucket}),
        "GetItem": _json({"Item": named}),
        "BatchGetItem": _json({"Responses": {TABLE: [bucket, system, registered]}}),
    }


def cascading_bodies(child: str, parent: str) -> dict[str, bytes]:
    """Return the responses to acquires of a child that cascades; every update returns the child's item."""
    with SyncRepository.open("memory://") as repository:
        repository.set_system_defaults([Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)])
        repository.create_entity(parent)
        repository.create_entity(child, parent_id=parent, cascade=True)
        with SyncRateLimiter(repository).acquire(child, RESOURCE, CONSUME):
            pass
        table, namespace_id = repository.scope.table, repository.scope.namespace_id
        keys = [bucket_key(namespace_id, entity, RESOURCE) for entity in (child, parent)]
        keys += [entity_item.key(namespace_id, entity) for entity in (child, parent)]
        keys += [system_place(namespace_id).key, namespace_item.reverse_key(namespace_id)]
        items = [encode_item(table.get(key)) for key in keys]
        items[:2] = [item | FAR_FROM_FULL for item in items[:2]]
        named = encode_item(table.get(namespace_item.forward_key("default")))
    return {
        "UpdateItem": _json({"Attributes": items[0]}),
        "GetItem": _json({"Item": named}),
        "BatchGetItem": _json({"Responses": {TABLE: items}}),
        "TransactWriteItems": _json({}),
    }


def _json(answer: dict[str, object]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()
