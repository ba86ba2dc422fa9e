"""Calls carried by a botocore client, for what the lean transport does not speak; slower, with the same outcomes."""

from calendar import timegm
from email.utils import parsedate
from functools import partial
from typing import Any

import botocore.exceptions
import botocore.utils
import orjson
from botocore import xform_name

from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.calls import Call
from zae_limiter.tables.dynamodb.wire import Answer

_EVENTS = (
    "provide-client-params",
    "before-parameter-build",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "before-send",
    "response-received",
    "after-call",
    "needs-retry",
)
_UNSENT = (
    botocore.exceptions.ConnectTimeoutError,
    botocore.exceptions.EndpointConnectionError,
    botocore.exceptions.ProxyConnectionError,
    botocore.exceptions.SSLError,
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.CredentialRetrievalError,
    botocore.exceptions.ParamValidationError,
)


def reason_to_carry(client: Any, url: str, *, signed: bool) -> str | None:
    """Say why calls must go through botocore, None where they need not.

    ``signed``: a call that was prepared for this URL bore a signature of version 4.
    """
    config = client.meta.config
    scheme = url.partition("://")[0]
    proxies = config.proxies or botocore.utils.get_environ_proxies(url)
    if proxies.get(scheme):
        return "a proxy is configured"
    if not signed:
        return f"calls are signed by {config.signature_version!r}, not by version 4"
    if config.client_cert:
        return "a client certificate is configured"
    hook = _custom_hook(client)
    return None if hook is None else f"the session has an event hook of its own: {hook}"


class Carrier:
    """Makes calls with a botocore client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def call(self, call: Call) -> Answer | Unavailable:
        """Make one call, once."""
        operation = xform_name(call.target.rpartition(".")[2])
        try:
            response = getattr(self._client, operation)(**orjson.loads(call.body))
        except botocore.exceptions.ClientError as error:
            return _refusal(error.response)
        except _UNSENT as error:
            return Unavailable(error, ambiguous=False)
        except botocore.exceptions.BotoCoreError as error:
            return Unavailable(error, ambiguous=True)
        return _answer(response, response.pop("ResponseMetadata"))

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()


def _refusal(response: Any) -> Answer:
    """Return a refusal as the server worded it."""
    told = dict(response)
    metadata, error = told.pop("ResponseMetadata", {}), told.pop("Error", {})
    told |= {"__type": error.get("Code", ""), "message": error.get("Message", "")}
    return _answer(told, metadata)


def _answer(told: dict[str, Any], metadata: Any) -> Answer:
    date = parsedate(metadata.get("HTTPHeaders", {}).get("date"))
    body = orjson.dumps(told, default=str)
    return Answer(metadata.get("HTTPStatusCode", 500), body, None if date is None else timegm(date), "")


def _custom_hook(client: Any) -> str | None:
    """Return the first handler on a call's way that neither botocore nor boto3 brought along."""
    emitter = client.meta.events
    emitter = getattr(emitter, "_emitter", emitter)
    handlers = getattr(emitter, "_handlers", None)
    if handlers is None:
        return None
    for event in _EVENTS:
        for operation in ("GetItem", "UpdateItem"):
            for handler in handlers.prefix_search(f"{event}.dynamodb.{operation}"):
                module = _home(handler)
                if module.partition(".")[0] not in ("botocore", "boto3"):
                    return f"{event}: {module}"
    return None


def _home(handler: Any) -> str:
    """Return the module a handler was written in."""
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(handler, "__module__", None) or type(handler).__module__
