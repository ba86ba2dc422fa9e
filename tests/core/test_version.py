"""A client works on a table of its own schema only, and says which of the two is to be upgraded."""

import pytest

from zae_limiter.core.errors import IncompatibleSchemaError, ValidationError, VersionMismatchError
from zae_limiter.core.version import (
    SCHEMA_VERSION,
    Compatibility,
    FunctionUpdate,
    Version,
    VersionRecord,
    check_client,
    check_function,
    check_schema,
    chosen_update,
    compare,
    in_order,
    may_replace,
    parse_version,
    pending,
)


@pytest.mark.parametrize("version", [SCHEMA_VERSION, "1.9.3"])
def test_the_same_major_number_is_the_same_layout(version: str) -> None:
    """Additions do not keep older clients out."""
    check_schema(VersionRecord(version))


@pytest.mark.parametrize("version", ["0.9.0", "2.0.0", "", "nonsense"])
def test_another_major_number_is_refused(version: str) -> None:
    """The error names both schemas."""
    with pytest.raises(IncompatibleSchemaError) as caught:
        check_schema(VersionRecord(version))

    assert (SCHEMA_VERSION, version) == (caught.value.client_schema, caught.value.table_schema)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.2.3", (1, 2, 3)),
        ("v0.10.0", (0, 10, 0)),
        ("0.1.1.dev3+g1a2b3c", (0, 1, 1)),
        ("1.2.3rc1", (1, 2, 3)),
        ("1.2", (0, 0, 0)),
        ("", (0, 0, 0)),
        (None, (0, 0, 0)),
        ("9" * 5000 + ".0.0", (0, 0, 0)),
    ],
)
def test_a_version_is_its_three_numbers(text: str | None, version: tuple[int, int, int]) -> None:
    """What has none is older than any."""
    assert Version(*version) == parse_version(text)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (VersionRecord("1.0.0"), Compatibility(False, False, False)),
        (VersionRecord("0.9.0"), Compatibility(True, False, False)),
        (VersionRecord("2.0.0"), Compatibility(False, True, False)),
        (VersionRecord("1.0.0", lambda_version="0.3.9"), Compatibility(False, False, True)),
        (VersionRecord("1.0.0", lambda_version="0.4.0"), Compatibility(False, False, False)),
        (VersionRecord("1.0.0", lambda_version="0.10.0"), Compatibility(False, False, False)),
        (VersionRecord("1.0.0", client_min_version="0.4.0"), Compatibility(False, False, False)),
        (VersionRecord("1.0.0", client_min_version="0.4.1"), Compatibility(False, True, False)),
    ],
)
def test_what_is_to_be_upgraded(record: VersionRecord, expected: Compatibility) -> None:
    """The table, the client or the function."""
    assert expected == compare(record, "0.4.0")


def test_a_table_that_asks_for_a_newer_client_is_refused() -> None:
    """The error says from which version on."""
    check_client(VersionRecord("1.0.0", client_min_version="0.4.0"), "0.4.0")
    with pytest.raises(VersionMismatchError, match=r"Client 0\.4\.0 and stack 0\.5\.0 .* 0\.5\.0 or later") as caught:
        check_client(VersionRecord("1.0.0", "0.5.0", "0.5.0"), "0.4.0")

    assert ("0.4.0", "0.5.0") == (caught.value.client_version, caught.value.stack_version)


def test_a_layout_that_cannot_be_read_is_told_first() -> None:
    """A newer client helps only if it reads the same layout."""
    with pytest.raises(IncompatibleSchemaError):
        check_client(VersionRecord("2.0.0", client_min_version="9.0.0"), "0.4.0")


def test_an_aggregator_that_is_older_is_refused() -> None:
    """One as new as the client, a newer one, and none at all are fine."""
    for version in (None, "0.4.0", "0.5.0"):
        check_function(VersionRecord("1.0.0", version), "0.4.0")
    with pytest.raises(VersionMismatchError, match="the aggregator is older"):
        check_function(VersionRecord("1.0.0", "0.3.0"), "0.4.0")


TARGETS = ["0.8.0", "0.9.0", "1.0.0"]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [(None, TARGETS), ("0.1.0", TARGETS), ("0.8.0", TARGETS[1:]), ("0.8.5", TARGETS[1:]), ("1.0.0", []), ("1.7.0", [])],
)
def test_what_is_pending_is_what_is_newer(seen: str | None, expected: list[str]) -> None:
    """In its order."""
    assert expected == pending(TARGETS, seen)


def test_nothing_leads_back_from_a_newer_layout() -> None:
    """A table that a newer package has migrated is left alone."""
    with pytest.raises(IncompatibleSchemaError):
        pending(TARGETS, "2.0.0")


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (TARGETS, True),
        ([], True),
        (["0.9.0", "0.8.0"], False),
        (["1.0.0", "1.0.0"], False),
        (["9.0.0"], False),
        (["x"], False),
    ],
)
def test_migrations_are_listed_in_their_order(targets: list[str], expected: bool) -> None:
    """Each once, and none beyond the schema of this package."""
    assert expected == in_order(targets)


class TestFunctionUpdate:
    @pytest.mark.parametrize(
        ("chosen", "update"),
        [(None, FunctionUpdate.ON_AWS), (True, FunctionUpdate.ALWAYS), (False, FunctionUpdate.NEVER)],
    )
    def test_what_was_chosen(self, chosen: bool | None, update: FunctionUpdate) -> None:
        assert update is chosen_update(chosen)

    @pytest.mark.parametrize("chosen", [0, 1, "true", "", []])
    def test_nothing_else_can_be_chosen(self, chosen: object) -> None:
        with pytest.raises(ValidationError, match="auto_update"):
            chosen_update(chosen)

    @pytest.mark.parametrize("update", FunctionUpdate)
    def test_an_aggregator_that_never_was_is_put_in_place(self, update: FunctionUpdate) -> None:
        assert may_replace(None, "0.2.0", update)
        assert may_replace(VersionRecord(SCHEMA_VERSION), "0.2.0", update)

    @pytest.mark.parametrize("update", [FunctionUpdate.ON_AWS, FunctionUpdate.ALWAYS])
    def test_one_that_is_no_newer_is_replaced(self, update: FunctionUpdate) -> None:
        """Of the same version too: its code may be another while that version is being made."""
        seen = [VersionRecord(SCHEMA_VERSION, lambda_version=one) for one in ("0.1.9", "0.2.0", "0.2.0.dev7", "0.2.1")]

        assert [True, True, True, False] == [may_replace(record, "0.2.0", update) for record in seen]

    def test_where_that_is_forbidden_none_is(self) -> None:
        record = VersionRecord(SCHEMA_VERSION, lambda_version="0.1.9")

        assert not may_replace(record, "0.2.0", FunctionUpdate.NEVER)
