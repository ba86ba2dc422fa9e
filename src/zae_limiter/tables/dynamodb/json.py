"""JSON as it goes over the wire: by orjson where it is installed, else by Python's own.

Only a Lambda has no orjson: there it would be one more thing to deploy. Which one it is, importing this decides once.
``dumps`` raises TypeError for what cannot be written, ``loads`` JSONDecodeError for what is no JSON.
"""

import json
from json import JSONDecodeError
from typing import Any

try:
    from orjson import dumps, loads
except ModuleNotFoundError:

    def dumps(value: Any) -> bytes:  # type: ignore[misc] # the same function, of another module
        """Write a value."""
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise TypeError(str(error)) from None

    def loads(text: bytes) -> Any:  # type: ignore[misc] # the same function, of another module
        """Read a value."""
        try:
            return json.loads(text)
        except (UnicodeDecodeError, RecursionError) as error:
            raise JSONDecodeError(str(error), "", 0) from None


__all__ = ["JSONDecodeError", "dumps", "loads"]
