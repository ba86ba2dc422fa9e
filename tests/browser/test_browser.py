"""The browser notices what the tests of pages rely on."""

from pathlib import Path

import pytest

from tests.browser.browser import DESKTOP, PHONE

VIEWPORT = '<meta name="viewport" content="width=device-width">'
HEAD = f'<!doctype html><meta charset="utf-8">{VIEWPORT}<link rel="icon" href="data:,">'
PNG_SIGNATURE = b"\x89PNG"


@pytest.fixture
def page(tmp_path):
    """Write a page with the given body."""

    def write(body: str) -> Path:
        path = tmp_path / "page.html"
        path.write_text(f"{HEAD}<title>A page</title><body>{body}")
        return path

    return write


@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_page_is_shown_at_the_width_of_the_screen(browser, page, screen):
    """Phone and desktop are 390 and 1280 points wide."""
    browser.open(page("<p>Hello."), screen)

    assert screen.width == browser.run("return document.documentElement.clientWidth")
    assert [] == browser.overflow()


def test_overflow_names_elements_wider_than_the_screen(browser, page):
    """For a page that scrolls sideways."""
    browser.open(page('<div id="wide" style="width: 600px">wide</div>'), PHONE)

    assert "div#wide" in browser.overflow()


def test_wide_table_in_a_scrolling_box_is_no_overflow(browser, page):
    """Only the page itself must not scroll sideways."""
    browser.open(page('<div style="overflow-x: auto"><div style="width: 600px">wide</div></div>'), PHONE)

    assert [] == browser.overflow()


def test_console_errors_are_collected_per_page(browser, page):
    """An error of a script is kept until the next page is opened."""
    browser.open(page("<script>throw new Error('broken script')</script>"))
    thrown = browser.console_errors()
    browser.open(page("<p>Hello."))

    assert any("broken script" in error for error in thrown)
    assert [] == browser.console_errors()


def test_request_to_the_outside_is_recorded_and_fails(browser, page):
    """A page that requests anything of another machine gets nothing."""
    path = page('<img src="http://pictures.example/a.png">')

    browser.open(path)

    assert ["http://pictures.example/a.png"] == browser.outside_requests()
    assert path.as_uri() in browser.requested()
    assert any("ERR_NAME_NOT_RESOLVED" in error for error in browser.console_errors())


def test_folder_served_on_this_machine_makes_no_outside_request(browser, page, serve):
    """Pages of a local server are not outside."""
    address = serve(page("<h1>Served</h1>").parent)

    browser.open(f"{address}page.html", PHONE)

    assert "Served" == browser.run("return document.querySelector('h1').textContent")
    assert [] == browser.outside_requests()
    assert [] == browser.console_errors()


def test_page_sees_the_dark_preference_of_the_test(browser, page):
    """A page may ask whether its reader prefers dark, and gets the test's choice."""
    asked = "return matchMedia('(prefers-color-scheme: dark)').matches"
    browser.open(page("<p>Hello."), dark=True)
    dark = browser.run(asked)
    browser.open(page("<p>Hello."))

    assert [True, False] == [dark, browser.run(asked)]


def test_screenshot_shows_the_whole_page(browser, page, tmp_path):
    """It is as high as the page, not as the screen."""
    browser.open(page('<div style="height: 2000px"></div>'), PHONE)

    picture = browser.screenshot(tmp_path / "pictures" / "page.png").read_bytes()

    assert picture.startswith(PNG_SIGNATURE)
    assert 390 == int.from_bytes(picture[16:20], "big")
    assert int.from_bytes(picture[20:24], "big") >= 2000
