"""Checks of the arguments of embedded brokers, clusters and faults. Each returns the value, or raises ConfigError.

The process of a broker gets plain values and reports what it cannot use as its own error; here a wrong type is
refused where it was written, with the argument's name and what is expected.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import INT32_MAX

INT64_MAX = 2**63 - 1
_Member = TypeVar("_Member", bound=IntEnum)


def whole(name: str, value: object, low: int, high: int = INT64_MAX, hint: str = "") -> int:
    """Return a whole number within bounds; `hint` is added to the message."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}={value!r} is not a whole number{hint}")
    if not low <= value <= high:
        bounds = f"at least {low}" if high in (INT32_MAX, INT64_MAX) and value < low else f"in {low}..{high}"
        raise ConfigError(f"{name}={value} is not {bounds}{hint}")
    return int(value)


def milliseconds(name: str, value: object, low: int = 0, high: int = INT64_MAX) -> int:
    """Return a time in whole milliseconds."""
    if isinstance(value, float) and math.isfinite(value):
        raise ConfigError(f"{name}={value} is not a whole number of milliseconds; {value} s are {value * 1000:.0f} ms")
    return whole(name, value, low, high, " (milliseconds)")


def flag(name: str, value: object) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} is not True or False")
    return value


def text(name: str, value: object) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}={value!r} is not a text with at least one character")
    return value


def choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return one of several words."""
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}")
    return str(value)


def path(name: str, value: object) -> str:
    """Return a path as text."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str) or not os.fspath(value):
        raise ConfigError(f"{name}={value!r} is not a path")
    return str(os.fspath(value))


def elements(name: str, value: object, example: str) -> list[Any]:
    """Return the elements of a list or tuple; a text is not taken for a list of letters."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise ConfigError(f"{name}={value!r} is not a list, {example} for example")
    return list(value)


def mapping(name: str, value: object, example: str) -> dict[Any, Any]:
    """Return a mapping as a dict."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}={value!r} is not a mapping, {example} for example")
    return dict(value)


def topics(value: object) -> dict[str, int]:
    """Return names of topics and their partition counts."""
    found = mapping("topics", value, '{"orders": 3} (name: partitions)')
    return {
        text("topics: the name", name): whole(f"topics: {name!r}: partitions", count, 1, INT32_MAX)
        for name, count in found.items()
    }


def users(value: object) -> dict[str, str]:
    """Return names of users and their passwords, which no message shows."""
    if not isinstance(value, Mapping):
        raise ConfigError('sasl_users is not a mapping, {"ann": "her password"} for example')
    for name, password in value.items():
        text("sasl_users: the name", name)
        if not isinstance(password, str):
            raise ConfigError(f"sasl_users: the password of {name!r} is not a text")
    return dict(value)


def tls_files(value: object) -> list[str]:
    """Return the paths of a certificate chain, its key, and perhaps the authority of clients."""
    example = '("certificate.pem", "key.pem")'
    files = [path("tls_files", file) for file in elements("tls_files", value, example)]
    if len(files) not in (2, 3):
        raise ConfigError(
            f"tls_files has {len(files)} elements; expected: certificate chain and private key, {example} for example, "
            "and to ask clients for certificates their authority"
        )
    return files


def max_versions(value: object) -> dict[int, int]:
    """Return the highest versions of APIs by their numbers."""
    found = mapping("max_versions", value, "{ApiKey.PRODUCE: 7}")
    return {
        int(api_key("max_versions", api)): whole(f"max_versions: {api!r}", version, 0) for api, version in found.items()
    }


def options(value: object, elsewhere: Mapping[str, str], argument: str = "options") -> dict[str, str]:
    """Return options under Kafka's names as text.

    Args:
        value: Name -> text, number or bool.
        elsewhere: Options that arguments set -> the argument.
        argument: The name in messages.
    """
    found = {}
    for name, one in mapping(argument, value, '{"message.max.bytes": 2_000_000}').items():
        if not isinstance(name, str):
            raise ConfigError(f"{argument}: the name {name!r} is not a text")
        if not isinstance(one, str | int | float):
            raise ConfigError(f"{argument}: {name}={one!r} is not a text, a number, True or False")
        if name in elsewhere:
            raise ConfigError(f"{argument}: {name} is set by the argument {elsewhere[name]}")
        found[name] = str(one).lower() if isinstance(one, bool) else str(one)
    return found


def api_key(name: str, value: object) -> ApiKey:
    """Return an API by member, number or name: `ApiKey.PRODUCE`, 0, "PRODUCE" or "Produce"."""
    return _member(name, value, ApiKey, "an API, ApiKey.PRODUCE for example")


def _member(name: str, value: object, kind: type[_Member], what: str) -> _Member:
    if isinstance(value, int) and not isinstance(value, bool) and value in list(kind):
        return kind(value)
    if isinstance(value, str):
        wanted = value.replace("_", "").upper()
        for member in kind:
            if member.name.replace("_", "") == wanted:
                return member
    raise ConfigError(f"{name}={value!r} is not {what}")


def error_code(value: object) -> int:
    """Return an error code by number, member of ErrorCode or its name; Kafka may have none with this number."""
    if isinstance(value, str):
        return int(_member("error_code", value, ErrorCode, "an error, ErrorCode.NOT_LEADER_OR_FOLLOWER for example"))
    return whole("error_code", value, -1, 2**15 - 1)
