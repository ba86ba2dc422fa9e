"""The mirror makes its edits, line by line, and refuses everything else."""

import ast
from pathlib import Path

import pytest

from tools.mirror import MARK, ROOT, TREES, main, mirror

TABLE = {
    "RateLimiter": "SyncRateLimiter",
    "Lease": "SyncLease",
    "__aenter__": "__enter__",
    "__anext__": "__next__",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "aclose": "close",
    "Awaitable": "",
    "Coroutine": "",
    "zae_limiter._async": "zae_limiter._sync",
}
DOCSTRING = '"""A module."""\n'


def mirrored(source: str) -> str:
    """Mirror a snippet behind a module docstring, and return the mirrored snippet."""
    result = mirror(DOCSTRING + source, "x.py", TABLE)
    first, _, rest = result.text.partition("\n")
    assert ([], '"""A module."""' + MARK) == (result.refusals, first)
    return rest


def refusals(source: str) -> list[str]:
    return mirror(DOCSTRING + source, "x.py", TABLE).refusals


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def take():\n    pass\n", "def take():\n    pass\n"),
        ("async   def take(): pass\n", "def take(): pass\n"),
        ("async def f():\n    async with a as b, c:\n        pass\n", "def f():\n    with a as b, c:\n        pass\n"),
        ("async def f():\n    async for a in b:\n        pass\n", "def f():\n    for a in b:\n        pass\n"),
        ("async def f():\n    return await g(\n        1,\n    )\n", "def f():\n    return g(\n        1,\n    )\n"),
        ("async def f():\n    return await(g())\n", "def f():\n    return (g())\n"),
        ("async def f():\n    return await (\n        g()\n    )\n", "def f():\n    return (\n        g()\n    )\n"),
        ("async def f():\n    return [await g(a) for a in b]\n", "def f():\n    return [g(a) for a in b]\n"),
        ("async def f():\n    return (await g())[await h()]\n", "def f():\n    return (g())[h()]\n"),
        ("@decorated\nasync def f():\n    pass\n", "@decorated\ndef f():\n    pass\n"),
    ],
)
def test_mirror_drops_async_and_await(source, expected):
    """Keywords are dropped with the blanks after them, and nothing else."""
    assert expected == mirrored(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class RateLimiter(Lease): ...\n", "class SyncRateLimiter(SyncLease): ...\n"),
        ("async def __aenter__(self) -> Lease: ...\n", "def __enter__(self) -> SyncLease: ...\n"),
        ("raise StopAsyncIteration\n", "raise StopIteration\n"),
        ("async def f(): await a.aclose()\n", "def f(): a.close()\n"),
        ("def f(aclose): return f(aclose=aclose)\n", "def f(close): return f(close=close)\n"),
        ("match a:\n    case Lease(b): ...\n", "match a:\n    case SyncLease(b): ...\n"),
        ("Leases = MyLease = lease\n", "Leases = MyLease = lease\n"),
    ],
)
def test_mirror_renames_the_names_of_its_table(source, expected):
    """A name changes everywhere, as a whole word."""
    assert expected == mirrored(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("call: Callable[[], Awaitable[T]]\n", "call: Callable[[], T]\n"),
        ("call: Callable[[], Coroutine[Any, Any, Lease]]\n", "call: Callable[[], SyncLease]\n"),
        ("call: Awaitable[Awaitable[None]]\n", "call: None\n"),
        ("call: Awaitable[list[int] | None]\n", "call: list[int] | None\n"),
    ],
)
def test_mirror_replaces_an_awaitable_by_its_result(source, expected):
    """What async code awaits, sync code returns."""
    assert expected == mirrored(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from zae_limiter._async.limiter import Lease\n", "from zae_limiter._sync.limiter import SyncLease\n"),
        ("from zae_limiter._async import table\n", "from zae_limiter._sync import table\n"),
        (
            "from zae_limiter._asyncs import Lease as Lease\n",
            "from zae_limiter._asyncs import SyncLease as SyncLease\n",
        ),
        ("import zae_limiter._async.lease as it\n", "import zae_limiter._sync.lease as it\n"),
        ("from collections.abc import Awaitable, Callable\n", "from collections.abc import Callable\n"),
        ("from collections.abc import Callable, Awaitable, Coroutine\n", "from collections.abc import Callable\n"),
        ("from collections.abc import AsyncIterator, Iterator\n", "from collections.abc import Iterator\n"),
        ("from collections.abc import Awaitable\nimport os\n", "\nimport os\n"),
        (
            "from a import (\n    Awaitable,\n    Lease,\n    b as c,  # why\n    Coroutine,  # not\n)\n",
            "from a import (\n\n    SyncLease,\n    b as c,  # why\n    # not\n)\n",
        ),
        ("from a import (\n    b, Awaitable, Lease,\n    Coroutine\n)\n", "from a import (\n    b, SyncLease,\n\n)\n"),
    ],
)
def test_mirror_renames_imports(source, expected):
    """Imports name what the code then uses, once, on the same lines."""
    assert expected == mirrored(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('__all__ = ["Lease", "Leases"]\n', '__all__ = ["SyncLease", "Leases"]\n'),
        ('a = cast("Lease", b)\n', 'a = cast("SyncLease", b)\n'),
        (
            'def f(a: "Lease | None") -> "list[Lease]": ...\n',
            'def f(a: "SyncLease | None") -> "list[SyncLease]": ...\n',
        ),
        ('a: "Lease"\n', 'a: "SyncLease"\n'),
        ('patch("zae_limiter._async.lease.now")\n', 'patch("zae_limiter._sync.lease.now")\n'),
        ('raise ValueError("await Lease first")\n', 'raise ValueError("await Lease first")\n'),
        ('a = f"Lease {b}"\n', 'a = f"Lease {b}"\n'),
        ('a = f"Lease{b}"\n', 'a = f"Lease{b}"\n'),
    ],
)
def test_mirror_renames_strings_that_name_code(source, expected):
    """Quoted names and modules are code; messages are not."""
    assert expected == mirrored(source)


def test_mirror_makes_examples_in_docstrings_blocking():
    """The sync class has sync examples; the verb "await" in prose stays."""
    source = '''
class Lease:
    """A Lease of a RateLimiter; callers await the end.

    Example:
        async with limiter.acquire("a") as lease:
            await lease.adjust(tpm=5)
        async for lease in leases: ...
    """
'''
    expected = '''
class SyncLease:
    """A SyncLease of a SyncRateLimiter; callers await the end.

    Example:
        with limiter.acquire("a") as lease:
            lease.adjust(tpm=5)
        for lease in leases: ...
    """
'''
    assert expected == mirrored(source)


def test_mirror_keeps_comments():
    """Comments are not changed."""
    source = "# await a Lease\na = 1  # async def\n"

    assert source == mirrored(source)


def test_mirror_edits_lines_with_non_ascii_text_correctly():
    """`ast` counts bytes, the text has characters."""
    source = 'async def f():\n    """Ein Gruß."""\n    ü = "größer 🎈"; return "é", await g("ß"), await h(Lease, "ö")\n'
    expected = 'def f():\n    """Ein Gruß."""\n    ü = "größer 🎈"; return "é", g("ß"), h(SyncLease, "ö")\n'

    assert expected == mirrored(source)


def test_mirror_splits_lines_as_python_does():
    """A form feed or a Unicode line separator in a string begins no new line."""
    source = 'a = "\u2028\x0b\x0c"\nasync def f(): await g()\n'

    assert 'a = "\u2028\x0b\x0c"\ndef f(): g()\n' == mirrored(source)


def test_mirror_marks_the_docstring_and_moves_no_line():
    """A generated file says that it is generated."""
    result = mirror('"""First.\n\nLast.\n"""\n\nimport os\n', "x.py", TABLE)

    assert '"""First.\n\nLast.\n"""' + MARK + "\n\nimport os\n" == result.text


def test_mirror_of_an_empty_file_is_empty():
    """There is no docstring to mark."""
    assert "" == mirror("", "x.py", TABLE).text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import asyncio\n", ["x.py:2: imports asyncio: it belongs in the runtime"]),
        ("import asyncio.locks as locks\n", ["x.py:2: imports asyncio: it belongs in the runtime"]),
        ("\nfrom asyncio import sleep\n", ["x.py:3: imports asyncio: it belongs in the runtime"]),
        ("a = asyncio.Lock()\n", ["x.py:2: a name of asyncio: it belongs in the runtime"]),
        (
            "async def f():\n    return [a async for a in b]\n",
            ["x.py:3: an async comprehension: write the loop out"],
        ),
        (
            "async def f():\n    return (await\n        g())\n",
            ["x.py:3: a line break after async or await"],
        ),
        (
            "async def f():\n    return await \\\n        g()\n",
            ["x.py:3: a line break after async or await"],
        ),
        (
            "async def f():\n    return (await  # why\n        g())\n",
            ["x.py:3: a line break after async or await"],
        ),
        (
            'async def f():\n    return f"{await g()}"\n',
            ["x.py:3: a change inside an f-string: give the value a name first"],
        ),
        ('a = f"{Lease}"\n', ["x.py:2: a change inside an f-string: give the value a name first"]),
        ('a = f"zae_limiter._async.{b}"\n', ["x.py:2: a change inside an f-string: give the value a name first"]),
        ("a: Awaitable\n", ["x.py:2: Awaitable without its type in brackets, or quoted"]),
        ('a: "Awaitable[int]"\n', ["x.py:2: Awaitable without its type in brackets, or quoted"]),
        ("a: Awaitable[\n    int\n]\n", ["x.py:2: a line break inside removed text"] * 2),
        ("from contextlib import AsyncExitStack\n", ["x.py:2: AsyncExitStack has no row in TABLE of tools/mirror.py"]),
        ("def __aexit__(self): ...\n", ["x.py:2: __aexit__ has no row in TABLE of tools/mirror.py"]),
        ("from zae_limiter import _async\n", ["x.py:2: imports a tree by name: import from its modules"]),
        ("import zae_limiter._async.lease\n", ["x.py:2: imports a tree by name: import from its modules"]),
    ],
)
def test_mirror_refuses_code_without_a_blocking_form(source, expected):
    """The error has file, line and reason."""
    assert expected == refusals(source)


def test_mirror_refuses_an_edit_that_is_no_python():
    """An edit never leaves a broken file."""
    (refusal,) = refusals("if a:\n    from b import Awaitable\n")

    assert "is not valid Python after mirroring" in refusal


def test_mirror_refuses_a_module_without_a_docstring():
    """The mark needs a docstring."""
    expected = ["x.py:1: no module docstring: the mark of a generated file follows it"]

    assert expected == mirror("import os\n", "x.py", TABLE).refusals


@pytest.mark.parametrize(
    "source",
    [path for tree, _ in TREES for path in sorted((ROOT / tree).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_mirror_of_this_project_keeps_every_line_number(source):
    """Every statement of the async trees is on the same line after mirroring."""
    text = source.read_text("utf-8")
    result = mirror(text, str(source))

    def statements(code):
        return [
            node.lineno
            for node in ast.walk(ast.parse(code))
            if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
        ]

    assert text.count("\n") == result.text.count("\n")
    assert statements(text) == statements(result.text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project whose table has one used row, mirrored."""
    for tree, _ in TREES:
        (tmp_path / tree / "limiter").mkdir(parents=True)
        (tmp_path / tree / "limiter" / "lease.py").write_text(DOCSTRING + "class Lease: ...\n")
    assert 0 == main([], tmp_path, {"Lease": "SyncLease"})
    return tmp_path


ROW = {"Lease": "SyncLease"}
LEASE = "src/zae_limiter/_sync/limiter/lease.py"


def test_mirror_writes_both_trees(root):
    """Sources and tests are mirrored."""
    expected = '"""A module."""' + MARK + "\nclass SyncLease: ...\n"

    assert expected == (root / LEASE).read_text()
    assert expected == (root / "tests/_sync/limiter/lease.py").read_text()


def test_mirror_check_of_a_fresh_mirror_passes(root, capsys):
    """No output, exit code 0."""
    assert 0 == main(["--check"], root, ROW)
    assert "" == capsys.readouterr().err


def test_mirror_check_of_a_stale_file_fails_and_changes_nothing(root, capsys):
    """The output names the file."""
    (root / LEASE).write_text("edited\n")

    assert 1 == main(["--check"], root, ROW)
    assert f"stale: {LEASE}\n" == capsys.readouterr().err
    assert "edited\n" == (root / LEASE).read_text()


def test_mirror_check_of_a_missing_file_fails(root, capsys):
    """A new source needs its mirror."""
    (root / LEASE).unlink()

    assert 1 == main(["--check"], root, ROW)
    assert f"missing: {LEASE}\n" == capsys.readouterr().err


def test_mirror_check_of_a_file_without_a_source_fails_and_writing_removes_it(root, capsys):
    """A generated file without a source is deleted."""
    extra = root / "tests/_sync/limiter/gone.py"
    extra.write_text("")

    assert 1 == main(["--check"], root, ROW)
    assert "extra: tests/_sync/limiter/gone.py\n" == capsys.readouterr().err
    assert 0 == main([], root, ROW)
    assert not extra.exists()


def test_mirror_with_an_unused_row_fails(root, capsys):
    """The table has only names that occur."""
    assert 1 == main(["--check"], root, {**ROW, "Waiter": "SyncWaiter"})
    assert "unused row in TABLE of tools/mirror.py: Waiter\n" == capsys.readouterr().err


def test_mirror_row_used_in_one_of_the_trees_is_used(root):
    """Sources and tests are counted together."""
    (root / "tests/_async/limiter/waiter.py").write_text(DOCSTRING + "class Waiter: ...\n")

    assert 0 == main([], root, {**ROW, "Waiter": "SyncWaiter"})


def test_mirror_that_refuses_leaves_every_file_as_it_was(root, capsys):
    """No mirror is half written."""
    before = (root / LEASE).read_text()
    (root / "src/zae_limiter/_async/limiter/lease.py").write_text(DOCSTRING + "class Lease: 1\n")
    (root / "tests/_async/limiter/lease.py").write_text(DOCSTRING + "import asyncio\n")

    assert 1 == main([], root, ROW)
    assert "tests/_async/limiter/lease.py:2: imports asyncio: it belongs in the runtime" in capsys.readouterr().err
    assert before == (root / LEASE).read_text()
