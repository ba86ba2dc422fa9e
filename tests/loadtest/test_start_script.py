"""The start script of the master, as the task definition has it: with Python and pip only."""

import subprocess
import sys
from pathlib import Path

from tests.infra.resolved import parsed
from tests.loadtest.credentials_server import CREDENTIALS_PATH, REGION, TaskSurroundings, task_surroundings
from zae_limiter.infra.lambda_package import zip_of
from zae_limiter.infra.template import load_template
from zae_limiter.loadtest.package import own_wheel

KEY = "/code/wheels.zip"
# Stands for the wheel of this project.
MASTER = {
    "zae_limiter/__init__.py": b"",
    "zae_limiter/loadtest/__init__.py": b"",
    "zae_limiter/loadtest/master.py": b"import os, other; print(other.NAME, os.environ['ZAE_LOADTEST_BUCKET'])",
}


def wheel(name: str, files: dict[str, bytes]) -> bytes:
    folder = f"{name}-1.0.dist-info"
    said = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: missing\n".encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, *said, f"{folder}/RECORD"])
    return zip_of({**files, **said, f"{folder}/RECORD": record.encode()})


def start(here: TaskSurroundings, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script in an empty folder, with the environment of a task."""
    (container,) = parsed(load_template())["Resources"]["MasterTask"]["Properties"]["ContainerDefinitions"]
    python, option, script = container["Command"]
    environment = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": here.url + CREDENTIALS_PATH,
        "CODE_URL": here.url + KEY,
        "TARGET_REGION": REGION,
        "ZAE_LOADTEST_BUCKET": "my-bucket",
        "TMPDIR": str(folder),
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    assert "python" == python
    return subprocess.run(
        [sys.executable, option, script], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def test_start_script_installs_the_wheels_of_the_bucket_and_becomes_the_master(tmp_path: Path) -> None:
    """The request is signed as botocore signs it, and no index is asked, not even for requirements."""
    wheels = {
        "zae_limiter-1.0-py3-none-any.whl": wheel("zae_limiter", MASTER),
        "other-1.0-py3-none-any.whl": wheel("other", {"other.py": b"NAME = 'master with wheels'"}),
    }
    with task_surroundings({KEY: zip_of(wheels, compress=False)}) as here:
        done = start(here, tmp_path)

    assert ("master with wheels my-bucket", 0) == (done.stdout.strip(), done.returncode), done.stderr
    assert [KEY] == here.signed


def test_start_script_without_code_ends_with_its_reason(tmp_path: Path) -> None:
    """The log of the task then has it."""
    with task_surroundings({}) as here:
        done = start(here, tmp_path)

    assert done.returncode != 0
    assert "HTTP Error 404" in done.stderr


def test_start_module_of_the_script_is_in_the_wheel_of_this_project() -> None:
    """The script names it as a text, so no import would notice a change."""
    (container,) = parsed(load_template())["Resources"]["MasterTask"]["Properties"]["ContainerDefinitions"]
    module = "zae_limiter.loadtest.master"

    assert f'"-m", "{module}"' in container["Command"][2]
    assert own_wheel().name.startswith("zae_limiter-")
