"""A bucket in memory, with the interface of the one on AWS."""

import json
from typing import Any


class MemoryBucket:
    """Objects by key."""

    name = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_json(self, key: str, value: object) -> None:
        self.put_file(key, json.dumps(value).encode())

    def get_json(self, key: str) -> Any:
        found = self.get_file(key)
        return None if found is None else json.loads(found)

    def put_file(self, key: str, content: bytes) -> None:
        self.objects[key] = content

    def get_file(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def exists(self, key: str) -> bool:
        return key in self.objects

    def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))
