"""A page of usage is self-contained, and safe whatever names contain."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from tests.visualization.snapshots import snapshot
from zae_limiter import HtmlFormatter, Limit

SCRIPT = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and all its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_page_shows_names_as_text_everywhere():
    """A name that looks like a tag or ends an attribute is shown, and is no tag."""
    odd = '"><img src=x onerror=alert(1)>'
    shown = [
        snapshot("2026-01-15T08:00Z", {odd: 1}, entity_id=SCRIPT),
        snapshot("2026-01-15T09:00Z", {odd: 2}, entity_id="b", resource=odd),
    ]

    page = Tags(HtmlFormatter(SCRIPT, {SCRIPT: odd}, made_at=SCRIPT, summed=True).format(shown))

    assert 1 == [tag for tag, _ in page.tags].count("script")
    assert "img" not in [tag for tag, _ in page.tags]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count(SCRIPT) >= 5


def test_page_runs_only_its_own_script():
    """The policy names the script by its hash, and allows no request."""
    page = HtmlFormatter().format([snapshot("2026-01-15", {"rpm": 1}, kind="daily")])
    script = re.search("<script>(.*?)</script>", page, re.DOTALL)
    policy = next(tag["content"] for _, tag in Tags(page).tags if tag.get("http-equiv") == "Content-Security-Policy")

    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" == policy


def test_page_refers_to_nothing_outside():
    """It opens from a mail as from a disk."""
    page = HtmlFormatter("Usage", {"entity": "user-1"}, "today").format(
        [snapshot("2026-01-15", {"rpm": 1}, kind="daily")]
    )
    links = [value for _, tag in Tags(page).tags for name, value in tag.items() if name in ("href", "src", "action")]

    assert ["data:,"] == links
    assert "url(" not in page
    assert "@import" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_page_shows_filters_time_totals_and_every_number():
    """It contains what was asked for, and all amounts."""
    hours = [snapshot(f"2026-01-15T{hour:02}:00Z", {"tpm": 600_000 * hour}) for hour in (8, 9)]

    text = Tags(HtmlFormatter("Usage of user-1", {"from": "2 days ago"}, "2026-01-16 10:00 UTC").format(hours)).text

    for part in ("Usage of user-1", "2 days ago", "Created on 2026-01-16 10:00 UTC", "10.2M", "4,800,000", "5,400,000"):
        assert part in text


def test_page_of_a_summary_shows_sums_above_the_first_chart():
    """With their subject; a page of a list has no sums."""
    hours = [snapshot(f"2026-01-15T{hour:02}:00Z", {"tpm": 600_000 * hour}) for hour in (8, 9)]
    page, without = HtmlFormatter(summed=True).format(hours), HtmlFormatter().format(hours)
    top = Tags(page.partition("<figure")[0]).text

    assert "Of 2 hourly snapshots, 2026-01-15 08:00 to 2026-01-15 09:00 UTC." in top
    assert "10,200,000" in top
    assert "5,100,000.0" in top
    assert "10,200,000" not in Tags(without.partition("<figure")[0]).text
    assert "Totals" not in without


def test_page_of_an_empty_summary_shows_no_sums():
    """It only says that there is no usage."""
    assert HtmlFormatter().format([]) == HtmlFormatter(summed=True).format([])


def test_page_of_too_many_hours_draws_days_and_says_so():
    """Two months of hours would be bars of a pixel."""
    shown = [snapshot("2026-01-01T00:00Z", {"rpm": 1}), snapshot("2026-02-28T00:00Z", {"rpm": 2})]

    page = Tags(HtmlFormatter().format(shown))

    assert "summed from hourly windows" in page.text
    assert 59 == len([tag for _, tag in page.tags if tag.get("class") == "col"])


def test_page_of_too_many_rows_shows_the_last_and_says_so():
    """It says where all rows are."""
    shown = [
        snapshot("2026-01-15" if number else "2026-01-01", {"rpm": 1}, kind="daily", entity_id=f"user-{number}")
        for number in range(5_001)
    ]

    page = Tags(HtmlFormatter().format(shown))

    assert "the last 5,000 of 5,001 rows (CSV output has all)" in page.text
    assert 5_001 == [tag for tag, _ in page.tags].count("tr")


def test_page_without_usage_says_so():
    """An empty chart would look like a fault."""
    assert "There is no usage." in Tags(HtmlFormatter().format([])).text


LIMITS = {("user-1", "gpt-4"): [Limit.per_minute("rpm", 10), Limit.per_day("images", 500)]}


def test_page_draws_a_line_at_what_the_limit_allows_in_a_window():
    """Ten requests per minute are 600 per hour; the page also has the percentage of the busiest hour."""
    hours = [snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 40 * hour}) for hour in range(12)]

    page = Tags(HtmlFormatter(limits=LIMITS).format(hours))

    assert 1 == len([tag for tag, named in page.tags if tag == "path" and named.get("class") == "limit"])
    for part in ("limit 600", "per hour, from 10 per minute", "73 % of the limit", "73 % in the busiest hour"):
        assert part in page.text


def test_page_does_not_draw_a_limit_that_would_flatten_the_bars():
    """The limit is written, and the page says why there is no line."""
    hours = [snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 1 + hour}) for hour in range(12)]

    page = Tags(HtmlFormatter(limits=LIMITS).format(hours))

    assert "path" not in [tag for tag, _ in page.tags]
    assert "The limit is not drawn, because it is far above these bars." in page.text
    assert "600" in page.text


def test_page_of_a_limit_with_a_longer_period_uses_the_whole_period():
    """An hour may use all the images of a day."""
    page = Tags(HtmlFormatter(limits=LIMITS).format([snapshot("2026-01-15T08:00Z", {"images": 100})]))

    assert "500 per day" in page.text
    assert "20 % of the limit" in page.text


def test_page_without_limits_says_that_they_are_unknown():
    """Snapshots do not contain limits."""
    text = Tags(HtmlFormatter().format([snapshot("2026-01-15T08:00Z", {"rpm": 1})])).text

    assert "unknown usage does not record it" in text
    assert "of the limit" not in text


def test_page_of_several_entities_has_the_highest_percentage_of_each():
    """A sum of entities has no limit of its own."""
    hours = [
        snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 300}, entity_id=name) for hour in range(6) for name in ("a", "b")
    ]

    text = Tags(HtmlFormatter(limits={("a", "gpt-4"): LIMITS["user-1", "gpt-4"]}).format(hours)).text

    assert "a 1,800, 50 % of all, at most 50 % of its limit" in text
    assert "b 1,800, 50 % of all, limit unknown" in text


def test_page_of_several_entities_names_a_small_percentage_as_under_one():
    """A part that never reaches 1 % of its limit has one bound, not two."""
    hours = [
        snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 1}, entity_id=name) for hour in range(6) for name in ("a", "b")
    ]

    text = Tags(HtmlFormatter(limits={("a", "gpt-4"): LIMITS["user-1", "gpt-4"]}).format(hours)).text

    assert "a 6, 50 % of all, under 1 % of its limit" in text


@pytest.mark.parametrize("windows", [1, 2, 4])
def test_page_of_few_windows_has_a_labelled_row_for_each(windows):
    """A bar as wide as the page would look like an area."""
    shown = [snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 150 * (hour + 1)}) for hour in range(windows)]

    page = Tags(HtmlFormatter(limits=LIMITS).format(shown))

    assert "svg" not in [tag for tag, _ in page.tags]
    assert windows == len([tag for _, tag in page.tags if tag.get("class") == "track"])
    assert f"{150 * windows} requests {25 * windows} % of the limit" in page.text


def test_page_has_words_instead_of_short_names():
    """A reader need not know what rpm means; the name is beside the words."""
    text = Tags(HtmlFormatter().format([snapshot("2026-01-01", {"rpm": 1, "itpm": 2}, kind="monthly")])).text

    for part in ("Requests per month", "Input tokens per month", "limit rpm", "requests rpm"):
        assert part in text
