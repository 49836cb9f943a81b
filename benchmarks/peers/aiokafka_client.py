"""aiokafka. Way: ``send``, awaited on its event loop. Batches of 256 KiB: its default of 16 KiB is for latency."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka

from benchmarks.peers.driver import Client, main
from benchmarks.peers.task import Records, Task

BATCH_BYTES = 256 * 1024
MAX_REQUEST_BYTES = 16 * 1024 * 1024


class Sender:
    """One record an awaited call; where results are read, those of a round are gathered at its end."""

    version = aiokafka.__version__

    def __init__(self, task: Task, records: Records) -> None:
        self.settings: dict[str, Any] = {
            "acks": task.acks if task.acks == "all" else int(task.acks),
            "enable_idempotence": task.idempotence,
            "linger_ms": task.linger_ms,
            "compression_type": None if task.compression == "none" else task.compression,
            "max_batch_size": task.batch_bytes or BATCH_BYTES,
            "max_request_size": MAX_REQUEST_BYTES,
        }
        self._bootstrap = task.bootstrap
        self._headers = records.headers
        self._is_reading = task.results == "read"
        topics = task.topic_names()
        self._rows = records.rows(topics)
        self._runner = asyncio.Runner()
        self._producer = self._runner.run(self._start(topics))

    async def _start(self, topics: list[str]) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, **self.settings)
        await producer.start()
        for topic in topics:
            await producer.partitions_for(topic)
        return producer

    def send_round(self) -> None:
        self._runner.run(self._send_round())

    async def _send_round(self) -> None:
        send, headers = self._producer.send, self._headers or None
        if self._is_reading:
            futures = [await send(topic, value, key, headers=headers) for topic, value, key in self._rows]
            assert all(metadata.offset >= -1 for metadata in await asyncio.gather(*futures))
        else:
            for topic, value, key in self._rows:
                await send(topic, value, key, headers=headers)

    def send_one(self, index: int, on_done: Callable[[], None] | None) -> None:
        raise NotImplementedError("latencies are taken of other clients")

    def idle(self, seconds: float) -> None:
        raise NotImplementedError("latencies are taken of other clients")

    def flush(self) -> None:
        self._runner.run(self._producer.flush())


def make_client(task: Task, records: Records) -> Client:
    """The client."""
    return Sender(task, records)


if __name__ == "__main__":
    main(make_client)
