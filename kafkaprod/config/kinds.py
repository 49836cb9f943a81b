"""The kinds of values options take: how one is read from what a user gives, and what is allowed.

A kind's `parse` takes text (files, command lines) as well as Python values and is idempotent: what it returned it takes
again unchanged. It raises ValueError for anything that is not allowed; `option.py` turns that into a ConfigError that
names the option. Nothing here loads a class, evaluates text or expands `${...}`.

Kinds are never changed. They are plain classes because to make frozen dataclasses of them took a twentieth of the time
in which the producer is imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkaprod.config.secret import HIDDEN, LiveSecret, Secret, without_query
from kafkaprod.structs import INT32_MAX
from kafkaprod.text import MAX_PROTOCOL_TEXT_BYTES, why_unsendable
from kafkaprod.threads import importing

if TYPE_CHECKING:
    import ssl
    from urllib.parse import SplitResult

INT16_MAX: Final = 2**15 - 1
INT64_MAX: Final = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+")
_SYNC_RULE = re.compile(r"each|never|interval:[1-9][0-9]{0,8}")
_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BOOLEANS: Final = {"true": True, "false": False}


@importing
def _urlsplit() -> Callable[[str], SplitResult]:
    from urllib.parse import urlsplit  # of few clients

    return urlsplit


class MalformedError(ValueError):
    """A value that is not allowed; the message says what is wrong, and repeats nothing that may be secret."""


class Kind(Protocol):
    """What an option can hold.

    Attributes:
        type_name: The type in the documentation: int, bool, text ...
        allowed: What values are legal, as the end of "expected ...".
    """

    @property
    def type_name(self) -> str: ...

    @property
    def allowed(self) -> str: ...

    def parse(self, value: object) -> Any:
        """The value to keep. Raises ValueError if it is not allowed."""
        ...

    def show(self, value: Any) -> str:
        """A kept value for messages and repr; never a secret."""
        ...


class Integer:
    """A whole number in [lowest, highest]; text of one is read.

    Attributes:
        synonyms: Other values that stand for a number, such as None in programs written for kafka-python.
    """

    __slots__ = ("excluded", "highest", "lowest", "synonyms")
    type_name = "int"

    def __init__(
        self,
        lowest: int = 0,
        highest: int = INT32_MAX,
        excluded: int | None = None,
        synonyms: Mapping[object, int] | None = None,
    ) -> None:
        self.lowest = lowest
        self.highest = highest
        self.excluded = excluded
        self.synonyms = synonyms or {}

    @property
    def allowed(self) -> str:
        hole = "" if self.excluded is None else f", not {self.excluded}"
        return f"a whole number in {self.lowest}..{self.highest}{hole}"

    def parse(self, value: object) -> int:
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            value = int(value)
        if isinstance(value, float | None) and value in self.synonyms:
            return self.synonyms[value]
        if type(value) is not int or not self.lowest <= value <= self.highest or value == self.excluded:
            raise ValueError(value)
        return value

    def show(self, value: int) -> str:
        return repr(value)


class Boolean:
    """True or False, or their names in any case."""

    __slots__ = ()
    type_name = "bool"
    allowed = "true or false"

    def parse(self, value: object) -> bool:
        if isinstance(value, str):
            value = _BOOLEANS.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    def show(self, value: bool) -> str:
        return str(value).lower()


class Text:
    """A text; empty only where `may_be_empty`, where None is the same."""

    __slots__ = ("may_be_empty",)
    type_name = "text"

    def __init__(self, may_be_empty: bool = False) -> None:
        self.may_be_empty = may_be_empty

    @property
    def allowed(self) -> str:
        return "a text" if self.may_be_empty else "a text that is not empty"

    def parse(self, value: object) -> str:
        if value is None and self.may_be_empty:
            return ""
        if not isinstance(value, str) or not (value or self.may_be_empty):
            raise ValueError(value)
        return value

    def show(self, value: str) -> str:
        return repr(value)


class ProtocolText(Text):
    """A text that brokers get in requests."""

    __slots__ = ()

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, at most {MAX_PROTOCOL_TEXT_BYTES} bytes of UTF-8"

    def parse(self, value: object) -> str:
        text = super().parse(value)
        if why_unsendable(text) is not None:
            raise ValueError(value)
        return text


class Url:
    """An address with one of some schemes, without a user or password in it."""

    __slots__ = ("schemes",)
    type_name = "text"

    def __init__(self, schemes: tuple[str, ...]) -> None:
        self.schemes = schemes

    @property
    def allowed(self) -> str:
        return f"an address that begins with {' or '.join(f'{scheme}:' for scheme in self.schemes)}, without a user"

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(value)
        parts = _urlsplit()(value.strip())
        is_whole = bool(parts.path) if parts.scheme == "file" else bool(parts.hostname)
        if parts.scheme not in self.schemes or not is_whole or "@" in parts.netloc:
            raise ValueError(value)
        _ = parts.port  # raises ValueError for one that is no port
        return parts.scheme + value.strip()[len(parts.scheme) :]  # in lower case

    def show(self, value: str) -> str:
        return repr(without_query(value))


class Path:
    """The name of a file; not opened here."""

    __slots__ = ()
    type_name = "path"
    allowed = "the name of a file"

    def parse(self, value: object) -> str:
        path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
        if not isinstance(path, str) or not path:
            raise ValueError(value)
        return path

    def show(self, value: str) -> str:
        return repr(value)


class SyncRule:
    """When bytes are forced to a disk: each, never or interval:MS."""

    __slots__ = ()
    type_name = "each, never or interval:MS"
    allowed = "each, never or interval:MS with 1 or more milliseconds"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not _SYNC_RULE.fullmatch(value):
            raise ValueError(value)
        return value

    def show(self, value: str) -> str:
        return value


class SecretText:
    """A password, or where it is: `env:NAME`, `file:PATH`. Kept as a `Secret`; empty only where `may_be_empty`.

    What is in a variable or a file is kept as a `LiveSecret`, which is read again for each use.
    """

    __slots__ = ("may_be_empty",)
    type_name = "password"

    def __init__(self, may_be_empty: bool = False) -> None:
        self.may_be_empty = may_be_empty

    @property
    def allowed(self) -> str:
        text = "a text" if self.may_be_empty else "a text that is not empty"
        return f"{text}, env:NAME of a variable that is set, or file:PATH of a readable file"

    def parse(self, value: object) -> Secret:
        secret = _secret(value) if isinstance(value, str) else value
        if not isinstance(secret, Secret) or not (secret or self.may_be_empty):
            raise ValueError(HIDDEN)
        if _SURROGATE.search(secret.reveal()):  # the error of encoding it later would have it in its arguments
            raise ValueError(HIDDEN)
        return secret

    def show(self, value: Secret) -> str:
        return HIDDEN


def _secret(text: str) -> Secret:
    """Return the secret at the place that `env:NAME` or `file:PATH` names; any other text is the secret itself."""
    if not text.startswith(("env:", "file:")):
        return Secret(text)
    try:
        return LiveSecret(text)
    except (OSError, KeyError, UnicodeDecodeError):  # none has a byte of the secret
        raise ValueError(HIDDEN) from None


class Choice:
    """One of some names, read in any case.

    Attributes:
        names: The names, as they are kept.
        synonyms: Other values that stand for one of them.
        advice: By names of other clients, what to use instead.
    """

    __slots__ = ("advice", "names", "synonyms")
    type_name = "name"

    def __init__(
        self,
        names: tuple[str, ...],
        synonyms: Mapping[object, str] | None = None,
        advice: Mapping[object, str] | None = None,
    ) -> None:
        self.names = names
        self.synonyms = synonyms or {}
        self.advice = advice or {}

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.names)}"

    def parse(self, value: object) -> str:
        folded = value.strip().lower() if isinstance(value, str) else value
        for name in self.names:
            if folded == name.lower():
                return name
        if isinstance(folded, str | int | None) and folded in self.synonyms:
            return self.synonyms[folded]
        if isinstance(folded, str) and folded in self.advice:
            raise MalformedError(self.advice[folded])
        raise ValueError(value)

    def show(self, value: str) -> str:
        return repr(value)


MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")


class MechanismName:
    """The name of a SASL mechanism: one of those that come with the package, or another's (RFC 4422 section 3.1)."""

    __slots__ = ()
    type_name = "name"
    allowed = f"one of {', '.join(MECHANISMS)}, or the name of an installed one: A-Z, 0-9, - and _, at most 20"

    def parse(self, value: object) -> str:
        name = value.strip().upper() if isinstance(value, str) else ""
        if not _MECHANISM.fullmatch(name):
            raise ValueError(value)
        return name

    def show(self, value: str) -> str:
        return repr(value)


class Acks:
    """The replicas that must acknowledge: -1 all in-sync ones (also `all`), 1 the leader, 0 none."""

    __slots__ = ()
    type_name = "int"
    allowed = "all, -1, 0 or 1"

    def parse(self, value: object) -> int:
        folded = value.strip().lower() if isinstance(value, str) else value
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(folded) if isinstance(folded, str) else folded
        if type(acks) is not int or acks not in (-1, 0, 1):
            raise ValueError(value)
        return acks

    def show(self, value: int) -> str:
        return repr(value)


class Hook:
    """The user's own code: a callable, or an object with one of some methods. Never text: no class is looked up.

    Attributes:
        methods: An object with any of these is accepted.
        accepts_callable: Whether a plain callable is accepted too.
    """

    __slots__ = ("accepts_callable", "methods")
    type_name = "object"

    def __init__(self, methods: tuple[str, ...] = (), accepts_callable: bool = True) -> None:
        self.methods = methods
        self.accepts_callable = accepts_callable

    @property
    def allowed(self) -> str:
        parts = ["a callable"] if self.accepts_callable else []
        parts += [f"an object with {name}()" for name in self.methods]
        return " or ".join(parts)

    def parse(self, value: object) -> Any:
        if isinstance(value, str | bytes | type):
            raise ValueError(value)
        has_method = any(callable(getattr(value, name, None)) for name in self.methods)
        if not has_method and not (self.accepts_callable and callable(value)):
            raise ValueError(value)
        return value

    def show(self, value: object) -> str:
        return f"<{type(value).__qualname__}>"  # a user's repr may hold a secret


class HookList:
    """Several objects of the user's, in order; kept as a tuple."""

    __slots__ = ("item",)
    type_name = "list"

    def __init__(self, item: Hook) -> None:
        self.item = item

    @property
    def allowed(self) -> str:
        return f"a list, each item {self.item.allowed}"

    def parse(self, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(self.item.parse(item) for item in value)

    def show(self, value: tuple[Any, ...]) -> str:
        return f"[{', '.join(self.item.show(item) for item in value)}]"


class TlsContext:
    """A ready `ssl.SSLContext`."""

    __slots__ = ()
    type_name = "object"
    allowed = "an ssl.SSLContext"

    def parse(self, value: object) -> ssl.SSLContext:
        # Loaded, if there is a context; else another thread may be in the middle of importing it.
        kind = getattr(sys.modules.get("ssl"), "SSLContext", None)
        if kind is None or not isinstance(value, kind):
            raise ValueError(value)
        context: ssl.SSLContext = value
        return context

    def show(self, value: ssl.SSLContext) -> str:
        return "<SSLContext>"


Translate = Callable[[object], object]
"""Turns the value of an alias into one the option understands; raises ValueError if it cannot."""


def kilobytes(value: object) -> int:
    """Kilobytes (librdkafka) to bytes."""
    return Integer(0, INT64_MAX >> 10).parse(value) * 1024
