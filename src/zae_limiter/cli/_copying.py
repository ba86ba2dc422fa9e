"""Show the progress of a copy: a bar in a terminal, a line per step elsewhere."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zae_limiter.cli._files import in_bytes
from zae_limiter.cli._output import print_note
from zae_limiter.tables.sqlite.backup import CopyListener, CopyProgress

_LARGE_BYTES = 64 * 10**6
"""Outside a terminal, a step of at least this many bytes reports every tenth."""


@contextmanager
def copying_shown() -> Iterator[CopyListener]:
    """Show each step and its progress on stderr."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _Lines().hear
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[size]}"))
    with Bar(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        bar.add_task("Opening", total=None, size="")

        def hear(progress: CopyProgress) -> None:
            if bar.tasks[0].description != progress.step:
                # The total of a task cannot be removed, so each step gets a new task.
                bar.remove_task(bar.tasks[0].id)
                size = in_bytes(progress.total_bytes) if progress.total_bytes else ""
                bar.add_task(progress.step, total=progress.total_bytes or None, size=size)
            bar.update(bar.tasks[0].id, completed=progress.done_bytes)

        yield hear


class _Lines:
    """Print a line when a step begins, and at every tenth of a large one."""

    def __init__(self) -> None:
        self._last = ("", -1)

    def hear(self, progress: CopyProgress) -> None:
        """Print a line if there is something new."""
        tenth = progress.done_bytes * 10 // progress.total_bytes if progress.total_bytes >= _LARGE_BYTES else 0
        if self._last == (progress.step, tenth):
            return
        self._last = (progress.step, tenth)
        size = f" {in_bytes(progress.total_bytes)}" if progress.total_bytes else ""
        print_note(f"{progress.step}{size}{f', {tenth}0 %' if tenth else ''} ...")
