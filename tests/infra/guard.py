"""IAM in front of an engine: calls that a policy allows pass; others are refused as AWS refuses them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.dynamodb import raw
from tests.infra.request_recorder import requests_of
from tests.infra.simulator import allows
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

TAG = "zael_namespace_id"
DENIED = "AccessDeniedException"


@dataclass(frozen=True, slots=True)
class Guard:
    """The policy and the tags of a principal."""

    document: Mapping[str, Any]
    tags: Mapping[str, str]

    def lets_through(self, verb: str, body: dict[str, Any]) -> bool:
        """Return whether every part of a call is allowed."""
        return all(allows(self.document, request, self.tags) for request in requests_of(verb, body))

    def wrapped(self, caller: Any) -> Any:
        """Return a client's transport that is restricted by the policy."""
        return _Guarded(caller, self)


class _Guarded:
    def __init__(self, caller: Any, guard: Guard) -> None:
        self._caller = caller
        self._guard = guard
        self.close = caller.close
        self.replace_keys = caller.replace_keys

    @property
    def signer(self) -> Any:
        return self._caller.signer

    def call(self, call: DynamoDbCall, until_s: float) -> Any:
        if self._guard.lets_through(call.target.rpartition(".")[2], json.loads(call.body)):
            return self._caller.call(call, until_s)
        return HttpResponse(400, json.dumps({"__type": DENIED, "message": "not authorized"}).encode(), None, "")


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal with raw access to a table, restricted by a policy."""

    url: str
    table: str
    guard: Guard

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Make a call and return the engine's answer; None if IAM refuses it."""
        if not self.guard.lets_through(verb, body):
            return None
        answer = raw.call(self.url, verb, body)
        return {"status": answer.status, **answer.json}

    def put(self, item: Mapping[str, Any]) -> bool:
        """Put an item given in typed JSON; False if IAM refuses it."""
        answer = self.call("PutItem", {"TableName": self.table, "Item": dict(item)})
        assert answer is None or answer["status"] == 200, answer
        return answer is not None
