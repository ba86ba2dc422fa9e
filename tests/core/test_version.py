"""A client works on a table of its own schema only."""

import pytest

from zae_limiter.core.errors import IncompatibleSchemaError
from zae_limiter.core.version import SCHEMA_VERSION, VersionRecord, check_schema


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
