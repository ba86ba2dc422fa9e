"""The pages for contributors describe the repository as it is."""

import re

from tests.docs.pages import ROOT
from tools.check import CHECKS

FOLDER = ROOT / "docs" / "contributing"


def first_cells(page: str, heading: str) -> list[str]:
    """Return the names in the first column of the table below a heading."""
    below = (FOLDER / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \|", below, re.MULTILINE)[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_folder_of_tests_is_on_the_testing_page():
    """A contributor finds the right folder for a test."""
    folders = [path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))]

    assert sorted(f"{name}/" for name in {*folders, "e2e"}) == sorted(first_cells("testing.md", "What is tested where"))


def test_every_check_is_on_the_page():
    """By its name in tools/check.py."""
    assert sorted(check.name for check in CHECKS) == sorted(
        name for name in first_cells("development.md", "The checks") if " " not in name
    )
