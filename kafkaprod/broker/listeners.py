"""The sockets a broker listens on: `PLAINTEXT://:9092,SSL://:9093,PROXIED:PLAINTEXT://127.0.0.1:0`.

Clients get the address of the listener they came through, or the one that is advertised for it: a proxy's, say. A
listener has a name, by which the others of a cluster find each other's: its protocol, or the word before it. So there
may be several of one protocol. Kafka writes the same as `listener.security.protocol.map`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.text import address_text

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ADDRESS = re.compile(r"(?:([A-Z][A-Z0-9_]*)://)?(\[[0-9a-fA-F:.]+\]|[^:\[\]/\s]+):([0-9]{1,5})")
_LISTENER = re.compile(r"(?:([A-Z][A-Z0-9_]{0,63}):)?([A-Z_]+)://(\[[0-9a-fA-F:.]*\]|[^:\[\]/]*):([0-9]{1,5})")


class AddressError(KafkaError, OSError):
    """A socket cannot listen on its address."""


def bind_error(
    host: str, port: int, error: OSError, remedy: str = "use another port, or 0 for a free one"
) -> AddressError:
    """Return why a socket cannot listen: what, and what to do if another process has the port."""
    if error.errno == errno.EADDRINUSE:
        return AddressError(f"{host}:{port} is in use, perhaps by another broker: {remedy}")
    return AddressError(f"cannot listen on {host}:{port}: {error.strerror or error}")


class Endpoint(NamedTuple):
    """The address that clients get to connect to."""

    host: str
    port: int


class Listener(NamedTuple):
    """One socket to listen on.

    Attributes:
        protocol: One of PROTOCOLS.
        host: Address to bind.
        port: 0 takes a free one.
        given_name: Its name where that is not the protocol, else empty.
    """

    protocol: str
    host: str
    port: int
    given_name: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.given_name or self.protocol

    @property
    def has_tls(self) -> bool:
        """Clients speak TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        """Clients have to log in."""
        return self.protocol.startswith("SASL_")


def parse_listeners(text: str, default_host: str) -> tuple[Listener, ...]:
    """Read a list of listeners; an empty host means the default one.

    Raises:
        ConfigError: The list is empty or malformed, or has a name or an address twice.
    """
    listeners = []
    for part in text.split(","):
        found = _LISTENER.fullmatch(part.strip())
        if found is None or found[2] not in PROTOCOLS or int(found[4]) > 65_535:
            raise ConfigError(
                f"listeners: {part!r} is not PROTOCOL://HOST:PORT or NAME:PROTOCOL://HOST:PORT with one of "
                f"{', '.join(PROTOCOLS)}"
            )
        listeners.append(Listener(found[2], found[3].strip("[]") or default_host, int(found[4]), found[1] or ""))
    names = [listener.name for listener in listeners]
    addresses = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(names)) < len(names) or len(set(addresses)) < len(addresses):
        raise ConfigError(f"listeners={text!r} has a name or an address twice: write NAME:PROTOCOL://HOST:PORT")
    return tuple(listeners)


def listeners_text(listeners: Iterable[Listener]) -> str:
    """Return the list that `parse_listeners` reads."""
    return ",".join(
        f"{each.given_name}{':' if each.given_name else ''}{each.protocol}://{address_text(each.host, each.port)}"
        for each in listeners
    )


def following(listeners: Iterable[Listener], steps: int) -> tuple[Listener, ...]:
    """Return the listeners of a broker so many places behind the one that has these: ports follow, 0 stays."""
    return tuple(each._replace(port=each.port + steps if each.port else 0) for each in listeners)


def parse_advertised(text: str, names: Sequence[str]) -> dict[str, Endpoint]:
    """Read the addresses that clients get: HOST:PORT of the only listener, or NAME://HOST:PORT, comma-separated.

    Args:
        text: The list; the listeners that it does not name are advertised as they are.
        names: Those of the listeners.

    Raises:
        ConfigError: The list is malformed, or names no listener, or one twice.
    """
    advertised: dict[str, Endpoint] = {}
    for part in text.split(",") if text else ():
        found = _ADDRESS.fullmatch(part.strip())
        if found is None or not 1 <= int(found[3]) <= 65_535:
            raise ConfigError(f"advertised: {part!r} is not HOST:PORT or NAME://HOST:PORT with a port in 1..65535")
        if found[1] is None and len(names) > 1:
            raise ConfigError(f"advertised: {part!r} names none of the listeners {', '.join(names)}")
        name = found[1] or names[0]
        if name not in names or name in advertised:
            raise ConfigError(f"advertised: {part!r} is for none of {', '.join(names)}, or one is named twice")
        advertised[name] = Endpoint(found[2].strip("[]"), int(found[3]))
    return advertised
