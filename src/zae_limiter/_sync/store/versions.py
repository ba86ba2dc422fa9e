"""Reads, creates and changes the version record of a table."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from typing import Any

from zae_limiter._sync.backoff import Pauses
from zae_limiter._sync.store.scope import Client
from zae_limiter.core.audit import check_principal
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.outcome import Applied, Missing, Refused, Unavailable
from zae_limiter.core.status import TableSize
from zae_limiter.core.timestamp import iso_from_ms
from zae_limiter.core.version import SCHEMA_VERSION, VersionRecord, check_schema
from zae_limiter.core.version_errors import KindNotAllowedError
from zae_limiter.schema import namespace_item, version_item
from zae_limiter.schema.operations import Write

_MOST_TRIES = 16
_PAUSES = Pauses(0.05, 0.05, full_jitter=True)


@dataclass(frozen=True, slots=True)
class Inspected:
    """The version record of a table (None if it has none), the latency of a read, and the size (None if unknown).

    ``has_default_namespace`` is False for a table that was not set up completely.
    """

    record: VersionRecord | None
    latency_ms: float
    size: TableSize | None = None
    has_default_namespace: bool = True

    def status_fields(self) -> dict[str, Any]:
        """Return the fields of a status that the table knows."""
        return {
            "available": True,
            "latency_ms": self.latency_ms,
            "schema_version": None if self.record is None else self.record.schema_version,
            "lambda_version": None if self.record is None else self.record.lambda_version,
            **({} if self.size is None else self.size._asdict()),
        }


def own_version() -> str:
    """Return the version of this package."""
    # Imported here, because most tables do not require a version of their clients.
    from importlib import metadata

    return metadata.version("zae-limiter")


class VersionStore:
    """Reads and writes the version record of a table."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table = client.table

    def read(self) -> VersionRecord | None:
        """Return the record, None if the table has none."""
        keys = [version_item.key(), namespace_item.forward_key(DEFAULT_NAMESPACE)]
        item, default = self._table.batch_get(keys, consistent=True)
        # Older tables have the record in their default namespace.
        if item is None and default is not None:
            namespace_id = namespace_item.from_item(default).id
            item = self._table.get(version_item.key(namespace_id), consistent=True)
        return None if item is None else version_item.from_item(item)

    def inspect(self) -> Inspected:
        """Read the record, whatever its schema, the latency of a read, and the size of the table."""
        record = self.read()
        started_s = self._client.clock.monotonic_s()
        default = self._table.get(namespace_item.forward_key(DEFAULT_NAMESPACE), consistent=True)
        latency_ms = (self._client.clock.monotonic_s() - started_s) * 1000
        return Inspected(record, latency_ms, self._table.size(), default is not None)

    def ensure(self, principal: str | None = None) -> VersionRecord:
        """Return the record; a new table without one gets a record with this package's schema."""
        seen = self.read()
        if seen is not None:
            return seen
        fresh = VersionRecord(SCHEMA_VERSION, updated_at=self.now(), updated_by=principal)
        # If another client was faster, its record is in the refusal.
        refused = self._write(version_item.create(fresh))
        return version_item.from_item(refused.old) if isinstance(refused, Refused) else fresh

    def replace(self, record: VersionRecord, seen: VersionRecord | None) -> bool:
        """Replace the record that was read; False if the schema has changed since.

        If two clients change different fields at the same time, both changes are kept.
        """
        outcome: Applied | Refused | Missing = Missing()
        if seen is not None:
            outcome = self._write(version_item.replace(record, seen))
        if isinstance(outcome, Missing):
            outcome = self._write(version_item.create(record))
        return isinstance(outcome, Applied)

    def set_deployed(self, lambda_version: str | None, audit_retention_days: int | None = None) -> None:
        """Record the version of the aggregator, None if none is deployed; create the record if needed.

        ``audit_retention_days`` is how many days all clients keep audit events; None leaves it unchanged.

        Raises:
            IncompatibleSchemaError: The table has another schema.
        """
        # Repeated if another client changes the schema between the read and the write.
        while True:
            seen = self.ensure()
            check_schema(seen, self._client.upgrade_command)
            days = seen.audit_retention_days if audit_retention_days is None else audit_retention_days
            wanted = replace(seen, lambda_version=lambda_version, audit_retention_days=days)
            if wanted == seen or self.replace(replace(wanted, updated_at=self.now()), seen):
                return

    def allow_all(self, kinds: Sequence[str], principal: str | None = None) -> None:
        """Allow the table to store items of several kinds, as ``allow`` does.

        Raises:
            IncompatibleSchemaError: The table has another schema.
            KindNotAllowedError: This client may not write the version record.
        """
        for kind in kinds:
            self.allow(kind, principal)

    def allow(self, kind: str, principal: str | None = None) -> None:
        """Allow the table to store items of a kind. Clients that do not know it refuse the table from then on.

        Raises:
            IncompatibleSchemaError: The table has another schema.
            KindNotAllowedError: This client may not write the version record.
            ValidationError: The principal is invalid.
        """
        # Hazard: a record with an invalid principal cannot be read again, and no client could open the table.
        check_principal(principal)
        try:
            # Repeated if the record is removed between the read and the write.
            while not self._allowed(kind, principal):
                pass
        except RateLimiterUnavailable as error:
            from zae_limiter.tables.dynamodb.errors import AccessRefused

            if isinstance(error.cause, AccessRefused):
                raise KindNotAllowedError(kind) from error.cause
            raise

    def _allowed(self, kind: str, principal: str | None) -> bool:
        """Allow a kind unless the record has it already; False if the record vanished meanwhile."""
        seen = self.ensure()
        check_schema(seen, self._client.upgrade_command)
        if kind in seen.kinds:
            return True
        record = replace(seen, kinds={kind: own_version()}, updated_at=self.now(), updated_by=principal)
        return isinstance(self._write(version_item.allow(kind, record)), Applied)

    def now(self) -> str:
        """Return the time by the table's clock in ISO 8601."""
        return iso_from_ms(self._table.now()[0])

    def _write(self, operation: Write) -> Applied | Refused | Missing:
        backoff = self._client.backoff(_PAUSES)
        for _ in range(_MOST_TRIES):
            outcome = self._table.write(operation)
            if isinstance(outcome, Unavailable):
                raise self._client.unavailable(outcome.cause)
            if isinstance(outcome, Applied | Refused | Missing):
                return outcome
            backoff.wait()
        raise self._client.unavailable(TimeoutError("the version record could not be written: throttled"))
