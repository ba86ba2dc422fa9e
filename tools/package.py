"""Check the built packages: complete, without foreign files, valid metadata, and reproducible from the source archive.

    python tools/package.py dist    check the one wheel and the one source archive in a folder

The packages must contain the files that git tracks, so this runs in a clone.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_string
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parent.parent
SOURCES = "src/"
MADE_IN_WHEEL = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
MADE_IN_ARCHIVE = ("PKG-INFO",)


def tracked(root: Path = ROOT) -> set[str]:
    """Return the files that git tracks and that exist."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (root / name).is_file()}


def build(root: Path, folder: Path, *targets: str) -> None:
    """Build with the installed tools, without downloads."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder.resolve())]
    options = [word for target in targets for word in ("-t", target)]
    subprocess.run([*command, *options], cwd=root, check=True, capture_output=True, text=True)


def wheel_problems(wheel: Path, known: set[str]) -> Iterator[str]:
    """Yield the files that a wheel lacks, and those that it should not have."""
    distribution = "-".join(wheel.name.split("-")[:2])
    expected = {name.removeprefix(SOURCES) for name in known if name.startswith(SOURCES)}
    expected |= {f"{distribution}.dist-info/{name}" for name in MADE_IN_WHEEL}
    with zipfile.ZipFile(wheel) as opened:
        yield from differences(expected, {name for name in opened.namelist() if not name.endswith("/")})


def archive_problems(archive: Path, known: set[str]) -> Iterator[str]:
    """Yield the files that a source archive lacks, and those that it should not have."""
    with tarfile.open(archive) as opened:
        found = {member.name.partition("/")[2] for member in opened if not member.isdir()}
    yield from differences(known | set(MADE_IN_ARCHIVE), found)


def differences(expected: set[str], found: set[str]) -> Iterator[str]:
    """Yield missing and foreign files."""
    yield from (f"missing: {name}" for name in sorted(expected - found))
    yield from (f"foreign: {name}" for name in sorted(found - expected))


def metadata_problems(wheel: Path) -> Iterator[str]:
    """Yield the problems for which an index would reject the metadata."""
    (text,) = [body.decode() for name, body in contents(wheel).items() if name.endswith(".dist-info/METADATA")]
    try:
        Metadata.from_email(text, validate=True)
    except ExceptionGroup as refused:
        yield from (f"metadata: {error}" for error in refused.exceptions)
    # Metadata does not distinguish an empty description from a missing one.
    if not message_from_string(text).get_payload():
        yield "metadata: no description"


def rebuilding_problems(archive: Path, wheel: Path) -> Iterator[str]:
    """Yield the differences of a wheel that is built from the source archive, without git."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        build(folder / archive.name.removesuffix(".tar.gz"), folder, "wheel")
        ours, theirs = contents(wheel), contents(one(folder, "*.whl"))
    yield from differences(set(ours), set(theirs))
    yield from (f"rebuilt otherwise: {name}" for name in sorted(ours) if theirs.get(name, ours[name]) != ours[name])


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def one(folder: Path, pattern: str) -> Path:
    """Return the only file that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} has {len(found)} files {pattern}, expected one; empty it and build again")
    return found[0]


def problems(folder: Path, root: Path = ROOT) -> list[str]:
    """Return all problems of the built packages."""
    wheel, archive, known = one(folder, "*.whl"), one(folder, "*.tar.gz"), tracked(root)
    return [
        *(f"{wheel.name}: {problem}" for problem in wheel_problems(wheel, known)),
        *(f"{archive.name}: {problem}" for problem in archive_problems(archive, known)),
        *(f"{wheel.name}: {problem}" for problem in metadata_problems(wheel)),
        *(f"{archive.name}: {problem}" for problem in rebuilding_problems(archive, wheel)),
    ]


def main(arguments: Sequence[str]) -> int:
    """Check a folder, print the problems, and return the exit code."""
    folder = Path(arguments[0] if arguments else ROOT / "dist")
    found = problems(folder)
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        print("ok: contents, metadata, and the same wheel from the source archive")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
