"""The count of source lines: what is a line of code, and which files are written by hand."""

from tools import code_lines, mirror

SOURCE = '''"""The module.

Two paragraphs.
"""

import os  # a comment

# Another comment.
LIMIT = 1
"""What the limit is."""


def add(
    first: int,
    second: int,
) -> int:
    """Add."""
    text = """
    of three lines
    """
    return first + second + len(text)
'''


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings():
    """Every line of a statement counts, and a string that is a value is code."""
    assert 10 == code_lines.count(SOURCE)


def test_lines_are_summed_by_folder_of_the_package():
    """Deeper folders count for the folder of the package that contains them."""
    sources = {
        "zae_limiter/clock.py": "x = 1",
        "zae_limiter/core/limit.py": "x = 1",
        "zae_limiter/tables/sqlite/pool.py": "x = 1",
        "zae_limiter/tables/memory.py": "x = 1",
    }

    assert {"zae_limiter": 1, "zae_limiter/core": 1, "zae_limiter/tables": 2} == code_lines.by_folder(sources)


def test_generated_files_are_not_counted_and_others_beside_them_are():
    """Old revisions have hand-written files in the sync tree."""
    generated = mirror.mirror('"""A module."""\n\nx = 1\n', "x.py", {}).text
    sources = {"zae_limiter/_sync/lease.py": generated, "zae_limiter/_sync/runtime.py": "x = 1"}

    assert {"zae_limiter/_sync": 1} == code_lines.by_folder(sources)


def test_report_shows_the_total_without_the_folders_that_are_left_out():
    """The folders follow, in order."""
    sources = {
        "zae_limiter/cli/demo.py": "x = 1",
        "zae_limiter/core/limit.py": "x = 1",
        "zae_limiter/clock.py": "x = 1",
    }

    assert "HEAD: 2 lines, without cli\n      1  zae_limiter\n      1  zae_limiter/core" == code_lines.report(
        "HEAD", sources, ["cli"]
    )


def test_working_tree_is_counted_by_default(capsys):
    """All folders of the source are in the report, and the sync tree is generated."""
    code_lines.main([])

    shown = capsys.readouterr().out
    assert shown.startswith("working tree: ")
    assert "zae_limiter/_async" in shown
    assert "zae_limiter/_sync" not in shown
