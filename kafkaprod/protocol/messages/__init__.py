"""Every message kafkaprod knows: one module per API, both directions, all versions.

`REQUESTS` and `RESPONSES` find the class by API key, and import its module only then: a producer needs five of them.
`client_versions` and `version_ranges` say what can be spoken.

<api>  the request and the response of one API
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar, cast

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.schema import Message, Request, Response

M = TypeVar("M", bound=Message)


class _Classes(Mapping[ApiKey, type[M]], Generic[M]):
    """The class of each API whose name ends in `suffix`, found in the module that has the API's name."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._found: dict[ApiKey, type[M]] = {}

    def __getitem__(self, api: ApiKey) -> type[M]:
        found = self._found.get(api)
        if found is None:
            module = importlib.import_module(f"{__name__}.{api.name.lower()}")
            words = (word.capitalize() for word in api.name.split("_"))
            found = self._found[api] = cast(type[M], getattr(module, "".join(words) + self._suffix))
        return found

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)


REQUESTS: Final[Mapping[ApiKey, type[Request]]] = _Classes("Request")
RESPONSES: Final[Mapping[ApiKey, type[Response]]] = _Classes("Response")


def client_versions(api: ApiKey) -> tuple[int, int]:
    """The (lowest, highest) version of a request a client of this package may send, unstable versions left out."""
    return stable_versions(REQUESTS[api])


def stable_versions(message: type[Message]) -> tuple[int, int]:
    """The (lowest, highest) version of a message that Kafka guarantees."""
    lowest, highest = message.versions
    return lowest, highest if message.unstable_from is None else message.unstable_from - 1


def version_ranges(
    handled: Iterable[ApiKey], limits: Mapping[ApiKey, int] | None = None
) -> dict[ApiKey, tuple[int, int]]:
    """What a broker announces: the range of each API it handles.

    Args:
        handled: The APIs with a handler.
        limits: Highest version of those APIs whose handlers do not support the latest declared one.
    """
    ranges = {}
    for api in sorted(handled):
        lowest, highest = client_versions(api)
        ranges[api] = (lowest, min(highest, (limits or {}).get(api, highest)))
    return ranges
