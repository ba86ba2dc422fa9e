"""No shipped text tells a user to install this project from a package index, where its name may be another's."""

import re

import pytest

from tests.release.index_hints import index_hints
from tools import package

# The extras of developers name others of this project; the installer reads it, not a user.
OWN_EXTRAS = re.compile(r'^    "zae-limiter\[[a-z,]+\]",$', re.MULTILINE)
WRITTEN = (".md", ".py", ".sh", ".yml", ".yaml", ".toml", ".txt", ".json", ".jinja", "Makefile", "run")
# Tests name such commands to find them.
EXEMPT = "tests/"


def shipped() -> dict[str, str]:
    """Return every text that git tracks, except tests, by name."""
    names = [name for name in package.tracked() if name.endswith(WRITTEN) and not name.startswith(EXEMPT)]
    return {name: OWN_EXTRAS.sub("", (package.ROOT / name).read_text(encoding="utf-8")) for name in sorted(names)}


def test_no_text_tells_to_install_from_an_index():
    """Sources, pages, examples, tools, workflows and the changelog."""
    texts = shipped()

    assert {"README.md", "pyproject.toml", "docs/getting-started.md", "docker-compose.yml"} <= texts.keys()
    assert {} == {
        name: hints
        for name, text in texts.items()
        if (hints := index_hints(text, is_requirements="requirements" in name))
    }


def test_built_metadata_does_not_tell_to_install_from_an_index(dist):
    """Neither the page of the package nor another file of the wheel, beside its requirements."""
    contents = package.contents(package.one(dist, "*.whl"))

    assert {} == {name: hints for name, body in contents.items() if (hints := index_hints(body.decode()))}


@pytest.mark.parametrize(
    "text",
    [
        "pip install zae-limiter",
        "Run `pip install zae-limiter` first.",
        'python -m pip install --upgrade "zae-limiter>=1"',
        "pip install 'zae-limiter[plot]'",
        "uv add zae-limiter",
        "uv pip install rich zae_limiter",
        "poetry add zae-limiter",
        'charts need "zae-limiter[plot]"',
        "uvx run zae-limiter",
    ],
)
def test_hint_to_an_index_is_noticed(text):
    """All installers, with or without an extra."""
    assert index_hints(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        'pip install ".[plot]"',
        'pip install "/srv/zae-limiter[plot]"',
        "git clone https://example.org/zae-limiter && pip install ./zae-limiter",
        'pip install "zae-limiter[plot] @ git+https://example.org/zae-limiter"',
        "pip install . && zae-limiter demo",
        "the project zae-limiter has no extra",
    ],
)
def test_hint_to_a_directory_or_a_url_is_allowed(text):
    """They name the copy, not an index."""
    assert [] == index_hints(text)


def test_requirement_by_name_is_noticed_in_a_requirements_file():
    """Elsewhere, a line may begin with the name of the command."""
    assert (1, 0) == (len(index_hints("zae-limiter\n", is_requirements=True)), len(index_hints("zae-limiter demo\n")))
