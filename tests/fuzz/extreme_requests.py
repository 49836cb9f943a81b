"""Requests of every API and version with values at the ends of their types, to an embedded broker's handlers.

They are well-formed: what a client may send. The answer must be one that can be encoded. What a broker answers depends
on the requests before: a failure is reproduced with those since a multiple of `REQUESTS_OF_A_BROKER`.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any, Final

from kafkaprod.broker.calls.request import CloseConnectionError
from kafkaprod.broker.metadata.tokens import TokenConfig
from kafkaprod.broker.server.router import HANDLERS, PEER_APIS
from kafkaprod.protocol.field_types import ArrayType, FixedType, StructType
from kafkaprod.protocol.long_messages import shorten_messages
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.schema import Response, Struct
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.net.protocol_samples import kind_of

REQUESTS_OF_A_BROKER: Final = 400
_APIS: Final = sorted(set(HANDLERS) - PEER_APIS)
_TEXTS: Final = (
    *(
        "",
        "t",
        "g",
        "ann",
        "User:ann",
        "User:",
        "n" * 300,
        "n" * 32_767,
        "\0",
        "\x1b[31m",
        "\u00e9",
        "../x",
        "a/b",
        "*",
    ),
    *(
        "kafka-cluster",
        "metadata.version",
        "transaction.version",
        "user",
        "client-id",
        "ip",
        "127.0.0.1",
        "1e309",
        "{}",
    ),
    *(
        "producer_byte_rate",
        "request_percentage",
        "retention.ms",
        "compact",
        "interval.ms",
        "match",
        "(a|b)*",
        "[",
        "-1",
    ),
    *("__consumer_offsets", "__transaction_state", "consumer", "range", "log.retention.ms", "SCRAM-SHA-256"),
)
_NUMBERS: Final = {
    "?": (True, False),
    "b": (0, 1, 2, 3, 4, 16, 32, -1, 127, -128),
    "h": (0, 1, 2, -1, 5, 32_767, -32_768),
    "H": (0, 65_535),
    "i": (0, 1, 2, -1, -2, 4_096, 2**31 - 1, -(2**31)),
    "I": (0, 2**32 - 1),
    "q": (0, 1, -1, -2, 1_000, 2**63 - 1, -(2**63)),
    "d": (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), 1e308, 5e-324),
}
_IDS: Final = (None, uuid.UUID(int=1), uuid.UUID(int=77))


class ExtremeRequests:
    """Sends one at each call; see the module docstring.

    Args:
        directory: For brokers' data.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._box: BrokerWithoutSockets | None = None
        self._count = 0

    def __call__(self, rng: random.Random) -> str:
        """Send a request; return what became of it."""
        box = self._broker(rng)
        api = rng.choice(_APIS)
        request_class = REQUESTS[api]
        lowest, highest = request_class.versions
        version = rng.randint(lowest, min(highest, HANDLERS[api].MAX_VERSION))
        request = _struct(request_class, version, rng)
        try:
            outcomes = box.begin(request_class.decode(bytes(request.encode(version)), version), version)
        except CloseConnectionError:
            return "connection closed"
        for outcome in outcomes:
            if isinstance(outcome, Response):
                try:
                    outcome.encode(version)
                except ValueError:
                    if not shorten_messages(outcome):
                        raise
                    outcome.encode(version)
        if rng.random() < 0.05:
            box.advance(rng.choice([1, 100, 10_000]))
        return "answered" if outcomes else "waits"

    def _broker(self, rng: random.Random) -> BrokerWithoutSockets:
        if self._count % REQUESTS_OF_A_BROKER == 0:
            self.close()
            self._box = BrokerWithoutSockets(
                self._directory / f"broker{self._count}",
                topics={"t": 2},
                sasl_users={"ann": "secret"},
                tokens=TokenConfig(rng.choice(["", "key"])),
            )
            self._box.user = rng.choice([None, "ann"])
        self._count += 1
        assert self._box is not None
        return self._box

    def close(self) -> None:
        """Close the broker."""
        if self._box is not None:
            self._box.broker.close()


def _struct(struct_class: type[Struct], version: int, rng: random.Random) -> Any:
    fields = [item for item in struct_class.fields if item.is_in(version) and rng.random() < 0.9]
    return struct_class(**{item.name: _value(item.type, version, rng) for item in fields})


def _value(kind: Any, version: int, rng: random.Random) -> Any:
    if isinstance(kind, ArrayType):
        return [_value(kind.element, version, rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
    if isinstance(kind, StructType):
        return _struct(kind.struct_class, version, rng)
    if isinstance(kind, type):
        return _struct(kind, version, rng)
    if isinstance(kind, FixedType):
        return rng.choice(_NUMBERS[kind.format])
    if kind_of(kind) == "uuid":
        return rng.choice(_IDS)
    return rng.choice(_TEXTS) if kind_of(kind) == "string" else rng.randbytes(rng.choice([0, 1, 20, 60]))
