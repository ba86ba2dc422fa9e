"""The public names of the aggregator's package."""

import subprocess
import sys

import pytest

import zae_limiter_aggregator
from zae_limiter_aggregator.batch_processor import BatchReport
from zae_limiter_aggregator.records import BucketChange

CALL = "print(handler({}, None))"
STUB = "import zae_limiter_aggregator.handler; m = __import__('sys').modules['zae_limiter_aggregator.handler']; "
REPLACE = "m.handler = lambda event, context: 'handled'; "


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("name", zae_limiter_aggregator.__all__)
def test_every_exported_name_is_importable_and_listed(name):
    """Every name in __all__ exists."""
    assert getattr(zae_limiter_aggregator, name) is not None
    assert name in dir(zae_limiter_aggregator)


def test_specified_names_are_the_values_that_the_aggregator_uses():
    """One class each, not a copy."""
    assert BatchReport is zae_limiter_aggregator.ProcessResult
    assert BucketChange is zae_limiter_aggregator.ParsedBucketRecord


def test_unknown_name_raises_attribute_error():
    """It fails as on any module."""
    with pytest.raises(AttributeError, match="ProcesResult"):
        _ = zae_limiter_aggregator.ProcesResult


@pytest.mark.parametrize(
    "script",
    [
        f"{STUB}{REPLACE}from zae_limiter_aggregator import handler; {CALL}",
        f"import zae_limiter_aggregator as a; handler = a.handler; m = handler; {REPLACE}{CALL}",
        f"{STUB}{REPLACE}from zae_limiter_aggregator.handler import handler; {CALL}",
    ],
)
def test_handler_is_callable_by_every_way_of_importing_it(script):
    """The module and the function have the same name, and either may be imported first."""
    assert "handled" == run(script)


def test_importing_the_package_loads_no_aws_client():
    """Embedded tables count their usage with it."""
    loaded = "[name for name in ('botocore', 'aws_lambda_powertools') if name in sys.modules]"

    assert "[]" == run(f"import sys, zae_limiter_aggregator; zae_limiter_aggregator.ProcessResult; print({loaded})")
