"""A Kerberos library of its own: the parts of the package `gssapi` that a login uses, and a broker's side of it.

Tokens can be read: `ticket for kafka@broker`, `proof`, `wrapped ...`. Nothing is encrypted.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

KRB5_FIRST = -1765328384


class GSSError(Exception):
    """As `gssapi.exceptions.GSSError`."""

    maj_code = 851968

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.min_code = (KRB5_FIRST + number) & 0xFFFFFFFF
        self._text = text

    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]:
        return ["Unspecified GSS failure."] if is_maj else [self._text]


class MissingCredentialsError(GSSError):
    """As the library's."""


class ExpiredCredentialsError(GSSError):
    """As the library's."""


class RequirementFlag(enum.IntFlag):
    mutual_authentication = 2
    integrity = 32


@dataclass
class FakeKerberos:
    """Stands in for the module `gssapi`.

    Attributes:
        fetch: Called for each first token, as the library calls a KDC; raises what the KDC refuses.
        caches: The name of the cache of each login, None for the environment's.
        principals: The client's name of each login.
        services: The broker's name of each login.
        proves_identity: Whether brokers do.
    """

    fetch: Callable[[], object] = lambda: None
    caches: list[str | None] = field(default_factory=list)
    principals: list[str | None] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    proves_identity: bool = True

    exceptions = SimpleNamespace(GSSError=GSSError)
    RequirementFlag = RequirementFlag
    NameType = SimpleNamespace(hostbased_service="hostbased", kerberos_principal="principal")
    MechType = SimpleNamespace(kerberos="krb5")

    def Name(self, text: str, kind: str) -> tuple[str, str]:
        return kind, text

    def Credentials(self, *, name: Any, usage: str, mechs: list[str], store: Any) -> Any:
        assert (usage, mechs) == ("initiate", ["krb5"])
        return SimpleNamespace(cache=store and store["ccache"], principal=name and name[1])

    def SecurityContext(self, *, name: Any, creds: Any, flags: Any, mech: str, usage: str) -> FakeContext:
        assert (name[0], mech, usage) == ("hostbased", "krb5", "initiate")
        assert RequirementFlag.mutual_authentication in flags
        self.services.append(name[1])
        self.caches.append(creds and creds.cache)
        self.principals.append(creds and creds.principal)
        return FakeContext(self, name[1])


class FakeContext:
    """As `gssapi.SecurityContext`."""

    def __init__(self, library: FakeKerberos, service: str) -> None:
        self._library = library
        self._service = service
        self.complete = False
        self.actual_flags = RequirementFlag.integrity
        if library.proves_identity:
            self.actual_flags |= RequirementFlag.mutual_authentication

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            self._library.fetch()
            return f"ticket for {self._service}".encode()
        if token != b"proof":
            raise GSSError(41, "Message stream modified")
        self.complete = True
        return None

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + message)

    def unwrap(self, message: bytes) -> Any:
        head, _, inner = message.partition(b" ")
        if head != b"wrapped":
            raise GSSError(31, "A token had an invalid Message Integrity Check")
        return SimpleNamespace(message=inner)


class KerberosBroker:
    """The broker's side of logins, one round after the other: for `FakeBroker(sasl=broker.answer)`.

    Attributes:
        tickets: The tickets that were taken.
        offer: Security layers, and the largest message.
    """

    def __init__(self, offer: bytes = b"\1\0\0\0") -> None:
        self.tickets: list[bytes] = []
        self.offer = offer

    def answer(self, token: bytes) -> tuple[int, bytes]:
        if token.startswith(b"ticket"):
            self.tickets.append(token)
            return 0, b"proof"
        if not token:
            return 0, b"wrapped " + self.offer
        return (0, b"") if token == b"wrapped \1\0\0\0" else (58, b"")
