"""Addresses of clients: only what own proxies wrote counts, and the result is always a valid entity id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.names import check_entity_id
from zae_limiter.web import client_address

HOPS = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map("[{}]:443".format),
    st.ip_addresses(v=4).map("{}:443".format),
    st.text(max_size=20),
)


@given(st.none() | HOPS, st.none() | st.lists(HOPS, max_size=5).map(",".join), st.integers(0, 4))
def test_address_of_any_headers_is_a_valid_entity_id(peer: str | None, forwarded: str | None, hops: int):
    """Garbage is ``unknown``, never an error."""
    check_entity_id(client_address(peer, forwarded, trusted_hops=hops))


@given(st.text(), st.ip_addresses(v=4).map(str))
def test_text_of_a_client_never_changes_the_address_that_a_proxy_added(forged: str, real: str):
    """A client can send the header; the proxy appends to it, and only what it appended is read."""
    assert real == client_address("10.0.0.1", f"{forged},{real}", trusted_hops=1)


@pytest.mark.parametrize(
    ("hops", "found"),
    [(0, "10.0.0.1"), (1, "3.3.3.3"), (2, "2.2.2.2"), (3, "1.1.1.1"), (9, "1.1.1.1")],
)
def test_header_is_read_from_the_right(hops: int, found: str):
    """As many entries count as there are own proxies; without proxies the header is ignored."""
    assert found == client_address("10.0.0.1", "1.1.1.1, 2.2.2.2,3.3.3.3", trusted_hops=hops)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[("1.2.3.4:5678", "1.2.3.4"), (" 1.2.3.4 ", "1.2.3.4"), ("::ffff:1.2.3.4", "1.2.3.4")],
        *[("[2001:db8::1]:443", "2001:0db8:0000:0000:0000:0000:0000:0000"), ("::1", "0000:" * 7 + "0000")],
        *[("fe80::1%eth0", "fe80:" + "0000:" * 6 + "0000"), ("[2001:db8::1", "2001:0db8:" + "0000:" * 5 + "0000")],
        *[("unknown", "unknown"), ("_hidden", "unknown"), ("1.2.3", "unknown"), ("#\0", "unknown")],
    ],
)
def test_forms_of_an_address_are_one_entity(text: str, found: str):
    """Ports, brackets and zones are removed, and an IPv6 address stands for its network."""
    assert found == client_address("9.9.9.9", text, trusted_hops=1)


def test_clients_of_one_ipv6_network_share_an_entity():
    """A client owns a whole network, and would else have a bucket for each of its addresses."""
    assert client_address("2001:db8:1:2::1") == client_address("2001:db8:1:2:ffff::9")
    assert client_address("2001:db8:1:2::1") != client_address("2001:db8:1:3::1")


def test_prefix_of_ipv6_can_be_chosen():
    """Some providers give each client a shorter prefix."""
    assert client_address("2001:db8:1:2::1", ipv6_prefix=48) == client_address("2001:db8:1:3::1", ipv6_prefix=48)


@pytest.mark.parametrize("forwarded", [None, "", " ", ",", " , "])
def test_missing_header_leaves_the_address_of_the_connection(forwarded: str | None):
    """The request did not come through a proxy."""
    assert "10.0.0.1" == client_address("10.0.0.1", forwarded, trusted_hops=2)


def test_connection_without_an_address_is_unknown():
    """A Unix socket has none."""
    assert "unknown" == client_address(None)
