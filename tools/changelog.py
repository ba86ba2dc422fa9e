"""Make a section of CHANGELOG.md from the fragments in changelog.d/ and the text under Unreleased.

    python tools/changelog.py                  show the section of the next version
    python tools/changelog.py 1.2.3            write it, and delete the fragments
    python tools/changelog.py --notes 1.2.3    show the section of a version

Towncrier writes the section. The text under Unreleased is passed to it as one fragment per kind, so
that it is sorted with the others.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = "CHANGELOG.md"
NEWS = "changelog.d"
UNRELEASED = "## [Unreleased]\n"
NEXT = "Unreleased"
HANDED_OVER = "+!unreleased"

_SECTION = re.compile(r"^(?=## )", re.MULTILINE)
_KIND = re.compile(r"^### (\w+)\n", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


def section(text: str, version: str) -> str | None:
    """Return the section of a version without its heading, or None."""
    for part in _SECTION.split(text):
        heading, _, body = part.partition("\n")
        if heading.startswith(f"## [{version}]"):
            return body.strip()
    return None


def unreleased(text: str) -> dict[str, str]:
    """Return the text under Unreleased, by kind."""
    before, *kinds = _KIND.split(section(text, NEXT) or "")
    if before.strip():
        raise SystemExit(f"{CHANGELOG}: this text under Unreleased has no kind: {before.strip()}")
    return {kind.lower(): body.strip() for kind, body in zip(kinds[::2], kinds[1::2], strict=True)}


def released(root: Path, version: str, date: str) -> str:
    """Return the changelog of a clone with the section of a version; nothing is written."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        shutil.copytree(root / NEWS, copy / NEWS)
        shutil.copy(root / "pyproject.toml", copy)
        text = (root / CHANGELOG).read_text(encoding="utf-8")
        for kind, body in unreleased(text).items():
            (copy / NEWS / f"{HANDED_OVER}.{kind}.md").write_text(body, encoding="utf-8")
        (copy / CHANGELOG).write_text(without_unreleased(text), encoding="utf-8")
        command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, "--date", date]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr.strip())
        return (copy / CHANGELOG).read_text(encoding="utf-8").rstrip() + "\n"


def without_unreleased(text: str) -> str:
    """Return the same changelog with nothing under Unreleased."""
    before, _, after = text.partition(UNRELEASED)
    _, *later = _SECTION.split(after)
    return before + UNRELEASED + "\n" + "".join(later)


def write(root: Path, version: str, date: str) -> None:
    """Write the section of a version, and delete its fragments."""
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"{version} is not a version; write it as 1.2.3")
    changelog = root / CHANGELOG
    if section(changelog.read_text(encoding="utf-8"), version) is not None:
        raise SystemExit(f"{CHANGELOG} has a section for {version} already")
    changelog.write_text(released(root, version, date), encoding="utf-8")
    for news in (root / NEWS).glob("*.*.md"):
        news.unlink()


def notes(root: Path, version: str) -> str:
    """Return the section of a version.

    Raises:
        SystemExit: The changelog does not have it.
    """
    said = section((root / CHANGELOG).read_text(encoding="utf-8"), version)
    if not said:
        raise SystemExit(f"{CHANGELOG} has no section for {version}; write it: make changelog VERSION={version}")
    return said


def main(arguments: Sequence[str]) -> int:
    """Show or write a section, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", nargs="?", help="write the section of this version")
    parser.add_argument("--notes", metavar="VERSION", help="show the section of a version")
    chosen = parser.parse_args(arguments)
    today = datetime.now(UTC).date().isoformat()
    if chosen.notes:
        print(notes(ROOT, chosen.notes))
    elif chosen.version:
        write(ROOT, chosen.version, today)
    else:
        print(section(released(ROOT, "next", today), "next"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
