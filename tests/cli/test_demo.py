"""``zae-limiter demo``: the run, its accounting and its views."""

import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from rich.console import Console

from tests.long_waits import LONG_DEADLINE
from zae_limiter import RateLimiter, Repository, SystemClock
from zae_limiter.cli.demo.ledger import Ledger
from zae_limiter.cli.demo.live import LiveView, drawing
from zae_limiter.cli.demo.metered import DemoMeter
from zae_limiter.cli.demo.plain import PlainView
from zae_limiter.cli.demo.progress import (
    Counts,
    DemoFrame,
    DemoReport,
    DemoStanding,
    Effect,
    Line,
    RaiseProgress,
    raise_line,
)
from zae_limiter.cli.demo.scenario import ENTITY_LIMITS, PROJECTS, RAISED, RESOURCE, RESOURCE_LIMITS, members
from zae_limiter.cli.demo.show import Stage, run
from zae_limiter.cli.demo.stored import prepare
from zae_limiter.cli.demo.summary import chart_lines, summary_lines
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import Limit

MEMBERS = list(members(PROJECTS))
LIMITS = {limit.name: limit for limit in RESOURCE_LIMITS}
BALANCES = [{"rpm": 10, "tpm": 6_000}, {"rpm": 3, "tpm": -1_234}, {"rpm": 0, "tpm": 500}] * 2
STANDINGS = [
    DemoStanding(member, LIMITS, "resource", balances, Counts(admitted=12, rejected=1_000), 0.31)
    for member, balances in zip(MEMBERS, BALANCES, strict=True)
]
RAISING = RaiseProgress(RAISED, 10.0, 10.0, 10.9)
FRAME = DemoFrame(4.2, 20.0, STANDINGS, RAISING, [f"event {number}" for number in range(20)])
# A busy machine shows little in one second. A demo is then repeated for twice as long, up to this many
# seconds.
LONGEST_S = 16


def report_with(highest_share: float) -> DemoReport:
    counts = Counts(1_110, 231, 120, 4, 155_670, 152_674)
    lines = [Line(member, counts, highest_share) for member in MEMBERS]
    usage = {member.entity_id: 152_674 for member in MEMBERS if member.is_key}
    return DemoReport(20.2, 14, lines, Effect(RAISING, 1_991.2, 5_877.8), usage, "/tmp/limiter.db")


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


async def run_showing(repository: Repository, seconds: float, shows: Callable[[DemoReport], object]) -> DemoReport:
    """Run a demo until its report satisfies the predicate."""
    stage = Stage(RateLimiter(repository), repository, SystemClock(), Random(7))
    while True:
        await prepare(repository)
        report = await run(stage, seconds, PlainView())
        if shows(report) or seconds > LONGEST_S:
            return report
        seconds *= 2


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


class TestLedger:
    LIMIT = Limit.per_second("tps", 100, burst=200)

    def test_demo_ledger_accepts_takes_of_the_capacity_and_the_refill(self):
        """200 tokens immediately and 100 one second later are all that was available."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.take({"tps": 100}, 6_000)

        assert 1.0 == ledger.highest_share

    def test_demo_ledger_reports_a_take_of_one_token_too_many(self):
        """The check detects an over-admission of a single token."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.take({"tps": 101}, 6_000)

        assert ledger.highest_share > 1

    def test_demo_ledger_accepts_a_take_of_tokens_that_were_returned(self):
        """Only the net amount counts."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.settle({"tps": -50})
        ledger.take({"tps": 50}, 5_000)

        assert 1.0 == ledger.highest_share

    def test_demo_ledger_accepts_debt_but_no_take_before_it_is_repaid(self):
        """An adjustment may go below zero. A later take needs the debt to be refilled first."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.settle({"tps": 100})
        in_debt = ledger.highest_share
        ledger.take({"tps": 1}, 5_500)

        assert 1.0 == in_debt
        assert ledger.highest_share > 1

    @pytest.mark.parametrize(("taken", "is_exceeded"), [(550, False), (551, True)])
    def test_demo_ledger_counts_a_raised_limit_from_the_time_it_was_raised(self, taken, is_exceeded):
        """A second at 100, half a second at 300, and the higher capacity; the ledger hears of it only later."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": taken}, 6_500)
        ledger.raise_to(Limit.per_second("tps", 300), 6_000)
        ledger.raise_to(Limit.per_second("tps", 300), 6_200)

        assert is_exceeded == (ledger.highest_share > 1)

    def test_demo_ledger_judges_earlier_takes_by_the_limit_of_their_time(self):
        """A limit raised later does not justify an earlier take."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 201}, 5_000)
        ledger.raise_to(Limit.per_second("tps", 300), 6_000)

        assert ledger.highest_share > 1


class TestViews:
    @pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
    def test_demo_live_view_fits_the_terminal(self, width, height):
        """Nothing wraps or scrolls, and every project and number is shown."""
        console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
        with LiveView(console) as view, console.capture() as captured:
            view.show(FRAME)

        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", captured.get()).splitlines()
        assert len(lines) < height
        assert max(len(line) for line in lines) <= width
        assert {member.entity_id for member in MEMBERS} <= {line.split()[0] for line in lines if line.split()}
        assert any("-1,234" in line and "1,000" in line and "0.4 s" in line for line in lines)
        assert raise_line(RAISING) in [line.strip() for line in lines]

    def test_demo_live_view_in_a_wide_terminal_shows_limits_and_their_source(self):
        """Additional columns are shown if there is room."""
        console = Console(file=io.StringIO(), width=120, color_system=None)
        with console.capture() as captured:
            console.print(drawing(FRAME, 0, wide=True))

        assert 6 == captured.get().count("rpm 300, tpm 120,000  the model")

    def test_demo_live_view_draws_no_bar_for_a_limit_the_project_lacks(self):
        """A parent may limit tokens only."""
        alone = DemoStanding(MEMBERS[0], {"tpm": LIMITS["tpm"]}, "entity", {"tpm": 6_000}, Counts(), None)
        console = Console(file=io.StringIO(), width=80, color_system=None)
        with console.capture() as captured:
            console.print(drawing(DemoFrame(4.2, 20.0, [alone], RAISING, []), 0))

        assert "no limit" in captured.get()

    def test_demo_live_view_fits_a_narrow_ascii_terminal(self):
        """What does not fit is cut off, and only ASCII characters are drawn."""
        written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        console = Console(file=written, width=60, height=20, force_terminal=True)
        with LiveView(console) as view:
            view.show(FRAME)
        written.seek(0)

        assert "demo-key-2b" in written.read()

    def test_demo_bars_show_the_balance_without_colours(self):
        """Full, partial and empty; a debt is shown as empty."""
        console = Console(file=io.StringIO(), width=80, color_system=None)
        with console.capture() as captured:
            console.print(drawing(FRAME, 0))

        rows = [line for line in captured.get().splitlines() if line.strip().startswith("demo-")]
        assert [(20, 0), (3, 17), (1, 19)] * 2 == [(row.count("█"), row.count("░")) for row in rows]

    def test_demo_plain_view_has_one_heading_and_one_row_per_frame(self, capsys):
        """Rows fit 80 columns; the raised limit is reported once."""
        with PlainView() as view:
            view.show(FRAME)
            view.show(FRAME)

        _, heading, printed, *rows = capsys.readouterr().out.splitlines()
        names = ["project-1", "key-1a", "key-1b", "project-2", "key-2a", "key-2b"]
        assert ["TIME", "ADMITTED", "REJECTED", "RETRY", *names] == heading.split()
        assert raise_line(RAISING) == printed.strip()
        assert ["  4 s        48     4000  0.31     6,000 -1,234    500     6,000 -1,234    500"] * 2 == rows
        assert max(map(len, [heading, printed, *rows])) <= 80

    @pytest.mark.parametrize(
        ("progress", "expected"),
        [
            (RaiseProgress(RAISED, 10.0), "will be raised at 10.0 s: demo-project-2 tpm 120,000 -> 480,000 per minute"),
            (
                RaiseProgress(RAISED, 10.0, 10.0),
                "raised at 10.0 s: demo-project-2 tpm 120,000 -> 480,000, not yet in force",
            ),
            (RAISING, "raised at 10.0 s: demo-project-2 tpm 120,000 -> 480,000, in force at 10.9 s"),
        ],
    )
    def test_demo_views_show_the_raised_limit_before_and_after_it_applies(self, progress, expected):
        """The text says which limit, when, and whether it is in force, in 80 columns."""
        assert expected == raise_line(progress)
        assert len(expected) <= 80

    def test_demo_summary_shows_all_results_in_80_columns(self):
        """Every project and key, calls, tokens, the raised limit, and whether the limits held."""
        lines = summary_lines(report_with(0.998))

        text = "\n".join(lines)
        assert all(member.entity_id in text for member in MEMBERS)
        assert all(word in text for word in ("1,110", "231", "155,670", "152,674", "/tmp/limiter.db"))
        assert "1,991 tokens per second before, 5,878 after" in text
        assert "never exceeded: at most 99.8 %" in text
        assert max(len(line) for line in lines) <= 80

    def test_demo_chart_scales_bars_to_the_largest_value(self):
        """The largest value has the longest bar; zero has none."""
        _, *bars = chart_lines({"a": 1_000, "b": 500, "c": 0}, "#")

        assert [44, 22, 0] == [bar.count("#") for bar in bars]

    def test_demo_summary_reports_an_exceeded_limit(self):
        """If the limiter admitted too much, its demo says so."""
        report = report_with(1.001)

        assert report.is_exceeded
        assert "EXCEEDED: 100.1 %" in "\n".join(summary_lines(report))


class TestRun:
    async def test_demo_run_admits_and_rejects_within_the_limits(self):
        """One second shows both, and a project counts the calls of its keys."""
        async with await Repository.open("memory://") as repository:
            report = await run_showing(repository, 1.2, lambda seen: seen.total.admitted > 10 and seen.total.rejected)

        assert report.total.admitted > 10
        assert report.total.rejected > 0
        assert report.highest_share <= 1
        project, first, second = (line.counts for line in report.lines[:3])
        assert project == first + second

    async def test_usage_snapshots_equal_the_counts_of_the_demo(self):
        """They agree to the token and cover this run only, also if an earlier run was in the same hour."""
        async with await Repository.open("memory://") as repository:
            reports = [await run_showing(repository, 0.6, lambda seen: seen.total.used) for _ in range(2)]

        for report in reports:
            counted = {line.member.entity_id: line.counts.used for line in report.lines if line.member.is_key}
            assert sum(counted.values()) > 0
            assert counted == report.usage

    async def test_usage_of_a_demo_across_two_hours_is_the_sum_of_both(self):
        """Usage of the first hour before the demo is left out."""
        clock = SettableClock(1_700_002_800_000 - 2_000)
        async with await Repository.open("memory://", clock=clock) as repository:
            limiter = RateLimiter(repository)
            await repository.set_resource_defaults(RESOURCE, RESOURCE_LIMITS)
            await take_tokens(limiter, 10)
            meter = await DemoMeter.start(limiter, ["demo-key-1a"], clock.now_ms())
            await take_tokens(limiter, 100)
            clock.time_ms += 3_000
            await take_tokens(limiter, 1_000)

            assert {"demo-key-1a": 1_100} == await meter.usage()

    async def test_demo_callers_see_the_raised_limit(self):
        """The new limit is stored, resolved and observed."""
        async with await Repository.open("memory://") as repository:
            report = await run_showing(repository, 0.6, lambda seen: seen.effect.raised.seen_s)
            resolved = await repository.resolve_limits(RAISED.entity_id, RESOURCE)

        assert report.effect.raised.seen_s is not None
        assert ([RAISED.after], "entity_default") == (resolved.limits, resolved.source)

    async def test_demo_raises_the_error_of_one_caller_without_a_group(self, monkeypatch):
        """An ungrouped error can be printed in one line."""
        async with await Repository.open("memory://") as repository:
            await prepare(repository)
            limiter = RateLimiter(repository)

            def unavailable(*_):
                raise RateLimiterUnavailable(None)

            monkeypatch.setattr(limiter, "acquire", unavailable)
            with pytest.raises(RateLimiterUnavailable):
                await run(Stage(limiter, repository, SystemClock(), Random(7)), 1.0, PlainView())

    async def test_demo_preparation_is_idempotent(self):
        """What exists already stays, and no audit event is written for it."""
        async with await Repository.open("memory://") as repository:
            await prepare(repository)
            before = [await repository.get_audit_events(member.entity_id) for member in MEMBERS]
            await prepare(repository)

            assert before == [await repository.get_audit_events(member.entity_id) for member in MEMBERS]
            keys = await repository.get_children("demo-project-1")
            assert [("demo-key-1a", True), ("demo-key-1b", True)] == [(key.id, key.cascade) for key in keys]

    def test_demo_in_a_pipe_prints_rows_and_a_summary(self, shell, database):
        """Nothing is written to stderr. A second demo on the same file works too."""
        for _ in range(2):
            for seconds in (1, 2, 4, 8, LONGEST_S):
                done = shell("demo", "--seconds", str(seconds))
                first = re.search(r"^  0 s +0 +0 ", done.stdout, re.MULTILINE)
                raised = re.search(r"120,000 -> 480,000, in force at \d+\.\d s", done.stdout)
                if first and raised:
                    break

            assert (0, "") == (done.returncode, done.stderr)
            assert first
            assert re.search(rf"^{seconds:3} s +\d+ +\d+ ", done.stdout, re.MULTILINE)
            assert raised
            assert "never exceeded" in done.stdout
            assert str(database) in done.stdout

    def test_two_demos_on_one_file_do_not_report_each_others_changes(self, shell, monkeypatch):
        """A limit raised by the other demo is not reported as a violation."""
        for name, value in LONG_DEADLINE.items():
            monkeypatch.setenv(name, value)
        with ThreadPoolExecutor() as pool:
            first = pool.submit(shell, "demo", "--seconds", "3")
            time.sleep(1.0)
            second = pool.submit(shell, "demo", "--seconds", "3")

        assert [0, 0] == [first.result().returncode, second.result().returncode]

    def test_demo_changes_only_its_own_buckets(self, run):
        """The limits and buckets of users stay the same."""
        run("system", "set-defaults", "-l", "rpd:5/d")
        run("acquire", "user-1", "gpt-4", "-c", "rpd:1")
        looks = [("available", "user-1", "gpt-4"), ("system", "get-defaults")]
        before = [run(*look).stdout for look in looks]
        run("demo", "--seconds", "0.2")

        assert before == [run(*look).stdout for look in looks]

    def test_demo_on_an_interrupt_exits_with_130_without_a_traceback(self, database):
        """Ctrl-C ends the demo without output on stderr."""
        command = [sys.executable, "-m", "zae_limiter", "demo"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=120)

        assert (130, "") == (process.returncode, printed)
