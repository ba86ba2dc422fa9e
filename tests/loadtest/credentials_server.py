"""A server with what a task of Fargate reaches: its credentials, and objects of a bucket for signed requests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEYS = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret/with+signs", "Token": "token=="}
REGION = "eu-central-1"
CREDENTIALS_PATH = "/credentials"


@dataclass
class TaskSurroundings:
    """The objects by path, and the paths that were asked for with a right signature."""

    objects: dict[str, bytes]
    url: str = ""
    signed: list[str] = field(default_factory=list)


def expected_signature(url: str, headers: dict[str, str]) -> str:
    """Return the header that botocore computes for the same request at the same time."""
    request = AWSRequest("GET", url, headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    request.context = {"timestamp": headers["x-amz-date"], "payload_signing_enabled": False}
    request.headers["X-Amz-Date"] = headers["x-amz-date"]
    request.headers["X-Amz-Security-Token"] = KEYS["Token"]
    signer = S3SigV4Auth(Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], KEYS["Token"]), "s3", REGION)
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    signed = signer.signed_headers(signer.headers_to_sign(request))
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={signed}, Signature={signature}"


@contextmanager
def task_surroundings(objects: dict[str, bytes]) -> Iterator[TaskSurroundings]:
    """Run the server and yield what it has."""
    here = TaskSurroundings(objects)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*self._found())

        def _found(self) -> tuple[int, bytes]:
            if self.path == CREDENTIALS_PATH:
                return 200, json.dumps(KEYS).encode()
            told = {name.lower(): value for name, value in self.headers.items()}
            if self.headers["Authorization"] != expected_signature(here.url + self.path, told):
                return 403, b""
            here.signed.append(self.path)
            return (200, objects[self.path]) if self.path in objects else (404, b"")

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        here.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield here
        finally:
            server.shutdown()
