"""The page of ``zae-limiter loadtest run --html`` in a real browser."""

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.browser import DESKTOP, PHONE, Browser, Screen
from tests.loadtest.test_report import measured_from
from zae_limiter.loadtest.report import report_of
from zae_limiter.loadtest.report_page import ReportPage

# For every chart: the height of each column in amounts of its axis.
HEIGHTS = """
    return [...document.querySelectorAll("figure svg")].map((svg) => {
        const plot = svg.getBoundingClientRect();
        return [...svg.querySelectorAll(".col")].map((column) => {
            const bars = [...column.querySelectorAll("[data-amount]")].map((bar) => bar.getBoundingClientRect());
            const top = Math.min(plot.bottom, ...bars.map((bar) => bar.top));
            return Math.round((plot.bottom - top) / plot.height * Number(svg.dataset.high));
        });
    });
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of a test that exceeded a limit, with shards, throttles and errors."""
    measured = measured_from(9_800)
    measured.calls.update({"UpdateItem": 12_000})
    measured.throttles["TableWriteKeyRangeThroughputExceeded"] = 7
    measured.errors["ACQUIRE RateLimiterUnavailable"] = 2
    measured.shards = {"user api": {1_000_010: 2, 1_000_020: 4}}
    written = tmp_path_factory.mktemp("page") / "load.html"
    written.write_text(ReportPage("dynamodb://limiter").format(report_of(measured)), encoding="utf-8")
    return written


@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_load_test_page_fits_loads_nothing_and_shows_every_chart(
    browser: Browser, page: Path, screen: Screen, dark: bool
) -> None:
    """Nothing overflows, no request is made, no script fails, and the bars have the heights of their amounts."""
    browser.open(page, screen, dark=dark)

    calls, latency, shards = browser.run(HEIGHTS)

    assert [] == browser.overflow()
    assert [] == browser.console_errors()
    assert [page.as_uri()] == [address for address in browser.requested() if not address.startswith("data:")]
    assert [400] * 30 == calls
    assert [5] * 30 == latency
    assert [1] * 10 + [2] * 10 + [4] * 10 == shards


@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_load_test_page_shows_the_verdict_without_scrolling(browser: Browser, page: Path, screen: Screen) -> None:
    """The limit that broke the promise is within the first screen."""
    browser.open(page, screen)

    box = browser.run("const b = document.querySelector('td.broken').getBoundingClientRect(); return [b.right, b.top]")

    assert 0 < box[0] <= screen.width
    assert box[1] < screen.height


def test_load_test_page_reads_columns_by_keyboard(browser: Browser, page: Path) -> None:
    """The arrow keys say the values of a second."""
    browser.open(page)
    figure = browser.driver.find_element("css selector", "figure")

    figure.send_keys(Keys.HOME)

    readout = browser.run("return document.querySelector('figure .readout').textContent")
    assert "0 s: 300 admitted, 100 rejected" == readout
