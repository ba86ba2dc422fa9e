"""Commands in a real terminal: questions, tables and progress."""

import os
import pty
import subprocess
import sys

import pytest

from zae_limiter.cli._output import Column, Grid, print_grid

PROGRESS = """
from zae_limiter.cli._output import paused, working
with working("looking") as say:
    say("found 1")
    with working("counting") as count:
        count("counted 2")
        with paused():
            print("a question")
    say("found \\x1b[2J3")
"""


def in_terminal(*command: str, typed: str = "") -> tuple[int, str]:
    """Run a program in a terminal of 80 columns and type text; return its exit code and all it showed."""
    above, below = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdin=below, stdout=below, stderr=below, env=environment, close_fds=True)
    os.close(below)
    os.write(above, typed.encode())
    shown = b""
    while True:
        try:
            more = os.read(above, 4096)
        except OSError:
            # The other end is closed: the program has ended.
            break
        if not more:
            break
        shown += more
    os.close(above)
    return process.wait(timeout=60), shown.decode()


def command(*words: str) -> tuple[str, ...]:
    """Return a command line as a shell calls it."""
    return (sys.executable, "-m", "zae_limiter", *words)


def test_a_question_is_answered_at_the_keyboard(run):
    """The typed answer decides."""
    run("entity", "create", "user-1")
    kept = in_terminal(*command("entity", "delete", "user-1"), typed="n\n")
    gone = in_terminal(*command("entity", "delete", "user-1"), typed="y\n")

    assert (1, True) == (kept[0], "Nothing was deleted." in kept[1])
    assert (0, True) == (gone[0], "Deleted entity user-1." in gone[1])


def test_a_progress_line_is_cleared_for_a_question():
    """One line shows the progress so far. It does not mix with a question or later output."""
    code, shown = in_terminal(sys.executable, "-c", PROGRESS)

    assert 0 == code
    assert "a question\r\n" in shown
    assert "found \\x1b[2J3 ..." in shown


class TestTables:
    @pytest.fixture(autouse=True)
    def looking(self, monkeypatch):
        """Pretend to be a terminal of 40 columns."""
        monkeypatch.setattr("zae_limiter.cli._output.in_terminal", lambda: True)
        monkeypatch.setenv("COLUMNS", "40")

    def test_a_table_in_a_terminal_omits_empty_columns(self, capsys):
        """Other columns get the room. In a pipe every column stays in its place."""
        print_grid(Grid([Column("entity"), Column("name"), Column("created")], [("key-1", "", "today")]))

        assert ["entity", "created"] == capsys.readouterr().out.splitlines()[0].split()

    def test_a_table_in_a_terminal_does_not_fold_whole_columns(self, capsys):
        """Other columns are folded instead."""
        columns = [Column("time", is_whole=True), Column("details")]
        print_grid(Grid(columns, [("2026-11-16 07:21:26", "rpm:1000/min tpm:100000/min:burst=150000")]))
        lines = capsys.readouterr().out.splitlines()

        assert "2026-11-16 07:21:26   rpm:1000/min" == lines[2].rstrip()
        assert 40 >= max(len(line) for line in lines)
