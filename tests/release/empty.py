"""An environment with a wheel or a clone, and exactly the requirements of its metadata.

It is installed by a real installer. Its requirements are linked from the environment of the tests, so that no
index is needed. Anything else cannot be imported.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement


@dataclass(frozen=True)
class Environment:
    """A folder with programs."""

    programs: Path

    def run(self, *command: str, cwd: Path, code: int = 0, **variables: str) -> str:
        """Run a program, require an exit code, and return what it prints on both streams."""
        done = subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            cwd=cwd,
            env={"PATH": str(self.programs), "HOME": str(cwd), "PYTHONWARNINGS": "error", "LC_ALL": "C.UTF-8"}
            | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert code == done.returncode, done.stdout
        return done.stdout


def new_environment(folder: Path, wheel: Path) -> Environment:
    """Create an environment with a wheel in a folder."""
    environment, site = empty_environment(folder)
    install(wheel, environment.programs / "python")
    link_requirements(site)
    return environment


def environment_of_clone(folder: Path, clone: Path) -> Environment:
    """Create an environment with a directory of sources in a folder."""
    environment, site = empty_environment(folder)
    # The installer builds the package with what is there, because an environment for it would be downloaded.
    builders = [
        Requirement(text) for text in tomllib.loads((clone / "pyproject.toml").read_text())["build-system"]["requires"]
    ]
    linked = [path for distribution in required(builders, set()) for path in link(distribution, site)]
    install(clone, environment.programs / "python", "--no-build-isolation")
    for path in linked:
        path.unlink()
    link_requirements(site)
    return environment


def empty_environment(folder: Path) -> tuple[Environment, Path]:
    """Create an environment in a folder, and return it with the folder of its packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    environment = Environment(folder / "bin")
    found = environment.run("python", "-c", "import site; print(site.getsitepackages()[0])", cwd=folder)
    return environment, Path(found.strip())


def link_requirements(site: Path) -> None:
    """Link the requirements of the installed package, without its extras."""
    (metadata,) = site.glob("zae_limiter-*.dist-info/METADATA")
    for distribution in required(Metadata.from_email(metadata.read_bytes()).requires_dist or [], set()):
        link(distribution, site)


def install(source: Path, python: Path, *more: str) -> None:
    """Install a wheel or a directory alone, with the available installer."""
    options = ["--quiet", "--no-deps", "--no-index", *more, str(source)]
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", str(python), *options]
    else:
        # An environment that was created without pip has none; then the outer one is used.
        pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip"]
        command = [*pip, "--python", str(python), "install", "--no-compile", *options]
    subprocess.run(command, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, check=True)


def required(
    requirements: list[Requirement], seen: set[str], extras: tuple[str, ...] = ()
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
        yield from required(theirs, seen, tuple(requirement.extras))


def link(distribution: importlib.metadata.Distribution, site: Path) -> list[Path]:
    """Link a distribution's packages and modules into the environment, and return the links."""
    tops = sorted({path.parts[0] for path in distribution.files or []} - {"..", "__pycache__"})
    links = [site / top for top in tops]
    for path in links:
        path.symlink_to(str(distribution.locate_file(path.name)))
    return links
