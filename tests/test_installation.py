"""The metadata of this copy is read when a message needs it."""

import json
from pathlib import Path

import pytest

from zae_limiter.core.installation import Directory, Installation
from zae_limiter.installation import extra_command, missing_extra, this_installation


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the metadata of an installed copy that is found before that of the tests."""
    folder = tmp_path / "zae_limiter-1.0.dist-info"
    folder.mkdir()
    requirement = "Requires-Dist: asciichartpy>=1.5; extra == 'plot'"
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: zae-limiter\nVersion: 1.0\n{requirement}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_installation_is_read_from_the_metadata(described):
    """The record, the requirements and the installer."""
    (described / "direct_url.json").write_text(json.dumps({"url": "file:///srv/my%20limiter", "dir_info": {}}))
    (described / "INSTALLER").write_text("uv\n")

    requirements = ("asciichartpy>=1.5; extra == 'plot'",)
    assert Installation(Directory("/srv/my limiter", False), requirements, "uv") == this_installation()
    assert 'uv pip install "/srv/my limiter[plot]"' == extra_command("plot", "asciichartpy")


def test_missing_extra_of_a_copy_from_an_index_names_the_package(described):
    """The index may have another project under the name of this one."""
    error = missing_extra("plot", "asciichartpy")

    assert 'asciichartpy is not installed; install it: pip install "asciichartpy>=1.5"' == str(error)


def test_installation_of_sources_without_metadata_is_unknown(monkeypatch):
    """A path without any distribution is as good as that."""
    monkeypatch.setattr("sys.path", [])

    assert Installation() == this_installation()
