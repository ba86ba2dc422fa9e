"""The requests that a client makes of AWS, as IAM sees them, recorded where calls leave the client."""

import json
import re
from typing import Any

from tests.infra.simulator import Request
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

TABLE = "Table.Arn"
"""What the template calls the table's ARN before it is made."""

_REFUSAL = {
    "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
    "message": "too many",
    "ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": "table"}],
}
_PARTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}

_KEYLESS = {"Scan", "DescribeTable", "UpdateTable", "DeleteTable", "UpdateTimeToLive", "CreateBackup", "ListTables"}


class Recorder:
    """Record the calls of transports, and throttle this many writes."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.throttles = 0

    def wrapped(self, caller: Any) -> Any:
        """Return a transport whose calls are recorded."""
        return _Recording(caller, self)

    def throttled(self, call: DynamoDbCall) -> bool:
        """Return whether a call is to be throttled."""
        if not (self.throttles and call.target.endswith(".UpdateItem")):
            return False
        self.throttles -= 1
        return True

    def taken(self) -> list[Request]:
        """Return the requests recorded since the last call."""
        heard, self.requests = self.requests, []
        return heard


class _Recording:
    def __init__(self, caller: Any, recorder: Recorder) -> None:
        self._caller = caller
        self._recorder = recorder
        self.close = caller.close
        self.replace_keys = caller.replace_keys

    @property
    def signer(self) -> Any:
        return self._caller.signer

    def call(self, call: DynamoDbCall, until_s: float) -> Any:
        self._recorder.requests += requests_of(call.target.rpartition(".")[2], json.loads(call.body))
        if self._recorder.throttled(call):
            return HttpResponse(400, json.dumps(_REFUSAL).encode(), None, "")
        return self._caller.call(call, until_s)


def requests_of(verb: str, body: dict[str, Any]) -> list[Request]:
    """Return what IAM is asked for by a call: one action, or one per operation of a transaction.

    The keys are None if the call has none, or if IAM does not see them.
    """
    match verb:
        case "TransactWriteItems":
            parts = [next(iter(part.items())) for part in body["TransactItems"]]
            return [_request(_PARTS[kind], TABLE, [_key(asked)]) for kind, asked in parts]
        case "TransactGetItems":
            return [_request("GetItem", TABLE, [_key(part["Get"])]) for part in body["TransactItems"]]
        case "Query":
            resource = f"{TABLE}/index/{body['IndexName']}" if "IndexName" in body else TABLE
            return [_request(verb, resource, [{"PK": _partition(body)}])]
        case "BatchGetItem":
            return [_request(verb, TABLE, asked["Keys"]) for asked in body["RequestItems"].values()]
        case "BatchWriteItem":
            (writes,) = body["RequestItems"].values()
            return [_request(verb, TABLE, [_key(next(iter(write.values()))) for write in writes])]
        case "ExecuteStatement":
            return [Request(_partiql(body["Statement"]), TABLE, None)]
        case "ExecuteTransaction" | "BatchExecuteStatement":
            statements = body.get("TransactStatements") or body["Statements"]
            return [Request(_partiql(one["Statement"]), TABLE, None) for one in statements]
        case "GetItem" | "UpdateItem" | "DeleteItem" | "PutItem":
            return [_request(verb, TABLE, [_key(body)])]
    assert verb in _KEYLESS, f"{verb} is not known here"
    return [Request(f"dynamodb:{verb}", f"{TABLE}/index/{body['IndexName']}" if "IndexName" in body else TABLE, None)]


def _partition(query: dict[str, Any]) -> Any:
    """Return the value that a query requires of the partition key."""
    found = re.match(r"\s*#?\w+\s*=\s*(:\w+)", query["KeyConditionExpression"])
    assert found is not None, query["KeyConditionExpression"]
    return query["ExpressionAttributeValues"][found[1]]


def _partiql(statement: str) -> str:
    return f"dynamodb:PartiQL{statement.split()[0].capitalize()}"


def _key(asked: dict[str, Any]) -> Any:
    return asked.get("Key") or asked["Item"]


def _request(action: str, resource: str, keys: list[dict[str, Any]]) -> Request:
    return Request(f"dynamodb:{action}", resource, frozenset(key["PK"]["S"] for key in keys))
