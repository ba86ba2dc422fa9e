"""Single unsigned DynamoDB calls by plain HTTP, for tests of engines, proxy and responder."""

import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_S = 120.0
VERSION = "DynamoDB_20120810"
# Engines require the form of a signature, but do not verify it.
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, "
    "SignedHeaders=host;x-amz-date;x-amz-target, Signature=0"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The error code without its namespace, which ministack leaves out."""
        return str(self.json["__type"]).rpartition("#")[2]


def headers(target: str, amz_date: str = "20260101T000000Z") -> dict[str, str]:
    """Return the headers of one call."""
    return {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"{VERSION}.{target}",
        "X-Amz-Date": amz_date,
        "Authorization": AUTHORIZATION,
    }


def connect(url: str) -> http.client.HTTPConnection:
    """Open a connection to keep."""
    place = urlsplit(url)
    return http.client.HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT_S)


def ask(connection: http.client.HTTPConnection, target: str, body: object) -> Answer:
    """Make a call on a kept connection."""
    connection.request("POST", "/", json.dumps(body), headers(target))
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, found, response.read())


def call(url: str, target: str, body: object) -> Answer:
    """Make a call on a new connection."""
    connection = connect(url)
    try:
        return ask(connection, target, body)
    finally:
        connection.close()


def create_table(url: str, name: str) -> Answer:
    """Create a table with PK and SK, and a KEYS_ONLY index on GSI1PK and GSI1SK."""
    return call(
        url,
        "CreateTable",
        {
            "TableName": name,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": key, "AttributeType": "S"} for key in ("PK", "SK", "GSI1PK", "GSI1SK")
            ],
            "KeySchema": key_schema("PK", "SK"),
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "GSI1",
                    "KeySchema": key_schema("GSI1PK", "GSI1SK"),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        },
    )


def key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]
