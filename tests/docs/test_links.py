"""Every link between pages of the repository leads to an existing file and heading.

The links of the site are checked when it is built: `tools/check.py docs`.
"""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, named

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?)(?: +\{.*\})?$", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
# Made from docstrings when the site is built.
REFERENCE = ROOT / "docs" / "api"


def slug(heading: str) -> str:
    """Return the anchor of a heading, as MkDocs and forges make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
    kept = re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKD", plain)).strip().lower()
    return re.sub(r"[\s]+", "-", kept)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page."""
    return {slug(heading) for heading in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))}


def dead_links(page: Path) -> Iterator[str]:
    """Return the dead links of a page."""
    for path, anchor in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield path
        elif anchor and not target.is_relative_to(REFERENCE) and anchor not in anchors(target):
            yield f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_of_a_page_leads_to_a_file_and_heading(page):
    """Files of the repository, and headings in them."""
    assert [] == list(dead_links(page))


def test_dead_link_is_found(tmp_path):
    """The check can fail: a missing file and a missing heading are reported, and code is no link."""
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# Other\n\n## One port, and `tables`\n\n```bash\n# a comment\n```\n")
    page.write_text(
        "# Page\n[a](other.md) [b](other.md#one-port-and-tables) [c](#page) [d](https://x.example/y)\n"
        "[e](gone.md) [f](other.md#a-comment) [g](#gone)\n```\n[h](code.md)\n```\n`[i](code.md)`\n"
    )

    assert ["gone.md", "other.md#a-comment", "#gone"] == list(dead_links(page))
