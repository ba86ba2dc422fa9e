"""Commands in a real terminal: questions, tables and progress."""

import os
import pty
import re
import select
import subprocess
import sys

import pytest

from zae_limiter.cli._output import Column, Grid, print_grid

TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
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


class Terminal:
    """A program in a terminal of 80 columns, and all it has shown."""

    def __init__(self, *command: str) -> None:
        self._above, below = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": "1"}
        # A session of its own has this terminal as its controlling one, so that Ctrl-C becomes a signal.
        take_terminal = [sys.executable, "-c", TAKE_TERMINAL, *command]
        streams = {"stdin": below, "stdout": below, "stderr": below}
        self._process = subprocess.Popen(take_terminal, env=environment, start_new_session=True, **streams)
        os.close(below)
        self._shown = b""

    def __enter__(self) -> "Terminal":
        """Return the terminal."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the program if it still runs, and close the terminal."""
        self._process.kill()
        self._process.wait()
        os.close(self._above)

    def type(self, text: str) -> None:
        """Type text."""
        os.write(self._above, text.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the program has shown a pattern, and return its first match."""
        while (found := re.search(pattern, self._shown.decode())) is None:
            assert self._read(), f"{pattern!r} was not shown: {self._shown!r}"
        return found

    def end(self) -> tuple[int, str]:
        """Read until the program ends; return its exit code and all it showed."""
        while self._read():
            pass
        return self._process.wait(timeout=60), self._shown.decode()

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C until the program ends; return its exit code and all it showed."""
        # Python loses a signal that arrives just before it begins to wait for a key: it is handled after the next key.
        # A user presses Ctrl-C again.
        for _ in range(12):
            self.type("\x03")
            while self._read(within_s=5):
                pass
            if b"Interrupted" in self._shown or self._process.poll() is not None:
                break
        return self.end()

    def _read(self, within_s: float = 60) -> bool:
        """Read more, and return whether there was more."""
        if not select.select([self._above], [], [], within_s)[0]:
            return False
        try:
            more = os.read(self._above, 4096)
        except OSError:
            # The other end is closed: the program has ended.
            return False
        self._shown += more
        return bool(more)


def in_terminal(*command: str, typed: str = "") -> tuple[int, str]:
    """Run a program in a terminal of 80 columns and type text; return its exit code and all it showed."""
    with Terminal(*command) as terminal:
        terminal.type(typed)
        return terminal.end()


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


def test_a_rejection_in_a_terminal_lists_every_bucket(run):
    """The table fits 80 columns. In a pipe, stderr has one line."""
    run("entity", "create", "project-1")
    run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
    run("system", "set-defaults", "-l", "rpd:5/d")
    take = ("acquire", "key-1", "gpt-4", "-c", "rpd:3")
    run(*take)
    code, shown = in_terminal(*command(*take))
    lines = re.sub(r"\x1b\[\d*m", "", shown).splitlines()
    rest = ["gpt-4", "rpd", "2", "5", "3", "1"]

    assert 75 == code
    assert ["entity", "resource", "limit", "available", "capacity", "requested", "lacks"] == lines[0].split()
    assert [["key-1", *rest], ["project-1", *rest]] == [one.split() for one in lines[2:4]]
    assert lines[4].startswith("rate limit exceeded: rpd of key-1 for gpt-4: 2 of 5 available, 3 requested; rpd of")
    assert 80 >= max(len(one) for one in lines[:4])
    assert 1 == run(*take).stderr.count("\n")


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

    def test_a_table_in_a_terminal_shows_names_with_colons_unchanged(self, capsys):
        """A part between two colons may be the name of an emoji."""
        print_grid(Grid([Column("resource")], [("ft:fire:x",), ("router:free:b",)]))

        assert ["ft:fire:x", "router:free:b"] == capsys.readouterr().out.split()[-2:]
