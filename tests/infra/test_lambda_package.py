"""The zip file of the aggregator: its content, and that it is reproducible."""

import io
import zipfile

import pytest

from zae_limiter.infra.lambda_package import build_package

MOST_BYTES = 50 * 1024 * 1024
"""What Lambda takes in one call."""


@pytest.fixture(scope="module")
def package() -> bytes:
    return build_package()


@pytest.fixture(scope="module")
def names(package: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        assert opened.testzip() is None
        return opened.namelist()


def test_the_lambda_package_is_reproducible(package: bytes) -> None:
    """A digest shows whether a function runs it."""
    assert package == build_package()


def test_the_lambda_package_contains_no_timestamps(package: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        assert {((1980, 1, 1, 0, 0, 0), 0o644)} == {
            (entry.date_time, entry.external_attr >> 16) for entry in opened.infolist()
        }


def test_the_lambda_package_is_small_enough_for_a_direct_upload(package: bytes) -> None:
    assert len(package) < MOST_BYTES


def test_the_lambda_package_contains_the_modules_of_the_aggregator(names: list[str]) -> None:
    """They are the modules themselves, not copies of parts."""
    for name in (
        "zae_limiter/__init__.py",
        "zae_limiter/core/bucket.py",
        "zae_limiter/schema/keys.py",
        "zae_limiter/tables/dynamodb/render.py",
        "zae_limiter_aggregator/plan.py",
    ):
        assert name in names


def test_the_lambda_package_contains_nothing_else(names: list[str]) -> None:
    """It has no other distribution, command line, client runtime, embedded table or compiled file."""
    ours = [name for name in names if name.startswith("zae_limiter/")]
    kept = ("__init__.py", "py.typed", "core", "schema", "tables")

    assert sorted(names) == names
    assert {"zae_limiter", "zae_limiter_aggregator"} == {name.partition("/")[0] for name in names}
    assert [] == [name for name in ours if name.split("/")[1] not in kept]
    assert [] == [name for name in names if "sqlite" in name and name in ours]
    assert [] == [name for name in names if name.endswith((".pyc", ".so")) or "__pycache__" in name]
