"""The prose of every page wraps at 100 columns, so that a diff shows what changed."""

import pytest

from tests.docs.pages import PAGES, ROOT, named
from tools.prose import MOST_COLUMNS, check_page

FRAGMENTS = sorted((ROOT / "changelog.d").glob("*.md"))


def long_lines(page: str) -> list[str]:
    """Return the lines of a page that could be wrapped, with their widths."""
    return [f"{found.line}: {found.what}" for found in check_page(page) if found.what.endswith(" columns")]


@pytest.mark.parametrize("page", [*PAGES, *FRAGMENTS], ids=named)
def test_page_has_no_prose_line_above_100_columns(page):
    """Tables, code and the targets of links have no maximum."""
    assert [] == long_lines(page.read_text(encoding="utf-8"))


def test_prose_line_above_100_columns_is_found():
    """The check can fail: a line of prose and one of a list are reported, and neither code nor a table is."""
    line = "word " * 20 + "words"
    page = f"# Page\n\n{line}\n\n- {line}\n\n```\n{line}\n```\n\n| {line} |\n| --- |\n"

    assert MOST_COLUMNS < len(line)
    assert ["3: line of 105 columns", "5: line of 107 columns"] == long_lines(page)
