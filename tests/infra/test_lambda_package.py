"""The zip that the aggregator runs from: what is in it, and that it is always the same."""

import io
import zipfile
from pathlib import Path

import pytest

from zae_limiter.core.errors import StorageError
from zae_limiter.infra import lambda_package
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


def test_it_is_the_same_each_time(package: bytes) -> None:
    """So that a digest tells whether a function runs it."""
    assert package == build_package()


def test_it_tells_nothing_of_when_it_was_made(package: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        assert {((1980, 1, 1, 0, 0, 0), 0o644)} == {
            (entry.date_time, entry.external_attr >> 16) for entry in opened.infolist()
        }


def test_it_can_be_sent_at_once(package: bytes) -> None:
    assert len(package) < MOST_BYTES


def test_it_holds_what_the_aggregator_is_made_of(names: list[str]) -> None:
    """The modules themselves, and no copies of parts of them."""
    for name in (
        "zae_limiter/__init__.py",
        "zae_limiter/core/bucket.py",
        "zae_limiter/schema/keys.py",
        "zae_limiter/tables/dynamodb/render.py",
        "zae_limiter_aggregator/plan.py",
        "aws_lambda_powertools/__init__.py",
    ):
        assert name in names


def test_it_holds_nothing_else(names: list[str]) -> None:
    """No command line, no clients that wait, no embedded tables, nothing compiled."""
    ours = [name for name in names if name.startswith("zae_limiter/")]
    kept = ("__init__.py", "py.typed", "core", "schema", "tables")

    assert sorted(names) == names
    assert {"zae_limiter", "zae_limiter_aggregator", "aws_lambda_powertools", "jmespath", "typing_extensions.py"} == {
        name.partition("/")[0] for name in names
    }
    assert [] == [name for name in ours if name.split("/")[1] not in kept]
    assert [] == [name for name in names if "sqlite" in name and name in ours]
    assert [] == [name for name in names if name.endswith((".pyc", ".so")) or "__pycache__" in name]


def test_without_powertools_it_is_said_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lambda_package, "_DISTRIBUTIONS", ("aws-lambda-powertools-that-nobody-has",))

    with pytest.raises(StorageError, match=r"pip install 'zae-limiter\[lambda\]'"):
        build_package()


def test_an_installation_that_lists_no_files_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some distributions of systems do; a package without powertools would fail only on AWS."""
    described = tmp_path / "unlisted-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: unlisted\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(lambda_package, "_DISTRIBUTIONS", ("unlisted",))

    with pytest.raises(StorageError, match="without a record"):
        build_package()


def test_code_for_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not run where functions do."""
    monkeypatch.setattr(lambda_package, "_DISTRIBUTIONS", ("orjson",))

    with pytest.raises(StorageError, match="orjson"):
        build_package()
