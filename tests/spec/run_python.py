"""Run the files of an example one after the other, in one module and one event loop.

    python run_python.py before.py example.py after.py

As in an interactive session, `await` needs no function. The value of a last expression is `shown`.
"""

import ast
import asyncio
import sys
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType


def main(paths: list[str]) -> None:
    """Run the files."""
    names = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for path in paths:
            code = compiled(path)
            if code.co_flags & CO_COROUTINE:
                runner.run(eval(code, names))
            else:
                exec(code, names)


def compiled(path: str) -> CodeType:
    """Return the code of a file, which assigns the value of its last expression."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"), path)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("shown", ast.Store())], last.value)
        ast.fix_missing_locations(tree)
    return compile(tree, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


if __name__ == "__main__":
    main(sys.argv[1:])
