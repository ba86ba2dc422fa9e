"""Extend MkDocs when it builds the documentation.

The navigation lists pages by folder. Files of the repository's root become pages. Links out of
`docs/` lead to those pages or become paths. Diagrams are drawn by a copy of Mermaid that the site
serves.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# Written by tools/diagrams.sh.
MERMAID = ROOT / ".engines" / "mermaid" / "mermaid.min.js"
MERMAID_ON_SITE = "assets/mermaid.min.js"
DIAGRAM_SCRIPTS = (MERMAID_ON_SITE, "assets/diagrams.js")

# Files of the repository that are also pages of the site.
BORROWED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/guide.md",
    "bench/README.md": "contributing/benchmarks.md",
    "examples/README.md": "guide/examples.md",
}

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)

log = logging.getLogger("mkdocs.hooks.site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the navigation, and show diagrams as text if Mermaid is missing."""
    if config.nav is not None:
        named = set(_pages_of(config.nav))
        config.nav = _spelled_out(config.nav, Path(config.docs_dir), named)
    if not MERMAID.exists():
        log.info("no Mermaid (see tools/diagrams.sh): diagrams are shown as their source")
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": []}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the repository's root, and Mermaid."""
    for source, page in BORROWED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    if MERMAID.exists():
        files.append(File.generated(config, MERMAID_ON_SITE, abs_src_path=str(MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links out of the documentation to pages of the site, or to text."""
    source = _place_in_repository(page.file)
    kept = [(match.start(), match.end()) for match in _FENCE.finditer(markdown)]

    def replaced(match: re.Match[str]) -> str:
        if any(start <= match.start() < end for start, end in kept):
            return match[0]
        return _led(match, source, page.file.src_uri)

    return _LINK.sub(replaced, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load Mermaid only on pages with diagrams, because it is large."""
    if '<pre class="mermaid">' not in output:
        return output
    folder = posixpath.dirname(page.file.dest_uri) or "."
    scripts = "".join(f'<script src="{posixpath.relpath(one, folder)}"></script>' for one in DIAGRAM_SCRIPTS)
    return output.replace("</head>", f"{scripts}</head>", 1)


def _led(match: re.Match[str], source: str, page: str) -> str:
    """Return a link for the site: unchanged, to a borrowed page, or as text if the site has no such page."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["path"]))
    if not (ROOT / target).exists():
        # MkDocs warns about the broken link.
        return match[0]
    on_site = BORROWED.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
    if on_site is None:
        text, shown = match["text"], target.removesuffix("/README.md")
        return f"`{shown}`" if shown.endswith(text.strip("`/")) else f"{text} (`{shown}`)"
    if (ROOT / target).is_dir():
        on_site = posixpath.join(on_site, "README.md")
    return f"[{match['text']}]({posixpath.relpath(on_site, posixpath.dirname(page) or '.')}{match['anchor'] or ''})"


def _place_in_repository(file: File) -> str:
    if file.src_uri in BORROWED.values():
        return next(source for source, page in BORROWED.items() if page == file.src_uri)
    return f"docs/{file.src_uri}"


def _pages_of(nav: Any) -> list[str]:
    """Return the pages in a navigation."""
    match nav:
        case str():
            return [nav]
        case dict():
            return [page for value in nav.values() for page in _pages_of(value)]
        case _:
            return [page for entry in nav for page in _pages_of(entry)]


def _spelled_out(nav: list[Any], docs: Path, named: set[str]) -> list[Any]:
    """Return a navigation with `folder/*` replaced by the pages of the folder that are not listed elsewhere."""
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/*"):
            entries += _unnamed(entry, docs, named)
        elif isinstance(entry, dict):
            entries.append({title: _section(value, docs, named) for title, value in entry.items()})
        else:
            entries.append(entry)
    return entries


def _section(value: Any, docs: Path, named: set[str]) -> Any:
    if isinstance(value, str):
        return _unnamed(value, docs, named) if value.endswith("/*") else value
    return _spelled_out(value, docs, named)


def _unnamed(pattern: str, docs: Path, named: set[str]) -> list[str]:
    """Return the pages of a folder that are not listed elsewhere, its index first."""
    folder = docs / pattern.removesuffix("/*")
    found = sorted(folder.glob("*.md"), key=lambda path: (path.stem not in {"index", "README"}, path.name))
    pages = [path.relative_to(docs).as_posix().replace(os.sep, "/") for path in found]
    return [page for page in pages if page not in named]
