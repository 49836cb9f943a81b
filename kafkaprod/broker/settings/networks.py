"""Networks as hosts of ACLs: `10.0.0.0/8`, as Apache Kafka 4.4 takes them."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

NETWORK_MARK: Final = "/"
"""Is in the text of a network, and in no address."""


@lru_cache(4096)
def network_of(text: str) -> IPv4Network | IPv6Network | None:
    """Return the network that a text names, whatever the bits of its address below the mask; None if it names none."""
    try:
        return ip_network(text, strict=False) if NETWORK_MARK in text else None
    except ValueError:
        return None


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return a client's address, one of IPv4 also where it came over IPv6; None if the host is no address."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
