"""The bare send: prebuilt requests with the bytes of the task's records over a socket, with their answers read.

No client can be cheaper on the same host, so its CPU time a record is what the others' is a multiple of. Way: ``send``.
Batches are of 256 KiB and go to topics and partitions in turn; six are a request, five requests are in flight.
"""

import socket
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.peers.driver import Client, main
from benchmarks.peers.task import Records, Task
from benchmarks.sink_blaster import produce_request, record_batch
from kafkaprod import Producer

BATCH_BYTES = 256 << 10
BATCHES_A_REQUEST = 6
IN_FLIGHT = 5
ACKS = {"all": -1, "1": 1, "0": 0}


class BareSend:
    """One connection to the first of the task's addresses, which must lead every partition."""

    version = "none"

    def __init__(self, task: Task, records: Records) -> None:
        if task.compression != "none":
            raise SystemExit("the bare send has no codec: what is sent would not be the same bytes")
        self.settings: dict[str, Any] = {"acks": task.acks, "batch_bytes": BATCH_BYTES}
        self._acks = ACKS[task.acks]
        self._requests = _requests(task, records, self._acks)
        host, _, port = task.bootstrap.split(",")[0].rpartition(":")
        self._connection = socket.create_connection((host, int(port)))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_flight = 0
        self._turn = threading.Lock()

    def send_round(self) -> None:
        with self._turn:  # threads send their rounds one after the other
            for request in self._requests:
                if self._in_flight == IN_FLIGHT:
                    self._read_answer()
                self._connection.sendall(request)
                self._in_flight += self._acks != 0

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        raise NotImplementedError("the bare send has no pace")

    def idle(self, seconds: float) -> None:
        raise NotImplementedError("the bare send has no pace")

    def flush(self) -> None:
        while self._in_flight:
            self._read_answer()

    def _read_answer(self) -> None:
        size = int.from_bytes(self._connection.recv(4, socket.MSG_WAITALL))
        if len(self._connection.recv(size, socket.MSG_WAITALL)) != size:
            raise ConnectionError("the far end closed the connection")
        self._in_flight -= 1


def _requests(task: Task, records: Records, acks: int) -> list[bytes]:
    """Every record of a round once."""
    keys = [None] * len(records.values) if records.keys is None else records.keys
    size = len(records.values[0]) + len(keys[0] or b"") + sum(len(name) + len(value) for name, value in records.headers)
    rows = max(1, BATCH_BYTES // (size + 10))
    topics = task.topic_names()
    with Producer(bootstrap_servers=task.bootstrap) as producer:
        partitions = len(producer.partitions_for(topics[0]))
    batches = []
    for number, first in enumerate(range(0, len(records.values), rows)):
        batch = record_batch(records.values[first : first + rows], keys[first : first + rows], records.headers)
        batches.append((topics[number % len(topics)], number // len(topics) % partitions, batch))
    step = min(BATCHES_A_REQUEST, partitions * len(topics))  # a request has a partition once
    return [produce_request(9, 1, batches[first : first + step], acks=acks) for first in range(0, len(batches), step)]


def make_client(task: Task, records: Records) -> Client:
    """The one way."""
    return BareSend(task, records)


if __name__ == "__main__":
    main(make_client)
