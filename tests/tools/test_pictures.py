"""The pictures of the documentation are up to date, have both modes, and are described where they are shown."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.docs.pages import PAGES, named
from tools import pictures

IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)\s]+)\)")


def test_pictures_are_up_to_date():
    """`python tools/pictures.py` writes them."""
    assert [] == pictures.outdated()


def test_changed_and_missing_pictures_are_outdated(tmp_path):
    """The check can fail."""
    (tmp_path / "debt.svg").write_text("<svg/>")

    assert list(pictures.PICTURES) == pictures.outdated(tmp_path)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_is_well_formed_and_has_a_dark_mode(name):
    """It has a title, loads nothing, and every text is inside."""
    drawn = (pictures.FOLDER / name).read_text(encoding="utf-8")
    root = ElementTree.fromstring(drawn)
    height = float(root.attrib["height"])
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))

    assert "prefers-color-scheme: dark" in drawn
    assert "url(" not in drawn
    assert root.findtext("{http://www.w3.org/2000/svg}title")
    assert texts
    assert all(0 < float(one.attrib["x"]) < pictures.WIDTH and 0 < float(one.attrib["y"]) < height for one in texts)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_is_on_a_page(name):
    """Every picture helps somewhere."""
    assert [page for page in PAGES if f"images/{name})" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_picture_on_a_page_has_alternative_text(page):
    """A reader who does not see it reads what it shows."""
    images = IMAGE.finditer(page.read_text(encoding="utf-8"))

    assert [] == [image["path"] for image in images if len(image["alt"].split()) < 5]
