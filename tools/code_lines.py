"""Count the lines of hand-written source code, by folder, in the working tree or in git revisions.

    python tools/code_lines.py                                   the working tree
    python tools/code_lines.py 82a1c5a HEAD                      two revisions
    python tools/code_lines.py --without cli --without web       leave folders of the package out

Blank lines, comments and docstrings are not counted, and neither are files that the mirror
generated. A revision may have hand-written files in its sync tree, which are counted.
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src"
GENERATED = "# generated from _async by tools/mirror.py"
"""Part of every file that the mirror wrote, in all revisions."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count(source: str) -> int:
    """Return the number of lines that have code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines.difference(_docstrings(ast.parse(source))))


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of strings that stand alone: docstrings of modules, classes, functions and names."""
    for node in ast.walk(tree):
        for statement in node.body if isinstance(node, _DOCUMENTED) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def by_folder(sources: Mapping[str, str]) -> Counter[str]:
    """Return the numbers of lines of hand-written files by folder; ``sources`` are texts by their path below src."""
    lines: Counter[str] = Counter()
    for path, source in sources.items():
        if GENERATED not in source:
            lines["/".join(Path(path).parts[:-1][:2])] += count(source)
    return lines


def working_tree() -> dict[str, str]:
    """Return the Python files of the working tree."""
    folder = ROOT / SOURCE
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}


def revision(name: str) -> dict[str, str]:
    """Return the Python files of a git revision."""
    archive = subprocess.run(["git", "archive", name, SOURCE], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        return {
            str(Path(member.name).relative_to(SOURCE)): file.read().decode()
            for member in packed
            if member.name.endswith(".py") and (file := packed.extractfile(member)) is not None
        }


def report(title: str, sources: Mapping[str, str], without: Sequence[str]) -> str:
    """Return the total of a tree, and the lines of each folder."""
    lines = {name: number for name, number in by_folder(sources).items() if name.split("/")[-1] not in without}
    folders = [f"{number:7,}  {name}" for name, number in sorted(lines.items())]
    left_out = f", without {' and '.join(without)}" if without else ""
    return "\n".join([f"{title}: {sum(lines.values()):,} lines{left_out}", *folders])


def main(arguments: Sequence[str]) -> None:
    """Print the lines of the requested trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", help="default: the working tree")
    parser.add_argument("--without", action="append", default=[], help="leave out a folder of the package")
    options = parser.parse_args(arguments)
    trees = {name: revision(name) for name in options.revisions} or {"working tree": working_tree()}
    for title, sources in trees.items():
        print(report(title, sources, options.without))


if __name__ == "__main__":
    main(sys.argv[1:])
