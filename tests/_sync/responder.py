"""A transport that answers a DynamoDB table with prepared responses, in order."""  # generated from _async by tools/mirror.py; do not edit

import json

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.dynamodb_table import DynamoTable, Patience
from zae_limiter.clock import ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import HttpResponse

from .clients import SettableClock

TABLE = "limiter-test"
DEADLINE_S = 1.0
LOST = Unavailable(TimeoutError("no answer"), ambiguous=True)
UNREACHED = Unavailable(ConnectionRefusedError("refused"), ambiguous=False)


class Responder:
    """Return the next prepared response to each call, and repeat the last one; every call takes some time."""

    def __init__(self, *prepared, takes_ms=10):
        self.clock = SettableClock()
        self.calls = []
        self.signer = "first keys"
        self.new_keys = []
        self.refused_keys = []
        self._prepared = list(prepared)
        self._takes_ms = takes_ms

    def call(self, call, until_s):
        self.calls.append(call)
        left_ms = round((until_s - self.clock.monotonic_s()) * 1000)
        self.clock.advance(min(left_ms, self._takes_ms))
        if left_ms < self._takes_ms:
            return LOST
        return self._prepared.pop(0) if len(self._prepared) > 1 else self._prepared[0]

    def replace_keys(self, refused, until_s):
        self.refused_keys.append(refused)
        found = self.new_keys.pop(0) if self.new_keys else refused
        if isinstance(found, Exception):
            raise found
        self.signer = found

    def close(self):
        pass

    @property
    def verbs(self):
        """The operations that were called, in order."""
        return [call.target.partition(".")[2] for call in self.calls]

    @property
    def bodies(self):
        """The request bodies, in order."""
        return [json.loads(call.body) for call in self.calls]


def dynamo_table(responder, monkeypatch):
    """Return a table whose calls a responder answers, and whose waits move the responder's clock."""
    clock = responder.clock

    def sleep(seconds):
        clock.advance(int(seconds * 1000))

    monkeypatch.setattr(runtime, "sleep", sleep)
    return DynamoTable(TABLE, responder, ServerClock(clock), Patience(clock, DEADLINE_S, lambda: 1.0))


def succeeded(**members):
    """Return the response to a call that succeeded."""
    return HttpResponse(200, json.dumps(members).encode(), None, "")


def failed(code, message="", status=400, **members):
    """Return the response to a call that failed, or whose outcome is unknown."""
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **members}
    return HttpResponse(status, json.dumps(body).encode(), None, "")


def cancelled(*reasons):
    """Return the response to a cancelled transaction, with a code or a full reason per operation."""
    listed = [{"Code": reason} if isinstance(reason, str) else reason for reason in reasons]
    return failed("TransactionCanceledException", CancellationReasons=listed)


def described(status):
    """Return the response to DescribeTable."""
    return succeeded(Table={"TableStatus": status})
