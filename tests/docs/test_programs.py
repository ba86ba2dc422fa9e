"""Every Python program of every page runs as it stands there, and says something."""

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
# Where pages tell readers to start a local AWS.
PLACE = re.compile(r"http://(localhost|127\.0\.0\.1):4566")
ON_DYNAMODB = re.compile(
    r"^[^#\n]*(dynamodb://|Repository\.connect\(|\.builder\(|list_deployed|localhost:4566|boto)", re.MULTILINE
)
WITH_PROGRAMS = [page for page in PAGES if programs(page)]
WITH_AN_EXTRA = [block for page in WITH_PROGRAMS for block in programs(page) if block.needs]


@pytest.fixture
def aws() -> Iterator[str]:
    """An AWS at hand as the pages say: with a limiter, my-app, and limits for everybody."""
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
    """What `zae-limiter local env` prints."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": os.devnull,
    }


def faults(shown: list[Block], folder: Path, url: str | None) -> list[str]:
    """What went wrong with the programs of a page."""
    environment = {
        "ZAE_LIMITER_URL": "sqlite:///limits.db",
        "PATH": str(Path(sys.executable).parent),
        "HOME": str(folder),
    }
    environment |= keys(url) | LONG_DEADLINE if url else {}
    texts = [PLACE.sub(url, block.text) if url else block.text for block in shown]
    answers = zip(shown, ended(texts, folder, environment), strict=True)
    return [f"{block.place}: {told}" for block, answer in answers if (told := fault(block, answer)) is not None]


def ended(texts: list[str], folder: Path, environment: dict[str, str], *path: Path) -> list[dict[str, Any]]:
    """How programs ended, run in turn, each in a folder of its own; they may import from the path as well."""
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
    """What is wrong with how a program ended; None if nothing."""
    if answer["code"] or answer["err"]:
        return f"it ended with {answer['code']}: {answer['err']}"
    if block.output is not None and answer["out"] != block.output:
        return f"it is shown to print\n{block.output}but it prints\n{answer['out']}"
    return None if answer["out"] else "it prints nothing"


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=named)
def test_the_programs_of_a_page_run_as_they_stand(page, tmp_path, request):
    """A reader pastes each into a file and runs it, after starting what the page says."""
    shown = [block for block in programs(page) if not block.needs]
    needs_aws = any(ON_DYNAMODB.search(block.text) for block in shown)

    assert [] == faults(shown, tmp_path, request.getfixturevalue("aws") if needs_aws else None)


@pytest.mark.parametrize("block", WITH_AN_EXTRA, ids=lambda block: block.place)
def test_a_program_of_the_cdk_makes_a_stack_as_it_stands(block, tmp_path):
    """CDK has remarks of its own on node and on the template, so silence is not asked for; the stack is looked at."""
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
def test_a_program_that_does_not_run_is_found(text, fault, tmp_path):
    """The check can fail: an error, silence, a warning, an exit code and another output are told, with the place."""
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```python\n{text}\n```\n")

    (told,) = faults(programs(page), tmp_path, None)

    assert told.startswith("page.md:3: ")
    assert fault in told


def test_programs_do_not_see_each_other(tmp_path):
    """Each is a process of its own: what one defines, imports or sets, the next does not have."""
    page = tmp_path / "page.md"
    first = "import os\nos.environ['SEEN'] = '1'\nseen = 1\nprint(__name__)"
    second = "import os\nprint('SEEN' in os.environ)\nprint(seen)"
    page.write_text(f"```python\n{first}\n```\n\n```python\n{second}\n```\n")

    (told,) = faults(programs(page), tmp_path, None)

    assert "page.md:8" in told
    assert "NameError: name 'seen' is not defined" in told
    assert "False\n" == (tmp_path / "1" / "out").read_text()
