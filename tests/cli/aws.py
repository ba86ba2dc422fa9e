"""A command line that is pointed to a local AWS, and what a test asks of it."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from zae_limiter.cli import main

Run = Callable[..., Result]


def told(result: Result) -> Any:
    """What a command printed as JSON, and ended well."""
    assert 0 == result.exit_code, result.stderr
    return json.loads(result.stdout)


def invoke(*arguments: str, answers: str | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, arguments, input=answers, prog_name="zae-limiter", catch_exceptions=False)
