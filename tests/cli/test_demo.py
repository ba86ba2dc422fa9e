"""``zae-limiter demo``: the run, its bookkeeping, and how it is shown."""

import io
import re
import signal
import subprocess
import sys
import time
from random import Random

import pytest
from rich.console import Console

from zae_limiter import RateLimiter, Repository, SystemClock
from zae_limiter.cli.demo.ledger import Ledger
from zae_limiter.cli.demo.live import LiveView, drawing
from zae_limiter.cli.demo.plain import PlainView
from zae_limiter.cli.demo.progress import Frame, Report, Standing
from zae_limiter.cli.demo.scenario import LIMITS, PROJECTS
from zae_limiter.cli.demo.show import Show
from zae_limiter.cli.demo.summary import summary_lines
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import Limit

BALANCES = ({"rps": 10, "tps": 6_000}, {"rps": 3, "tps": -1_234}, {"rps": 0, "tps": 500})
STANDINGS = [
    Standing(project, balances, admitted=12, rejected=rejected, retry_after_s=retry_after_s)
    for project, balances, rejected, retry_after_s in zip(
        PROJECTS, BALANCES, (0, 1_000, 7), (None, 0.31, 12.0), strict=True
    )
]
FRAME = Frame(4.2, 10.0, STANDINGS, [f"event {number}" for number in range(20)])


class TestThePlan:
    def test_the_same_seed_makes_the_same_calls(self):
        """What is shown today is shown tomorrow."""
        first, second = ([project.call(Random(3)) for project in PROJECTS] for _ in range(2))

        assert first == second

    def test_no_call_asks_for_more_than_a_bucket_holds(self):
        """Such a call would never be admitted."""
        random = Random(3)
        capacity = {limit.name: limit.capacity for limit in LIMITS}["tps"]

        assert all(project.call(random).estimated <= capacity for project in PROJECTS for _ in range(1_000))


class TestTheLedger:
    LIMIT = Limit.per_second("tps", 100, burst=200)

    def test_capacity_and_refill_may_be_taken(self):
        """200 at once and 100 a second later are all that is offered, so far."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.take({"tps": 100}, 6_000)

        assert 1.0 == ledger.highest_share

    def test_a_token_more_is_noticed(self):
        """The check would see an over-admission of a single token."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.take({"tps": 101}, 6_000)

        assert ledger.highest_share > 1

    def test_what_was_given_back_may_be_taken_again(self):
        """Only the difference counts."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.settle({"tps": -50})
        ledger.take({"tps": 50}, 5_000)

        assert 1.0 == ledger.highest_share

    def test_debt_is_no_offence_but_is_to_be_earned_before_the_next_take(self):
        """An adjustment may go below zero; a take after it may not count on that."""
        ledger = Ledger([self.LIMIT], 5_000)
        ledger.take({"tps": 200}, 5_000)
        ledger.settle({"tps": 100})
        in_debt = ledger.highest_share
        ledger.take({"tps": 1}, 5_500)

        assert 1.0 == in_debt
        assert ledger.highest_share > 1


class TestTheViews:
    @pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
    def test_the_live_view_fits_the_terminal(self, width, height):
        """Nothing wraps, nothing scrolls, every project and number is there."""
        console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
        with LiveView(console) as view, console.capture() as captured:
            view.show(FRAME)

        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", captured.get()).splitlines()
        assert len(lines) < height
        assert max(len(line) for line in lines) <= width
        assert {"demo-project-1", "demo-project-2", "demo-project-3"} <= {
            line.split()[0] for line in lines if line.split()
        }
        assert any("-1,234" in line and "1,000" in line and "0.4 s" in line for line in lines)

    def test_a_narrow_terminal_that_knows_only_ascii_will_do(self):
        """What does not fit is cut off, and nothing else is drawn than the terminal can show."""
        written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        console = Console(file=written, width=60, height=20, force_terminal=True)
        with LiveView(console) as view:
            view.show(FRAME)
        written.seek(0)

        assert "demo-project-3" in written.read()

    def test_bars_show_the_balance_without_colours(self):
        """Full, part and empty; a debt is empty."""
        console = Console(file=io.StringIO(), width=80, color_system=None)
        with console.capture() as captured:
            console.print(drawing(FRAME, 0))

        rows = [line for line in captured.get().splitlines() if line.startswith("demo-project")]
        assert [(18, 0), (3, 15), (1, 17)] == [(row.count("█"), row.count("░")) for row in rows]

    def test_the_plain_view_is_a_heading_and_a_row_for_each_frame(self, capsys):
        """As wide as a terminal, no more."""
        with PlainView() as view:
            view.show(FRAME)
            view.show(FRAME)

        heading, *rows = capsys.readouterr().out.splitlines()
        assert ["TIME", "ADMITTED", "REJECTED", "demo-project-1", "demo-project-2", "demo-project-3"] == heading.split()
        assert ["  4 s        36      1007  rps 10 tps 6,000  rps 3 tps -1,234  rps 0 tps 500"] * 2 == rows

    def test_the_summary_tells_all_in_80_columns(self):
        """Calls, tokens, and whether the limits held."""
        lines = summary_lines(Report(10.2, 11, 3, 1_110, 231, 4, 55_670, 52_674, 0.998, "/tmp/limiter.db"))

        text = "\n".join(lines)
        assert all(word in text for word in ("1,110", "231", "55,670", "52,674", "/tmp/limiter.db"))
        assert "never exceeded: at most 99.8 %" in text
        assert max(len(line) for line in lines) <= 80

    def test_a_limit_exceeded_is_not_hidden(self):
        """Should the limiter ever be wrong, its demo says so."""
        report = Report(10.2, 11, 3, 110, 231, 4, 55_670, 52_674, 1.001, "/tmp/limiter.db")

        assert report.is_exceeded
        assert "EXCEEDED: 100.1 %" in "\n".join(summary_lines(report))


class TestTheRun:
    async def test_it_admits_and_rejects_and_stays_within_the_limits(self):
        """Users see both, in a second already."""
        async with await Repository.open("memory://") as repository:
            show = Show(RateLimiter(repository), PROJECTS, SystemClock(), Random(7))
            report = await show.run(1.2, PlainView(), "memory://")

        assert report.admitted > 10
        assert report.rejected > 0
        assert report.highest_share <= 1

    async def test_an_error_of_one_caller_is_raised_as_it_is(self, monkeypatch):
        """Not wrapped in a group, so that it is told in one line."""
        async with await Repository.open("memory://") as repository:
            limiter = RateLimiter(repository)

            def away(*_):
                raise RateLimiterUnavailable(None)

            monkeypatch.setattr(limiter, "acquire", away)
            with pytest.raises(RateLimiterUnavailable):
                await Show(limiter, PROJECTS, SystemClock(), Random(7)).run(1.0, PlainView(), "memory://")

    def test_in_a_pipe_it_prints_lines_and_a_summary(self, shell, database):
        """Lines as it goes, a summary in the end, nothing on stderr."""
        done = shell("demo", "--seconds", "1")

        assert (0, "") == (done.returncode, done.stderr)
        assert re.search(r"^  0 s +0 +0  rps 10 tps 6,000", done.stdout, re.MULTILINE)
        assert re.search(r"^  1 s +\d+ +\d+  rps", done.stdout, re.MULTILINE)
        assert "never exceeded" in done.stdout
        assert str(database) in done.stdout

    def test_only_the_demos_own_buckets_are_touched(self, run):
        """Limits and buckets of a user stay as they were."""
        run("system", "set-defaults", "-l", "rpd:5/d")
        run("acquire", "user-1", "gpt-4", "-c", "rpd:1")
        looks = [("available", "user-1", "gpt-4"), ("system", "get-defaults")]
        before = [run(*look).stdout for look in looks]
        run("demo", "--seconds", "0.2")

        assert before == [run(*look).stdout for look in looks]

    def test_an_interrupt_ends_it_quietly(self, database):
        """Exit code 130, no traceback."""
        command = [sys.executable, "-m", "zae_limiter", "demo"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=10)

        assert (130, "") == (process.returncode, told)
