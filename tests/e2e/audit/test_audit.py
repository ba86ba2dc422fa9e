"""Who changed what is told, and archived when it expires."""

import gzip
import json
import time
from dataclasses import asdict
from typing import Any

from tests.e2e.stage import Stage
from zae_limiter import Limit

EXPIRY = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}


def test_a_change_of_limits_takes_effect_and_is_told(stage: Stage) -> None:
    """From the command line and from the library, at every level, by the name of who made it."""
    stage.told_of_data("system", "set-defaults", "-l", "rpd:10/d", "--principal", "ops")
    with stage.opened() as repo:
        repo.set_resource_defaults("gpt-4", [Limit.per_day("rpd", 20)], principal="ops")
        repo.set_limits("user-1", [Limit.per_day("rpd", 30)], "gpt-4", principal="sales")
        events = repo.get_audit_events("user-1")
    asked = (("user-1", "gpt-4"), ("user-2", "gpt-4"), ("user-2", "api"))
    found = [stage.told_of_data("available", *who)["available"]["rpd"] for who in asked]

    assert [30, 20, 10] == found
    assert [("limits_set", "sales", "gpt-4")] == [(one.action, one.principal, one.resource) for one in events]


def test_an_event_that_expires_is_archived(stage: Stage) -> None:
    """The function writes it to the bucket, once, though it is told twice; the stream of the engine tells no expiry."""
    with stage.opened() as repo:
        repo.set_limits("user-9", [Limit.per_day("rpd", 9)], "gpt-4", principal="ops")
        (event,) = repo.get_audit_events("user-9")
        namespace_id = repo.scope.namespace_id
    item = next(one for one in stage.items() if one["SK"]["S"] == f"#AUDIT#{event.event_id}")
    answers = [stage.hand_to_function([expiry_of(item)]) for _ in range(2)]
    bucket = stage.told("status")["outputs"]["ArchiveBucketName"]

    assert [[], []] == [answer["batchItemFailures"] for answer in answers]
    assert [{"namespace_id": namespace_id, **asdict(event)}] == archived(stage, bucket)


def expiry_of(item: dict[str, Any]) -> dict[str, Any]:
    """The record of an item that DynamoDB removed because it had expired."""
    told = {
        "Keys": {"PK": item["PK"], "SK": item["SK"]},
        "OldImage": item,
        "SequenceNumber": "900000000000000000001",
        "ApproximateCreationDateTime": int(time.time()),
    }
    return {"eventName": "REMOVE", "userIdentity": EXPIRY, "dynamodb": told}


def archived(stage: Stage, bucket: str) -> list[Any]:
    """All events in the archive."""
    client = stage.clients.of("s3")
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
    texts = [gzip.decompress(client.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys]
    return [json.loads(line) for text in texts for line in text.splitlines()]
