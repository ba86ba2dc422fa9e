"""Decide how to install more of this package from where this copy came from.

A package index may have another project under the same name, so no command names this project
alone. A copy from a directory or a URL is installed from there again. For any other copy, the
packages of an extra are installed by their own names.
"""

import json
import re
import shlex
from typing import assert_never
from urllib.parse import unquote, urlsplit

from zae_limiter.core.lazy_dataclass import dataclass

PROJECT = "zae-limiter"

_NEEDS_SINGLE_QUOTES = re.compile(r'["$`\\!]')
_DRIVE = re.compile(r"/[A-Za-z]:/")


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of sources; an editable copy runs from it."""

    path: str
    is_editable: bool


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A wheel or a source archive at a URL."""

    url: str


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a repository, and the directory in it, empty for its root."""

    url: str
    commit: str
    subdirectory: str


Origin = Directory | ArchiveFile | Revision


@dataclass(frozen=True, slots=True)
class Installation:
    """How this copy was installed: from where, None if unknown, with which requirements, and by which program."""

    origin: Origin | None = None
    requirements: tuple[str, ...] = ()
    installer: str = "pip"

    @property
    def _install(self) -> str:
        return "uv pip install" if self.installer == "uv" else "pip install"

    def extra_command(self, extra: str, package: str) -> str:
        """Return the command that installs an extra; ``package`` is one of its packages."""
        match self.origin:
            case None:
                packages = packages_of(extra, self.requirements) or [package]
                return " ".join([self._install, *(_quoted(one) for one in packages)])
            case origin:
                return f"{self._install} {_target(origin, extra)}"

    def upgrade_advice(self) -> str:
        """Return how to install a newer version: an imperative, without a full stop."""
        match self.origin:
            case Directory(path) as origin:
                return f"update {path}, then run: {self._install} {_target(origin)}"
            case Revision(url, _, subdirectory):
                return f"install it: {self._install} --upgrade {_target(Revision(url, '', subdirectory))}"
            case ArchiveFile(url):
                return f"install a newer archive than {url}"
            case None:
                return "install it from where you have this version from"
            case never:
                assert_never(never)


def origin_of(direct_url: str | None) -> Origin | None:
    """Return the origin that a ``direct_url.json`` describes (PEP 610), None without one or if it is unreadable."""
    try:
        found = json.loads(direct_url or "")
        url = str(found["url"])
        if "dir_info" in found:
            return Directory(_path(url), bool(found["dir_info"].get("editable")))
        subdirectory = str(found.get("subdirectory") or "")
        if "vcs_info" in found:
            return Revision(f"{found['vcs_info']['vcs']}+{url}", str(found["vcs_info"]["commit_id"]), subdirectory)
        return ArchiveFile(url + (f"#subdirectory={subdirectory}" if subdirectory else ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def packages_of(extra: str, requirements: tuple[str, ...]) -> list[str]:
    """Return the requirements of an extra, without their conditions."""
    condition = re.compile(rf"""\bextra\s*==\s*['"]{re.escape(extra)}['"]""")
    split = [requirement.partition(";") for requirement in requirements]
    return [package.strip() for package, _, marker in split if condition.search(marker)]


def _target(origin: Origin, extra: str = "") -> str:
    """Return the argument of the installer for a copy from an origin, with an extra unless it is empty."""
    suffix = f"[{extra}]" if extra else ""
    match origin:
        case Directory(path, is_editable):
            return f"{'--editable ' if is_editable else ''}{_quoted(path + suffix)}"
        case ArchiveFile(url) if url.startswith("file:"):
            return _quoted(_path(url) + suffix)
        case ArchiveFile(url):
            return _quoted(f"{PROJECT}{suffix} @ {url}")
        case Revision(url, commit, subdirectory):
            revision = f"@{commit}" if commit else ""
            place = f"#subdirectory={subdirectory}" if subdirectory else ""
            return _quoted(f"{PROJECT}{suffix} @ {url}{revision}{place}")
        case never:
            assert_never(never)


def _path(url: str) -> str:
    """Return the path of a file URL; Windows has its drive first."""
    path = unquote(urlsplit(url).path)
    return path[1:] if _DRIVE.match(path) else path


def _quoted(word: str) -> str:
    """Quote a word for a shell, with double quotes where they are enough, because all shells know them."""
    return shlex.quote(word) if _NEEDS_SINGLE_QUOTES.search(word) else f'"{word}"'
