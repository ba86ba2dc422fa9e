"""Build the aggregator's package: a zip of modules of this installation. Blocking.

All files are plain Python, so the package is the same for every platform. They are copied from the
installation: no index is queried and no compiler runs. The Lambda runtime provides botocore, the
only other package that the function imports. The same installation always makes the same bytes.
"""

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from zae_limiter.infra.archives import zip_of

HANDLER = "zae_limiter_aggregator.handler.handler"

_LIMITER = "zae_limiter"
_LIMITER_FILES = ("__init__.py", "py.typed", "tables/__init__.py", "tables/evaluate.py", "tables/paging.py")
_LIMITER_FOLDERS = ("core", "schema", "tables/dynamodb")
_AGGREGATOR = "zae_limiter_aggregator"


def build_package() -> bytes:
    """Return the zip."""
    return zip_of(dict([*_limiter_files(), *_folder_files(_AGGREGATOR, "")]))


def _limiter_files() -> Iterator[tuple[str, bytes]]:
    root = resources.files(_LIMITER)
    for name in _LIMITER_FILES:
        yield f"{_LIMITER}/{name}", root.joinpath(*name.split("/")).read_bytes()
    for folder in _LIMITER_FOLDERS:
        yield from _folder_files(_LIMITER, folder)


def _folder_files(package: str, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the modules of a folder of a package, and of its subfolders."""
    root = resources.files(package)
    parts = [part for part in folder.split("/") if part]
    return _walk(root.joinpath(*parts), PurePosixPath(package, *parts))


def _walk(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    for found in folder.iterdir():
        if found.is_dir() and found.name != "__pycache__":
            yield from _walk(found, path / found.name)
        elif found.name.endswith(".py") or found.name == "py.typed":
            yield str(path / found.name), found.read_bytes()
