"""Build the aggregator's package: a zip of modules of this installation. Blocking.

All files are plain Python, so the package is the same for every platform. They are copied from the
installation: no index is queried and no compiler runs. The Lambda runtime provides botocore, the
only other package that the function imports. The same installation always makes the same bytes.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

HANDLER = "zae_limiter_aggregator.handler.handler"

_LIMITER = "zae_limiter"
_LIMITER_FILES = ("__init__.py", "py.typed", "tables/__init__.py", "tables/evaluate.py", "tables/paging.py")
_LIMITER_FOLDERS = ("core", "schema", "tables/dynamodb")
_AGGREGATOR = "zae_limiter_aggregator"

_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16
_UNIX = 3


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


def zip_of(files: Mapping[str, bytes], *, compress: bool = True) -> bytes:
    """Return an archive of files by name; the same files always make the same bytes."""
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in sorted(files):
            archive.writestr(_entry(name, kind), files[name])
    return written.getvalue()


def _entry(name: str, kind: int) -> zipfile.ZipInfo:
    """Return an entry without the time and the machine of its creation."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = kind
    entry.external_attr = _READABLE
    entry.create_system = _UNIX
    return entry
