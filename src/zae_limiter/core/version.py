"""Compare the versions of client, table and aggregator, and decide what must be upgraded.

Versions are compared by their three numbers. Suffixes such as ``.dev3`` or ``+local`` are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.version_errors import IncompatibleSchemaError, UnknownKindError, VersionMismatchError

SCHEMA_VERSION = "2.0.0"
"""The schema that this package reads and writes. Another major number means another layout of items."""

KINDS = frozenset(
    {"all_resources", "blocks", "bypass", "cascade_resources", "inherit", "levels", "quotas", "slots", "soft"}
)
"""The kinds of stored items that this package knows, beyond those that its schema has always had.

Older code would misread an item of a later kind. So the version record names the kinds that a table
stores, and a client that does not know one of them refuses the table.
"""

UPGRADE = "zae-limiter upgrade"
"""The command that upgrades a limiter, without the options that select it."""

_VERSION = r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)"


class Version(NamedTuple):
    """The three numbers of a version, ordered like versions."""

    major: int
    minor: int
    patch: int


UNKNOWN = Version(0, 0, 0)
"""Used for a missing or unreadable version; older than every other."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """The versions that a table records about itself.

    ``audit_retention_days`` is how many days its audit events are kept, None if that was never
    chosen. ``kinds`` are the kinds of items that the table may store, each with a version that
    knows it.
    """

    schema_version: str
    lambda_version: str | None = None
    client_min_version: str | None = None
    updated_at: str | None = None
    updated_by: str | None = None
    audit_retention_days: int | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How a client fits a deployed limiter.

    ``needs_migration``: the items have an older layout. ``client_outdated``: they have a newer
    layout or an unknown kind, or the record requires a newer client. ``function_outdated``: the aggregator is older
    than the client.
    """

    needs_migration: bool
    client_outdated: bool
    function_outdated: bool


class FunctionUpdate(Enum):
    """Whether an aggregator that is older than the client is updated to the client's version.

    ``NEVER``: an older aggregator is an error. ``ALWAYS``: update everywhere; a failure is an
    error. ``ON_AWS``: update on AWS itself if the client has the permission. An aggregator that
    stays older continues to count.
    """

    NEVER = "never"
    ALWAYS = "always"
    ON_AWS = "on AWS"


def chosen_update(auto_update: object) -> FunctionUpdate:
    """Return the update policy for True, False or None, which means no choice.

    Raises:
        ValidationError: The value is something else.
    """
    if auto_update is not None and type(auto_update) is not bool:
        raise ValidationError("auto_update", auto_update, "must be True, False or None")
    return {None: FunctionUpdate.ON_AWS, True: FunctionUpdate.ALWAYS, False: FunctionUpdate.NEVER}[auto_update]


def parse_version(text: str | None) -> Version:
    """Return the numbers that a version starts with, ``UNKNOWN`` if there are none."""
    found = re.match(_VERSION, text or "")
    return UNKNOWN if found is None else Version(*(int(number) for number in found.groups()))


def compare(record: VersionRecord, client_version: str) -> Compatibility:
    """Return how a client fits a table; without an aggregator, ``function_outdated`` is False."""
    schema, client = parse_version(record.schema_version).major, parse_version(client_version)
    own = parse_version(SCHEMA_VERSION).major
    return Compatibility(
        needs_migration=schema < own,
        client_outdated=schema > own
        or client < parse_version(record.client_min_version)
        or unknown_kind(record.kinds) is not None,
        function_outdated=record.lambda_version is not None and parse_version(record.lambda_version) < client,
    )


def check_schema(record: VersionRecord, upgrade_command: str = UPGRADE) -> None:
    """Require a table whose items this package can read and write; the error has the command to upgrade it.

    Raises:
        IncompatibleSchemaError: Its schema has another major number.
    """
    seen, own = parse_version(record.schema_version).major, parse_version(SCHEMA_VERSION).major
    if seen != own:
        raise IncompatibleSchemaError(SCHEMA_VERSION, record.schema_version, seen > own, upgrade_command)


def unknown_kind(kinds: Mapping[str, str]) -> str | None:
    """Return a kind of stored items that this package does not know, None if it knows all."""
    return min(kinds.keys() - KINDS, default=None)


def check_kinds(kinds: Mapping[str, str], client_version: str) -> None:
    """Require a table whose kinds of items this package knows.

    Raises:
        UnknownKindError: It stores another kind.
    """
    unknown = unknown_kind(kinds)
    if unknown is not None:
        raise UnknownKindError(unknown, kinds[unknown], client_version)


def check_kind(kind: object) -> None:
    """Require a kind that this package knows.

    Raises:
        ValidationError: The value is something else.
    """
    if kind not in KINDS:
        raise ValidationError("kind", kind, f"must be one of: {', '.join(sorted(KINDS))}")


def check_client(record: VersionRecord, client_version: str, upgrade_command: str = UPGRADE) -> None:
    """Require a table that this client may use; the error has the command to upgrade it.

    Raises:
        IncompatibleSchemaError: Its items have another layout.
        UnknownKindError: It stores a kind of items that this package does not know.
        VersionMismatchError: It requires a newer client.
    """
    check_schema(record, upgrade_command)
    check_kinds(record.kinds, client_version)
    if compare(record, client_version).client_outdated:
        stack = record.lambda_version or record.schema_version
        reason = f"it requires client {record.client_min_version} or later"
        raise VersionMismatchError(client_version, stack, reason, True, upgrade_command)


def check_function(record: VersionRecord, client_version: str, upgrade_command: str = UPGRADE) -> None:
    """Require an aggregator that is not older than the client; the error has the command to upgrade it.

    Raises:
        VersionMismatchError: It is older.
    """
    if compare(record, client_version).function_outdated:
        version = str(record.lambda_version)
        raise VersionMismatchError(client_version, version, "the aggregator is older", False, upgrade_command)


def may_replace(record: VersionRecord | None, client_version: str, update: FunctionUpdate) -> bool:
    """Return whether a deployment also replaces the aggregator: none exists yet, or it is not newer than the client."""
    if record is None or record.lambda_version is None:
        return True
    return update is not FunctionUpdate.NEVER and parse_version(record.lambda_version) <= parse_version(client_version)


def pending(targets: Sequence[str], schema_version: str | None) -> list[str]:
    """Return the schema versions that a table still has to be migrated to, in order.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than any that this package knows.
    """
    seen = parse_version(schema_version)
    if seen.major > parse_version(SCHEMA_VERSION).major:
        raise IncompatibleSchemaError(SCHEMA_VERSION, str(schema_version), client_outdated=True)
    return [target for target in targets if parse_version(target) > seen]


def in_order(targets: Sequence[str]) -> bool:
    """Return whether versions are listed from oldest to newest, without repeats, none newer than this package's."""
    versions = [UNKNOWN, *(parse_version(target) for target in targets)]
    return all(one < other for one, other in pairwise(versions)) and versions[-1] <= parse_version(SCHEMA_VERSION)


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did, or would do in a dry run.

    ``superseded`` items exist in both layouts; the new one is left as it is. ``damaged`` items
    could not be read and are left in place.
    """

    target: str
    summary: str
    moved: int = 0
    superseded: int = 0
    damaged: tuple[str, ...] = ()
    dry_run: bool = False
