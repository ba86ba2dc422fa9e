"""Wheels of the local AWS for a package index that is a directory.

They have the names and versions that the environment installs, but no modules of their own. Instead they lead to the
modules of the test environment. So a real installer makes a real environment, in which the real server runs.
"""

import sysconfig
import zipfile
from pathlib import Path

from zae_limiter.infra.local_environment import REQUIREMENTS


def write_server_wheels(directory: Path) -> dict[str, str]:
    """Write the wheels, and return the variables that make pip and uv use only this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for requirement in REQUIREMENTS:
        name, _, version = requirement.partition("==")
        _write_wheel(directory, name, version)
    return index_variables(directory)


def index_variables(directory: Path) -> dict[str, str]:
    """Return the variables that make pip and uv use only this directory."""
    return {f"{tool}_{name}": value for tool in ("PIP", "UV") for name, value in _only(directory).items()}


def _only(directory: Path) -> dict[str, str]:
    return {"NO_INDEX": "1", "FIND_LINKS": str(directory)}


def _write_wheel(directory: Path, name: str, version: str) -> None:
    described = f"{name}-{version}.dist-info"
    files = {
        f"{name}_of_the_tests.pth": sysconfig.get_path("purelib") + "\n",
        f"{described}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{described}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = "".join(f"{file},,\n" for file in [*files, f"{described}/RECORD"])
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, f"{described}/RECORD": listed}.items():
            wheel.writestr(file, text)
