"""The accounting of ``zae-limiter demo``: the reports of its processes, and the check of the limits."""

import pytest

from zae_limiter.cli.demo.ledger import Ledger
from zae_limiter.cli.demo.progress import Counts
from zae_limiter.cli.demo.reports import (
    Adjusted,
    CallRejected,
    GaveBack,
    InForce,
    Took,
    event_text,
    from_line,
    to_line,
)
from zae_limiter.cli.demo.scenario import PROJECTS, RESOURCE_LIMITS, members
from zae_limiter.cli.demo.tally import Book, DemoTally
from zae_limiter.core.limit import Limit

MEMBERS = list(members(PROJECTS))


class TestLedger:
    LIMIT = Limit.per_second("tps", 100, burst=200)

    def ledger(self, *takes):
        ledger = Ledger([self.LIMIT], 5_000)
        for amount, at_ms in takes:
            ledger.enter({"tps": amount}, at_ms, is_take=True)
        return ledger

    def share(self, ledger, left=-1_000_000, at_ms=6_500):
        # With a debt this high, only the takes are judged, and not the final balance.
        return ledger.highest_share({"tps": left}, at_ms)

    def test_demo_ledger_accepts_takes_of_the_capacity_and_the_refill(self):
        """200 tokens immediately and 100 one second later are all that was available."""
        assert 1.0 == self.share(self.ledger((200, 5_000), (100, 6_000)))

    def test_demo_ledger_reports_a_take_of_one_token_too_many(self):
        """The check detects an over-admission of a single token."""
        assert self.share(self.ledger((200, 5_000), (101, 6_000))) > 1

    def test_demo_ledger_sorts_reports_that_arrive_late(self):
        """Processes report independently. The time of a take counts, not that of its report."""
        assert 1.0 == self.share(self.ledger((100, 6_000), (200, 5_000)))

    def test_demo_ledger_accepts_a_take_of_tokens_that_were_returned(self):
        """Only the net amount counts."""
        ledger = self.ledger((200, 5_000), (50, 5_000))
        ledger.enter({"tps": -50}, 5_000, is_take=False)

        assert 1.0 == self.share(ledger)

    def test_demo_ledger_accepts_a_debt_that_the_balance_shows(self):
        """An adjustment may go below zero: 300 taken of 200 leaves -100."""
        ledger = self.ledger((200, 5_000))
        ledger.enter({"tps": 100}, 5_000, is_take=False)

        assert 1.0 == ledger.highest_share({"tps": -100}, 5_000)

    def test_demo_ledger_reports_a_balance_with_one_token_too_many(self):
        """The store must not have forgotten a token of the debt."""
        ledger = self.ledger((200, 5_000))
        ledger.enter({"tps": 100}, 5_000, is_take=False)

        assert ledger.highest_share({"tps": -99}, 5_000) > 1

    @pytest.mark.parametrize(("taken", "is_exceeded"), [(550, False), (551, True)])
    def test_demo_ledger_counts_a_raised_limit_from_the_time_it_was_raised(self, taken, is_exceeded):
        """A second at 100, half a second at 300, and the higher capacity; a second raise to the same is ignored."""
        ledger = self.ledger((taken, 6_500))
        ledger.raise_to(Limit.per_second("tps", 300), 6_000)
        ledger.raise_to(Limit.per_second("tps", 300), 6_200)

        assert is_exceeded == (self.share(ledger) > 1)

    def test_demo_ledger_judges_earlier_takes_by_the_limit_of_their_time(self):
        """A limit raised later does not justify an earlier take."""
        ledger = self.ledger((201, 5_000))
        ledger.raise_to(Limit.per_second("tps", 300), 6_000)

        assert self.share(ledger) > 1


class TestReports:
    REPORTS = (
        InForce(480_000),
        Took(5_000, 300),
        Adjusted(5_100, 300, 450),
        GaveBack(5_200, 800),
        CallRejected(5_300, "demo-project-1", "12 of 300 tpm", 0.144),
    )

    @pytest.mark.parametrize("report", REPORTS)
    def test_demo_report_is_one_line_and_is_read_back(self, report):
        """The processes and the demo exchange lines."""
        line = to_line(report)

        assert "\n" not in line
        assert report == from_line(line)

    def test_demo_reports_count_for_the_key_and_for_its_project(self):
        """Every report but the limit in force changes the counts of both."""
        book = Book([DemoTally(member, RESOURCE_LIMITS, 5_000) for member in MEMBERS], 5_000)
        for report in self.REPORTS:
            book.record("demo-key-1a", report)

        expected = Counts(admitted=1, rejected=1, rejected_above=1, failed=1, estimated=300, used=450)
        assert [expected, expected] == [book[entity_id].counts for entity_id in ("demo-project-1", "demo-key-1a")]
        assert Counts() == book["demo-key-1b"].counts
        assert 480_000 == book["demo-key-1a"].refill_in_force
        assert 5_444 == book["demo-key-1a"].retry_at_ms

    def test_demo_events_describe_what_happened_to_a_call(self):
        """An admitted call is described when it is complete."""
        assert [
            None,
            None,
            "estimated 300, used 450: adjusted by +150",
            "call failed, 800 tokens given back",
            "rejected by demo-project-1: 12 of 300 tpm, retry in 0.144 s",
        ] == [event_text("demo-key-1a", report) for report in self.REPORTS]
