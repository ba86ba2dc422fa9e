"""Build the packages of a load test: the zip of the worker function, and the wheels of the master. Blocking.

Locust and gevent are compiled, so the packages depend on the platform. For AWS they are made of
wheels for the runtime of the function. For a local AWS the zip is made of the installed files,
because the Python that runs this also runs the functions.
"""

import base64
import hashlib
import io
import os
import platform
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from zae_limiter.core.installation import PROJECT
from zae_limiter.infra.lambda_package import zip_of
from zae_limiter.loadtest.requirements import markers_of, required
from zae_limiter.loadtest.wheels import (
    LAMBDA,
    PackageError,
    Wheel,
    WheelTarget,
    installed,
    load_test_requirements,
    wheels_for,
)

MOST_UNZIPPED_BYTES = 250 * 1024 * 1024
"""The largest package that Lambda accepts, unzipped, in bytes."""

_PACKAGES = ("zae_limiter", "zae_limiter_aggregator")
_TAG = "py3-none-any"
_NAMED = 5
# Services whose descriptions workers need, and files that every client reads.
_BOTOCORE_SERVICES = ("dynamodb", "s3", "sts", "sso", "sso-oidc", "lambda", "ecs", "cloudformation")
_BOTOCORE_DATA = ("botocore", "data")
_OMITTED_FOLDERS = frozenset({"__pycache__", "tests"})
_OMITTED_ENDINGS = (".c", ".cpp", ".h", ".hpp", ".pxd", ".pyc", ".pyi", ".pyx")
_OMITTED_METADATA = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


@dataclass(frozen=True, slots=True)
class LoadPackage:
    """The zip of the worker function with its size unzipped, and the wheels of the master.

    ``wheels`` is None for a local AWS, where the master is a process of this environment.
    """

    worker: bytes
    unzipped_bytes: int
    wheels: bytes | None


def build_load_package(
    target: WheelTarget | None = LAMBDA, say: Callable[[str], None] = lambda _: None, cache: Path | None = None
) -> LoadPackage:
    """Return the packages for a target, or for the Python that runs this if that is None.

    Raises:
        MissingExtraError: The extra for load tests is not installed.
        PackageError: A wheel is missing, or the package is too large for Lambda.
    """
    own = own_wheel()
    if target is None:
        return _packed({**_installed_files(), **_wheel_files(own)}, None)
    wheels = [*wheels_for(target, say, cache), own]
    say("packing the wheels")
    files = {path: content for wheel in wheels for path, content in _wheel_files(wheel).items()}
    return _packed(files, zip_of({wheel.name: wheel.content for wheel in wheels}, compress=False))


def own_wheel() -> Wheel:
    """Return a wheel of this copy, made of its installed files; no index has it, and its sources may be gone."""
    found = metadata.distribution(PROJECT)
    name = f"{PROJECT.replace('-', '_')}-{found.version}"
    folder = f"{name}.dist-info"
    files = {path: content for package in _PACKAGES for path, content in _folder_files(package)}
    files[f"{folder}/METADATA"] = (found.read_text("METADATA") or "").encode()
    files[f"{folder}/entry_points.txt"] = (found.read_text("entry_points.txt") or "").encode()
    said = f"Wheel-Version: 1.0\nGenerator: zae-limiter\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
    files[f"{folder}/WHEEL"] = said.encode()
    files[f"{folder}/RECORD"] = _record(files, f"{folder}/RECORD")
    return Wheel(f"{name}-{_TAG}.whl", zip_of(files))


def is_needed_by_workers(path: str) -> bool:
    """Return whether a file of a distribution belongs into the zip of the worker function.

    Omitted are tests, sources of compiled modules, Locust's web page, which the master serves, and
    the descriptions of services that workers do not call.
    """
    parts = PurePosixPath(path).parts
    if parts[0] == "..":
        return False
    if parts[0].endswith(".dist-info"):
        return parts[-1] not in _OMITTED_METADATA
    if parts[:2] == ("locust", "webui") or path.endswith(_OMITTED_ENDINGS) or path.endswith(".pth"):
        return False
    if parts[:2] == _BOTOCORE_DATA and len(parts) > 3:
        return parts[2] in _BOTOCORE_SERVICES
    return not _OMITTED_FOLDERS.intersection(parts[:-1])


def check_size(files: Mapping[str, bytes]) -> int:
    """Return the size of the unzipped package in bytes.

    Raises:
        PackageError: It is larger than Lambda accepts; the message names its largest parts.
    """
    size = sum(map(len, files.values()))
    if size > MOST_UNZIPPED_BYTES:
        parts: Counter[str] = Counter()
        for path, content in files.items():
            parts[path.partition("/")[0]] += len(content)
        largest = ", ".join(f"{name} ({in_megabytes(one)})" for name, one in parts.most_common(_NAMED))
        limit = in_megabytes(MOST_UNZIPPED_BYTES)
        raise PackageError(f"it has {in_megabytes(size)} unzipped, and Lambda accepts {limit}. Largest: {largest}")
    return size


def in_megabytes(size: int) -> str:
    """Format a size: ``12.3 MB``."""
    return f"{size / 1024 / 1024:.1f} MB"


def main() -> None:
    """Print the sizes of the packages for this Python and for AWS: ``python -m zae_limiter.loadtest.package``."""
    for title, target in (("this Python", None), (f"Python {LAMBDA.python} on {LAMBDA.platform}", LAMBDA)):
        built = build_load_package(target)
        sizes = f"{in_megabytes(len(built.worker))}, unzipped {in_megabytes(built.unzipped_bytes)}"
        wheels = "" if built.wheels is None else f"; wheels of the master {in_megabytes(len(built.wheels))}"
        sys.stdout.write(f"{title}: {sizes}{wheels}\n")


def _packed(files: Mapping[str, bytes], wheels: bytes | None) -> LoadPackage:
    needed = {path: content for path, content in files.items() if is_needed_by_workers(path)}
    size = check_size(needed)
    return LoadPackage(zip_of(needed), size, wheels)


def _wheel_files(wheel: Wheel) -> dict[str, bytes]:
    """Return the files of a wheel where an installer puts them, without scripts and headers."""
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as opened:
        names = {name: _installed_path(name) for name in opened.namelist() if not name.endswith("/")}
        return {path: opened.read(name) for name, path in names.items() if path is not None}


def _installed_path(name: str) -> str | None:
    """Return where a file of a wheel is installed among modules, None if it is installed elsewhere."""
    root, _, rest = name.partition("/")
    if not root.endswith(".data"):
        return name
    kind, _, path = rest.partition("/")
    return path if kind in ("purelib", "platlib") else None


def _installed_files() -> dict[str, bytes]:
    """Return the files of all requirements as they are installed here."""
    needed = required(load_test_requirements(), installed, _own_markers())
    found: dict[str, bytes] = {}
    for one in needed.values():
        if one.version is None:
            raise PackageError(f"{one.name} is not installed here, but required; install it: pip install {one.name}")
        distribution = metadata.distribution(one.name)
        for path in distribution.files or []:
            # Reading is the cost here, so files that are not needed are not read.
            if is_needed_by_workers(path.as_posix()):
                found[path.as_posix()] = Path(str(distribution.locate_file(path))).read_bytes()
    return found


def _own_markers() -> dict[str, str]:
    """Return the variables of conditions for the Python that runs this."""
    of_linux = markers_of(f"{sys.version_info.major}.{sys.version_info.minor}", platform.machine())
    return of_linux | {"os_name": os.name, "sys_platform": sys.platform, "platform_system": platform.system()}


def _folder_files(package: str) -> Iterator[tuple[str, bytes]]:
    return _walk(resources.files(package), PurePosixPath(package))


def _walk(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    for found in folder.iterdir():
        if found.is_dir():
            if found.name != "__pycache__":
                yield from _walk(found, path / found.name)
        elif not found.name.endswith(".pyc"):
            yield str(path / found.name), found.read_bytes()


def _record(files: Mapping[str, bytes], path: str) -> bytes:
    """Return the record of a wheel: the digest and size of each file, except of the record itself."""
    lines = [f"{name},sha256={_digest(files[name])},{len(files[name])}" for name in sorted(files)]
    return "\n".join([*lines, f"{path},,", ""]).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
