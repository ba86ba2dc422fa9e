"""An environment with a wheel and exactly the requirements of its metadata.

The wheel is installed by a real installer. Its requirements are linked from the environment of the tests, so that no
index is needed. Anything else cannot be imported.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement


@dataclass(frozen=True)
class Environment:
    """A folder with programs."""

    programs: Path

    def run(self, *command: str, cwd: Path, code: int = 0) -> str:
        """Run a program, require an exit code, and return what it prints on both streams."""
        done = subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            cwd=cwd,
            env={"PATH": str(self.programs), "HOME": str(cwd), "PYTHONWARNINGS": "error", "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert code == done.returncode, done.stdout
        return done.stdout


def new_environment(folder: Path, wheel: Path, *extras: str) -> Environment:
    """Create an environment in a folder."""
    venv.create(folder, with_pip=False, symlinks=True)
    environment = Environment(folder / "bin")
    site = Path(environment.run("python", "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).strip())
    install(wheel, environment.programs / "python")
    with zipfile.ZipFile(wheel) as opened:
        (metadata,) = [opened.read(name) for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
    for distribution in required(Metadata.from_email(metadata).requires_dist or [], extras, set()):
        link(distribution, site)
    return environment


def install(wheel: Path, python: Path) -> None:
    """Install a wheel alone, with the available installer."""
    options = ["--quiet", "--no-deps", "--no-index", str(wheel)]
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", str(python), *options]
    else:
        # An environment that was created without pip has none; then the outer one is used.
        pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip"]
        command = [*pip, "--python", str(python), "install", "--no-compile", *options]
    subprocess.run(command, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, check=True)


def required(
    requirements: list[Requirement], extras: tuple[str, ...], seen: set[str]
) -> Iterator[importlib.metadata.Distribution]:
    """Return the distributions that requirements need, and their own, each once."""
    for requirement in requirements:
        marker = requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or ("",))
        if not wanted or requirement.name in seen:
            continue
        seen.add(requirement.name)
        distribution = importlib.metadata.distribution(requirement.name)
        assert requirement.specifier.contains(distribution.version, prereleases=True), requirement
        yield distribution
        theirs = [Requirement(text) for text in distribution.requires or []]
        yield from required(theirs, tuple(requirement.extras), seen)


def link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Link a distribution's packages and modules into the environment."""
    for top in sorted({path.parts[0] for path in distribution.files or []} - {"..", "__pycache__"}):
        (site / top).symlink_to(str(distribution.locate_file(top)))
