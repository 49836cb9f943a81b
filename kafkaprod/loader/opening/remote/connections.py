"""Connections to HTTP servers: kept between requests, and made only to hosts that a load may ask.

A server chooses where its redirects lead, and it is not the user: it must not have this machine ask addresses that only
this machine reaches. So a redirect to another host is followed only to addresses of the public network, unless the
user's own address is not of it either.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import urllib.parse
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from kafkaprod.config.secret_sources import URL_VARIABLE, is_url_allowed
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.remote.addresses import WEB, identity, origin_of
from kafkaprod.loader.opening.remote.objects import RangePatience

_PORTS: Final = {"http": 80, "https": 443}
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")  # has an IPv4 address at its end


class RedirectRefusedError(LoadError):
    """A server redirects to where a load does not go."""


@dataclass(slots=True)
class Connections:
    """Keeps the connections of one object's reader; for all threads. They are closed with `close`.

    Attributes:
        first: The address that the user gave.
        patience: How long to wait.
        allowed_urls: The addresses that may be asked; None: all.
    """

    first: str
    patience: RangePatience
    allowed_urls: tuple[str, ...] | None = None
    _idle: dict[str, deque[http.client.HTTPConnection]] = field(default_factory=dict)
    _is_closed: bool = False

    def take(self, address: str) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection to the origin of an address, and whether it was used before.

        Raises:
            RedirectRefusedError, LoadError: The address may not be asked.
            OSError: The host cannot be reached.
        """
        check_allowed(address, self.allowed_urls)
        origin = origin_of(address)
        with contextlib.suppress(KeyError, IndexError):
            return self._idle[origin].pop(), True
        return self._connect(address), False

    def give_back(self, address: str, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        self._idle.setdefault(origin_of(address), deque()).append(connection)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Close those that are idle now, and the others when they are given back."""
        self._is_closed = True
        for idle in list(self._idle.values()):
            with contextlib.suppress(IndexError):
                while True:
                    idle.pop().close()

    def _connect(self, address: str) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(address)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        numbers = _numbers_of(host, port)
        if origin_of(address) != origin_of(self.first):
            self._check_redirect(address, numbers)
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, context=_context())
        else:
            connection = http.client.HTTPConnection(host, port)
        connection.timeout = self.patience.read_s
        plain = _open_socket(numbers, port, self.patience)
        try:
            if parts.scheme == "https":
                plain = _context().wrap_socket(plain, server_hostname=host)
            plain.settimeout(self.patience.read_s)
        except BaseException:
            plain.close()
            raise
        connection.sock = plain
        return connection

    def _check_redirect(self, address: str, numbers: Sequence[str]) -> None:
        """Refuse a redirect into a network that is not public, from one that is or to another kind of it."""
        inner = {kind for number in numbers if (kind := _kind_of(number))}
        if not inner:
            return
        first = urllib.parse.urlsplit(self.first)
        own = {_kind_of(number) for number in _numbers_of(first.hostname or "", first.port or _PORTS[first.scheme])}
        if not inner <= own or "link-local" in inner:
            raise RedirectRefusedError(
                f"{identity(self.first)} redirects to {identity(address)}, a {' and '.join(sorted(inner))} address, "
                "which its server may not choose: if that is right, load it from there"
            )


def check_allowed(address: str, allowed_urls: tuple[str, ...] | None) -> None:
    """Refuse an address that neither the option nor the variable may leave out. Raises LoadError."""
    if not is_url_allowed(address, allowed_urls):
        raise LoadError(
            f"{identity(address)} is not allowed: allowed_urls, or the variable {URL_VARIABLE}, does not name that "
            "address"
        )


def next_address(first: str, address: str, location: str | None, count: int) -> str:
    """Return where a redirect leads.

    Args:
        first: The address that the user gave.
        address: The one that was asked.
        location: What the server answered.
        count: How many redirects there were before.

    Raises:
        RedirectRefusedError: It leads nowhere, in a circle, or out of TLS.
    """
    name = identity(first)
    if count >= 5:
        raise RedirectRefusedError(f"{name} redirects more than 5 times: name the address that has the object")
    try:
        found = urllib.parse.urlunsplit(
            urllib.parse.urlsplit(urllib.parse.urljoin(address, location or ""))._replace(fragment="")
        )
        parts = urllib.parse.urlsplit(found)
        is_fit = bool(location) and parts.scheme in WEB and bool(parts.hostname) and parts.username is None
        is_fit = is_fit and parts.port != 0 and found.isascii() and found.isprintable() and " " not in found
    except ValueError:
        is_fit = False
    if not is_fit:
        raise RedirectRefusedError(f"{name} redirects to what is no address of HTTP: name the address itself")
    if urllib.parse.urlsplit(address).scheme == "https" and parts.scheme != "https":
        raise RedirectRefusedError(f"{name} redirects from https to {identity(found)}: its bytes would not be proven")
    return found


def _numbers_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, in the order of the system. Raises OSError."""
    try:
        return list(
            dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        )
    except UnicodeError as error:
        raise OSError(f"no host can be named {host!r}") from error


def _open_socket(numbers: Sequence[str], port: int, patience: RangePatience) -> socket.socket:
    """Connect to the first of them that answers: those that were checked, not what the name means a moment later."""
    last: OSError = OSError("the host has no address")
    for number in numbers:
        try:
            found = socket.create_connection((number, port), patience.connect_s)
        except OSError as error:
            last = error
            continue
        with contextlib.suppress(OSError):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    raise last


def _kind_of(number: str) -> str:
    """Return what kind of network an address is of; empty: the public one."""
    address = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            mapped = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = mapped or address
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or number.lower() == "fd00:ec2::254":
        return "link-local"
    if address.is_multicast or address.is_unspecified or not address.is_global:
        return "private"
    return ""


@cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False  # only subject alternative names count (RFC 6125)
    return context
