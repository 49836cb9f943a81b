"""The kind of `bootstrap_servers`: addresses as people write them, and what is wrong with those that are refused."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Final

from kafkaprod.config.kinds import Integer, MalformedError
from kafkaprod.text import address_text
from kafkaprod.threads import importing


@importing
def ip_addresses() -> ModuleType:
    """The module `ipaddress`, which few clients need."""
    import ipaddress

    return ipaddress


DEFAULT_PORT: Final = 9092
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_SCHEME = re.compile("([A-Za-z_]+)://(.*)")


class Servers(tuple[tuple[str, int], ...]):
    """(host, port) pairs.

    Attributes:
        schemes: The security protocols that stood before addresses, as in `SSL://host:9093`.
    """

    schemes: frozenset[str] = frozenset()


class Addresses:
    """`host:port` pairs: text with commas, or a sequence of such texts and (host, port) pairs.

    A missing port is 9092; IPv6 addresses with a port have brackets. Kept as `Servers`.
    """

    __slots__ = ()
    type_name = "list"
    allowed = (
        "host:port pairs with commas between, each once; [address]:port for IPv6; the port may be left out, and "
        "security_protocol:// may stand before"
    )

    def parse(self, value: object) -> Servers:
        if isinstance(value, Servers):
            return value
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(value)
        schemes: set[str] = set()
        addresses: list[tuple[str, int]] = []
        for item in items:
            addresses += _parse_text(item, schemes) if isinstance(item, str) else [_parse_pair(item)]
        if not addresses:
            raise MalformedError("there is no address")
        if len(set(addresses)) < len(addresses):
            raise MalformedError("an address is there twice")
        servers = Servers(addresses)
        servers.schemes = frozenset(schemes)
        return servers

    def show(self, value: tuple[tuple[str, int], ...]) -> str:
        return repr(",".join(address_text(host, port) for host, port in value))


def _parse_pair(item: object) -> tuple[str, int]:
    if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
        raise ValueError(item)
    return _check_host(item[0]), Integer(1, 65535).parse(item[1])


def _parse_text(text: str, schemes: set[str]) -> list[tuple[str, int]]:
    if ";" in text:
        raise MalformedError("commas stand between addresses, not semicolons")
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # the comma after the last one
    return [_parse_address(part, schemes) for part in parts]


def _parse_address(text: str, schemes: set[str]) -> tuple[str, int]:
    found = _SCHEME.fullmatch(text)
    if found is not None:
        scheme, text = found[1].upper(), found[2]
        if scheme not in PROTOCOLS:
            raise MalformedError(f"only a security protocol ({', '.join(PROTOCOLS)}) may stand before ://")
        schemes.add(scheme)
    if not text:
        raise MalformedError("an address is empty")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise MalformedError("IPv6 addresses are written [address] or [address]:port")
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") > 1:
        host, port = _check_unbracketed(text), str(DEFAULT_PORT)
    else:
        host, colon, port = text.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    return _check_host(host), Integer(1, 65535).parse(port)


def _check_unbracketed(text: str) -> str:
    """Return an IPv6 address without brackets, if it cannot be one with a port behind."""
    if not _is_ipv6(text):
        raise MalformedError("more than one colon, and no IPv6 address: write [address]:port, or host:port")
    before, _, last = text.rpartition(":")
    if last.isdecimal() and len(last) > 1 and _is_ipv6(before):
        raise MalformedError("the end could be a port: write [address]:port or [address]")
    return text


def _is_ipv6(text: str) -> bool:
    try:
        ip_addresses().IPv6Address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _check_host(host: str) -> str:
    if not host or any(character in host for character in " \t/@[],;"):
        raise ValueError(host)
    return host
