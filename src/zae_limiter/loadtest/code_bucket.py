"""Read and write the bucket of a load test: its code, and the files of its runs. Blocking."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.exceptions

from zae_limiter.core.errors import StorageError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of

WORKER_KEY = "code/worker.zip"
"""The package of the worker function."""
WHEELS_KEY = "code/wheels.zip"
"""The wheels that the master installs, as one archive, so that an upload replaces all of them at the same time."""
LOCUSTFILES_KEY = "code/locustfiles.zip"
"""The folder of locust files."""

_DIGEST = "sha256"
_MISSING = ("NoSuchKey", "404", "NotFound")


class CodeBucket:
    """The objects of one bucket, by key."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self.name = name

    def put_json(self, key: str, value: object) -> None:
        """Write a value as JSON.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        self.put_file(key, json.dumps(value).encode())

    def get_json(self, key: str) -> Any:
        """Return the value of an object with JSON, None if it does not exist.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        found = self.get_file(key)
        return None if found is None else json.loads(found)

    def put_file(self, key: str, content: bytes) -> None:
        """Write an object.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        with self._translated():
            self._s3.put_object(Bucket=self.name, Key=key, Body=content)

    def replace_file(self, key: str, content: bytes) -> bool:
        """Write an object unless it has this content already; return whether it was written.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        digest = hashlib.sha256(content).hexdigest()
        found = self._head(key)
        if found is not None and found.get("Metadata", {}).get(_DIGEST) == digest:
            return False
        with self._translated():
            self._s3.put_object(Bucket=self.name, Key=key, Body=content, Metadata={_DIGEST: digest})
        return True

    def get_file(self, key: str) -> bytes | None:
        """Return the content of an object, None if it does not exist.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        with self._translated():
            try:
                return bytes(self._s3.get_object(Bucket=self.name, Key=key)["Body"].read())
            except botocore.exceptions.ClientError as error:
                if _is_missing(error):
                    return None
                raise

    def exists(self, key: str) -> bool:
        """Return whether an object exists.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        return self._head(key) is not None

    def list(self, prefix: str) -> list[str]:
        """Return the keys that start with a prefix, sorted.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        with self._translated():
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
            return sorted(one["Key"] for page in pages for one in page.get("Contents", []))

    def delete(self, key: str) -> None:
        """Delete an object; one that does not exist is ignored.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        with self._translated():
            self._s3.delete_object(Bucket=self.name, Key=key)

    def _head(self, key: str) -> dict[str, Any] | None:
        """Return the headers of an object, None if it does not exist."""
        with self._translated():
            try:
                return dict(self._s3.head_object(Bucket=self.name, Key=key))
            except botocore.exceptions.ClientError as error:
                if _is_missing(error):
                    return None
                raise

    @property
    def _s3(self) -> Any:
        return self._clients.of("s3")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of AWS as errors of this package."""
        try:
            yield
        except FAILURES as failed:
            raise StorageError(f"the bucket {self.name}", reason_of(failed)) from failed


def _is_missing(error: botocore.exceptions.ClientError) -> bool:
    return str(error.response.get("Error", {}).get("Code", "")) in _MISSING
