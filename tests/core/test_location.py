"""Store locations and their URLs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.errors import UnsupportedByBackendError, ValidationError
from zae_limiter.core.location import (
    DynamoLocation,
    Location,
    MemoryLocation,
    SqliteLocation,
    deployed_at,
    dynamo_url,
    parse_location,
    sqlite_url,
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://", MemoryLocation()),
        ("sqlite:///limits.db", SqliteLocation("limits.db")),
        ("sqlite:///a/b.db", SqliteLocation("a/b.db")),
        ("sqlite:////var/lib/limits.db", SqliteLocation("/var/lib/limits.db")),
        ("sqlite:///with%20space.db", SqliteLocation("with space.db")),
        ("dynamodb://my-app", DynamoLocation("my-app")),
        ("dynamodb://my-app/", DynamoLocation("my-app")),
        ("dynamodb://my-app?region=us-east-1", DynamoLocation("my-app", "us-east-1")),
        (
            "dynamodb://my-app?region=eu-west-1&endpoint_url=http://localhost:8000&create=true",
            DynamoLocation("my-app", "eu-west-1", "http://localhost:8000", True),
        ),
        ("dynamodb://my-app?create=false", DynamoLocation("my-app")),
    ],
)
def test_url_is_parsed_to_a_location(url: str, expected: Location) -> None:
    """There are three forms."""
    assert expected == parse_location(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:",
        "memory://x",
        "memory://?a=1",
        "sqlite://",
        "sqlite://[",
        "sqlite:///a%00b",
        "sqlite:///",
        "sqlite://limits.db",
        "sqlite://host/limits.db",
        "sqlite:///limits.db?mode=ro",
        "sqlite:///limits.db#1",
        "dynamodb://",
        "dynamodb:my-app",
        "dynamodb://my-app/table",
        "dynamodb://my-app#1",
        "dynamodb://my-app?zone=1",
        "dynamodb://my-app?create=yes",
        "dynamodb://my-app?create",
        "redis://localhost",
        "/var/lib/limits.db",
    ],
)
def test_invalid_url_raises_with_field_and_value(url: str) -> None:
    """Other forms are refused."""
    with pytest.raises(ValidationError) as refused:
        parse_location(url)

    assert "url" == refused.value.field
    assert url == refused.value.value


@given(path=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1))
def test_sqlite_url_round_trips_for_every_path(path: str) -> None:
    """The URL names the same file."""
    assert SqliteLocation(path) == parse_location(sqlite_url(path))


@given(url=some.not_text)
def test_url_that_is_no_string_raises(url: object) -> None:
    """Only strings are URLs."""
    with pytest.raises(ValidationError):
        parse_location(url)


@given(
    name=some.stack_names,
    region=st.none() | st.just("eu-west-1"),
    endpoint_url=st.none() | st.just("http://localhost:8000"),
)
def test_dynamodb_url_round_trips(name: str, region: str | None, endpoint_url: str | None) -> None:
    """The URL contains everything that is needed to find the table again."""
    location = DynamoLocation(name, region, endpoint_url)

    assert location == parse_location(dynamo_url(location))


def test_deployed_at_returns_the_location_of_a_dynamodb_url() -> None:
    """The location has name and region."""
    expected = DynamoLocation("my-app", "eu-west-1")

    assert expected == deployed_at("dynamodb://my-app?region=eu-west-1", "stack_name")


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_deployed_at_of_an_embedded_store_raises(backend: str) -> None:
    """The error names the attribute and the backend."""
    url = {"memory": "memory://", "sqlite": "sqlite:///limits.db"}[backend]

    with pytest.raises(UnsupportedByBackendError, match=f"stack_name is not supported by the {backend} backend"):
        deployed_at(url, "stack_name")


SURROGATES = ["\ud800", "\udc80", "a\udfffb"]


@pytest.mark.parametrize("odd", SURROGATES, ids=ascii)
@pytest.mark.parametrize(
    "url",
    [
        "{}",
        "{}://",
        "memory://{}",
        "sqlite:///{}.db",
        "sqlite:////var/{}/limits.db",
        "dynamodb://{}",
        "dynamodb://my-app?region={}",
        "dynamodb://my-app?endpoint_url=http://{}",
        "dynamodb://my-app?{}=true",
        "dynamodb://my-app?create={}",
    ],
)
def test_a_url_with_a_lone_surrogate_is_refused(url: str, odd: str) -> None:
    """It cannot be encoded, so it can name no file, host or header."""
    with pytest.raises(ValidationError, match="not valid Unicode") as refused:
        parse_location(url.format(odd))

    assert "url" == refused.value.field
    assert str(refused.value).encode()


@pytest.mark.parametrize("url", ["sqlite:///%ff.db", "sqlite:///%ed%a0%80", "dynamodb://my-app?region=%ff"])
def test_url_with_escapes_that_are_not_utf_8_raises(url: str) -> None:
    """Otherwise another file, with a replacement character in its name, would be opened silently."""
    with pytest.raises(ValidationError, match="not valid UTF-8"):
        parse_location(url)


@pytest.mark.parametrize("odd", [*SURROGATES, 5, b"us-east-1", "x" * 10_000], ids=lambda odd: ascii(odd)[:20])
def test_location_constructed_from_invalid_arguments_raises(odd: object) -> None:
    """Regions and endpoints are also passed as arguments, and the default file comes from the environment."""
    with pytest.raises(ValidationError):
        DynamoLocation("my-app", odd)  # type: ignore[arg-type]  # what a caller may pass
    with pytest.raises(ValidationError):
        DynamoLocation("my-app", None, odd)  # type: ignore[arg-type]  # what a caller may pass
    with pytest.raises(ValidationError):
        SqliteLocation(odd)  # type: ignore[arg-type]  # what a caller may pass


def test_sqlite_path_with_a_nul_character_raises() -> None:
    """No file system allows it."""
    with pytest.raises(ValidationError, match="a file name cannot have"):
        SqliteLocation("a\0b")


@given(
    st.sampled_from(
        ["", "memory:", "sqlite:", "dynamodb:", "sqlite:///", "dynamodb://a?", "dynamodb://my-app?region="]
    ),
    st.text(st.characters(exclude_categories=()), max_size=30),
)
def test_any_string_is_parsed_or_raises_validation_error(begin: str, rest: str) -> None:
    """No other error is raised, and a parsed location round-trips."""
    try:
        location = parse_location(begin + rest)
    except ValidationError:
        return

    if isinstance(location, SqliteLocation):
        assert location == parse_location(sqlite_url(location.path))
