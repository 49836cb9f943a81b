"""The worst request of each API that the broker announces: its CPU time, its memory, how long an honest client waits.

    python -m tests.campaigns.worst_requests [API ...] [--clients 10] [--shape NAME]

Requests are made of the declarations, in several shapes: as many elements as a request may have in its own arrays, in
the arrays inside, or a share in each; and long texts and buffers. Their names are those of a topic that exists, or new
ones.
Then come requests of which the answer is large, or takes work, because much was made before (`worst_cases`).
With `--clients` as many clients send the same at once. How long the honest client waits grows with what else the
machine does; the CPU time that the brokers use meanwhile does not, and on a quiet machine it is the wait. The processes
of a cluster work at the same time: there the wait is that of one process at least, and that of all at most. Exit status
1 if that of one process is more than `MAX_WAIT_S`, or memory grows by more than `MAX_BYTES`; with several clients
`MAX_WAIT_OF_MANY_S` and `MAX_BYTES_OF_MANY`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafkaprod.broker.config import Limits
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, FixedType, ScalarType, StructType
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.schema import Request, Struct
from tests.campaigns.hostile_clients import TOPIC, ask, cpu_seconds, peak_resident_bytes, quiet_errors
from tests.support.broker.hostile_settings import MANY, frame_of
from tests.support.broker.measured_broker import longest_step_s, longest_turn, measured_brokers
from tests.support.broker.worst_cases import EXISTING, prepared
from tests.support.net.protocol_samples import kind_of
from tests.support.net.raw_client import RawClient

MAX_WAIT_S: Final = 0.5
MAX_BYTES: Final = 64 << 20
MAX_WAIT_OF_MANY_S: Final = 2.0
MAX_BYTES_OF_MANY: Final = 300 << 20
PREPARATION_S: Final = 60.0
FRAME_BYTES: Final = Limits().max_other_request_bytes
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
    """Every shape of about that many elements, and texts of that length; "full" is as large as a frame may be."""
    full_text = min(text, FRAME_BYTES // elements)
    root = max(int(elements**0.5) - 4, 1)
    return [
        Shape("wide", elements, 0, 12, exists=False),
        Shape("deep", 1, elements, 12, exists=True),
        Shape("square", root, root, 12, exists=False),
        Shape("same name", elements, 0, 12, exists=True),
        Shape("long", 20, 20, text, exists=False),
        Shape("full", elements, 0, full_text, exists=False),
    ]


def made(request_class: type[Request], version: int, shape: Shape) -> Request:
    """Return the request of a shape; numbers have their defaults."""
    numbers = itertools.count()

    def text() -> str:
        return EXISTING if shape.exists else f"n{next(numbers)}".ljust(shape.text, "x")

    def value_of(field_type: Any, depth: int, arrays: int) -> Any:
        """Make a value; None for the default. The element of an array has no `arrays` beside it."""
        if isinstance(field_type, type):
            return struct_of(field_type, depth)
        if isinstance(field_type, ArrayType):
            count = (shape.outer, shape.inner)[depth] // max(arrays, 1) if depth < 2 else 1
            return [value_of(field_type.element, depth + 1, 0) for _ in range(count)]
        if isinstance(field_type, StructType):
            return struct_of(field_type.struct_class, depth)
        if isinstance(field_type, ScalarType) and kind_of(field_type) != "uuid":
            kind = kind_of(field_type)
            return text() if kind == "string" else text().encode()
        if isinstance(field_type, FixedType) and arrays == 0:
            return next(numbers) % 100
        return None

    def struct_of(struct_class: type[Struct], depth: int) -> Any:
        values = {}
        arrays = sum(item.is_in(version) and isinstance(item.type, ArrayType) for item in struct_class.fields)
        for item in struct_class.fields:
            if item.is_in(version) and (value := value_of(item.type, depth, max(arrays, 1))) is not None:
                values[item.name] = value
        return struct_class(**values)

    request: Request = struct_of(request_class, 0)
    return request


def frames(request_class: type[Request], version: int, elements: int, text: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each shape, and the request as bytes."""
    for shape in shapes(elements, text):
        frame = frame_of(made(request_class, version, shape), version)
        while len(frame) > FRAME_BYTES:
            shape = shape._replace(text=shape.text * FRAME_BYTES // len(frame) * 9 // 10)
            frame = frame_of(made(request_class, version, shape), version)
        yield shape.name, frame


class Cost(NamedTuple):
    """Of one request.

    Attributes:
        wait_s: The longest of the honest client.
        busy_s: CPU time that the processes used together during one of its waits, at most.
        busiest_s: The same of that one process that used most.
        grown_bytes: By how much the broker's memory was larger than before, at most.
        cpu_s: CPU time of the broker until the answer.
        step_s: CPU time of the longest step of one thread, of an event loop or a control thread, for this API until
            now.
    """

    wait_s: float
    busy_s: float
    busiest_s: float
    grown_bytes: int
    cpu_s: float
    step_s: float


class Target(NamedTuple):
    """What is attacked.

    Attributes:
        address: Of the broker that gets the requests, and that leads the honest client's topic.
        pids: The processes whose memory and CPU time count together.
        turns: What `longest_turn` and `longest_step_s` read.
        settle: Waits until all that was made is there.
    """

    address: str
    pids: list[int]
    turns: Path
    settle: Callable[[], object] = lambda: None

    def resident_bytes(self) -> int:
        """Return the peak of all processes since `forget_peak`."""
        return sum(map(peak_resident_bytes, self.pids))

    def cpu_s(self) -> list[float]:
        """Return the CPU time of each process until now."""
        return [cpu_seconds(pid) for pid in self.pids]

    def forget_peak(self) -> None:
        """Let peaks begin again."""
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def step_s(self) -> float:
        """Return the CPU time of the longest step of a thread until now."""
        return max(longest_turn(self.turns).cpu_s, longest_step_s(self.turns))


def measured(target: Target, send: Callable[[], None]) -> Cost:
    """Let an honest client ask again and again while something is sent."""
    waits, busy, busiest = [0.0], [0.0], [0.0]
    wrong: list[Exception] = []
    is_over = threading.Event()

    def be_honest() -> None:
        while not is_over.is_set():
            began_s, used_s = time.monotonic(), target.cpu_s()
            try:
                ask(target.address, False)
            except OSError:
                pass  # the wait counts
            except Exception as error:
                wrong.append(error)
                return
            waits.append(time.monotonic() - began_s)
            used = [now_s - before_s for now_s, before_s in zip(target.cpu_s(), used_s, strict=True)]
            busy.append(sum(used))
            busiest.append(max(used))
            is_over.wait(0.02)

    target.forget_peak()
    before, used_s = target.resident_bytes(), sum(target.cpu_s())
    honest = threading.Thread(target=be_honest)
    honest.start()
    try:
        send()
    finally:
        used_s = sum(target.cpu_s()) - used_s
        is_over.set()
        honest.join()
    if wrong:
        raise wrong[0]
    return Cost(max(waits), max(busy), max(busiest), target.resident_bytes() - before, used_s, target.step_s())


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


def send_at_once(address: str, frame: bytes, clients: int) -> None:
    """Have some clients send the same; return when each is answered, or does not wait any longer."""
    threads = [threading.Thread(target=answer_to, args=(address, frame)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def worst_costs(
    target: Target, api: ApiKey, version: int, elements: int, text: int, clients: int = 1, only: str | None = None
) -> list[tuple[str, Cost]]:
    """Measure each shape of an API, or `only` one, and what it costs when there is much to be answered."""
    ask(target.address, False)
    outcomes = []
    for name, frame in frames(REQUESTS[api], version, elements, text):
        if only not in (None, name):
            continue
        outcomes.append((name, measured(target, partial(send_at_once, target.address, frame, clients))))
    for name, case in prepared(api, elements):
        if only not in (None, name):
            continue
        for frame in case.before:
            answer_to(target.address, frame, PREPARATION_S)
        target.settle()
        outcomes.append((name, measured(target, partial(send_at_once, target.address, case.frame, clients))))
    return outcomes


def new_broker() -> EmbeddedBroker:
    """Return a broker with both topics; not started."""
    return EmbeddedBroker(topics={TOPIC: 1, EXISTING: 1}, auto_create_topics=False)


@contextlib.contextmanager
def lone_target() -> Iterator[Target]:
    """Run a broker alone."""
    with measured_brokers() as turns, new_broker() as broker:
        yield Target(broker.bootstrap_servers, [broker.pid], turns)
        broker.kill()


@contextlib.contextmanager
def cluster_target() -> Iterator[Target]:
    """Run a cluster of three."""
    with measured_brokers() as turns, EmbeddedCluster(topics={EXISTING: 1}, auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, assignment=[[1, 2, 3]])
        cluster.wait_until_in_sync()
        pids = [cluster.controller.pid, *(broker.pid for broker in cluster.brokers)]
        settle = partial(cluster.wait_until_applied, PREPARATION_S)
        yield Target(f"127.0.0.1:{cluster.broker(1).port}", pids, turns, settle)


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("apis", nargs="*", metavar="API", help="all that are announced unless named")
    parser.add_argument("--clients", type=int, default=1, help="that send the same at once")
    parser.add_argument("--cluster", action="store_true", help="three brokers in place of one")
    parser.add_argument("--shape", help="the only one to send, such as the worst of an earlier run")
    parser.add_argument("--elements", type=int, default=MANY)
    parser.add_argument("--text", type=int, default=32_000, help="characters of a text")
    options = parser.parse_args()
    bad = 0
    max_wait_s, max_bytes = (MAX_WAIT_S, MAX_BYTES) if options.clients == 1 else (MAX_WAIT_OF_MANY_S, MAX_BYTES_OF_MANY)
    print("| request | worst shape | longest wait | CPU meanwhile | of one process | memory | CPU | longest step |")
    print("|---|---|---|---|---|---|---|---|")
    with quiet_errors():
        with EmbeddedBroker() as broker:
            apis = announced(broker.bootstrap_servers)
        for api, version in apis:
            if options.apis and api.name not in options.apis:
                continue
            with cluster_target() if options.cluster else lone_target() as target:
                sizes = options.elements, options.text
                costs = worst_costs(target, api, version, *sizes, options.clients, options.shape)
            name = max(costs, key=lambda each: each[1].cpu_s)[0]
            worst = Cost(*(max(values) for values in zip(*(cost for _, cost in costs), strict=True)))
            is_bad = worst.busiest_s > max_wait_s or worst.grown_bytes > max_bytes
            bad += is_bad
            row = f"| {api.name} {version} | {name} | {worst.wait_s:.2f} s | {worst.busy_s:.2f} s"
            row += f" | {worst.busiest_s:.2f} s | {worst.grown_bytes >> 20} MiB | {worst.cpu_s:.2f} s"
            row += f" | {worst.step_s:.2f} s |"
            print(f"{row}{' <- too much' if is_bad else ''}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
