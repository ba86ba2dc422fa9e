"""The pages for operators, and what tests read from them: programs, commands, tables, names of AWS."""

import re
import shlex
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    *(DOCS / name for name in ("monitoring.md", "performance.md")),
    *sorted((DOCS / "infra").glob("*.md")),
    *sorted((DOCS / "operations").rglob("*.md")),
]
PAGES = [page for page in PAGES if page.exists()]


def text(name: str) -> str:
    """Return a page by its name."""
    return (DOCS / name).read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    """Return the name of a page for test IDs."""
    return page.relative_to(DOCS).with_suffix("").as_posix()


def commands(program: str) -> list[object]:
    """Return the commands of a program on the pages, in shell blocks and in sentences, each as its words."""
    shown = []
    for page in PAGES:
        body = page.read_text(encoding="utf-8")
        fenced = "\n".join(re.findall(r"```bash\n(.*?)```", body, re.DOTALL)).replace("\\\n", " ")
        lines = [line.strip() for line in fenced.splitlines() if line.strip().startswith(f"{program} ")]
        lines += re.findall(rf"^ *\$ ({program} .+)$", body, re.MULTILINE)
        inline = re.findall(rf"`({program} [^`]+)`", re.sub(r"```.*?```", "", body, flags=re.DOTALL))
        for number, line in enumerate([*lines, *inline]):
            words = shlex.split(re.split(r"\s(?:>|\||&&)\s", line)[0], comments=True)
            shown.append(pytest.param(words[1:], id=f"{name_of(page)}-{number}"))
    return shown


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the first table below a heading: the other cells, by each name in the first cell."""
    _, _, below = text(page).partition(f"\n{heading}\n")
    table = re.search(r"^ *\|.*\n(?: *\|.*(?:\n|\Z))+", below, re.MULTILINE)
    assert table is not None, f"no table below {heading!r} in {page}"
    cells = [[cell.strip() for cell in line.strip(" |").split("|")] for line in table[0].splitlines()[2:]]
    return {name: rest for first, *rest in cells for name in re.findall(r"`([^`]+)`", first)}
