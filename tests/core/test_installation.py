"""How more of this package is installed, from where this copy came from."""

import json
from typing import Any

import pytest

from zae_limiter.core.installation import ArchiveFile, Directory, Installation, Revision, origin_of, packages_of

REQUIREMENTS = (
    "rich>=13",
    "asciichartpy>=1.5; extra == 'plot'",
    'docker>=7 ; extra == "local"',
    "gevent>=24; python_version < '4' and extra == 'bench'",
    "locust>=2.31; extra == 'bench'",
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "git+https://example.org/limiter.git"


def record(url: str, **facts: Any) -> str:
    return json.dumps({"url": url, **facts})


@pytest.mark.parametrize(
    ("direct_url", "origin"),
    [
        (record("file:///srv/limiter", dir_info={}), Directory("/srv/limiter", False)),
        (record("file:///srv/my%20limiter", dir_info={"editable": True}), Directory("/srv/my limiter", True)),
        (record("file:///C:/limiter", dir_info={"editable": False}), Directory("C:/limiter", False)),
        (record("file:///srv/limiter.whl", archive_info={}), ArchiveFile("file:///srv/limiter.whl")),
        (
            record("https://example.org/limiter.tar.gz", archive_info={}, subdirectory="python"),
            ArchiveFile("https://example.org/limiter.tar.gz#subdirectory=python"),
        ),
        (
            record("https://example.org/limiter.git", vcs_info={"vcs": "git", "commit_id": COMMIT}, subdirectory="a"),
            Revision(REPOSITORY, COMMIT, "a"),
        ),
    ],
)
def test_origin_is_read_from_the_record_of_the_installer(direct_url, origin):
    """PEP 610 describes directories, archives and revisions of repositories."""
    assert origin == origin_of(direct_url)


@pytest.mark.parametrize(
    "direct_url",
    [None, "", "{", "[]", "{}", '"text"', record("file:///a", dir_info=3), record("file:///a", vcs_info={})],
)
def test_origin_of_a_missing_or_damaged_record_is_unknown(direct_url):
    """A message about a missing package must not fail itself."""
    assert origin_of(direct_url) is None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (Directory("/srv/limiter", False), 'pip install "/srv/limiter[plot]"'),
        (Directory("/srv/my limiter", True), 'pip install --editable "/srv/my limiter[plot]"'),
        (Directory("/srv/$HOME's", False), """pip install '/srv/$HOME'"'"'s[plot]'"""),
        (ArchiveFile("file:///srv/my%20limiter.whl"), 'pip install "/srv/my limiter.whl[plot]"'),
        (
            ArchiveFile("https://example.org/limiter.whl"),
            'pip install "zae-limiter[plot] @ https://example.org/limiter.whl"',
        ),
        (Revision(REPOSITORY, COMMIT, ""), f'pip install "zae-limiter[plot] @ {REPOSITORY}@{COMMIT}"'),
        (Revision(REPOSITORY, COMMIT, "a"), f'pip install "zae-limiter[plot] @ {REPOSITORY}@{COMMIT}#subdirectory=a"'),
        (None, 'pip install "asciichartpy>=1.5"'),
    ],
)
def test_command_for_an_extra_installs_it_from_the_origin_of_this_copy(origin, command):
    """Without a known origin, the packages of the extra are installed by their own names."""
    assert command == Installation(origin, REQUIREMENTS).extra_command("plot", "asciichartpy")


def test_command_for_an_extra_without_metadata_names_the_missing_package():
    """Sources that were never installed have no requirements."""
    assert 'pip install "asciichartpy"' == Installation().extra_command("plot", "asciichartpy")


def test_command_for_an_extra_of_a_copy_that_uv_installed_uses_uv():
    """Such an environment has no pip, and the pip on the path would install into another one."""
    assert 'uv pip install "docker>=7"' == Installation(None, REQUIREMENTS, "uv").extra_command("local", "docker")


def test_packages_of_an_extra_are_those_with_its_condition():
    """Other conditions are left out."""
    assert ["gevent>=24", "locust>=2.31"] == packages_of("bench", REQUIREMENTS)


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        (Directory("/srv/limiter", False), 'update /srv/limiter, then run: pip install "/srv/limiter"'),
        (Directory("/srv/limiter", True), 'update /srv/limiter, then run: pip install --editable "/srv/limiter"'),
        (Revision(REPOSITORY, COMMIT, ""), f'install it: pip install --upgrade "zae-limiter @ {REPOSITORY}"'),
        (ArchiveFile("file:///srv/limiter.whl"), "install a newer archive than file:///srv/limiter.whl"),
        (None, "install it from where you have this version from"),
    ],
)
def test_advice_to_upgrade_names_the_origin_of_this_copy(origin, advice):
    """A newer revision is not the installed one, so no commit is named."""
    assert advice == Installation(origin).upgrade_advice()
