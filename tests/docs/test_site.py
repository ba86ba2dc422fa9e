"""What tools/site_hooks.py does when MkDocs builds a small site, and the content of the real one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.site import built, is_fresh

# The lost links and pages of a site of that test, as MkDocs names them.
NAMED = ("'gone.md'", "'../../gone.py'", "'#lost'", "'docs/away.md'", "unlisted.md", "'absent.md'")
CONFIGURATION = """\
site_name: A small site
theme: mkdocs
hooks: [tools/site_hooks.py]
markdown_extensions:
  - pymdownx.superfences:
      custom_fences:
        - name: mermaid
          class: mermaid
          format: !!python/name:pymdownx.superfences.fence_code_format
validation:
  omitted_files: warn
  not_found: warn
  anchors: warn
nav:
  - index.md
  - Changelog: changelog.md
  - Guide: [guide/second.md, "guide/*"]
  - Contributor's guide: contributing/guide.md
  - Others: [contributing/benchmarks.md, guide/examples.md]
"""
PAGES = {
    "docs/index.md": "[guide](../CONTRIBUTING.md#two) [code](../src/) [all](guide/) [src/x.py](../src/x.py)\n",
    "docs/guide/README.md": "# All\n",
    "docs/guide/first.md": "# First\n\n```mermaid\nflowchart LR\n  a --> b\n```\n",
    "docs/guide/second.md": "# Second\n\n```text\n[not a link](../../src/x.py)\n```\n",
    "docs/assets/diagrams.js": "\n",
    "CONTRIBUTING.md": "# Contributing\n\n## Two\n\n[first](docs/guide/first.md)\n",
    "CHANGELOG.md": "# Changelog\n",
    "bench/README.md": "# Benchmarks\n",
    "examples/README.md": "# Examples\n",
    "src/x.py": "\n",
    "mkdocs.yml": CONFIGURATION,
}


def project(folder: Path, changed: dict[str, str] | None = None) -> Path:
    """Return a small repository with a site."""
    for name, text in {**PAGES, **(changed or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "site_hooks.py", folder / "tools")
    return folder


def build(project: Path) -> tuple[int, str]:
    """Build the site of a project strictly, and return the exit code and the output."""
    mkdocs = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run([mkdocs, "build", "--strict"], cwd=project, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the small site, built without Mermaid, and the output."""
    folder = project(tmp_path_factory.mktemp("small"))
    code, said = build(folder)
    assert code == 0, said
    return folder / "site", said


def html(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text(encoding="utf-8")


def test_link_out_of_the_documentation_leads_to_the_site_page_of_the_file(small):
    """If there is none, the link is removed and the path is shown."""
    site, _ = small
    index = html(site, "")

    assert '<a href="contributing/guide/#two">guide</a>' in index
    assert '<a href="guide/">all</a>' in index
    assert "code (<code>src</code>)" in index
    assert " <code>src/x.py</code></p>" in index
    assert '<a href="../../guide/first/">first</a>' in html(site, "contributing/guide")
    assert "[not a link](../../src/x.py)" in html(site, "guide/second")


def test_folder_in_the_navigation_lists_its_pages(small):
    """Pages that are listed elsewhere are left out; the folder's own page comes first."""
    site, _ = small
    found = re.findall(r'<a href="([^"#]*)" class="dropdown-item', html(site, ""))

    assert ["guide/second/", "guide/", "guide/first/"] == found[:3]


def test_diagrams_without_mermaid_are_shown_as_text(small):
    """Otherwise the site would load Mermaid from elsewhere."""
    site, said = small
    page = html(site, "guide/first")

    assert "tools/diagrams.sh" in said
    assert '<pre class="mermaid">' not in page
    assert "flowchart LR" in page


def test_diagrams_are_drawn_by_the_sites_own_mermaid(tmp_path):
    """It is loaded only on pages with diagrams, from the site."""
    folder = project(tmp_path, {".engines/mermaid/mermaid.min.js": "// Mermaid"})
    build(folder)
    page = html(folder / "site", "guide/first")

    assert '<pre class="mermaid">' in page
    assert '<script src="../../assets/mermaid.min.js"></script>' in page
    assert (folder / "site" / "assets" / "mermaid.min.js").read_text() == "// Mermaid"
    assert "mermaid.min.js" not in html(folder / "site", "guide/second")


def test_lost_link_or_page_fails_the_build(tmp_path):
    """The check can fail: a file, an anchor, a link of an included page; a page without menu, a menu entry without
    page.
    """
    lost = {
        "docs/guide/first.md": "# First\n\n[a](gone.md) [b](../../gone.py) [c](second.md#lost)\n",
        "CONTRIBUTING.md": "# Contributing\n\n## Two\n\n[d](docs/away.md)\n",
        "docs/unlisted.md": "# In no menu\n",
        "mkdocs.yml": f"{CONFIGURATION}  - Absent: absent.md\n",
    }
    code, said = build(project(tmp_path, lost))

    assert code == 1
    assert [] == [name for name in NAMED if name not in said]


def test_real_site_has_the_pages_of_the_repository():
    """Pages outside the documentation folder are on the site, and links between pages work."""
    site = built()

    assert "Keep a Changelog" in html(site, "changelog")
    assert "How to mirror" in html(site, "contributing/guide")
    assert "bench/run" in html(site, "contributing/benchmarks")
    assert "<code>examples/basic.py</code>" in html(site, "guide/examples")
    assert 'href="guide/"' in html(site, "contributing")


def test_site_older_than_a_change_is_stale(tmp_path):
    """A site built before the last change is not used."""
    assert not is_fresh(tmp_path)
    (tmp_path / "sitemap.xml").write_text("")
    assert is_fresh(tmp_path)
