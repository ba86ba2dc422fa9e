"""Measure `import zae_limiter` beside a bare interpreter, in alternating new processes. Asserts nothing."""

import sys

from processes import print_beside, smallest
from report import verdict

_GOAL_MS = 50.0
_BARE = "bare interpreter"
_IMPORT = "import zae_limiter"
_PROGRAMS = {
    _BARE: "pass",
    _IMPORT: "import zae_limiter",
    # Public names are imported on first use, so this is the cost of a program that limits.
    "... and its sync limiter": "from zae_limiter import Limit, SyncRateLimiter, SyncRepository",
    "... and its async limiter": "from zae_limiter import Limit, RateLimiter, Repository",
}


def main() -> None:
    found = smallest({name: [sys.executable, "-c", code] for name, code in _PROGRAMS.items()})
    bare = found[_BARE]
    print_beside("Import", found, bare)
    if _IMPORT in found:
        added_ms = found[_IMPORT].wall_ms - bare.wall_ms
        reached = verdict(added_ms, _GOAL_MS)
        print(f"{_IMPORT}: {added_ms:.1f} ms over a bare interpreter, goal under {_GOAL_MS:.0f}: {reached}")


if __name__ == "__main__":
    main()
