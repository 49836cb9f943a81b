"""kafka-python. Way: ``send``. Batches of 256 KiB: its default of 16 KiB is documented as a choice for latency."""

import time
from collections.abc import Callable
from typing import Any

import kafka
import kafka.version

from benchmarks.peers.driver import Client, main
from benchmarks.peers.task import Records, Task

BATCH_BYTES = 256 * 1024


class Sender:
    """One record a call."""

    version = kafka.version.__version__

    def __init__(self, task: Task, records: Records) -> None:
        self.settings: dict[str, Any] = {
            "acks": task.acks if task.acks == "all" else int(task.acks),
            "enable_idempotence": task.idempotence,
            "linger_ms": task.linger_ms,
            "compression_type": None if task.compression == "none" else task.compression,
            "batch_size": task.batch_bytes or BATCH_BYTES,
        }
        self._results = task.results
        self._headers = records.headers
        topics = task.topic_names()
        self._rows = records.rows(topics)
        self._producer = kafka.KafkaProducer(bootstrap_servers=task.bootstrap.split(","), **self.settings)
        for topic in topics:
            self._producer.partitions_for(topic)

    def send_round(self) -> None:
        send, headers = self._producer.send, self._headers
        if self._results == "ignored":
            for topic, value, key in self._rows:
                send(topic, value, key, headers)
        elif self._results == "callback":
            acknowledged: list[object] = []
            for topic, value, key in self._rows:
                send(topic, value, key, headers).add_callback(acknowledged.append)
        else:
            futures = [send(topic, value, key, headers) for topic, value, key in self._rows]
            assert all(future.get().offset >= -1 for future in futures)

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        topic, value, key = self._rows[index % len(self._rows)]
        future = self._producer.send(topic, value, key)
        if on_done is not None:
            future.add_callback(lambda _: on_done())

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def flush(self) -> None:
        self._producer.flush(120)


def make_client(task: Task, records: Records) -> Client:
    """The client."""
    return Sender(task, records)


if __name__ == "__main__":
    main(make_client)
