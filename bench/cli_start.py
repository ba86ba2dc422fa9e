"""Measure `zae-limiter --help` beside a bare interpreter, in alternating new processes. Asserts nothing.

The help of a group loads only that group, and a command on a file loads what it needs. Both are
shown too.
"""

import sys

from processes import print_beside, smallest
from report import verdict

_GOAL_MS = 150.0
_BARE = "bare interpreter"
_HELP = "zae-limiter --help"
_CALLS = {
    _HELP: ["--help"],
    "zae-limiter entity --help": ["entity", "--help"],
    "zae-limiter deploy --help": ["deploy", "--help"],
    "zae-limiter namespace register (a file)": ["namespace", "register", "default", "--url", "sqlite:///bench.db"],
}


def main() -> None:
    calls = {name: [sys.executable, "-m", "zae_limiter", *words] for name, words in _CALLS.items()}
    found = smallest({_BARE: [sys.executable, "-c", "pass"], **calls})
    print_beside("Command line", found, found[_BARE])
    if _HELP in found:
        # CPU time: the duration of a command that need not wait for a core.
        taken_ms = found[_HELP].cpu_ms
        print(f"{_HELP}: {taken_ms:.1f} ms of CPU, goal under {_GOAL_MS:.0f}: {verdict(taken_ms, _GOAL_MS)}")


if __name__ == "__main__":
    main()
