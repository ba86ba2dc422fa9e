"""Every Python program of every page runs as shown, and prints something."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, Block, named, programs
from tests.dynamodb.engines import start
from tests.infra import cdk
from tests.long_waits import LONG_DEADLINE
from zae_limiter import Limit, SyncRepository

RUNNER = Path(__file__).with_name("runner.py")
# The address at which pages tell readers to start a local AWS.
PLACE = re.compile(r"http://(localhost|127\.0\.0\.1):4566")
ON_DYNAMODB = re.compile(
    r"^[^#\n]*(dynamodb://|Repository\.connect\(|\.builder\(|list_deployed|localhost:4566|boto)", re.MULTILINE
)
WITH_PROGRAMS = [page for page in PAGES if programs(page)]
WITH_AN_EXTRA = [block for page in WITH_PROGRAMS for block in programs(page) if block.needs]
# These have a test of their own, with Locust: tests/loadtest/test_locust_process.py.
OF_LOAD_TESTS = [block for block in WITH_AN_EXTRA if block.needs == "bench"]


@pytest.fixture
def aws() -> Iterator[str]:
    """Return an AWS as the pages describe it: with a limiter, my-app, and default limits."""
    engine = start("aws")
    try:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in keys(engine.url).items():
                environment.setenv(name, value)
            with SyncRepository.open("dynamodb://my-app?region=us-east-1&create=true", deadline_s=60) as repo:
                repo.set_system_defaults([Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 10_000)])
        yield engine.url
    finally:
        engine.stop()


def keys(url: str) -> dict[str, str]:
    """Return what `zae-limiter local env` prints."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": os.devnull,
    }


def faults(shown: list[Block], folder: Path, url: str | None) -> list[str]:
    """Return what went wrong with the programs of a page."""
    environment = {
        "ZAE_LIMITER_URL": "sqlite:///limits.db",
        "PATH": str(Path(sys.executable).parent),
        "HOME": str(folder),
    }
    environment |= keys(url) | LONG_DEADLINE if url else {}
    texts = [PLACE.sub(url, block.text) if url else block.text for block in shown]
    answers = zip(shown, ended(texts, folder, environment), strict=True)
    return [f"{block.place}: {message}" for block, answer in answers if (message := fault(block, answer)) is not None]


def ended(texts: list[str], folder: Path, environment: dict[str, str], *path: Path) -> list[dict[str, Any]]:
    """Run programs in turn, each in a folder of its own, and return how they ended; they may import from the path."""
    asked = []
    for number, text in enumerate(texts):
        where = folder / str(number)
        where.mkdir()
        (where / "program.py").write_text(text)
        asked.append({"folder": str(where), "environment": environment, "path": [str(one) for one in path]})
    done = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER)],
        env=os.environ | environment,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fault(block: Block, answer: dict[str, Any]) -> str | None:
    """Return what is wrong with how a program ended; None if nothing."""
    if answer["code"] or answer["err"]:
        return f"it ended with {answer['code']}: {answer['err']}"
    if block.output is not None and answer["out"] != block.output:
        return f"it is shown to print\n{block.output}but it prints\n{answer['out']}"
    return None if answer["out"] else "it prints nothing"


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=named)
def test_programs_of_a_page_run_as_shown(page, tmp_path, request):
    """A reader pastes each into a file and runs it, after starting what the page says."""
    shown = [block for block in programs(page) if not block.needs]
    needs_aws = any(ON_DYNAMODB.search(block.text) for block in shown)

    assert [] == faults(shown, tmp_path, request.getfixturevalue("aws") if needs_aws else None)


@pytest.mark.parametrize(
    "block", [block for block in WITH_AN_EXTRA if block not in OF_LOAD_TESTS], ids=lambda block: block.place
)
def test_cdk_program_of_a_page_makes_its_stack(block, tmp_path):
    """CDK prints notes of its own, so output is allowed; the stack is checked."""
    assert "cdk" == block.needs, "no test brings what this program needs"
    reason = cdk.missing()
    if reason:
        pytest.skip(reason)
    out = tmp_path / "cdk.out"
    environment = {"HOME": str(tmp_path)} | cdk.environment(out)

    (answer,) = ended([block.text], tmp_path, environment, cdk.FOLDER)

    assert 0 == answer["code"], answer["err"]
    (template,) = out.glob("*.template.json")
    resources = json.loads(template.read_text())["Resources"].values()
    assert "AWS::DynamoDB::Table" in {resource["Type"] for resource in resources}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("raise ValueError('no such thing')", "no such thing"),
        ("x = 1", "it prints nothing"),
        ("import warnings\nwarnings.warn('old', DeprecationWarning)\nprint(1)", "DeprecationWarning: old"),
        ("import sys\nprint(1)\nsys.exit(3)", "it ended with 3"),
        ("print(1)\n```\n\n```text\n2", "it is shown to print\n2\nbut it prints\n1\n"),
    ],
)
def test_program_that_does_not_run_is_found(text, fault, tmp_path):
    """The check can fail: an error, no output, a warning, an exit code and other output are reported with the place."""
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```python\n{text}\n```\n")

    (message,) = faults(programs(page), tmp_path, None)

    assert message.startswith("page.md:3: ")
    assert fault in message


def test_programs_run_in_separate_processes(tmp_path):
    """What one defines, imports or sets, the next does not have."""
    page = tmp_path / "page.md"
    first = "import os\nos.environ['SEEN'] = '1'\nseen = 1\nprint(__name__)"
    second = "import os\nprint('SEEN' in os.environ)\nprint(seen)"
    page.write_text(f"```python\n{first}\n```\n\n```python\n{second}\n```\n")

    (message,) = faults(programs(page), tmp_path, None)

    assert "page.md:8" in message
    assert "NameError: name 'seen' is not defined" in message
    assert "False\n" == (tmp_path / "1" / "out").read_text()
