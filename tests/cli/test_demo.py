"""``zae-limiter demo``: the run with real processes, its accounting and its views."""

import asyncio
import contextlib
import io
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from zae_limiter import RateLimiter, Repository
from zae_limiter.cli.demo import activate_command, watch
from zae_limiter.cli.demo.live import LiveView, drawing, summary_drawing
from zae_limiter.cli.demo.outage import fail_and_recover
from zae_limiter.cli.demo.plain import PlainView
from zae_limiter.cli.demo.processes import KeyProcess
from zae_limiter.cli.demo.progress import Counts, DemoFrame, DemoReport, DemoStanding, Line, Step, StepState
from zae_limiter.cli.demo.reports import (
    Adjusted,
    GaveBack,
    InForce,
    Took,
)
from zae_limiter.cli.demo.scenario import ENTITY_LIMITS, PROJECTS, RAISED, RESOURCE, RESOURCE_LIMITS, members
from zae_limiter.cli.demo.show import STEPS, start_processes
from zae_limiter.cli.demo.steps import stream_into_debt, wait_for_retry_after
from zae_limiter.cli.demo.stored import prepare, read_usage
from zae_limiter.cli.demo.summary import ASCII_MARKS, MARKS, NEXT_COMMANDS, summary_lines
from zae_limiter.core.errors import InfrastructureError

MEMBERS = list(members(PROJECTS))
KEYS = [member.entity_id for member in MEMBERS if member.is_key]
LIMITS = {limit.name: limit for limit in RESOURCE_LIMITS}
BALANCES = [{"rpm": 10, "tpm": 6_000}, {"rpm": 3, "tpm": -1_234}, {"rpm": 0, "tpm": 500}] * 2
STANDINGS = [
    DemoStanding(member, LIMITS, "resource", balances, Counts(admitted=12, rejected=1_000), 0.31)
    for member, balances in zip(MEMBERS, BALANCES, strict=True)
]
STATES = [StepState.RUNNING, StepState.DONE, StepState.DONE, StepState.FAILED, StepState.WAITING]
STEP_LINES = [Step(name, state, text) for (name, text), state in zip(STEPS, STATES, strict=True)]
FRAME = DemoFrame(4.2, 20.0, STANDINGS, STEP_LINES, [f"event {number}" for number in range(40)])


def report_with(highest_share: float, used: int = 152_674) -> DemoReport:
    counts = Counts(1_110, 231, 120, 4, 155_670, 152_674)
    lines = [Line(member, counts, highest_share) for member in MEMBERS]
    steps = [Step(name, StepState.DONE, "x" * 69) for name, _ in STEPS]
    return DemoReport(20.2, 4, lines, steps, dict.fromkeys(KEYS, used))


class SettableClock:
    """A clock that shows the same time until it is set."""

    def __init__(self, now_ms):
        self.time_ms = now_ms

    def now_ms(self):
        return self.time_ms

    def monotonic_s(self):
        return self.time_ms / 1000


async def take_tokens(limiter, amount):
    async with limiter.acquire("demo-key-1a", RESOURCE, {"tpm": amount}):
        pass


def terminal_output(command, interrupt_at, columns, rows):
    """Run a command in a terminal of this size, interrupt it when it prints a text, and return what it printed."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        printed, is_interrupted = b"", False
        # Linux reports the end of a terminal as an error.
        with contextlib.suppress(OSError):
            while read := os.read(ours, 65_536):
                printed += read
                if not is_interrupted and interrupt_at.encode() in printed:
                    is_interrupted = True
                    process.send_signal(signal.SIGINT)
    os.close(ours)
    return printed.decode()


def without_codes(text):
    """Return what was written to a terminal, without escape codes."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def screen(renderable, width=80, height=24):
    """Return the lines that a terminal of this size shows."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get().splitlines()


class TestPlan:
    def test_demo_plan_with_the_same_seed_makes_the_same_calls(self):
        """A demo can be repeated exactly."""
        keys = [key for project in PROJECTS for key in project.keys]
        first, second = ([key.call(Random(3)) for key in keys] for _ in range(2))

        assert first == second

    def test_demo_plan_never_asks_for_more_than_a_bucket_holds(self):
        """Such a call would never be admitted."""
        random = Random(3)
        stored = [RESOURCE_LIMITS, *(limits for _, _, limits in ENTITY_LIMITS)]
        capacity = min(limit.capacity for limits in stored for limit in limits if limit.name == "tpm")
        keys = [key for project in PROJECTS for key in project.keys]

        assert all(key.call(random).estimated <= capacity for key in keys for _ in range(1_000))


class TestViews:
    @pytest.mark.parametrize(("width", "height", "events"), [(80, 24, 4), (160, 45, 25)])
    def test_demo_live_view_fits_the_terminal(self, width, height, events):
        """Nothing wraps or scrolls, and every project, number, step and event is shown."""
        console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
        with LiveView(console) as view:
            view.show(FRAME)
            lines = without_codes(console.file.getvalue()).splitlines()

        assert len(lines) < height
        assert max(len(line) for line in lines) <= width
        assert {member.entity_id for member in MEMBERS} <= {line.split()[0] for line in lines if line.split()}
        assert any("-1,234" in line and "1,000" in line and "0.4 s" in line for line in lines)
        assert [f"{MARKS[step.state]} {step}" for step in STEP_LINES] == [line.rstrip() for line in lines[13:18]]
        assert [f"event {40 - events + number}" for number in range(events)] == [line.rstrip() for line in lines[19:]]

    def test_demo_live_view_in_a_wide_terminal_shows_limits_and_their_source(self):
        """Additional columns are shown if there is room."""
        shown = "\n".join(screen(drawing(FRAME, 0, wide=True), width=120))

        assert 6 == shown.count("rpm 300, tpm 120,000  model default")

    def test_demo_live_view_draws_no_bar_for_a_limit_the_project_lacks(self):
        """A parent may limit tokens only."""
        alone = DemoStanding(MEMBERS[0], {"tpm": LIMITS["tpm"]}, "entity", {"tpm": 6_000}, Counts(), None)

        assert "no limit" in "\n".join(screen(drawing(DemoFrame(4.2, 20.0, [alone], STEP_LINES, []), 0)))

    def test_demo_live_view_fits_a_narrow_ascii_terminal(self):
        """What does not fit is cut off, and only ASCII characters are drawn."""
        written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        console = Console(file=written, width=60, height=20, force_terminal=True)
        with LiveView(console) as view:
            view.show(FRAME)
        written.seek(0)
        shown = written.read()

        assert "demo-key-2b" in shown
        assert f"{ASCII_MARKS[StepState.RUNNING]} share" in without_codes(shown)

    @pytest.mark.parametrize(("width", "height"), [(79, 24), (80, 23)])
    def test_demo_live_view_in_a_small_terminal_names_the_size_that_shows_everything(self, width, height):
        """Otherwise a viewer does not know that something is cut off."""
        lines = screen(drawing(FRAME, 0), width, height)

        assert "A terminal of 80x24 shows everything." == lines[2].rstrip()

    def test_demo_summary_in_a_narrow_terminal_is_complete(self):
        """The terminal wraps the lines, so that commands can be copied."""
        console = Console(file=io.StringIO(), width=40, color_system=None)
        with console.capture() as captured:
            console.print(summary_drawing(report_with(0.998), MARKS), soft_wrap=True)

        assert summary_lines(report_with(0.998)) == captured.get().splitlines()

    def test_demo_bars_show_the_balance_without_colours(self):
        """Full, partial and empty; a debt is shown as empty."""
        rows = [line for line in screen(drawing(FRAME, 0)) if line.strip().startswith("demo-")]

        assert [(20, 0), (3, 17), (1, 19)] * 2 == [(row.count("█"), row.count("░")) for row in rows]

    def test_demo_sentences_and_numbers_have_no_colour_that_is_pale_on_white(self):
        """Green, yellow and cyan are for bars, marks and names of steps. A light terminal shows them too pale."""
        console = Console(width=80, force_terminal=True, color_system="standard", highlight=False)
        pale = {"green", "yellow", "cyan"}
        lines = [
            *console.render_lines(drawing(FRAME, 4)),
            *console.render_lines(summary_drawing(report_with(0.9), MARKS)),
        ]
        segments = [segment for line in lines for segment in line if segment.style and segment.style.color]
        coloured = {
            part for one in segments if one.style.color.name in pale for part in one.text.replace("█", " ").split()
        }

        assert coloured <= {*MARKS.values(), *(name for name, _ in STEPS), "limits", "usage"}

    @pytest.mark.parametrize("marks", [MARKS, ASCII_MARKS])
    def test_demo_states_are_distinguished_without_colours(self, marks):
        """Every state of a step has a mark of its own."""
        assert len(StepState) == len(set(marks.values()))

    def test_demo_plain_view_has_one_heading_and_one_row_per_frame(self, capsys):
        """Rows fit 80 columns; a step is reported when it begins and when it ends, once each."""
        with PlainView() as view:
            view.show(FRAME)
            view.show(FRAME)

        _, heading, *printed, first, second = capsys.readouterr().out.splitlines()
        names = ["project-1", "key-1a", "key-1b", "project-2", "key-2a", "key-2b"]
        assert ["TIME", "ADMITTED", "REJECTED", "RETRY", *names] == heading.split()
        assert ["share: begins", "wait done", "debt done", "raise failed"] == [
            line.strip() if "begins" in line else line.strip().partition(":")[0] for line in printed
        ]
        assert ["  4 s        48     4000  0.31     6,000 -1,234    500     6,000 -1,234    500"] * 2 == [first, second]
        assert max(map(len, [heading, *printed, first])) <= 80

    def test_demo_summary_fits_a_terminal_of_80_by_24(self):
        """One line is left for the prompt. Every project and key, all steps, and three commands are shown."""
        lines = screen(summary_drawing(report_with(0.998), MARKS))

        text = "\n".join(lines)
        assert len(lines) < 24
        assert max(len(line) for line in lines) <= 80
        assert lines == summary_lines(report_with(0.998))
        assert "zae-limiter demo: 4 processes, 20.2 s; 16 failed calls refunded" == lines[0]
        assert all(member.entity_id in text for member in MEMBERS)
        assert all(word in text for word in ("1,110", "231", "155,670", "152,674"))
        assert [f"✓ {name:7} {'x' * 69}" for name, _ in STEPS] == [line for line in lines if "xxx" in line]
        assert "✓ limits  never exceeded: highest PEAK 99.8 % of capacity and refill" in lines
        assert ["Try next:", *(f"  {command}" for command in NEXT_COMMANDS)] == lines[-4:]

    @pytest.mark.parametrize(("below", "shown"), [("here", ".venv/bin/activate"), ("elsewhere", "{}/bin/activate")])
    def test_demo_summary_names_the_environment_if_the_command_is_not_on_the_path(
        self, below, shown, tmp_path, monkeypatch
    ):
        """`make demo` runs it from .venv, which the shell has not activated."""
        (tmp_path / "here").mkdir()
        prefix = tmp_path / below / ".venv"
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin" / "activate").touch()
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setattr("sys.prefix", str(prefix))
        lines = summary_lines(report_with(0.998), activate=activate_command())

        assert ["Try next:", f"  . {shown.format(prefix)}", f"  {NEXT_COMMANDS[0]}"] == lines[-5:-2]
        assert len(lines) < 24

    def test_demo_summary_names_no_environment_if_the_command_is_on_the_path(self, tmp_path, monkeypatch):
        """The commands work as they are."""
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "activate").touch()
        (tmp_path / "bin" / "zae-limiter").touch(mode=0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setattr("sys.prefix", str(tmp_path))

        assert activate_command() is None

    def test_demo_summary_reports_an_exceeded_limit(self):
        """If the limiter admitted too much, its demo says so."""
        report = report_with(1.001)

        assert report.is_failed
        assert "✗ limits  EXCEEDED: 100.1 %" in "\n".join(summary_lines(report))

    def test_demo_summary_reports_usage_that_differs_from_the_counts(self):
        """If the usage snapshots lack a token, the demo says so, in 80 columns."""
        report = report_with(0.5, used=152_673)
        lines = summary_lines(report)

        assert report.is_failed
        assert "✗ usage   DIFFERS: snapshots 610,692, counted 610,696 tokens" in "\n".join(lines)
        assert max(map(len, lines)) <= 80


class TestSteps:
    async def test_demo_caller_that_waits_retry_after_is_admitted(self):
        """Each wait is announced, and the first retry after it is admitted."""
        said = []
        async with await Repository.open("memory://") as repository:
            await prepare(repository)
            text = await wait_for_retry_after(RateLimiter(repository), said.append)

        assert 3 == len(said)
        assert re.fullmatch(r"3 waits of exactly retry_after \((0\.\d{3}, ){2}0\.\d{3} s\), 3 admitted", text)

    async def test_demo_stream_goes_into_debt_and_repays_it(self):
        """The stream uses more than its estimate. The next call waits until the debt is repaid."""
        said = []
        async with await Repository.open("memory://") as repository:
            await prepare(repository)
            text = await stream_into_debt(RateLimiter(repository), said.append)

        assert "estimated 500, streamed 2,400 so far" in said
        assert re.fullmatch(r"500 estimated, 2,400 used: [\d,]+ tokens debt, repaid in [\d.]+ s", text)

    async def test_demo_outage_follows_both_policies_and_keeps_the_balance(self, tmp_path, caplog):
        """The file is locked and unlocked. No warning of the library disturbs the view."""
        text = await fail_and_recover(str(tmp_path / "outage.db"), lambda _: None)

        assert "block rejected 2, allow let 2 pass; limited again after recovery" == text
        assert [] == caplog.records

    async def test_usage_of_a_demo_across_two_hours_is_the_sum_of_both(self):
        """A demo may begin before the full hour and end after it."""
        clock = SettableClock(1_700_002_800_000 - 2_000)
        async with await Repository.open("memory://", clock=clock) as repository:
            limiter, start_ms = RateLimiter(repository), clock.now_ms()
            await repository.set_resource_defaults(RESOURCE, RESOURCE_LIMITS)
            await take_tokens(limiter, 100)
            clock.time_ms += 3_000
            await take_tokens(limiter, 1_000)

            assert {"demo-key-1a": 1_100} == await read_usage(limiter, ["demo-key-1a"], start_ms)


class TestProcesses:
    async def test_demo_process_that_fails_is_reported_with_its_key(self, tmp_path):
        """The error is one line, and names the key."""
        process = await KeyProcess.start(str(tmp_path), "demo-key-1a", 7)
        await process.wait_until_ready()

        with pytest.raises(InfrastructureError, match=r"the process of demo-key-1a failed: \S.*"):
            await process.read(lambda *_: None)

    async def test_demo_process_ends_when_its_stdin_is_closed(self, tmp_path):
        """So no process survives a demo that was killed. Its calls in flight are completed."""
        path, reports = str(tmp_path / "shared.db"), []
        async with await Repository.open(f"sqlite:///{path}") as repository:
            await prepare(repository)
            process = await KeyProcess.start(path, "demo-key-1a", 7)
            took = asyncio.Event()

            def record(key_id, report):
                reports.append(report)
                if isinstance(report, Took):
                    took.set()

            reading = asyncio.create_task(process.read(record))
            await took.wait()
            await process.stop()
            await reading

        completed = [report for report in reports if isinstance(report, Adjusted | GaveBack)]
        assert InForce(180_000) == reports[0]
        assert len([report for report in reports if isinstance(report, Took)]) == len(completed)

    @pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs the process list of Linux")
    @pytest.mark.parametrize("interrupted_at", ["Starting process 3 of 4", "0 of 4 processes are ready"])
    async def test_demo_interrupted_during_set_up_leaves_no_process(self, tmp_path, interrupted_at):
        """A process that survived would create the file again after the demo has removed it."""
        path = str(tmp_path / "shared.db")

        def say(text):
            if text == interrupted_at:
                raise KeyboardInterrupt

        async with await Repository.open(f"sqlite:///{path}") as repository:
            await prepare(repository)
            with pytest.raises(KeyboardInterrupt):
                async with contextlib.AsyncExitStack() as closing:
                    await start_processes(path, 7, say, closing)

        assert [] == [command for command in command_lines() if path in command]


def command_lines() -> Iterator[str]:
    """The commands of all processes; empty for one that has ended."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes().decode(errors="replace")


@pytest.fixture(scope="module")
def report() -> DemoReport:
    """The report of one whole demo."""
    return asyncio.run(watch(0.1, PlainView()))


class TestRun:
    def test_demo_run_completes_every_step(self, report):
        """However short the time is, no step is cut off."""
        assert [(name, StepState.DONE) for name, _ in STEPS] == [(step.name, step.state) for step in report.steps]

    def test_demo_run_has_one_process_per_key_and_admits_calls_of_each(self, report):
        """A project counts the calls of its keys."""
        admitted = {line.member.entity_id: line.counts.admitted for line in report.lines}

        assert len(KEYS) == report.processes
        assert all(admitted[key] > 0 for key in KEYS)
        project, first, second = (line.counts for line in report.lines[:3])
        assert project == first + second

    def test_demo_run_rejects_calls_and_stays_within_the_limits(self, report):
        """The callers want more than the limits allow, and do not get it."""
        assert report.total.rejected > 0
        assert 0 < report.highest_share <= 1
        assert not report.is_failed

    def test_usage_snapshots_equal_the_counts_of_the_demo(self, report):
        """They agree to the token."""
        counted = {line.member.entity_id: line.counts.used for line in report.lines if line.member.is_key}

        assert sum(counted.values()) > 0
        assert counted == report.usage

    def test_demo_processes_use_the_raised_limit(self, report):
        """The step is done when both processes of the project have reported the new limit."""
        text = next(step.text for step in report.steps if step.name == "raise")

        rates = f"{RAISED.before.refill_amount:,} -> {RAISED.after.refill_amount:,} tpm"
        assert re.match(rf"{rates}, in force in \d+\.\d s", text)

    def test_demo_steps_and_summary_fit_80_columns(self, report):
        """Nothing is cut off, with the numbers of a real run."""
        lines = summary_lines(report)

        assert max(map(len, lines)) <= 80
        assert len(lines) < 24
        assert max(len(str(step)) for step in report.steps) <= 78

    def test_demo_in_a_pipe_prints_rows_and_a_summary_and_leaves_nothing(self, shell, database, tmp_path, monkeypatch):
        """The user's store is not created, and no temporary file is left."""
        temporary, here = tmp_path / "tmp", tmp_path / "here"
        temporary.mkdir()
        here.mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        monkeypatch.chdir(here)
        done = shell("demo", "--seconds", "0.1")

        assert (0, "") == (done.returncode, done.stderr)
        assert re.search(r"^  0 s +\d+ +\d+ ", done.stdout, re.MULTILINE)
        assert "never exceeded" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert [f"  {command}" for command in NEXT_COMMANDS] == done.stdout.splitlines()[-3:]
        assert ([], [], False) == (list(temporary.iterdir()), list(here.iterdir()), database.exists())

    @pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_demo_on_an_interrupt_prints_the_summary_without_a_traceback(self, tmp_path, monkeypatch, ending):
        """Ctrl-C ends the demo, removes its file, and marks the steps that were not reached. So do other signals."""
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        command = [sys.executable, "-m", "zae_limiter", "demo", "--seconds", "3600"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # The second line is the heading, after which Ctrl-C is handled.
            process.stdout.readline()
            process.stdout.readline()
            process.send_signal(ending)
            printed, errors = process.communicate(timeout=120)

        assert (130, "") == (process.returncode, errors)
        assert "s, interrupted" in printed
        assert "- outage  interrupted before it was complete" in printed
        assert printed.rstrip().endswith(NEXT_COMMANDS[-1])
        assert [] == list(tmp_path.iterdir())

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
    def test_demo_in_a_terminal_is_replaced_by_the_summary_on_an_interrupt(self, database):
        """Set-up shows progress, then the live view; at the end only the summary is left."""
        shown = terminal_output(
            [sys.executable, "-m", "zae_limiter", "demo"], interrupt_at="Ctrl-C ends it", columns=80, rows=24
        )

        before, _, rest = shown.partition("Ctrl-C ends it")
        summary = rest[rest.rindex("zae-limiter demo: 4 processes") :]
        lines = without_codes(summary).splitlines()
        assert "of 4 processes are ready" in before
        assert len(lines) < 24
        assert max(map(len, lines)) <= 80
        assert [f"  {command}" for command in NEXT_COMMANDS] == lines[-3:]
        assert "Traceback" not in shown

    def test_commands_that_the_demo_suggests_work_one_after_the_other(self, run):
        """They can be copied as they are."""
        outcomes = [run(*shlex.split(command)[1:]) for command in NEXT_COMMANDS]

        assert [0, 0, 0] == [outcome.exit_code for outcome in outcomes]
        assert "alice" in outcomes[-1].stdout + outcomes[0].stdout
