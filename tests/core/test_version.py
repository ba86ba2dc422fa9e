"""A client works only on a table of a compatible schema, and says which of the two to upgrade."""

import pytest

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.version import (
    KINDS,
    SCHEMA_VERSION,
    Compatibility,
    FunctionUpdate,
    Version,
    VersionRecord,
    check_client,
    check_function,
    check_kind,
    check_kinds,
    check_schema,
    chosen_update,
    compare,
    in_order,
    may_replace,
    parse_version,
    pending,
    unknown_kind,
)
from zae_limiter.core.version_errors import (
    IncompatibleSchemaError,
    KindNotAllowedError,
    UnknownKindError,
    VersionMismatchError,
)


@pytest.mark.parametrize("version", [SCHEMA_VERSION, "2.9.3"])
def test_schema_with_the_same_major_version_is_accepted(version: str) -> None:
    """Additions do not exclude older clients."""
    check_schema(VersionRecord(version))


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "3.0.0", "", "nonsense"])
def test_schema_with_another_major_version_raises(version: str) -> None:
    """The error names both schemas."""
    with pytest.raises(IncompatibleSchemaError) as caught:
        check_schema(VersionRecord(version))

    assert (SCHEMA_VERSION, version) == (caught.value.client_schema, caught.value.table_schema)
    assert ("3.0.0" == version) == caught.value.client_outdated


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
def test_parse_version_returns_the_three_numbers(text: str | None, version: tuple[int, int, int]) -> None:
    """Text without them counts as older than any version."""
    assert Version(*version) == parse_version(text)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (VersionRecord("2.0.0"), Compatibility(False, False, False)),
        (VersionRecord("1.0.0"), Compatibility(True, False, False)),
        (VersionRecord("3.0.0"), Compatibility(False, True, False)),
        (VersionRecord("2.0.0", lambda_version="0.3.9"), Compatibility(False, False, True)),
        (VersionRecord("2.0.0", lambda_version="0.4.0"), Compatibility(False, False, False)),
        (VersionRecord("2.0.0", lambda_version="0.10.0"), Compatibility(False, False, False)),
        (VersionRecord("2.0.0", client_min_version="0.4.0"), Compatibility(False, False, False)),
        (VersionRecord("2.0.0", client_min_version="0.4.1"), Compatibility(False, True, False)),
    ],
)
def test_compare_returns_what_must_be_upgraded(record: VersionRecord, expected: Compatibility) -> None:
    """The table, the client or the function."""
    assert expected == compare(record, "0.4.0")


def test_table_that_requires_a_newer_client_raises() -> None:
    """The error names the minimum version."""
    check_client(VersionRecord("2.0.0", client_min_version="0.4.0"), "0.4.0")
    with pytest.raises(VersionMismatchError, match=r"Client 0\.4\.0 and stack 0\.5\.0 .* 0\.5\.0 or later") as caught:
        check_client(VersionRecord("2.0.0", "0.5.0", "0.5.0"), "0.4.0")

    assert ("0.4.0", "0.5.0") == (caught.value.client_version, caught.value.stack_version)
    assert caught.value.client_outdated


def test_incompatible_schema_takes_precedence_over_the_client_version() -> None:
    """A newer client helps only if it reads the same schema."""
    with pytest.raises(IncompatibleSchemaError):
        check_client(VersionRecord("3.0.0", client_min_version="9.0.0"), "0.4.0")


def test_older_aggregator_raises() -> None:
    """The same version, a newer one, and none are fine."""
    for version in (None, "0.4.0", "0.5.0"):
        check_function(VersionRecord("2.0.0", version), "0.4.0")
    with pytest.raises(VersionMismatchError, match=r"the aggregator is older.*zae-limiter upgrade -n a") as caught:
        check_function(VersionRecord("2.0.0", "0.3.0"), "0.4.0", "zae-limiter upgrade -n a")

    assert not caught.value.client_outdated


TARGETS = ["0.8.0", "0.9.0", "1.0.0"]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [(None, TARGETS), ("0.1.0", TARGETS), ("0.8.0", TARGETS[1:]), ("0.8.5", TARGETS[1:]), ("1.0.0", []), ("1.7.0", [])],
)
def test_pending_migrations_are_those_newer_than_the_schema(seen: str | None, expected: list[str]) -> None:
    """They are in order."""
    assert expected == pending(TARGETS, seen)


def test_pending_migrations_of_a_newer_major_schema_raise() -> None:
    """A table that a newer package has migrated is not changed."""
    with pytest.raises(IncompatibleSchemaError) as caught:
        pending(TARGETS, "3.0.0")

    assert caught.value.client_outdated


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
def test_in_order_requires_increasing_targets_up_to_the_current_schema(targets: list[str], expected: bool) -> None:
    """Each target occurs once."""
    assert expected == in_order(targets)


class TestFunctionUpdate:
    @pytest.mark.parametrize(
        ("chosen", "update"),
        [(None, FunctionUpdate.ON_AWS), (True, FunctionUpdate.ALWAYS), (False, FunctionUpdate.NEVER)],
    )
    def test_auto_update_selects_the_function_update(self, chosen: bool | None, update: FunctionUpdate) -> None:
        """None means only on AWS."""
        assert update is chosen_update(chosen)

    @pytest.mark.parametrize("chosen", [0, 1, "true", "", []])
    def test_invalid_auto_update_raises(self, chosen: object) -> None:
        """Only True, False and None are valid."""
        with pytest.raises(ValidationError, match="auto_update"):
            chosen_update(chosen)

    @pytest.mark.parametrize("update", FunctionUpdate)
    def test_missing_aggregator_is_installed_whatever_was_selected(self, update: FunctionUpdate) -> None:
        """There is nothing to replace."""
        assert may_replace(None, "0.2.0", update)
        assert may_replace(VersionRecord(SCHEMA_VERSION), "0.2.0", update)

    @pytest.mark.parametrize("update", [FunctionUpdate.ON_AWS, FunctionUpdate.ALWAYS])
    def test_aggregator_of_the_same_or_an_older_version_is_replaced(self, update: FunctionUpdate) -> None:
        """The same version is included: its code may differ during development."""
        seen = [VersionRecord(SCHEMA_VERSION, lambda_version=one) for one in ("0.1.9", "0.2.0", "0.2.0.dev7", "0.2.1")]

        assert [True, True, True, False] == [may_replace(record, "0.2.0", update) for record in seen]

    def test_aggregator_is_not_replaced_if_updates_are_disabled(self) -> None:
        """An older version is kept."""
        record = VersionRecord(SCHEMA_VERSION, lambda_version="0.1.9")

        assert not may_replace(record, "0.2.0", FunctionUpdate.NEVER)


def test_known_kinds_are_accepted() -> None:
    """A table may store all of them, or none."""
    check_kinds(dict.fromkeys(KINDS, "0.9.0"), "0.9.0")
    check_kinds({}, "0.9.0")

    assert unknown_kind(dict.fromkeys(KINDS, "0.9.0")) is None


def test_unknown_kind_is_refused_with_the_version_that_knows_it() -> None:
    """Older code would misread its items. The first unknown kind is named."""
    with pytest.raises(UnknownKindError) as caught:
        check_kinds({"inherit": "0.9.0", "zebra": "3.1.0", "yak": "2.0.0"}, "0.9.0")

    assert ("yak", "2.0.0", "0.9.0") == (caught.value.kind, caught.value.required, caught.value.client_version)
    assert "Install version 2.0.0 or later." in str(caught.value)
    assert caught.value.client_outdated


def test_client_of_a_table_with_an_unknown_kind_is_outdated() -> None:
    """`check` says so, and every open refuses the table."""
    record = VersionRecord(SCHEMA_VERSION, kinds={"yak": "2.0.0"})

    assert compare(record, "0.9.0").client_outdated
    with pytest.raises(UnknownKindError):
        check_client(record, "0.9.0")


@pytest.mark.parametrize("kind", ["yak", "", None, 1])
def test_only_a_known_kind_can_be_allowed(kind: object) -> None:
    """A typing error must not lock out every client."""
    check_kind("inherit")

    with pytest.raises(ValidationError, match="inherit"):
        check_kind(kind)


def test_kind_that_is_not_allowed_names_the_command() -> None:
    """An operator has to run it."""
    assert "zae-limiter upgrade --allow inherit" in str(KindNotAllowedError("inherit"))
