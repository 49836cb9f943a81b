"""The worst request of each API that the broker announces: its CPU time, its memory, how long an honest client waits.

    python -m tests.campaigns.worst_requests [API ...] [--clients 10]

Requests are made of the declarations, in several shapes: as many elements as a request may have in its own arrays, in
the arrays inside, or a share in each; and long texts and buffers. Their names are those of a topic that exists, or new
ones.
With `--clients` as many clients send the worst shape of each API at once. The times are those of a quiet machine: exit
status 1 if a request takes more than `MAX_WAIT_S` or `MAX_BYTES`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, ScalarType, StructType
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.schema import Request, Struct
from tests.campaigns.hostile_clients import TOPIC, ask, cpu_seconds, peak_resident_bytes, quiet_errors
from tests.support.broker.hostile_settings import MANY, frame_of
from tests.support.net.protocol_samples import kind_of
from tests.support.net.raw_client import RawClient

MAX_WAIT_S: Final = 0.5
MAX_BYTES: Final = 64 << 20
EXISTING: Final = "existing"
"""What requests may delete; the honest client has another topic."""
ANSWER_S: Final = 5.0
"""How long an answer is waited for: some requests wait for others."""
LEFT_OUT: Final = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))  # without a login they close


class Shape(NamedTuple):
    """How large a request is made.

    Attributes:
        outer: Elements of each array of the request itself.
        inner: Elements of each array in an element.
        text: Characters of a text, bytes of a buffer.
        exists: Texts are the name of a topic that exists.
    """

    name: str
    outer: int
    inner: int
    text: int
    exists: bool


def shapes(elements: int, text: int) -> list[Shape]:
    """Every shape of about that many elements, and texts of that length."""
    root = max(int(elements**0.5) - 4, 1)
    return [
        Shape("wide", elements, 0, 12, exists=False),
        Shape("deep", 1, elements, 12, exists=True),
        Shape("square", root, root, 12, exists=False),
        Shape("same name", elements, 0, 12, exists=True),
        Shape("long", 20, 20, text, exists=False),
    ]


def made(request_class: type[Request], version: int, shape: Shape) -> Request:
    """Return the request of a shape; numbers have their defaults."""
    numbers = itertools.count()

    def text() -> str:
        return EXISTING if shape.exists else f"n{next(numbers)}".ljust(shape.text, "x")

    def value_of(field_type: Any, depth: int, arrays: int) -> Any:
        if isinstance(field_type, type):
            return struct_of(field_type, depth)
        if isinstance(field_type, ArrayType):
            count = (shape.outer, shape.inner)[depth] // arrays if depth < 2 else 1
            return [value_of(field_type.element, depth + 1, 1) for _ in range(count)]
        if isinstance(field_type, StructType):
            return struct_of(field_type.struct_class, depth)
        if isinstance(field_type, ScalarType) and kind_of(field_type) != "uuid":
            kind = kind_of(field_type)
            return text() if kind == "string" else text().encode()
        return None

    def struct_of(struct_class: type[Struct], depth: int) -> Any:
        values = {}
        arrays = sum(item.is_in(version) and isinstance(item.type, ArrayType) for item in struct_class.fields)
        for item in struct_class.fields:
            if item.is_in(version) and (value := value_of(item.type, depth, arrays)) is not None:
                values[item.name] = value
        return struct_class(**values)

    request: Request = struct_of(request_class, 0)
    return request


def frames(request_class: type[Request], version: int, elements: int, text: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each shape, and the request as bytes; those that no frame holds are left out."""
    for shape in shapes(elements, text):
        with contextlib.suppress(KafkaError, ValueError):
            yield shape.name, frame_of(made(request_class, version, shape), version)


class Cost(NamedTuple):
    """Of one request.

    Attributes:
        wait_s: The longest of the honest client.
        grown_bytes: By how much the broker's memory was larger than before, at most.
        cpu_s: CPU time of the broker until the answer.
    """

    wait_s: float
    grown_bytes: int
    cpu_s: float


def measured(broker: EmbeddedBroker, send: Callable[[], None]) -> Cost:
    """Let an honest client ask again and again while something is sent."""
    waits = [0.0]
    is_over = threading.Event()

    def be_honest() -> None:
        while not is_over.is_set():
            began_s = time.monotonic()
            with contextlib.suppress(OSError):
                ask(broker.bootstrap_servers, False)
            waits.append(time.monotonic() - began_s)
            is_over.wait(0.02)

    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # the peak begins anew
    before, used_s = peak_resident_bytes(broker.pid), cpu_seconds(broker.pid)
    honest = threading.Thread(target=be_honest)
    honest.start()
    try:
        send()
    finally:
        used_s = cpu_seconds(broker.pid) - used_s
        is_over.set()
        honest.join()
    return Cost(max(waits), peak_resident_bytes(broker.pid) - before, used_s)


def answer_to(address: str, frame: bytes, answer_s: float = ANSWER_S) -> None:
    """Send a request, and wait for its answer or the end of the connection, for a time."""
    with contextlib.suppress(OSError), RawClient(address, patience_s=answer_s) as client:
        client.socket.sendall(frame)
        client.receive_frame()


def announced(address: str) -> list[tuple[ApiKey, int]]:
    """Return the APIs of a broker, each with its highest version that is declared here."""
    with RawClient(address) as client:
        answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    found = [(ApiKey(each.api_key), each.max_version) for each in answer.api_keys if each.api_key in REQUESTS]
    return [(api, min(highest, REQUESTS[api].versions[1])) for api, highest in found if api not in LEFT_OUT]


def worst_costs(
    broker: EmbeddedBroker, api: ApiKey, version: int, elements: int, text: int, clients: int = 1
) -> list[tuple[str, Cost]]:
    """Measure each shape of an API."""
    outcomes = []
    address = broker.bootstrap_servers
    ask(address, False)
    for name, frame in frames(REQUESTS[api], version, elements, text):

        def send(frame: bytes = frame) -> None:
            threads = [threading.Thread(target=answer_to, args=(address, frame)) for _ in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        outcomes.append((name, measured(broker, send)))
    return outcomes


def new_broker() -> EmbeddedBroker:
    """Return a broker with both topics; not started."""
    return EmbeddedBroker(topics={TOPIC: 1, EXISTING: 1}, auto_create_topics=False)


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("apis", nargs="*", metavar="API", help="all that are announced unless named")
    parser.add_argument("--clients", type=int, default=1, help="that send the same at once")
    parser.add_argument("--elements", type=int, default=MANY)
    parser.add_argument("--text", type=int, default=32_000, help="characters of a text")
    options = parser.parse_args()
    bad = 0
    print("| request | worst shape | longest wait | memory | CPU |\n|---|---|---|---|---|")
    with quiet_errors():
        with EmbeddedBroker() as broker:
            apis = announced(broker.bootstrap_servers)
        for api, version in apis:
            if options.apis and api.name not in options.apis:
                continue
            with new_broker() as broker:
                costs = worst_costs(broker, api, version, options.elements, options.text, options.clients)
                broker.kill()
            name = max(costs, key=lambda each: each[1].cpu_s)[0]
            wait_s, grown_bytes, cpu_s = (max(values) for values in zip(*(cost for _, cost in costs), strict=True))
            is_bad = wait_s > MAX_WAIT_S or grown_bytes > MAX_BYTES
            bad += is_bad
            row = f"| {api.name} {version} | {name} | {wait_s:.2f} s | {grown_bytes >> 20} MiB | {cpu_s:.2f} s |"
            print(f"{row}{' <- too much' if is_bad else ''}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
