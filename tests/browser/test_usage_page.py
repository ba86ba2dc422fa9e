"""The pages of ``zae-limiter usage --html`` in a real browser: what is drawn is what was used."""

from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.browser import DESKTOP, PHONE, Browser
from tests.visualization.days import write_days
from tests.visualization.snapshots import snapshot
from zae_limiter import HtmlFormatter, Limit, usd
from zae_limiter.cli import main

SIZES = {"acme-web": 140, "acme-batch": 60, "globex": 35, "initech": 12}
HOURS = 24 * 3
SCREENS = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])

# For every chart: the height of each bar in amounts of its axis, and the amount in its label.
BARS = """
    return [...document.querySelectorAll("figure svg")].map((svg) => {
        const plot = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("[data-amount]")].map((bar) => ({
            window: bar.parentNode.dataset.window,
            amount: Number(bar.dataset.amount),
            drawn: bar.getBoundingClientRect().height / plot.height * Number(svg.dataset.high),
            share: bar.getBoundingClientRect().height / plot.height,
            wide: bar.getBoundingClientRect().width,
        }));
    });
"""
READOUT = "return document.querySelector('figure .readout').textContent"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, dict[str, dict[int, int]]]:
    """Write a page of three days and four entities by the command; return it and the requests of each, by hour."""
    folder = tmp_path_factory.mktemp("page")
    used = write_days(folder / "days.db", SIZES, HOURS)
    page = folder / "usage.html"
    words = ["usage", "list", "--resource", "gpt-4", "--html", str(page), "--url", f"sqlite:///{folder}/days.db"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert 0 == done.exit_code, done.stderr
    return page, used


@pytest.fixture(scope="module")
def summed(written) -> Path:
    """Return the page of the summary of the same days."""
    page = written[0].with_name("summary.html")
    url = f"sqlite:///{page.with_name('days.db')}"
    done = CliRunner().invoke(main, ["usage", "summary", "-r", "gpt-4", "--html", str(page), "--url", url])
    assert 0 == done.exit_code, done.stderr
    return page


@SCREENS
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_usage_page_fits_loads_nothing_and_shows_every_chart(browser: Browser, written, screen, dark):
    """Nothing overflows, no request is made, and no script fails."""
    page, _ = written
    browser.open(page, screen, dark=dark)
    charts = browser.run("return [...document.querySelectorAll('figure svg')].map((svg) => svg.clientWidth)")

    assert [] == browser.overflow()
    assert [] == browser.console_errors()
    assert [page.as_uri()] == [address for address in browser.requested() if not address.startswith("data:")]
    assert 2 == len(charts)
    assert min(charts) > screen.width / 2


@SCREENS
def test_sums_of_a_summary_are_the_totals_of_its_bars(browser: Browser, written, summed, screen):
    """They are above the first chart, and nothing overflows."""
    browser.open(summed, screen)
    cells = browser.run("return [...document.querySelectorAll('.card:first-of-type td')].map((td) => td.innerText)")
    above = browser.run(
        "return [...document.querySelectorAll('table, figure')].map((one) => one.getBoundingClientRect().top)"
    )
    total = sum(amount for hours in written[1].values() for amount in hours.values())

    assert ["requests rph", f"{total:,}", "tokens tph", f"{731 * total:,}"] == [cells[place] for place in (0, 1, 3, 4)]
    assert [total, 731 * total] == [sum(bar["amount"] for bar in bars) for bars in browser.run(BARS)]
    assert sorted(above) == above
    assert [] == browser.overflow()
    assert [] == browser.console_errors()


@SCREENS
def test_bars_are_as_high_as_what_was_used(browser: Browser, written, screen):
    """Measured on the screen, every bar has its amount on the scale of its axis, and no amount is missing."""
    page, used = written
    browser.open(page, screen)
    requests, tokens = browser.run(BARS)

    expected = sorted(amount for hours in used.values() for amount in hours.values())
    assert expected == sorted(bar["amount"] for bar in requests)
    assert [731 * amount for amount in expected] == sorted(bar["amount"] for bar in tokens)
    assert all(abs(bar["drawn"] - bar["amount"]) <= 0.01 * bar["amount"] + 0.5 for bar in requests)
    assert all(bar["wide"] > 1 for bar in requests)
    assert max(bar["share"] for bar in requests) > 0.3


def test_bars_of_an_hour_are_stacked(browser: Browser, written):
    """The height of a column is what all used together."""
    page, used = written
    browser.open(page)
    tops = browser.run(
        """
        const svg = document.querySelector("figure svg"), plot = svg.getBoundingClientRect();
        return [...svg.querySelectorAll(".col")].map((column) => {
            const bars = [...column.querySelectorAll("[data-amount]")].map((bar) => bar.getBoundingClientRect());
            const top = Math.min(plot.bottom, ...bars.map((bar) => bar.top));
            return (plot.bottom - top) / plot.height * svg.dataset.high;
        });
        """
    )
    together = [sum(hours.get(hour, 0) for hours in used.values()) for hour in range(6, HOURS - 2)]

    assert together == [round(top) for top in tops]


def test_axis_labels_are_beside_their_lines(browser: Browser, written):
    """A label of an amount is as high as its line."""
    browser.open(written[0], PHONE)
    apart = browser.run(
        """
        const middle = (element) => {
            const box = element.getBoundingClientRect();
            return (box.top + box.bottom) / 2;
        };
        const lines = [...document.querySelectorAll("figure svg line")].slice(0, 4).map(middle);
        const labels = [...document.querySelectorAll("figure .amounts span")].slice(0, 4);
        return labels.map((label, place) => [label.textContent, Math.abs(middle(label) - lines[place])]);
        """
    )

    assert ["0", "100", "200", "300"] == [label for label, _ in apart]
    assert all(distance < 2 for _, distance in apart)


@SCREENS
def test_time_labels_do_not_overlap(browser: Browser, written, screen):
    """Labels that do not fit a phone are left out."""
    browser.open(written[0], screen)
    boxes = browser.run(
        """
        const labels = [...document.querySelector("figure .times").children].map((one) => one.getBoundingClientRect());
        return labels.filter((box) => box.width).map((box) => [box.left, box.right]);
        """
    )

    assert len(boxes) >= 2
    assert all(left[1] + 4 < right[0] for left, right in pairwise(boxes))
    assert boxes[0][0] >= 0
    assert boxes[-1][1] <= screen.width


def test_values_are_read_with_the_arrow_keys(browser: Browser, written):
    """A chart is reached with the tab key; the arrows go from window to window, and Escape leaves."""
    page, used = written
    browser.open(page)
    resting = browser.run(READOUT)
    chart = browser.driver.find_element("css selector", "figure")
    chart.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    second = browser.run(READOUT)
    chart.send_keys(Keys.END)
    last = browser.run(READOUT)
    chart.send_keys(Keys.ESCAPE)

    total = sum(hours[7] for hours in used.values())
    assert second.startswith(f"2026-01-12 07:00: {total} requests (acme-web {used['acme-web'][7]}, ")
    assert last.startswith("2026-01-14 21:00: ")
    assert resting == browser.run(READOUT)


def test_values_are_read_by_pointing(browser: Browser, written):
    """The window below the pointer is shown, and a title says the same without the script."""
    browser.open(written[0])
    column = browser.driver.find_elements("css selector", "figure .col")[10]
    ActionChains(browser.driver, duration=0).move_to_element(column).perform()
    title = browser.run("return arguments[0].querySelector('title').textContent", column)

    assert title.startswith("2026-01-12 16:00: ")
    assert title == browser.run(READOUT)
    assert "col on" == column.get_attribute("class")


def test_name_that_contains_a_script_is_only_shown(browser: Browser, tmp_path):
    """Nothing in a snapshot is executed."""
    attack = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
    page = tmp_path / "usage.html"
    page.write_text(HtmlFormatter(attack).format([snapshot("2026-01-15T08:00Z", {"rpm": 1}, entity_id=attack)]))

    browser.open(page, PHONE)

    assert attack == browser.run("return document.querySelector('h1').textContent")
    assert "owned" != browser.run("return document.title")
    assert [] == browser.overflow()
    assert [] == browser.outside_requests()


def test_negative_usage_is_drawn_below_the_axis(browser: Browser, tmp_path):
    """A credit in a later hour is drawn downwards."""
    page = tmp_path / "usage.html"
    hours = {8: 2_000, 9: -1_000}
    page.write_text(
        HtmlFormatter().format([snapshot(f"2026-01-15T{hour:02}:00Z", {"tpm": used}) for hour, used in hours.items()])
    )

    browser.open(page)
    above, below = browser.run(
        "return [...document.querySelectorAll('[data-amount]')].map((bar) => bar.getBoundingClientRect().toJSON())"
    )

    assert abs(above["bottom"] - below["top"]) < 1
    assert abs(above["height"] - 2 * below["height"]) < 1


LIMITS = {("user-1", "gpt-4"): [Limit.per_minute("rpm", 10)]}


@SCREENS
def test_line_of_the_limit_is_as_high_as_the_limit(browser: Browser, tmp_path, screen):
    """Measured on the screen: 600 per hour on the scale of the axis, with its label at the line."""
    page = tmp_path / "usage.html"
    hours = [snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 50 * hour}) for hour in range(10)]
    page.write_text(HtmlFormatter(limits=LIMITS).format(hours))

    browser.open(page, screen)
    drawn, apart = browser.run(
        """
        const svg = document.querySelector("figure svg"), plot = svg.getBoundingClientRect();
        const line = svg.querySelector("path.limit").getBoundingClientRect();
        const label = document.querySelector("span.limit").getBoundingClientRect();
        return [(plot.bottom - line.top) / plot.height * Number(svg.dataset.high), Math.abs(label.bottom - line.top)];
        """
    )

    assert abs(600 - drawn) < 10
    assert apart < 3
    assert [] == browser.overflow()


@SCREENS
def test_use_beyond_a_soft_limit_begins_at_its_line(browser: Browser, tmp_path, screen):
    """It ends where the bar ends, and has a colour of its own."""
    months = [snapshot(f"2026-{n:02}-01", {"spend": usd(str(20 * n))}, kind="monthly") for n in range(1, 9)]
    limits = {("user-1", "gpt-4"): [Limit.quota("spend", usd("125"), unit="USD", enforce=False)]}
    page = tmp_path / "soft.html"
    page.write_text(HtmlFormatter(limits=limits).format(months), encoding="utf-8")
    browser.open(page, screen)

    above, below, colours = browser.run(
        """
        const line = document.querySelector("path.soft").getBoundingClientRect();
        const [, bar, beyond] = [...document.querySelectorAll(".col")].at(-1).querySelectorAll("rect");
        const [all, over] = [bar, beyond].map((one) => one.getBoundingClientRect());
        const fills = [bar, beyond].map((one) => getComputedStyle(one).fill);
        return [Math.abs(over.top - all.top), Math.abs(over.bottom - line.top), new Set(fills).size];
        """
    )

    assert (above < 1, below < 3, colours) == (True, True, 2)
    assert [] == browser.overflow()


@SCREENS
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("windows", [1, 2])
def test_page_of_few_windows_fits_and_has_bars_to_scale(browser: Browser, tmp_path, screen, dark, windows):
    """The whole track is the limit, and every bar is its share."""
    page = tmp_path / "usage.html"
    shown = [snapshot(f"2026-01-15T{hour:02}:00Z", {"rpm": 150 * (hour + 1)}) for hour in range(windows)]
    page.write_text(HtmlFormatter(limits=LIMITS).format(shown))

    browser.open(page, screen, dark=dark)
    shares = browser.run(
        """
        return [...document.querySelectorAll(".track")].map((track) =>
            track.querySelector("i").getBoundingClientRect().width / track.getBoundingClientRect().width);
        """
    )

    assert [0.25, 0.5][:windows] == [round(share, 2) for share in shares]
    assert [] == browser.overflow()
    assert [] == browser.console_errors()
