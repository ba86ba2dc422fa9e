"""Every Python program of every page runs as it stands there, and says something."""

import importlib.util
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
from zae_limiter import Limit, SyncRepository

RUNNER = Path(__file__).with_name("runner.py")
# Where pages tell readers to start a local AWS.
PLACE = re.compile(r"http://(localhost|127\.0\.0\.1):4566")
ON_DYNAMODB = re.compile(
    r"^[^#\n]*(dynamodb://|Repository\.connect\(|\.builder\(|list_deployed|localhost:4566|boto)", re.MULTILINE
)
MODULES = {"cdk": "aws_cdk"}
MOST_THAT_DO_NOT_RUN = 1
WITH_PROGRAMS = [page for page in PAGES if programs(page)]


@pytest.fixture
def aws() -> Iterator[str]:
    """An AWS at hand as the pages say: with a limiter, my-app, and limits for everybody."""
    engine = start("aws")
    try:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in keys(engine.url).items():
                environment.setenv(name, value)
            with SyncRepository.open("dynamodb://my-app?region=us-east-1&create=true") as repo:
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


def runs(block: Block) -> bool:
    return block.needs is None or importlib.util.find_spec(MODULES[block.needs]) is not None


def faults(shown: list[Block], folder: Path, url: str | None) -> list[str]:
    """What went wrong with the programs of a page, run in turn, each in a folder of its own."""
    environment = {
        "ZAE_LIMITER_URL": "sqlite:///limits.db",
        "PATH": str(Path(sys.executable).parent),
        "HOME": str(folder),
    }
    environment |= keys(url) if url else {}
    asked = []
    for number, block in enumerate(shown):
        where = folder / str(number)
        where.mkdir()
        (where / "program.py").write_text(PLACE.sub(url, block.text) if url else block.text)
        asked.append({"folder": str(where), "environment": environment})
    done = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = zip(shown, json.loads(done.stdout), strict=True)
    return [f"{block.place}: {told}" for block, answer in answers if (told := fault(block, answer)) is not None]


def fault(block: Block, answer: dict[str, Any]) -> str | None:
    """What is wrong with how a program ended; None if nothing."""
    if answer["code"] or answer["err"]:
        return f"it ended with {answer['code']}: {answer['err']}"
    if block.output is not None and answer["out"] != block.output:
        return f"it is shown to print\n{block.output}but it prints\n{answer['out']}"
    return None if answer["out"] or block.needs else "it prints nothing"


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=named)
def test_the_programs_of_a_page_run_as_they_stand(page, tmp_path, request):
    """A reader pastes each into a file and runs it, after starting what the page says."""
    shown = [block for block in programs(page) if runs(block)]
    needs_aws = any(ON_DYNAMODB.search(block.text) for block in shown)

    assert [] == faults(shown, tmp_path, request.getfixturevalue("aws") if needs_aws else None)


def test_few_programs_need_what_is_not_at_hand():
    """What does not run says so in its first line; and a page of such programs would prove nothing."""
    absent = [block.place for page in WITH_PROGRAMS for block in programs(page) if block.needs]

    assert len(absent) <= MOST_THAT_DO_NOT_RUN, absent


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
