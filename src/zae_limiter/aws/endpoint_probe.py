"""A call that botocore prepares and signs in full but does not send: what it would send is read off.

So the endpoint is the one botocore itself would use: partition, FIPS, dual stack, ``AWS_ENDPOINT_URL`` and profiles,
account-based endpoints included.
"""

import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/aws4_request")


class ProbedEndpoint(NamedTuple):
    """Where a call would have gone, and what its signature is good for; empty where it is no SigV4 signature."""

    url: str
    region: str
    service: str


class _Nothing(io.BytesIO):
    """The body of an answer that nobody sent."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Return the body in one piece."""
        yield self.read()


def probe_endpoint(client: Any, table: str) -> ProbedEndpoint:
    """Prepare a read of a table with a botocore client, and return where it would have gone."""
    prepared: list[AWSPreparedRequest] = []

    def keep(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        prepared.append(request)
        return AWSResponse(request.url, 200, {}, _Nothing(b"{}"))

    event = "before-send.dynamodb.GetItem"
    client.meta.events.register_first(event, keep)
    try:
        client.get_item(TableName=table, Key={"PK": {"S": "-"}, "SK": {"S": "-"}})
    finally:
        client.meta.events.unregister(event, keep)
    (request,) = prepared
    signed = request.headers.get("Authorization", b"")
    text = signed.decode("latin-1") if isinstance(signed, bytes) else str(signed)
    found = _SCOPE.search(text)
    return ProbedEndpoint(str(request.url), *(found.groups() if found else ("", "")))
