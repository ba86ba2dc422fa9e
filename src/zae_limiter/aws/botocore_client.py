"""Make calls with a botocore client, for cases that the lean transport does not support.

It is slower and has the same outcomes.
"""

import ssl
import threading
from calendar import timegm
from email.utils import parsedate
from functools import partial
from typing import Any

import botocore.exceptions
import botocore.utils
import orjson
import urllib3.exceptions
from botocore import xform_name

from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

_EVENTS = (
    "provide-client-params",
    "before-parameter-build",
    "before-endpoint-resolution",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "before-send",
    "before-parse",
    "response-received",
    "after-call",
    "after-call-error",
    "needs-retry",
)
_OPERATIONS = (
    "GetItem",
    "BatchGetItem",
    "Query",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchWriteItem",
    "TransactWriteItems",
    "DescribeTable",
    "CreateTable",
    "UpdateTimeToLive",
)
_LOST = (
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.ChecksumError,
    botocore.exceptions.ConnectionError,
    botocore.exceptions.IncompleteReadError,
)
"""Errors that can occur after a request was sent. All other botocore errors occur before."""
_NOT_CONNECTED = (
    botocore.exceptions.ConnectTimeoutError,
    botocore.exceptions.EndpointConnectionError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    ssl.SSLCertVerificationError,
)


def reason_to_carry(client: Any, url: str, *, signed: bool) -> str | None:
    """Return why calls must go through botocore, None if they need not.

    ``signed`` is True if a call that was prepared for this URL had a version 4 signature.
    """
    config = client.meta.config
    scheme = url.partition("://")[0]
    proxies = botocore.utils.get_environ_proxies(url) if config.proxies is None else config.proxies
    if proxies.get(scheme):
        return "a proxy is configured"
    if not signed:
        return f"calls have the signature {config.signature_version!r}, not version 4"
    if config.client_cert:
        return "a client certificate is configured"
    hook = _custom_hook(client)
    return None if hook is None else f"the session has a custom event hook: {hook}"


class BotocoreClient:
    """Make calls with a botocore client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._received = threading.local()
        client.meta.events.register("response-received.dynamodb", self._keep)

    def call(self, call: DynamoDbCall) -> HttpResponse | Unavailable:
        """Make one call, without retries."""
        operation = call.target.rpartition(".")[2]
        self._received.body = None
        try:
            response = getattr(self._client, xform_name(operation))(**orjson.loads(call.body))
        except botocore.exceptions.ClientError as error:
            # A credential provider makes calls too, so the refused call may be one of those.
            if error.operation_name != operation:
                return Unavailable(error, ambiguous=False)
            return _refusal(error.response)
        except botocore.exceptions.BotoCoreError as error:
            # Remove the request: it contains the signature, and errors may be shown to users.
            vars(error).pop("request", None)
            error.kwargs.pop("request", None)
            return Unavailable(error, ambiguous=isinstance(error, _LOST) and not _unsent(error))
        except Exception as error:  # noqa: BLE001 - an event hook or a provider of keys may raise anything
            return Unavailable(error, ambiguous=True)
        metadata = response.pop("ResponseMetadata")
        body = self._received.body
        if body is not None and not _is_object(body):
            # Hazard: botocore parses anything that is not JSON, such as a proxy's page, as an empty
            # response.
            return HttpResponse(metadata["HTTPStatusCode"], body, None, "")
        return _answer(response, metadata)

    def _keep(self, response_dict: Any, **_: Any) -> None:
        """Keep the received body in the thread that made the call."""
        self._received.body = None if response_dict is None else response_dict["body"]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _unsent(error: BaseException | None) -> bool:
    """Return whether a call failed before there was a connection to send it over."""
    if error is None or isinstance(error, _NOT_CONNECTED):
        return error is not None
    inner = getattr(error, "kwargs", {}).get("error") or getattr(error, "reason", None)
    return _unsent(inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__)


def _is_object(body: bytes) -> bool:
    try:
        return type(orjson.loads(body)) is dict
    except orjson.JSONDecodeError:
        return False


def _refusal(response: Any) -> HttpResponse:
    """Return an error response in the server's own format."""
    told = dict(response)
    metadata, error = told.pop("ResponseMetadata", {}), told.pop("Error", {})
    told |= {"__type": error.get("Code", ""), "message": error.get("Message", "")}
    return _answer(told, metadata)


def _answer(told: dict[str, Any], metadata: Any) -> HttpResponse:
    date = parsedate(metadata.get("HTTPHeaders", {}).get("date"))
    body = orjson.dumps(told, default=str)
    return HttpResponse(metadata.get("HTTPStatusCode", 500), body, None if date is None else timegm(date), "")


def _custom_hook(client: Any) -> str | None:
    """Return the first handler of a call that belongs to neither botocore nor boto3, or None."""
    emitter = client.meta.events
    emitter = getattr(emitter, "_emitter", emitter)
    handlers = getattr(emitter, "_handlers", None)
    if handlers is None:
        return None
    for event in _EVENTS:
        for operation in _OPERATIONS:
            for handler in handlers.prefix_search(f"{event}.dynamodb.{operation}"):
                module = _home(handler)
                if module.partition(".")[0] not in ("botocore", "boto3"):
                    return f"{event}: {module}"
    return None


def _home(handler: Any) -> str:
    """Return the module that defines a handler."""
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(handler, "__module__", None) or type(handler).__module__
