"""JSON with orjson if it is installed, else with the standard library; the import decides once.

Only the aggregator's Lambda function runs without orjson, which keeps its package small. ``dumps`` raises TypeError for
a value that cannot be encoded. ``loads`` raises JSONDecodeError for invalid JSON.
"""

import json
from json import JSONDecodeError
from typing import Any

try:
    from orjson import dumps, loads
except ModuleNotFoundError:

    def dumps(value: Any) -> bytes:  # type: ignore[misc] # the same function, of another module
        """Encode a value."""
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise TypeError(str(error)) from None

    def loads(text: bytes) -> Any:  # type: ignore[misc] # the same function, of another module
        """Decode a value."""
        try:
            return json.loads(text)
        except (UnicodeDecodeError, RecursionError) as error:
            raise JSONDecodeError(str(error), "", 0) from None


__all__ = ["JSONDecodeError", "dumps", "loads"]
