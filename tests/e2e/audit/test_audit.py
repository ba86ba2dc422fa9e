"""Changes of limits are in the audit, and archived when they expire."""

import gzip
import json
import time
from dataclasses import asdict
from typing import Any

from tests.e2e.deployment import Deployment
from zae_limiter import Limit

EXPIRY = {"principalId": "dynamodb.amazonaws.com", "type": "Service"}


def test_change_of_limits_takes_effect_and_is_in_the_audit(deployment: Deployment) -> None:
    """From the command line and from the library, at every level, with the name of the author."""
    deployment.printed_data("system", "set-defaults", "-l", "rpd:10/d", "--principal", "ops")
    with deployment.opened() as repo:
        repo.set_resource_defaults("gpt-4", [Limit.per_day("rpd", 20)], principal="ops")
        repo.set_limits("user-1", [Limit.per_day("rpd", 30)], "gpt-4", principal="sales")
        events = repo.get_audit_events("user-1")
    asked = (("user-1", "gpt-4"), ("user-2", "gpt-4"), ("user-2", "api"))
    found = [deployment.printed_data("available", *who)["available"]["rpd"] for who in asked]

    assert [30, 20, 10] == found
    assert [("limits_set", "sales", "gpt-4")] == [(one.action, one.principal, one.resource) for one in events]


def test_audit_event_that_expires_is_archived_once(deployment: Deployment) -> None:
    """The function writes it to the bucket once, even if it is delivered twice; the engine's stream has no expiries."""
    with deployment.opened() as repo:
        repo.set_limits("user-9", [Limit.per_day("rpd", 9)], "gpt-4", principal="ops")
        (event,) = repo.get_audit_events("user-9")
        namespace_id = repo.scope.namespace_id
    item = next(one for one in deployment.items() if one["SK"]["S"] == f"#AUDIT#{event.event_id}")
    answers = [deployment.hand_to_function([expiry_of(item)]) for _ in range(2)]
    bucket = deployment.printed("status")["outputs"]["ArchiveBucketName"]

    assert [[], []] == [answer["batchItemFailures"] for answer in answers]
    assert [{"namespace_id": namespace_id, **asdict(event)}] == archived(deployment, bucket)


def expiry_of(item: dict[str, Any]) -> dict[str, Any]:
    """Return the record of an item that DynamoDB removed because it had expired."""
    record = {
        "Keys": {"PK": item["PK"], "SK": item["SK"]},
        "OldImage": item,
        "SequenceNumber": "900000000000000000001",
        "ApproximateCreationDateTime": int(time.time()),
    }
    return {"eventName": "REMOVE", "userIdentity": EXPIRY, "dynamodb": record}


def archived(deployment: Deployment, bucket: str) -> list[Any]:
    """Return all events in the archive."""
    client = deployment.clients.of("s3")
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
    texts = [gzip.decompress(client.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys]
    return [json.loads(line) for text in texts for line in text.splitlines()]
