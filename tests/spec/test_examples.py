"""The examples of the specification run as written on a local AWS, or have a reason why they do not."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynamodb.engines import EngineAbsentError, free_port, start
from tests.infra.local_servers import always_stopped
from tests.long_waits import LONG_DEADLINE
from tests.spec.examples import Example, examples

ROOT = Path(__file__).resolve().parents[2]
RUN_PYTHON = Path(__file__).with_name("run_python.py")
EXAMPLES = examples()
# The address of the local AWS in the documents.
PLACE = re.compile(r"http://localhost:4566")
SHOWN_CHARACTERS = 2_000


class Shell:
    """The shell of a reader: a folder, and an environment that leads to a local AWS and to the limiter my-app."""

    def __init__(self, folder: Path, url: str) -> None:
        """Prepare the environment for a folder and the endpoint of a local AWS."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ZAE_", "XDG_"))}
        self._folder = folder
        self._url = url
        self._environment = known | {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_CONFIG_FILE": os.devnull,
            "FREE_PORT": str(free_port()),
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{LONG_DEADLINE['PYTHONPATH']}:{ROOT}",
            "ZAE_LIMITER_LOCAL_DIR": str(folder / "local"),
            "ZAE_LIMITER_URL": "dynamodb://my-app?region=us-east-1",
        }

    def fault(self, example: Example) -> str | None:
        """Run an example, and return what went wrong; None if nothing."""
        done = self._python(example) if example.language == "python" else self.bash(self._script(example))
        if done.returncode:
            return f"{example.place}: it ended with {done.returncode}: {done.stderr[-SHOWN_CHARACTERS:]}"
        if example.warns is not None and example.warns not in done.stderr:
            return f"{example.place}: it does not warn of {example.warns}: {done.stderr!r}"
        if example.warns is None and "Warning: " in done.stderr and example.language == "python":
            return f"{example.place}: it warns: {done.stderr[-SHOWN_CHARACTERS:]}"
        return None

    def bash(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script without a terminal. It ends with the first command that fails."""
        return self._run("bash", "-e", "-c", script)

    def _script(self, example: Example) -> str:
        return f"{example.before}\n{PLACE.sub(self._url, example.filled_text)}\n{example.after}"

    def _python(self, example: Example) -> subprocess.CompletedProcess[str]:
        paths = []
        for name, text in (("before", example.before), ("example", example.text), ("after", example.after)):
            path = self._folder / f"{name}.py"
            path.write_text(PLACE.sub(self._url, text), encoding="utf-8")
            paths.append(str(path))
        warnings = ("-W", "always", "-W", "ignore::ResourceWarning")  # The examples close nothing.
        return self._run(sys.executable, *warnings, str(RUN_PYTHON), *paths)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def shell(tmp_path) -> Iterator[Shell]:
    """A shell with a local AWS of its own, because the documents choose the names of the stacks."""
    try:
        engine = start("aws")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    try:
        with always_stopped(tmp_path / "local"):
            yield Shell(tmp_path, engine.url)
    finally:
        engine.stop()


def running(language: str) -> list[Example]:
    """Return the examples in a language that run, in the order of the documents."""
    return [one for one in EXAMPLES if one.language == language and one.superseded is None]


def test_python_examples_run_as_written(shell):
    """They share one deployed limiter, as the documents assume."""
    deployed = shell.bash("zae-limiter deploy --name my-app --region us-east-1")
    assert 0 == deployed.returncode, deployed.stderr

    faults = [shell.fault(example) for example in running("python")]

    assert [] == [fault for fault in faults if fault is not None]


def test_shell_examples_run_as_written(shell):
    """The first one deploys the limiter that the others use."""
    faults = [shell.fault(example) for example in running("bash")]

    assert [] == [fault for fault in faults if fault is not None]


def test_no_example_of_the_documents_is_left_out():
    """Every fenced block of Python and of shell commands, by document and language."""
    counted = Counter((one.document, one.language) for one in EXAMPLES)

    assert {("000", "python"): 15, ("002", "python"): 7, ("002", "bash"): 12} == counted
    assert len(EXAMPLES) == len({one.place for one in EXAMPLES})


def test_every_superseded_example_has_a_reason_and_nothing_to_run():
    """The reason is a sentence. What is superseded and what runs are never mixed."""
    superseded = [one for one in EXAMPLES if one.superseded is not None]

    assert superseded
    assert [] == [one.place for one in superseded if not (one.superseded or "").endswith(".")]
    assert [] == [one.place for one in superseded if one.before or one.after or one.warns or one.placeholders]


@pytest.mark.parametrize(
    ("example", "fault"),
    [
        (Example("000", 1, "python", "await missing()"), "NameError"),
        (Example("000", 1, "python", "x = 1", after="assert x == 2"), "AssertionError"),
        (Example("000", 1, "python", "import warnings; warnings.warn('old', DeprecationWarning)"), "it warns"),
        (Example("000", 1, "python", "x = 1", warns="DeprecationWarning"), "it does not warn of DeprecationWarning"),
        (Example("000", 1, "bash", "zae-limiter namespace lst\ntrue"), "it ended with 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_example_that_does_not_run_is_found(example, fault, tmp_path):
    """The check can fail: an error, a false statement, a warning, no warning, and a failed command."""
    found = Shell(tmp_path, "http://127.0.0.1:1").fault(example)

    assert found is not None
    assert found.startswith("000:1: ")
    assert fault in found
