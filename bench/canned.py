"""What a canned DynamoDB answers, taken from a limiter on memory that did the same, and a bare update to compare."""

import json

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.schema import namespace_item
from zae_limiter.schema.bucket_item import bucket_key
from zae_limiter.schema.config_item import system_place
from zae_limiter.tables.dynamodb.codec import encode_item

ENTITY, RESOURCE, CONSUME = "user-1", "gpt-4", {"rpm": 1, "tpm": 500}
TABLE = "canned-limiter"

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
    """The table at a responder's URL."""
    return f"dynamodb://{TABLE}?region=us-east-1&endpoint_url={url}"


def bodies() -> dict[str, bytes]:
    """The answers, by target."""
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
    # Far from full, so that takes are added, as they are in the middle of a minute.
    bucket |= {"b_rpm_tk": {"N": "-1000000000000"}, "b_tpm_tk": {"N": "-1000000000000"}}
    bucket |= {"rf": {"N": "1"}}
    return {
        "UpdateItem": _json({"Attributes": bucket}),
        "GetItem": _json({"Item": named}),
        "BatchGetItem": _json({"Responses": {TABLE: [bucket, system, registered]}}),
    }


def _json(answer: dict[str, object]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()
