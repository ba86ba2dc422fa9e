"""Signatures equal those of botocore byte for byte, for any request, time and number of threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from unittest.mock import patch

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Credentials, Endpoint, Signer

FIRST_S, LAST_S = 946_684_800, 4_102_444_799
DAY_S = 86_400
KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HERE = Endpoint("https", "dynamodb.us-east-1.amazonaws.com", 443, "/", "us-east-1")
CALL = DynamoDbCall("DynamoDB_20120810.GetItem", b"{}")

visible = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
credentials = st.builds(Credentials, visible, visible, st.none() | visible, st.none())
hosts = st.sampled_from(["dynamodb.eu-west-3.amazonaws.com", "localhost", "127.0.0.1", "::1", "a-b.example"])
paths = st.lists(st.sampled_from(["", "a", "b c", "..", ".", "%20", "~x", "ü", "a+b=c"]), max_size=4).map(
    lambda parts: "/" + "/".join(part.replace(" ", "%20").replace("ü", "%C3%BC") for part in parts)
)
endpoints = st.builds(
    Endpoint,
    st.sampled_from(["http", "https"]),
    hosts,
    st.sampled_from([80, 443, 8000]),
    paths,
    st.sampled_from(["us-east-1", "eu-west-3", "cn-north-1"]),
    st.sampled_from(["dynamodb", "other"]),
)
targets = st.from_regex(r"DynamoDB_20120810\.[A-Za-z]{1,20}", fullmatch=True)
calls = st.builds(DynamoDbCall, targets, st.binary(max_size=200))
seconds = st.integers(FIRST_S, LAST_S)


def signed_by_botocore(
    keys: Credentials, endpoint: Endpoint, call: DynamoDbCall, now_s: int
) -> botocore.awsrequest.AWSRequest:
    """Return the same request as botocore signs it at that time."""
    headers = {"Content-Type": "application/x-amz-json-1.0", "User-Agent": "zae-limiter", "X-Amz-Target": call.target}
    url = f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}"
    request = botocore.awsrequest.AWSRequest("POST", url, headers, call.body)
    theirs = botocore.credentials.Credentials(keys.access_key, keys.secret_key, keys.token)
    now = datetime.fromtimestamp(now_s, UTC)
    with patch.object(botocore.auth, "get_current_datetime", lambda *_, **__: now):
        botocore.auth.SigV4Auth(theirs, endpoint.service, endpoint.region).add_auth(request)
    return request


def headers_of(request: bytes) -> dict[str, str]:
    head = request.partition(b"\r\n\r\n")[0].decode("ascii")
    lines = [line.partition(": ") for line in head.split("\r\n")[1:]]
    assert len(lines) == len({name.lower() for name, _, _ in lines})
    return {name.lower(): value for name, _, value in lines}


@given(credentials, endpoints, calls, seconds)
@example(KEYS, Endpoint("http", "localhost", 8000, "/a/../b//c%20d/", "us-east-1"), CALL, FIRST_S)
def test_a_signature_equals_that_of_botocore(keys: Credentials, endpoint: Endpoint, call: DynamoDbCall, now_s: int):
    """Every header that botocore signs is sent with the same value."""
    theirs = signed_by_botocore(keys, endpoint, call, now_s)
    request = Signer(keys, endpoint, "zae-limiter").request(call, now_s)
    ours = headers_of(request)

    assert theirs.headers["Authorization"] == ours["authorization"]
    assert {name.lower(): value for name, value in theirs.headers.items()} == {
        name: value for name, value in ours.items() if name not in ("host", "content-length")
    }
    assert botocore.auth._host_from_url(theirs.url) == ours["host"]
    assert call.body == request.partition(b"\r\n\r\n")[2]
    assert str(len(call.body)) == ours["content-length"]
    assert f"POST {endpoint.path} HTTP/1.1".encode() == request.partition(b"\r\n")[0]


@given(st.lists(st.builds(lambda day, second: FIRST_S + day * DAY_S + second, st.integers(0, 3), st.integers(0, 2))))
def test_a_signer_may_be_used_at_earlier_and_later_times(times: list[int]):
    """Values cached for a second or a day are used only in it."""
    signer = Signer(KEYS, HERE, "zae-limiter")
    signed = [signer.request(CALL, now_s) for now_s in times]

    assert [Signer(KEYS, HERE, "zae-limiter").request(CALL, now_s) for now_s in times] == signed


def test_threads_may_sign_in_different_seconds_at_the_same_time():
    """No request is signed with one second and sent with another."""
    times = [FIRST_S + DAY_S - 2 + second for second in range(4)]
    expected = {now_s: Signer(KEYS, HERE, "zae-limiter").request(CALL, now_s) for now_s in times}
    signer, begin = Signer(KEYS, HERE, "zae-limiter"), threading.Barrier(8)

    def wrong(first: int) -> int:
        begin.wait()
        chosen = [times[(first + number) % len(times)] for number in range(1_500)]
        return sum(signer.request(CALL, now_s) != expected[now_s] for now_s in chosen)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(wrong, range(8)))

    assert [0] * 8 == found


@pytest.mark.parametrize("bad", ["a\nb", "a\r\nX-Other: 1", "a b", "a\x00", "ключ", "token\n"])
@pytest.mark.parametrize("place", ["access key", "token", "host", "path"])
def test_invalid_header_characters_are_refused_and_not_shown(bad: str, place: str):
    """A line end in a token neither adds a header nor appears in the text of the error."""
    keys = Credentials(bad if place == "access key" else "A", "secret", bad if place == "token" else None)
    endpoint = Endpoint("https", bad if place == "host" else "h", 443, bad if place == "path" else "/", "us-east-1")
    with pytest.raises(ValueError, match="characters not allowed") as caught:
        Signer(keys, endpoint, "zae-limiter")

    assert bad not in str(caught.value)


def test_an_empty_session_token_is_not_sent():
    """botocore does not send it either."""
    empty = Signer(Credentials("A", "s", ""), HERE, "u").request(CALL, FIRST_S)

    assert Signer(Credentials("A", "s"), HERE, "u").request(CALL, FIRST_S) == empty


def test_secret_keys_are_not_shown_by_repr():
    """This applies to the keys, the signer and its cached values."""
    keys = Credentials("AKIDSECRET", "the-secret", "the-token", "123456789012")
    signer = Signer(keys, HERE, "u")
    signer.request(CALL, FIRST_S)
    things = (keys, signer, signer._second, signer._day)
    shown = "".join(repr(thing) + str(thing) for thing in things)
    secrets = ("AKIDSECRET", "the-secret", "the-token", "Signature", repr(signer._day.key)[2:-1])

    assert [] == [secret for secret in secrets if secret in shown]
