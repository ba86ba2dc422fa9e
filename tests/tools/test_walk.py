"""The trace of one acquire counts what really runs, and its figures only go down."""

import pytest

from tools import walk
from tools.walk import DYNAMODB, SQLITE, Call, Case, Walk

# Today's figures. Lower them when the path gets shorter; never raise them.
MOST = {SQLITE: (14, 18, 0), DYNAMODB: (24, 50, 0)}
# Every walk begins with these two, and enters the modules below on its way to the table.
FIRST = ["limiter/limiter.py", "limiter/lease.py"]
ON_THE_WAY = {
    SQLITE: {"core/acquire.py", "schema/direct_writes.py", "tables/sqlite/table.py"},
    DYNAMODB: {"core/acquire.py", "schema/bucket_writes.py", "transport/aio.py", "tables/dynamodb/http_parser.py"},
}


@pytest.mark.parametrize("case", [SQLITE, DYNAMODB], ids=lambda case: case.title)
def test_walk_of_warm_acquire_stays_within_its_figures(case: Case):
    """The modules, the changes of module and the stored callbacks exist, and are no more than today."""
    found = walk.walk(case)

    tree = "_async" if case.is_async else "_sync"
    modules, changes, callbacks = MOST[case]
    assert [f"{tree}/{name}" for name in FIRST] == found.modules[:2]
    assert ON_THE_WAY[case] <= set(found.modules)
    assert 10 <= len(found.modules) <= modules
    assert len(found.modules) - 1 <= len(found.changes) <= changes
    assert len(found.callbacks) <= callbacks


@pytest.mark.parametrize(
    "case", [Case("memory", cascade=True), DYNAMODB._replace(cascade=True)], ids=lambda one: one.title
)
def test_walk_of_cascading_acquire_takes_twice(case: Case):
    """The child and the parent are both taken from, and nothing is read."""
    found = walk.walk(case)

    modules = ("schema/bucket_writes.py", "schema/direct_writes.py")
    written = [call.function for call in found.calls if call.module in modules]
    assert 2 == written.count("take") + written.count("BucketTake.__init__")
    assert "core/config.py" not in found.modules


@pytest.mark.parametrize("case", [SQLITE, DYNAMODB], ids=lambda case: case.title)
def test_architecture_page_shows_the_current_walk(case: Case):
    """The page lists the modules that an acquire enters; ``tools/walk.py --write`` updates it."""
    found = walk.walk(case)

    shown = walk.shown(walk.PAGE.read_text(encoding="utf-8"))[case.title].splitlines()
    modules = [line.split()[1] for line in shown[1:] if line.split()[0].isdigit()]
    assert sorted(found.modules) == sorted(modules), "run: python tools/walk.py --write"
    assert shown[0].startswith(f"{case.title}: modules {len(modules)} ")


def test_change_of_module_is_a_call_between_two_modules_of_the_package():
    """A call within a module and a call from outside change nothing."""
    calls = [Call(None, "a.py", "f", None), Call("a.py", "a.py", "g", None), Call("a.py", "b.py", "h", None)]

    found = Walk(calls)

    assert ["a.py", "b.py"] == found.modules
    assert calls[2:] == found.changes


def test_callback_within_one_module_is_not_reported():
    """A reader finds the function in the same file."""
    inside, across = Call("a.py", "a.py", "f", "inside"), Call("a.py", "b.py", "g", "across")

    assert ["across"] == Walk([inside, across, across]).callbacks


def test_summary_shows_figures_beside_targets():
    """A reader sees what is left to do."""
    found = Walk([Call(None, "a.py", "f", None), Call("a.py", "b.py", "g", None)])

    assert "SQLite sync: modules 2 (target 15), changes of module 1 (target 20), stored callbacks 0" == walk.summary(
        SQLITE, found
    )
    assert "Memory sync: modules 2, changes of module 1, stored callbacks 0" == walk.summary(Case("memory"), found)
