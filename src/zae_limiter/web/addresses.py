"""Find the address of the client behind proxies."""

from ipaddress import IPv6Address, ip_address, ip_network


def client_address(
    peer: str | None, forwarded_for: str | None = None, *, trusted_hops: int = 0, ipv6_prefix: int = 64
) -> str:
    """Return the address of the client, as an entity id; ``unknown`` if there is none.

    Proxies append to ``X-Forwarded-For``, and clients can send anything in it. So it is read from the right, and only
    as far as your own proxies wrote it. An IPv6 client owns a whole network, so the network is returned.

    Args:
        peer: The address of the connection; None if unknown.
        forwarded_for: The value of ``X-Forwarded-For``. Join several such headers with commas.
        trusted_hops: The number of your proxies in front of this server; 0 ignores the header.
        ipv6_prefix: The bits of an IPv6 address that identify a client.
    """
    found = peer
    if trusted_hops > 0 and forwarded_for:
        hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
        # With fewer hops than proxies, the first one is still what a proxy of yours wrote.
        found = hops[-min(trusted_hops, len(hops))] if hops else peer
    return _as_entity(found, ipv6_prefix)


def _as_entity(address: str | None, ipv6_prefix: int) -> str:
    text = _without_port(address or "")
    try:
        parsed = ip_address(text.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        # Written in full, because an entity id cannot begin with a colon.
        return ip_network((parsed, ipv6_prefix), strict=False).network_address.exploded
    return str(parsed)


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.rpartition(":")
    return host if colon and ":" not in host and port.isdigit() else text
