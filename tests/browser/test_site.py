"""The documentation site as its readers see it, on a phone and on a desktop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.browser import DESKTOP, PHONE
from tests.docs.site import built
from tools.site_hooks import MERMAID

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCREENS = {"phone": PHONE, "desktop": DESKTOP}
WITH_DIAGRAM = "architecture/"
PAGES = ["", "getting-started/", "guide/basic-usage/", "api/limiter/", "cli/", WITH_DIAGRAM]

DIAGRAMS = {
    f"{source.relative_to(DOCS).with_suffix('').as_posix()}/": count
    for source in sorted(DOCS.rglob("*.md"))
    if (count := source.read_text().count("```mermaid\n"))
}
TABLES_ARE_IN_BOXES = "!document.querySelector('article :not(.md-typeset__table) > table:not([class])')"
WIDE_TABLES = """
    return [...document.querySelectorAll("article .md-typeset__scrollwrap")]
        .filter((box) => box.scrollWidth > box.clientWidth)
        .map((box) => box.innerText.split("\\n")[0]);
"""
DRAWN = [
    *((page, count, "desktop") for page, count in DIAGRAMS.items()),
    (WITH_DIAGRAM, DIAGRAMS[WITH_DIAGRAM], "phone"),
]


@pytest.fixture
def site(serve):
    """Return the address of the built site."""
    return serve(built())


def drawings(browser) -> list[str]:
    """Return the kinds of pictures in the diagrams of a page, which are in closed shadow roots."""
    document = browser.driver.execute_cdp_cmd("DOM.getDocument", {"depth": -1, "pierce": True})["root"]
    hosts = [node for node in nodes(document) if "mermaid" in classes(node)]
    return [child["localName"] for host in hosts for root in host.get("shadowRoots", []) for child in root["children"]]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("children", []):
        yield from nodes(child)


def classes(node: dict[str, Any]) -> list[str]:
    named = node.get("attributes", [])
    return str(dict(zip(named[::2], named[1::2], strict=True)).get("class", "")).split()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.strip("/") or "index")
def test_site_page_fits_the_screen_and_requests_nothing_outside(browser, site, page, screen):
    """It does not scroll sideways, and no script fails."""
    browser.open(f"{site}{page}", SCREENS[screen])
    browser.wait_until("document.querySelector('h1') && document.readyState === 'complete'")

    assert [] == browser.overflow()
    assert [] == browser.console_errors()
    assert [] == browser.outside_requests()


def test_site_tables_on_a_desktop_show_all_columns(browser, site):
    """On a phone, a wide table scrolls in its own box. On a desktop that hides a column for no reason."""
    cut_off = {}
    for source in [*DOCS.glob("*.md"), *DOCS.glob("guide/*.md"), *DOCS.glob("operations/*.md")]:
        page = source.relative_to(DOCS).with_suffix("").as_posix().removesuffix("index")
        browser.open(f"{site}{page}", DESKTOP)
        browser.wait_until(TABLES_ARE_IN_BOXES)
        if wide := browser.run(WIDE_TABLES):
            cut_off[page] = wide

    assert {} == cut_off


@pytest.mark.skipif(not MERMAID.exists(), reason="no Mermaid; tools/diagrams.sh fetches it where npm is")
@pytest.mark.parametrize(("page", "count", "screen"), DRAWN)
def test_every_diagram_is_drawn_without_a_network(browser, site, page, count, screen):
    """By the site's own copy of Mermaid; a diagram with a mistake would remain text."""
    browser.open(f"{site}{page}", SCREENS[screen])
    browser.wait_until("document.querySelector('div.mermaid') && !document.querySelector('pre.mermaid')")
    drawn = drawings(browser)

    assert ["svg"] * count == drawn
    assert [] == browser.overflow()
    assert [] == browser.console_errors()
    assert [] == browser.outside_requests()


@pytest.mark.parametrize(("dark", "scheme"), [(False, "default"), (True, "slate")])
def test_site_is_dark_for_readers_who_prefer_it(browser, site, dark, scheme):
    """Without a click."""
    browser.open(site, dark=dark)
    browser.wait_until("document.body.dataset.mdColorScheme")

    assert scheme == browser.run("return document.body.dataset.mdColorScheme")


def test_site_follows_the_system_when_it_changes_between_visits(browser, site):
    """A first visit by day does not make the site light by night."""
    schemes = []
    for dark in (False, True):
        browser.open(site, dark=dark)
        browser.wait_until("document.body.dataset.mdColorScheme")
        schemes.append(browser.run("return document.body.dataset.mdColorScheme"))

    assert ["default", "slate"] == schemes


def test_search_of_the_site_finds_a_word(browser, site):
    """The search is the site's own, and needs no server."""
    browser.open(f"{site}?q=retry_after_header")
    browser.wait_until("document.querySelector('.md-search-result__link')")
    found = browser.run("return [...document.querySelectorAll('.md-search-result__link')].map((one) => one.pathname)")

    assert any("api/errors" in path for path in found)
    assert [] == browser.outside_requests()
