"""A page of usage is self-contained, and safe whatever names contain."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from tests.visualization.snapshots import snapshot
from zae_limiter import HtmlFormatter

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

    for part in ("Usage of user-1", "2 days ago", "Made 2026-01-16 10:00 UTC", "10.2M", "4,800,000", "5,400,000"):
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
