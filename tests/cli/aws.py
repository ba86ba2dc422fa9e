"""Helpers to run commands against a local AWS."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from zae_limiter.cli import main

Run = Callable[..., Result]


def printed_json(result: Result) -> Any:
    """Return what a successful command printed as JSON."""
    assert 0 == result.exit_code, result.stderr
    return json.loads(result.stdout)


def invoke(*arguments: str, answers: str | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, arguments, input=answers, prog_name="zae-limiter", catch_exceptions=False)
