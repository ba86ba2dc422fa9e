"""Run programs one after the other, each in a forked process that has the package already imported.

    python -W error runner.py < programs.json > answers.json

A program is a file in a folder of its own, as for a reader who pastes it there and runs it. Starting Python and
importing the package happens once for all programs of a page.
"""

import json
import os
import re
import sys
import types
from pathlib import Path

import zae_limiter


def main() -> None:
    """Run the requested programs, and write how each ended."""
    programs = json.load(sys.stdin)
    folders = [Path(asked["folder"]) for asked in programs]
    texts = "\n".join((folder / "program.py").read_text() for folder in folders)
    for name in set(re.findall(r"\w+", texts)).intersection(zae_limiter.__all__):
        getattr(zae_limiter, name)
    answers = []
    for folder, asked in zip(folders, programs, strict=True):
        child = os.fork()
        if child == 0:
            begin(folder, asked["environment"])
            sys.path += asked["path"]
            return run(folder / "program.py")
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        answers.append({"code": code, "out": (folder / "out").read_text(), "err": (folder / "err").read_text()})
    json.dump(answers, sys.stdout)
    return None


def begin(folder: Path, environment: dict[str, str]) -> None:
    """Enter the folder of a program, with its environment, and redirect output to its files."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)


def run(program: Path) -> None:
    """Run a program as the main module; it ends as usual."""
    module = types.ModuleType("__main__")
    module.__file__ = str(program)
    sys.modules["__main__"] = module
    sys.argv = [str(program)]
    sys.path.insert(0, str(program.parent))
    exec(compile(program.read_text(), program, "exec"), vars(module))


if __name__ == "__main__":
    main()
