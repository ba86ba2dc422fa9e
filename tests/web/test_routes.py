"""Names of resources: every template has a valid name, and two templates of a router have different ones."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.core.names import MAX_RESOURCE_LENGTH, check_resource
from zae_limiter.web.routes import resource_of

SEGMENTS = st.text(st.characters(codec="utf-8", exclude_characters="{}<>()/\\^$?*"), min_size=1, max_size=40)
PARAMETERS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@given(st.text())
@example("\ud800")
@example("")
@example("/" * 300)
@example("_default_")
def test_name_of_any_text_is_a_valid_resource(template: str):
    """Whatever a router calls a template, a bucket can be named after it."""
    check_resource(resource_of(template))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        *[
            ("/", "root"),
            ("", "root"),
            ("/chat", "chat"),
            ("/chat/", "chat"),
            ("/v1/chat/completions", "v1/chat/completions"),
        ],
        *[("/items/{item_id}", "items/:item_id"), ("/items/{item_id:int}", "items/:item_id")],
        *[("/files/{path:path}", "files/:path"), ("/<int:year>/<slug:title>/", "@:year/:title")],
        *[("^articles/(?P<year>[0-9]{4})/$", "articles/:year"), ("(?P<pk>(a|b)+)/x", "@:pk/x"), ("/1/2", "@1/2")],
    ],
)
def test_name_of_a_usual_template_can_be_read(template: str, name: str):
    """Parameters become ``:name``, whichever way a router writes them."""
    assert name == resource_of(template)


@given(st.lists(SEGMENTS | PARAMETERS.map("{{{}}}".format), min_size=1, max_size=6, unique=True), st.data())
def test_names_of_different_templates_differ(segments: list[str], data: st.DataObject):
    """Two routes never share a bucket by accident, even if characters are replaced or the name is cut."""
    one, other = "/".join(segments), "/".join([*segments, data.draw(st.sampled_from(segments))])

    assert resource_of(f"/{one}") != resource_of(f"/{other}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a b", "/a_b"),
        ("/{x}", "/:x"),
        ("/root", "/"),
        ("/@1", "/1"),
        ("/a$", "/a"),
        ("/^a", "/a"),
        ("/" + "a" * 200, "/" + "a" * 201),
        ("/a b", "/a\tb"),
    ],
)
def test_similar_templates_have_different_names(one: str, other: str):
    """What is replaced, added or cut is not lost: the name then ends with a hash."""
    assert resource_of(one) != resource_of(other)


def test_long_name_is_cut_to_the_longest_resource():
    """It ends with a hash of the whole template."""
    assert MAX_RESOURCE_LENGTH == len(resource_of("/" + "a" * 500))
