"""Provide wheels for another Python and platform: downloaded once from the package index, then cached. Blocking.

Every version is that of this environment, so the wheels are those that were tried here, and the
same environment always gets the same wheels.
"""

import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

from zae_limiter.core.errors import InfrastructureError
from zae_limiter.core.installation import PROJECT, packages_of
from zae_limiter.installation import missing_extra
from zae_limiter.loadtest.requirements import (
    DistributionMetadata,
    RequiredDistribution,
    Requirement,
    markers_of,
    normalized,
    parse_requirement,
    required,
)

_DOWNLOAD_S = 900
_SHOWN_LINES = 15
_EXTRA = "bench"
# Of the extra, workers and the master need these; docker is for `deploy --build-image` alone.
_NEEDED_OF_EXTRA = ("gevent", "locust")
_MOST_ROUNDS = 10
_GLIBC = re.compile(r"manylinux_2_(\d+)_(\w+)")
_LEGACY_TAGS = ((17, "manylinux2014"), (12, "manylinux2010"), (5, "manylinux1"))


class PackageError(InfrastructureError):
    """The package of a load test cannot be built; ``log_lines`` are the last lines of the installer."""

    def __init__(self, reason: str, log_lines: Sequence[str] = ()) -> None:
        self.reason = reason
        self.log_lines = tuple(log_lines)
        super().__init__(reason, self.log_lines)

    def __str__(self) -> str:
        said = f"The package of the load test cannot be built: {self.reason}"
        return "\n".join([said, *(f"  {line}" for line in self.log_lines)])


@dataclass(frozen=True, slots=True)
class WheelTarget:
    """A version of CPython such as ``3.13``, and a platform with the newest glibc that it offers."""

    python: str
    platform: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"3\.\d+", self.python) or not _GLIBC.fullmatch(self.platform):
            raise PackageError(f"{self.python} on {self.platform} is not a target such as 3.13 on {LAMBDA_PLATFORM}")

    @property
    def machine(self) -> str:
        """The architecture: ``x86_64``."""
        return _parts(self.platform)[1]

    @property
    def tags(self) -> tuple[str, ...]:
        """The platform tags of wheels that run there, the newest first."""
        newest, machine = _parts(self.platform)
        tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
        return (*tags, *(f"{name}_{machine}" for minor, name in _LEGACY_TAGS if minor <= newest), f"linux_{machine}")


LAMBDA_PLATFORM = "manylinux_2_34_x86_64"
"""Amazon Linux 2023, on which the function runs, has glibc 2.34."""
LAMBDA = WheelTarget("3.13", LAMBDA_PLATFORM)
"""The runtime of the worker function. The image of the master has the same Python and a newer glibc."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel by its file name."""

    name: str
    content: bytes

    @property
    def metadata(self) -> tuple[str, DistributionMetadata]:
        """The normalized name of its distribution, and its metadata."""
        with zipfile.ZipFile(io.BytesIO(self.content)) as opened:
            (path,) = [name for name in opened.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            said = HeaderParser().parsestr(opened.read(path).decode())
        needs = tuple(str(one) for one in said.get_all("Requires-Dist", []))
        return normalized(str(said["Name"])), DistributionMetadata(str(said["Version"]), needs)


def load_test_requirements() -> list[Requirement]:
    """Return what this project and its extra for load tests require.

    Raises:
        MissingExtraError: The extra is not installed.
    """
    if installed("locust") is None:
        raise missing_extra(_EXTRA, "locust")
    texts = tuple(metadata.distribution(PROJECT).requires or ())
    own = [text for text in texts if "extra" not in text.partition(";")[2]]
    of_extra = [parse_requirement(text) for text in packages_of(_EXTRA, texts)]
    return [*map(parse_requirement, own), *(one for one in of_extra if one.name in _NEEDED_OF_EXTRA)]


def installed(name: str) -> DistributionMetadata | None:
    """Return the metadata of a distribution of this environment, None if it is not installed."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return DistributionMetadata(found.version, tuple(found.requires or ()))


def wheels_for(target: WheelTarget, say: Callable[[str], None], cache: Path | None = None) -> list[Wheel]:
    """Return the wheels of all requirements, sorted by name; the first call downloads them.

    Raises:
        MissingExtraError: The extra for load tests is not installed.
        PackageError: A wheel is not available for the target, or the index cannot be reached.
    """
    roots, markers = load_test_requirements(), markers_of(target.python, target.machine)
    folder = (cache or default_cache()) / _digest(target, required(roots, installed, markers).values())
    if not folder.is_dir():
        _fill(folder, target, roots, say)
    return _read(folder)


def default_cache() -> Path:
    """Return the folder of downloaded wheels."""
    from platformdirs import user_cache_path

    return Path(user_cache_path("zae-limiter", appauthor=False)) / "loadtest" / "wheels"


def _fill(folder: Path, target: WheelTarget, roots: Sequence[Requirement], say: Callable[[str], None]) -> None:
    """Download the wheels into a folder, which appears when it is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="download-") as begun:
            _download_all(Path(begun, "wheels"), target, roots, say)
            if not folder.exists():
                Path(begun, "wheels").rename(folder)
    except OSError as error:
        # Another command may have been faster, and an existing folder is complete.
        if not folder.is_dir():
            raise PackageError(f"cannot write {folder}: {error}") from error


def _download_all(folder: Path, target: WheelTarget, roots: Sequence[Requirement], say: Callable[[str], None]) -> None:
    """Download the wheels, and then what their own metadata requires for the target and is not here."""
    for _ in range(_MOST_ROUNDS):
        missing = _missing(dict(wheel.metadata for wheel in _read(folder)), target, roots)
        if not missing:
            return
        say(f"downloading {len(missing)} wheels for Python {target.python} on {target.platform}")
        _download(folder, target, missing)
    raise PackageError(f"its requirements are incomplete after {_MOST_ROUNDS} rounds")


def _missing(
    here: Mapping[str, DistributionMetadata], target: WheelTarget, roots: Sequence[Requirement]
) -> list[RequiredDistribution]:
    """Return what is needed on the target and not downloaded yet."""

    def known(name: str) -> DistributionMetadata | None:
        return here.get(name) or installed(name)

    needed = required(roots, known, markers_of(target.python, target.machine))
    return [one for name, one in needed.items() if name not in here]


def _download(folder: Path, target: WheelTarget, missing: Iterable[RequiredDistribution]) -> None:
    """Run the installer. It resolves nothing, because it would do so for the Python that runs it."""
    platforms = [word for tag in target.tags for word in ("--platform", tag)]
    options = ["--only-binary", ":all:", "--no-deps", "--implementation", "cp", "--python-version", target.python]
    command = [*_installer(), "download", *options, *platforms, "--dest", str(folder), *sorted(map(str, missing))]
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_DOWNLOAD_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError(f"the wheels cannot be downloaded: {error}") from error
    if done.returncode:
        advice = "make a package index reachable, or install versions here that have wheels for it, and retry"
        reason = f"the wheels for Python {target.python} on {target.platform} cannot be downloaded; {advice}"
        raise PackageError(reason, done.stdout.splitlines()[-_SHOWN_LINES:])


def _installer() -> list[str]:
    """Return the command of pip: that of this environment, or else one that uv provides."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "--quiet", "--python", sys.executable, "pip"]
    raise PackageError("neither pip nor uv is installed; install one of them")


def _digest(target: WheelTarget, needed: Iterable[RequiredDistribution]) -> str:
    """Return a name for the wheels of these versions on this target."""
    said = "\n".join([target.python, target.platform, *sorted(map(str, needed))])
    return hashlib.sha256(said.encode()).hexdigest()[:20]


def _read(folder: Path) -> list[Wheel]:
    return [Wheel(path.name, path.read_bytes()) for path in sorted(folder.glob("*.whl"))]


def _parts(platform: str) -> tuple[int, str]:
    found = _GLIBC.fullmatch(platform)
    assert found is not None
    return int(found[1]), found[2]
