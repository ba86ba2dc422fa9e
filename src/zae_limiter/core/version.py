"""VersionRecord: which schema a table has, which clients and which aggregator go with it, and what must be upgraded.

Versions are compared by their three numbers; whatever follows them (``.dev3``, ``+local``) says nothing here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from zae_limiter.core.errors import IncompatibleSchemaError, ValidationError, VersionMismatchError

SCHEMA_VERSION = "1.0.0"
"""The schema this package reads and writes; another major number is another layout of items."""

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)")


class Version(NamedTuple):
    """The numbers of a version, which compare as versions do."""

    major: int
    minor: int
    patch: int


UNKNOWN = Version(0, 0, 0)
"""Older than every version that says what it is."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """What a table says of its own version, and for how long its audit events are kept, if that was ever chosen."""

    schema_version: str
    lambda_version: str | None = None
    client_min_version: str | None = None
    updated_at: str | None = None
    updated_by: str | None = None
    audit_retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How a client and a deployed limiter go together.

    ``needs_migration``: the items have an older layout. ``client_outdated``: they have a newer one, or the record asks
    for a newer client. ``function_outdated``: the aggregator is older than the client.
    """

    needs_migration: bool
    client_outdated: bool
    function_outdated: bool


class FunctionUpdate(Enum):
    """Whether an aggregator that is older than the client is brought to the client's version.

    ``NEVER``: it is an error. ``ALWAYS``: everywhere, and failing to is an error. ``ON_AWS``: on AWS itself, where the
    client is allowed to; an aggregator that stays older goes on counting.
    """

    NEVER = "never"
    ALWAYS = "always"
    ON_AWS = "on AWS"


def chosen_update(auto_update: object) -> FunctionUpdate:
    """Return what a user chose by True or False; None is no choice.

    Raises:
        ValidationError: it is none of the three.
    """
    if auto_update is not None and type(auto_update) is not bool:
        raise ValidationError("auto_update", auto_update, "must be True, False or None")
    return {None: FunctionUpdate.ON_AWS, True: FunctionUpdate.ALWAYS, False: FunctionUpdate.NEVER}[auto_update]


def parse_version(text: str | None) -> Version:
    """Return the numbers a version starts with; a text without them is older than any."""
    found = _VERSION.match(text or "")
    return UNKNOWN if found is None else Version(*(int(number) for number in found.groups()))


def compare(record: VersionRecord, client_version: str) -> Compatibility:
    """Return how a client goes with a table; a limiter without an aggregator has none that is outdated."""
    schema, client = parse_version(record.schema_version).major, parse_version(client_version)
    own = parse_version(SCHEMA_VERSION).major
    return Compatibility(
        needs_migration=schema < own,
        client_outdated=schema > own or client < parse_version(record.client_min_version),
        function_outdated=record.lambda_version is not None and parse_version(record.lambda_version) < client,
    )


def check_schema(record: VersionRecord) -> None:
    """Require a table whose items this package can read and write.

    Raises:
        IncompatibleSchemaError: its schema has another major number.
    """
    if parse_version(record.schema_version).major != parse_version(SCHEMA_VERSION).major:
        raise IncompatibleSchemaError(SCHEMA_VERSION, record.schema_version)


def check_client(record: VersionRecord, client_version: str) -> None:
    """Require a table that this client may use.

    Raises:
        IncompatibleSchemaError: its items have another layout.
        VersionMismatchError: it asks for a newer client.
    """
    check_schema(record)
    if compare(record, client_version).client_outdated:
        stack = record.lambda_version or record.schema_version
        raise VersionMismatchError(client_version, stack, f"it asks for clients from {record.client_min_version} on")


def check_function(record: VersionRecord, client_version: str) -> None:
    """Require an aggregator that is as new as the client.

    Raises:
        VersionMismatchError: it is older.
    """
    if compare(record, client_version).function_outdated:
        raise VersionMismatchError(client_version, str(record.lambda_version), "the aggregator is older")


def may_replace(record: VersionRecord | None, client_version: str, update: FunctionUpdate) -> bool:
    """Say whether who provides a stack also replaces its aggregator: one that never was, or is no newer."""
    if record is None or record.lambda_version is None:
        return True
    return update is not FunctionUpdate.NEVER and parse_version(record.lambda_version) <= parse_version(client_version)


def pending(targets: Sequence[str], schema_version: str | None) -> list[str]:
    """Return the schemas a table has yet to be brought to, in their order, of all there are.

    Raises:
        IncompatibleSchemaError: the table's schema is newer than any this package knows.
    """
    seen = parse_version(schema_version)
    if seen.major > parse_version(SCHEMA_VERSION).major:
        raise IncompatibleSchemaError(SCHEMA_VERSION, str(schema_version))
    return [target for target in targets if parse_version(target) > seen]


def in_order(targets: Sequence[str]) -> bool:
    """Say whether schemas are listed from the oldest to the newest, each once, none newer than this package's."""
    versions = [UNKNOWN, *(parse_version(target) for target in targets)]
    return all(one < other for one, other in pairwise(versions)) and versions[-1] <= parse_version(SCHEMA_VERSION)


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did, or in a dry run would do.

    ``superseded`` were in the old layout and in the new one, which stays as it is; ``damaged`` could not be read and
    are left where they are.
    """

    target: str
    summary: str
    moved: int = 0
    superseded: int = 0
    damaged: tuple[str, ...] = ()
    dry_run: bool = False
