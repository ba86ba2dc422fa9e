"""VersionRecord: which schema a table has, and which clients go with it."""

from dataclasses import dataclass

from zae_limiter.core.errors import IncompatibleSchemaError

SCHEMA_VERSION = "1.0.0"
"""The schema this package reads and writes; another major number is another layout of items."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """What a table says of its own version."""

    schema_version: str
    lambda_version: str | None = None
    client_min_version: str | None = None
    updated_at: str | None = None
    updated_by: str | None = None


def check_schema(record: VersionRecord) -> None:
    """Require a table whose items this package can read and write.

    Raises:
        IncompatibleSchemaError: its schema has another major number.
    """
    if record.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise IncompatibleSchemaError(SCHEMA_VERSION, record.schema_version)
