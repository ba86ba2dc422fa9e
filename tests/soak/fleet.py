"""Start, kill, stop and continue the processes of a soak, and collect their journals."""

import contextlib
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.soak import journal
from tests.soak.journal import Record
from tests.soak.worker import Assignment
from tests.stress.fleet import ROOT

# On a busy machine a process may take long to end its current step.
END_S = 60.0
SHOWN_CHARACTERS = 2_000


@dataclass(slots=True)
class Started:
    """A process, its assignment, and when it was killed, if it was."""

    assignment: Assignment
    process: subprocess.Popen[str]
    errors: Path
    killed_ns: int | None = None
    stopped: bool = False


class Fleet:
    """Workers of both trees, and one administrator; a killed process is replaced."""

    def __init__(self, url: str, directory: Path, seed: int, mutation: str | None) -> None:
        self._directory = directory
        self._url = url
        self._seed = seed
        self._mutation = mutation
        self._until_ns: int | None = None
        self._all: list[Started] = []
        self._now: list[Started] = []
        self.kills = 0
        self.stops = 0

    def start(self, workers: int) -> None:
        """Start all, and wait until they are ready."""
        for number in range(workers):
            self._start("sync" if number % 2 else "async", together=number // 2 % 2 == 0)
        self._start("admin", together=True)
        for started in self._now:
            assert started.process.stdout is not None
            if started.process.stdout.readline() != "ready\n":
                started.process.wait()
                raise RuntimeError(f"a worker does not start; it said:\n{_said(started)}")

    def work_until(self, until_ns: int) -> None:
        """Let all of them work until this time."""
        self._until_ns = until_ns
        for started in self._now:
            self._send_end(started)

    def kill(self, random: Random) -> None:
        """Kill one process, and start another in its place."""
        victim = random.choice(self._now)
        victim.process.kill()
        victim.process.wait()
        victim.killed_ns = time.time_ns()
        self._now.remove(victim)
        self.kills += 1
        self._send_end(self._start(victim.assignment.role, victim.assignment.together))

    def stop(self, random: Random) -> Started | None:
        """Stop one process with SIGSTOP; return None if all are stopped."""
        running = [started for started in self._now if not started.stopped]
        if not running:
            return None
        chosen = random.choice(running)
        chosen.process.send_signal(signal.SIGSTOP)
        chosen.stopped = True
        self.stops += 1
        return chosen

    def go_on(self, started: Started) -> None:
        """Continue a stopped process; it may have been killed since."""
        started.process.send_signal(signal.SIGCONT)
        started.stopped = False

    def failures(self) -> list[str]:
        """Wait until all have ended, and return the errors of those that were not killed."""
        end_s = time.monotonic() + END_S
        found = []
        for started in self._now:
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.process.wait(max(0.1, end_s - time.monotonic()))
            code = started.process.returncode
            if code is None:
                found.append(f"a worker ({started.assignment.role}) still runs {END_S:.0f} s after the end")
            elif code:
                found.append(f"a worker ({started.assignment.role}) failed with {code}; it said:\n{_said(started)}")
        return found

    def record(self) -> Record:
        """Return the journals of all processes."""
        whole = Record()
        now_ns = time.time_ns()
        for started in self._all:
            ended_ns = now_ns if started.killed_ns is None else started.killed_ns
            whole.add(journal.read(Path(started.assignment.journal), ended_ns))
        return whole

    def end(self) -> None:
        """Kill all processes that still run."""
        for started in self._all:
            with contextlib.suppress(OSError):
                started.process.kill()
            started.process.communicate()

    def _start(self, role: str, together: bool) -> Started:
        number = len(self._all)
        path = self._directory / f"{number}.journal"
        assignment = Assignment(self._url, str(path), role, together, f"{self._seed}-{number}", self._mutation)
        errors = self._directory / f"{number}.errors"
        with errors.open("w") as file:
            process = subprocess.Popen(
                assignment.command(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        started = Started(assignment, process, errors)
        self._all.append(started)
        self._now.append(started)
        return started

    def _send_end(self, started: Started) -> None:
        """Send the time to stop."""
        assert started.process.stdin is not None
        # A process that failed immediately is reported at the end.
        with contextlib.suppress(BrokenPipeError):
            started.process.stdin.write(f"{self._until_ns}\n")
            started.process.stdin.flush()


def _said(started: Started) -> str:
    return started.errors.read_text(errors="replace")[-SHOWN_CHARACTERS:] or "(nothing)"
