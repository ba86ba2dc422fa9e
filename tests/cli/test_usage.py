"""``zae-limiter usage`` on two days of usage in a real file."""

import csv
import io
import json
import re
import sys
from dataclasses import asdict

import pytest

from tests.visualization.days import HOUR_MS, START_MS, write_days
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.installation import extra_command

HOURS = 48
"""Monday 2026-01-12 and the Tuesday after it."""


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """A file with two days of usage of two entities, and the requests of each by hour."""
    path = tmp_path_factory.mktemp("usage") / "days.db"
    return path, write_days(path, {"acme": 50, "globex": 20}, HOURS)


@pytest.fixture
def usage(run, days, monkeypatch):
    """Run a usage command on that file with the clock at the end of the two days.

    Months later, a sweep would remove usage that is kept for 90 days.
    """
    path, _ = days
    monkeypatch.setattr("zae_limiter.clock.SystemClock.now_ms", lambda _: START_MS + HOURS * HOUR_MS)
    return lambda *words: run("usage", *words, "--url", f"sqlite:///{path}")


def snapshots(result) -> list[dict]:
    assert 0 == result.exit_code, result.stderr
    return json.loads(result.stdout)["snapshots"]


class TestList:
    def test_usage_list_shows_every_hour_as_recorded(self, usage, days):
        """The hourly values are the requests that went through the limiter."""
        found = snapshots(usage("list", "--entity", "globex", "--json"))

        assert list(days[1]["globex"].values()) == [one["counters"]["rph"] for one in found]

    def test_usage_list_is_an_aligned_table(self, usage, days):
        """In a pipe, columns are aligned with spaces."""
        monday = sum(requests for hour, requests in days[1]["globex"].items() if hour < 24)
        lines = usage("list", "-e", "globex", "-r", "gpt-4", "-w", "daily").stdout.splitlines()

        assert ["WINDOW", "(UTC)", "ENTITY", "RESOURCE", "rph", "tph", "writes"] == lines[0].split()
        assert ["2026-01-12", "globex", "gpt-4", str(monday), f"{monday * 731:,}", "16"] == lines[1].split()
        assert 3 == len(lines)

    @pytest.mark.parametrize(
        ("times", "expected"),
        [
            (("--start", "2026-01-13T06:59Z", "--end", "2026-01-13T08:00Z"), ["06", "07", "08"]),
            (("--start", "2026-01-13 20:00"), ["20", "21"]),
            (("--end", "2026-01-12T07:30Z"), ["06", "07"]),
        ],
    )
    def test_usage_list_includes_the_windows_that_contain_both_ends(self, usage, times, expected):
        """An end in the middle of an hour includes that hour."""
        found = snapshots(usage("list", "-e", "globex", *times, "--json"))

        assert expected == [one["window_start"][11:13] for one in found]

    def test_usage_list_to_a_date_includes_the_whole_day(self, usage):
        """From a day to the same day is the whole day."""
        words = ("list", "-e", "globex", "--start", "2026-01-12", "--end", "2026-01-12", "--json")

        assert {"2026-01-12"} == {one["window_start"][:10] for one in snapshots(usage(*words))}
        assert 16 == len(snapshots(usage(*words)))

    def test_usage_list_shows_all_window_types_on_request(self, usage):
        """Hours are the default."""
        kinds = {one["window_type"] for one in snapshots(usage("list", "-e", "acme", "-w", "all", "--json"))}

        assert {"hourly", "daily", "monthly"} == kinds
        assert {"hourly"} == {one["window_type"] for one in snapshots(usage("list", "-e", "acme", "--json"))}

    def test_usage_list_pages_together_contain_every_window(self, usage):
        """The cursor of a page starts the next, and the last page has none."""
        found, token = [], None
        while token or not found:
            page = json.loads(
                usage("list", "-r", "gpt-4", "--limit", "25", "--json", *(("--cursor", token) if token else ())).stdout
            )
            found += page["snapshots"]
            token = page["next_cursor"]

        assert snapshots(usage("list", "-r", "gpt-4", "--all", "--json")) == found
        assert 64 == len(found)

    def test_usage_list_of_a_partial_result_prints_a_note(self, usage):
        """The note on stderr says how to continue."""
        part, whole = usage("list", "-r", "gpt-4", "--limit", "3"), usage("list", "-r", "gpt-4", "--all")

        assert 4 == len(part.stdout.splitlines())
        assert "There are more; pass --all, or continue with --cursor " in part.stderr
        assert (65, "") == (len(whole.stdout.splitlines()), whole.stderr)

    def test_usage_list_csv_has_a_header_and_plain_numbers(self, usage, days):
        """There is one row per window."""
        rows = list(csv.DictReader(io.StringIO(usage("list", "-e", "globex", "--csv").stdout)))

        assert [str(requests) for requests in days[1]["globex"].values()] == [row["used_rph"] for row in rows]

    def test_usage_list_charts_show_all_windows_and_fit_the_terminal(self, usage):
        """A chart of the first page only would mislead."""
        lines = usage("list", "-r", "gpt-4", "--plot").stdout.splitlines()

        assert ["requests per hour (rph): 2 entities · gpt-4", "2026-01-12 06:00 to 2026-01-13 21:00 UTC"] == lines[:2]
        assert max(map(len, lines)) <= 80

    def test_usage_list_charts_without_the_extra_say_what_to_install(self, usage, monkeypatch):
        """The error is one line."""
        monkeypatch.setitem(sys.modules, "asciichartpy", None)
        done = usage("list", "-e", "acme", "--plot")

        expected = f"Error: asciichartpy is not installed; install it: {extra_command('plot', 'asciichartpy')}\n"
        assert (1, "", expected) == (done.exit_code, done.stdout, done.stderr)


class TestNamespace:
    """Without an entity and a resource, the commands show the whole namespace."""

    def test_usage_list_of_a_namespace_shows_the_newest_window_first(self, usage, days):
        """Each hour has a row for each entity."""
        found = snapshots(usage("list", "--limit", "4", "--json"))

        assert [("2026-01-13T21:00:00Z", "globex"), ("2026-01-13T21:00:00Z", "acme")] == [
            (one["window_start"], one["entity_id"]) for one in found[:2]
        ]
        assert ["2026-01-13T20:00:00Z"] * 2 == [one["window_start"] for one in found[2:]]

    @pytest.mark.parametrize("window", ["hourly", "daily", "all"])
    def test_usage_pages_of_a_namespace_together_contain_every_window(self, usage, window):
        """The last page has no cursor."""
        words = ("list", "-w", window, "--limit", "7", "--json")
        page = json.loads(usage(*words).stdout)
        found = page["snapshots"]
        while page["next_cursor"]:
            page = json.loads(usage(*words, "--cursor", page["next_cursor"]).stdout)
            found += page["snapshots"]

        assert snapshots(usage("list", "-w", window, "--all", "--json")) == found

    def test_usage_list_prints_a_short_cursor(self, usage):
        """It is the window, the entity and the resource of the last row."""
        done = usage("list", "--limit", "1")
        rest = usage("list", "--limit", "1", "--cursor", done.stderr.split()[-1])

        assert done.stderr.endswith(" --cursor 2026-01-13T21:00:00Z,globex,gpt-4\n")
        assert ["2026-01-13", "21:00", "acme"] == rest.stdout.splitlines()[1].split()[:3]

    def test_usage_summary_of_a_namespace_adds_up_all_entities(self, usage, days):
        """The days add up to the same total as the hours."""
        used = sum(amount for hours in days[1].values() for amount in hours.values())
        totals = [json.loads(usage("summary", "-w", kind, "--json").stdout)["total"] for kind in ("hourly", "daily")]

        assert [{"rph": used, "tph": 731 * used}] * 2 == totals

    def test_usage_page_of_a_namespace_names_it(self, usage, tmp_path):
        """Its charts have all entities."""
        page = tmp_path / "usage.html"
        done = usage("list", "--html", str(page))

        assert done.stdout.endswith("): 64 snapshots.\n")
        assert "<title>Usage of namespace default</title>" in page.read_text()

    @pytest.mark.parametrize("option", ["--entity", "--entity-id", "-e"])
    def test_usage_options_for_an_entity_mean_the_same(self, usage, option):
        """The specification and this package name the option differently."""
        assert {"acme"} == {one["entity_id"] for one in snapshots(usage("list", option, "acme", "--json"))}


class TestTop:
    def test_usage_top_ranks_entities_by_their_amount(self, usage, days):
        """Each limit has a table with the amount, the share of the total, and a bar."""
        used = {name: sum(hours.values()) for name, hours in days[1].items()}
        total = sum(used.values())
        done = usage("top")
        lines = [line.split() for line in done.stdout.splitlines()]

        assert [["ENTITY", "RPH", "SHARE"], ["ENTITY", "TPH", "SHARE"]] == [lines[0], lines[3]]
        assert [["acme", f"{used['acme']:,}"], ["globex", f"{used['globex']:,}"]] == [line[:2] for line in lines[1:3]]
        assert [f"{100 * used[name] / total:.0f}" for name in ("acme", "globex")] == [line[2] for line in lines[1:3]]
        assert [round(20 * used[name] / total) for name in ("acme", "globex")] == [
            line[-1].count("█") for line in lines[1:3]
        ]
        assert f"Total in hourly windows: {total:,} rph.\n" in done.stderr

    def test_usage_top_in_a_range_of_windows_ranks_only_these(self, usage, days):
        """The filters are those of the other usage commands."""
        monday = {name: sum(n for hour, n in hours.items() if hour < 24) for name, hours in days[1].items()}
        words = ("top", "--limit-name", "rph", "-w", "daily", "--start", "2026-01-12", "--end", "2026-01-12", "--json")
        facts = json.loads(usage(*words).stdout)

        assert ("daily", "entity", ["rph"]) == (
            facts["window_type"],
            facts["by"],
            [one["limit_name"] for one in facts["limits"]],
        )
        assert monday == {one["name"]: one["amount"] for one in facts["limits"][0]["top"]}

    def test_usage_top_by_resource_ranks_resources_of_an_entity(self, usage, days, monkeypatch):
        """The number of pages makes no difference."""
        monkeypatch.setattr("zae_limiter.cli._usage_top.LARGEST_PAGE", 7)
        facts = json.loads(usage("top", "--by", "resource", "-e", "acme", "--limit-name", "rph", "--json").stdout)

        expected = [{"name": "gpt-4", "amount": sum(days[1]["acme"].values()), "share": 1.0}]
        assert expected == facts["limits"][0]["top"]

    @pytest.mark.parametrize("option", ["--top", "--limit"])
    def test_usage_top_shows_as_many_names_as_asked_for(self, usage, days, option):
        """The share is still that of the total."""
        (line,) = usage("top", option, "1", "--limit-name", "rph").stdout.splitlines()[1:]

        assert "acme" == line.split()[0]
        assert "100" != line.split()[2]

    def test_usage_top_without_usage_prints_why(self, usage):
        """It is empty, not an error."""
        done = usage("top", "--limit-name", "rps")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "There is no usage in hourly windows." in done.stderr


class TestPage:
    def test_usage_list_html_replaces_its_own_earlier_page(self, usage, tmp_path):
        """A daily report replaces that of the day before."""
        page = tmp_path / "usage.html"
        first = usage("list", "-r", "gpt-4", "--html", str(page))
        again = usage("list", "-e", "acme", "-w", "daily", "--html", str(page))

        assert (0, 0) == (first.exit_code, again.exit_code)
        assert f"Wrote {page} (" in first.stdout
        assert first.stdout.endswith("): 64 snapshots.\n")
        assert "<title>Usage of acme</title>" in page.read_text()
        assert [page] == list(tmp_path.glob("*.html*"))

    @pytest.mark.parametrize("command", ["list", "summary"])
    def test_usage_list_html_requires_yes_to_replace_another_file(self, usage, tmp_path, command):
        """A mistyped path destroys no file."""
        other = tmp_path / "notes.html"
        other.write_text("<p>My notes")
        refused = usage(command, "-e", "acme", "--html", str(other))

        assert (2, "<p>My notes") == (refused.exit_code, other.read_text())
        assert "exists and is not a usage page; pass --yes to replace it" in refused.stderr
        assert 0 == usage(command, "-e", "acme", "--html", str(other), "--yes").exit_code
        assert "My notes" not in other.read_text()

    def test_usage_list_html_to_an_unwritable_file_prints_one_line(self, usage, tmp_path):
        """A missing folder is reported as an error of the option."""
        done = usage("list", "-e", "acme", "--html", str(tmp_path / "nowhere" / "usage.html"))

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "cannot write" in done.stderr


class TestSummary:
    def test_usage_summary_prints_totals_and_means(self, usage, days):
        """Totals cover all windows; means cover those with usage."""
        used = [amount for hours in days[1].values() for amount in hours.values()]
        facts = json.loads(usage("summary", "-r", "gpt-4", "--json").stdout)

        assert ("hourly", len(used)) == (facts["window_type"], facts["snapshot_count"])
        assert {"rph": sum(used), "tph": 731 * sum(used)} == facts["total"]
        assert sum(used) / len(used) == facts["average"]["rph"]

    def test_usage_summary_is_a_table_with_a_note(self, usage, days):
        """The note says what was summed."""
        used = sum(days[1]["globex"].values())
        done = usage("summary", "-e", "globex", "-w", "daily")

        assert ["LIMIT", "TOTAL", "MEAN"] == done.stdout.splitlines()[0].split()
        assert ["rph", f"{used:,}", f"{used / 2:,.1f}"] == done.stdout.splitlines()[1].split()
        assert "Of 2 daily snapshots, 2026-01-12 to 2026-01-13 UTC.\n" == done.stderr

    def test_usage_summary_equals_the_summary_of_the_api(self, usage, days, monkeypatch):
        """The number of pages that the command reads makes no difference."""
        monkeypatch.setattr("zae_limiter.cli.usage.LARGEST_PAGE", 7)
        monkeypatch.setattr("zae_limiter.cli.usage.PAGE", 20)
        with SyncRepository.open(f"sqlite:///{days[0]}") as repository:
            expected = SyncRateLimiter(repository).get_usage_summary(resource="gpt-4", window_type="hourly")

        facts = json.loads(usage("summary", "-r", "gpt-4", "--json").stdout)

        assert {"window_type": "hourly", **asdict(expected)} == facts

    def test_usage_summary_has_the_same_totals_in_every_format(self, usage, tmp_path):
        """JSON, CSV, charts and the page agree."""
        words = ("summary", "-r", "gpt-4", "--start", "2026-01-13")
        page = tmp_path / "usage.html"
        totals = json.loads(usage(*words, "--json").stdout)["total"]
        rows = list(csv.DictReader(io.StringIO(usage(*words, "--csv").stdout)))
        charts = usage(*words, "--plot").stdout
        usage(*words, "--html", str(page))
        top, _, below = page.read_text().partition("<figure")
        on_top = re.findall(r'<td><span>\w+ <small>(\w+)</small></span></td><td class="number">([0-9,]+)</td>', top)

        assert totals == {row["limit"]: int(row["total"]) for row in rows}
        assert totals == {name: int(total.replace(",", "")) for name, total in on_top}
        assert list(totals.values()) == [
            int(total.replace(",", "")) for total in re.findall("^total ([0-9,]+)", charts, re.M)
        ]
        assert totals["rph"] == sum(map(int, re.findall(r'data-amount="(\d+)"', below.partition("<figure")[0])))

    def test_usage_summary_csv_has_one_row_per_limit(self, usage, days):
        """Each row says what was summed."""
        used = sum(days[1]["globex"].values())
        rows = list(csv.DictReader(io.StringIO(usage("summary", "-e", "globex", "-w", "daily", "--csv").stdout)))

        assert [("rph", str(used)), ("tph", str(731 * used))] == [(row["limit"], row["total"]) for row in rows]
        assert used / 2 == float(rows[0]["average"])
        assert ("daily", "2") == (rows[0]["window_type"], rows[0]["snapshot_count"])
        assert ("2026-01-12T00:00:00Z", "2026-01-13T00:00:00Z") == tuple(rows[0].values())[-2:]

    def test_usage_summary_charts_come_before_the_table(self, usage):
        """First the scope, then a chart per limit, then the table."""
        charts, below = usage("list", "-r", "gpt-4", "--plot").stdout, usage("summary", "-r", "gpt-4")
        done = usage("summary", "-r", "gpt-4", "--plot")

        assert f"{charts}\n{below.stdout}" == done.stdout
        assert below.stderr == done.stderr

    def test_usage_summary_html_has_the_totals_on_top(self, usage, days, tmp_path):
        """The charts and numbers of the list follow."""
        page = tmp_path / "usage.html"
        done = usage("summary", "-e", "globex", "--html", str(page))
        top, _, below = page.read_text().partition("<figure")

        assert done.stdout.endswith("): 32 snapshots.\n")
        assert "<title>Usage of globex</title>" in top
        assert "Of 32 hourly snapshots, 2026-01-12 06:00 to 2026-01-13 21:00 UTC." in top
        assert "<h2>Numbers</h2>" in below

    @pytest.mark.parametrize("command", ["list", "summary"])
    def test_usage_html_compares_with_the_limits_of_the_bucket(self, usage, tmp_path, command):
        """Callers passed the limits, so they are not stored, but the bucket has them."""
        page = tmp_path / "usage.html"
        usage(command, "-e", "globex", "--html", str(page))
        text = page.read_text()

        assert "per hour, from 1,000,000 per hour" not in text
        assert "1,000,000 per hour" in text
        assert "under 1 % <small>in the busiest hour</small>" in text
        assert "unknown" not in text

    def test_usage_html_of_an_expired_bucket_compares_with_the_stored_limits(self, run, tmp_path, monkeypatch):
        """Usage outlives the bucket."""
        url = f"sqlite:///{tmp_path}/store.db"
        page = tmp_path / "usage.html"
        run("system", "set-defaults", "-l", "rpm:100", "--url", url)
        run("acquire", "user-1", "gpt-4", "-c", "rpm:1", "--url", url)
        monkeypatch.setattr("zae_limiter._sync.limiter.limiter.SyncRateLimiter.get_buckets", lambda *_: [])
        run("usage", "list", "-e", "user-1", "--html", str(page), "--url", url)

        assert "6,000 <small>per hour, from 100 per minute</small>" in page.read_text()


class TestWithoutUsage:
    def test_usage_of_an_empty_period_prints_which_period_it_was(self, usage):
        """The note names the request in UTC, and what may help."""
        done = usage("list", "-e", "acme", "--start", "2026-02-01", "--json")

        assert {"snapshots": [], "next_cursor": None} == json.loads(done.stdout)
        assert "There is no usage by acme in hourly windows from 2026-02-01 00:00 UTC." in done.stderr
        assert "Extend the time range" in done.stderr

    def test_usage_of_an_empty_file_says_how_to_acquire(self, run):
        """An empty file is not an error."""
        listed, summed = run("usage", "list", "-e", "user-9"), run("usage", "summary", "-e", "user-9")

        for done in (listed, summed):
            assert (0, "") == (done.exit_code, done.stdout)
            assert "There is no usage by user-9 in hourly windows. Every acquire is counted" in done.stderr
            assert "zae-limiter acquire user-9 gpt-4 -c rpm:1 -l rpm:100" in done.stderr

    def test_usage_summary_without_usage_is_empty_in_every_format(self, run, tmp_path):
        """CSV has only its header, JSON has no totals, the page says so, and the note stays the same."""
        page = tmp_path / "usage.html"
        forms = {form: run("usage", "summary", "-e", "user-9", f"--{form}") for form in ("plot", "csv", "json")}
        written = run("usage", "summary", "-e", "user-9", "--html", str(page))

        assert "" == forms["plot"].stdout
        assert 1 == len(forms["csv"].stdout.splitlines())
        assert (0, {}, None) == tuple(
            json.loads(forms["json"].stdout)[key] for key in ("snapshot_count", "total", "min_window_start")
        )
        assert "There is no usage." in page.read_text()
        for done in (*forms.values(), written):
            assert "There is no usage by user-9 in hourly windows." in done.stderr

    def test_usage_includes_what_was_just_acquired(self, run):
        """Embedded stores count usage when it is read."""
        run("acquire", "user-1", "gpt-4", "-c", "rpm:7", "-l", "rpm:100")
        (hour,) = snapshots(run("usage", "list", "-e", "user-1", "--start", "2 hours ago", "--end", "now", "--json"))

        assert {"rpm": 7} == hour["counters"]


class TestInvalidArguments:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (("-e", "a", "--start", "soon"), "Invalid value for --start: 'soon': write a time as now, today"),
            (("-e", "a", "--end", "soon"), "Invalid value for --end: 'soon'"),
            (("-e", "a", "--start", "today", "--end", "yesterday"), "--start 'today' is after --end 'yesterday'"),
            (("-e", "a", "--csv", "--json"), "choose one of --csv, --json"),
            (("-e", "a", "--limit", "5", "--all"), "pass --limit or --all, not both"),
            (("-e", "a", "--limit", "0"), "--limit"),
            (("-e", "a", "--cursor", "xx"), "Invalid --cursor"),
            (("-e", "a", "--cursor", "2026-01-12T00:00:00Z,b,gpt-4"), "Invalid --cursor"),
            (("-e", "a", "--cursor", "2026-01-12,a,gpt-4"), "Invalid --cursor"),
            (("-e", "#"), "entity"),
        ],
    )
    def test_usage_with_invalid_arguments_prints_one_line_and_exits_with_2(self, run, words, expected):
        """Nothing goes to stdout; the line says what to do."""
        done = run("usage", "list", *words)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert expected in done.stderr
