"""The documentation site, built once for all tests of a process."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from tests.docs.pages import ROOT
from tools.site_hooks import BORROWED

BUILT = ROOT / "site"
SOURCES = (
    "docs",
    "src",
    "mkdocs.yml",
    "tools/griffe_dataclasses.py",
    "tools/site_hooks.py",
    ".engines/mermaid",
    *BORROWED,
)


@functools.cache
def built() -> Path:
    """Return the folder of the site: the one in the repository if nothing has changed since, else a new one."""
    if is_fresh(BUILT):
        return BUILT
    folder = Path(tempfile.mkdtemp(prefix="site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site; a warning is a failure."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def is_fresh(site: Path) -> bool:
    """Return whether a site is newer than everything it is made of."""
    last = site / "sitemap.xml"
    return last.exists() and last.stat().st_mtime > max(_changed(ROOT / name) for name in SOURCES)


def inventory(site: Path) -> set[str]:
    """Return the names that the reference of a site documents, as listed in `objects.inv`."""
    head, _, packed = (site / "objects.inv").read_bytes().partition(b"using zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2")
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split(" ", 1)[0] for line in lines if " py:" in line}


def _changed(path: Path) -> float:
    """Return when a file, or any file below a folder, was last changed; Python's own caches do not count."""
    below = [path] if path.is_file() else path.rglob("*")
    return max((one.stat().st_mtime for one in below if one.is_file() and one.suffix != ".pyc"), default=0.0)
