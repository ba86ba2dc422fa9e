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
    choose_url,
    deployed_at,
    deployed_name,
    dynamo_url,
    parse_location,
    selecting_options,
    shown_name,
    sqlite_url,
    stack_of,
    without_credentials,
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


@pytest.mark.parametrize("name", ["my-app", "dynamodb://my-app?region=eu-west-1"])
def test_deployed_name_of_a_stack_or_of_its_url_is_that_of_the_stack(name: str) -> None:
    """A limiter on DynamoDB has the name of its stack."""
    assert "my-app" == deployed_name(name, "stack_name")


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_deployed_name_of_an_embedded_store_raises(backend: str) -> None:
    """The error names the attribute and the backend."""
    url = {"memory": "memory://", "sqlite": "sqlite:///limits.db"}[backend]

    with pytest.raises(UnsupportedByBackendError, match=f"stack_name is not supported by the {backend} backend"):
        deployed_name(url, "stack_name")


@pytest.mark.parametrize(
    ("url", "name", "stack"),
    [
        ("memory://", "memory://", None),
        ("sqlite:///a%40b.db", "sqlite:///a%40b.db", None),
        ("dynamodb://my-app?region=eu-west-1", "my-app", "my-app"),
    ],
)
def test_shown_name_is_that_of_the_stack_or_the_url(url: str, name: str, stack: str | None) -> None:
    """On DynamoDB a limiter is known by its name."""
    assert (name, stack) == (shown_name(url), stack_of(url))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://", "memory://"),
        ("sqlite:///user@home/limits.db", "sqlite:///user@home/limits.db"),
        ("sqlite:////tmp/a%40b.db", "sqlite:////tmp/a%40b.db"),
        ("dynamodb://key:secret@my-app", "dynamodb://***@my-app"),
        (
            "dynamodb://my-app?region=r&endpoint_url=http://host:1",
            "dynamodb://my-app?region=r&endpoint_url=http://host:1",
        ),
        (
            dynamo_url(DynamoLocation("my-app", None, "http://key:s@cret@host:1/x")),
            "dynamodb://my-app?endpoint_url=http://***%40host:1/x",
        ),
        ("dynamodb://my-app?endpoint_url=http://key@host", "dynamodb://my-app?endpoint_url=http://***@host"),
    ],
)
def test_url_is_shown_without_credentials(url: str, expected: str) -> None:
    """A password in a URL is not printed; the path of a file is not a password."""
    assert expected == without_credentials(url)


@pytest.mark.parametrize(
    ("passed", "environment", "url", "reason"),
    [
        ("memory://", {"ZAE_LIMITER_URL": "sqlite:///a.db", "ZAEL_STACK": "my-app"}, "memory://", "passed"),
        (
            None,
            {"ZAE_LIMITER_URL": "sqlite:///a.db", "ZAEL_STACK": "my-app"},
            "sqlite:///a.db",
            "ZAE_LIMITER_URL is set",
        ),
        (None, {"ZAE_LIMITER_URL": "", "ZAEL_STACK": "", "ZAEL_NAMESPACE": ""}, None, "ZAE_LIMITER_URL is not set"),
        (None, {}, None, "ZAE_LIMITER_URL is not set"),
    ],
)
def test_url_is_chosen_from_the_argument_then_the_environment_then_the_default(
    passed: str | None, environment: dict[str, str], url: str | None, reason: str
) -> None:
    """The reason says which of them it was; an empty variable counts as unset."""
    chosen = choose_url(passed, environment)

    assert url == chosen.url
    assert reason in chosen.reason


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"ZAEL_STACK": "my-app", "ZAEL_NAMESPACE": "team", "AWS_REGION": "eu-west-1"},
            "ZAEL_STACK and .* are set, .* open\\('dynamodb://my-app\\?region=eu-west-1', namespace='team'\\)",
        ),
        (
            {"ZAEL_STACK": "my-app", "AWS_DEFAULT_REGION": "us-east-1"},
            "ZAEL_STACK is set, .* Write open\\('dynamodb://my-app\\?region=us-east-1'\\), or set ZAE_LIMITER_URL",
        ),
        (
            {"ZAEL_NAMESPACE": "team", "AWS_REGION": ""},
            "ZAEL_NAMESPACE is set, .* Write open\\('dynamodb://NAME\\?region=REGION', namespace='team'\\)",
        ),
    ],
)
def test_stack_in_the_environment_of_another_program_raises_with_its_url(
    environment: dict[str, str], message: str
) -> None:
    """Without the error, a file would be opened, and limits would not be shared."""
    with pytest.raises(ValidationError, match=message) as raised:
        choose_url(None, environment)

    assert "url" == raised.value.field


def test_deployed_at_of_a_stack_is_its_location() -> None:
    """With the region and the endpoint of its URL."""
    url = "dynamodb://my-app?region=eu-west-1"

    assert parse_location(url) == deployed_at(url, "create_stack")


def test_deployed_at_of_an_embedded_store_has_the_hint_of_the_operation() -> None:
    """It says what to do instead."""
    with pytest.raises(UnsupportedByBackendError, match="delete its file"):
        deployed_at("sqlite:///limits.db", "delete_stack", "delete its file")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("dynamodb://my-app", " --name my-app"),
        ("dynamodb://my-app?region=eu-west-1", " --name my-app --region eu-west-1"),
        ("dynamodb://my-app?endpoint_url=http://h:1/?a", " --name my-app --endpoint-url 'http://h:1/?a'"),
        ("sqlite:////tmp/a.db", " --url sqlite:////tmp/a.db"),
    ],
)
def test_selecting_options_select_the_limiter_of_a_url(url: str, expected: str) -> None:
    """A suggested command can be copied into a shell."""
    assert expected == selecting_options(url)


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
