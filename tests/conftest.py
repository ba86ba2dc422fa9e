"""Setup of all tests: a working interrupt handler, a small heap, shared AWS models, and profiles of Hypothesis.

Profiles: no deadlines, since a busy machine is no failure, and the same examples on every CI run.

HYPOTHESIS_PROFILE=search looks for new counterexamples, with many more of them. ``lean`` only asks
whether there is a failure, with fewer examples, and does not make it small: it is for ``tools/mutants.py``.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.shared_models import share_models

# A process that a shell runs in the background ignores interrupts, and so do its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.register_profile("search", settings.get_profile("default"), max_examples=2_000, derandomize=False)
settings.register_profile(
    "lean",
    settings.get_profile("default"),
    max_examples=25,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
    # One process runs the tests of a class several times.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

TESTS = Path(__file__).resolve().parent
SLOW = ("simulation", "model", "spec", "examples", "promise", "docs", "e2e", "stress", "soak", "interrupts", "infra")
"""Folders with the longest tests, the longest first. They start first, so that no worker is left alone with one."""

share_models()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Hide from the garbage collector what exists before the first test.

    A process with all tests has 400,000 objects, and each full collection would visit them. Some tests also count all
    tracked objects after young collections.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of slow folders first; the rest keeps its order."""
    order = {TESTS / name: number for number, name in enumerate(SLOW)}
    items.sort(key=lambda item: min((order[one] for one in item.path.parents if one in order), default=len(SLOW)))
