"""Build the aggregator's package: a zip of modules of this package and of powertools. Blocking.

All files are plain Python, so the package is the same for every platform. They are copied from the
installation: no index is queried and no compiler runs. The same installation always makes the same
bytes.
"""

import io
import zipfile
from collections.abc import Iterator
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from zae_limiter.core.errors import StorageError

HANDLER = "zae_limiter_aggregator.handler.handler"

# Lambda provides boto3. These are powertools and their other dependencies.
_DISTRIBUTIONS = ("aws-lambda-powertools", "jmespath", "typing-extensions")
_INSTALL = "install it with: pip install 'zae-limiter[lambda]', or deploy without the aggregator"

_LIMITER = "zae_limiter"
_LIMITER_FILES = ("__init__.py", "py.typed", "tables/__init__.py", "tables/evaluate.py", "tables/paging.py")
_LIMITER_FOLDERS = ("core", "schema", "tables/dynamodb")
_AGGREGATOR = "zae_limiter_aggregator"

_EPOCH = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16
_UNIX = 3


def build_package() -> bytes:
    """Return the zip.

    Raises:
        StorageError: Powertools are not installed, or contain compiled code.
    """
    files = dict([*_limiter_files(), *_folder_files(_AGGREGATOR, ""), *_powertools_files()])
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as package:
        for name in sorted(files):
            package.writestr(_entry(name), files[name])
    return written.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry without the time and the machine of its creation."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = _READABLE
    entry.create_system = _UNIX
    return entry


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


def _powertools_files() -> Iterator[tuple[str, bytes]]:
    for name in _DISTRIBUTIONS:
        yield from _installed_files(name)


def _installed_files(distribution: str) -> Iterator[tuple[str, bytes]]:
    """Yield the importable files of a distribution, without metadata, scripts and bytecode."""
    try:
        found = metadata.files(distribution)
    except metadata.PackageNotFoundError:
        raise StorageError("the aggregator's package", f"{distribution} is not installed; {_INSTALL}") from None
    if not found:
        reason = f"{distribution} was installed without a record of its files; {_INSTALL}"
        raise StorageError("the aggregator's package", reason)
    for path in found:
        if path.suffix in (".so", ".pyd", ".dylib"):
            reason = f"{distribution} is installed with compiled code ({path}), which may not run on AWS"
            raise StorageError("the aggregator's package", reason)
        if ".." in path.parts or "__pycache__" in path.parts or path.parts[0].endswith((".dist-info", ".data")):
            continue
        yield path.as_posix(), path.read_binary()
