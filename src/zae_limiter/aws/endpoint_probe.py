"""Find the endpoint of a table: let botocore prepare and sign a call, but do not send it.

So the endpoint is the one that botocore would use. That includes partition, FIPS, dual stack,
``AWS_ENDPOINT_URL``, profiles and account-based endpoints.
"""

import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from botocore.awsrequest import AWSPreparedRequest, AWSResponse

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/aws4_request")


class ProbedEndpoint(NamedTuple):
    """The URL of a call, and the region and service of its signature; both empty without a SigV4 signature."""

    url: str
    region: str
    service: str


class _Nothing(io.BytesIO):
    """The body of a response that no server sent."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Return the body in one piece."""
        yield self.read()


def probe_endpoint(client: Any, table: str) -> ProbedEndpoint:
    """Prepare a read of a table with a botocore client, and return its endpoint."""
    prepared: list[AWSPreparedRequest] = []

    def keep(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        prepared.append(request)
        return AWSResponse(request.url, 200, {}, _Nothing(b"{}"))

    event = "before-send.dynamodb.GetItem"
    # A handler of this event that returns a response replaces the sending of the request.
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
