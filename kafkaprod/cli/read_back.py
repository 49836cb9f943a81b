"""Reading a topic back for checking: a few fetches per partition from the leader, batch by batch. Not a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkaprod._core.batch_reader import Record, read_batches
from kafkaprod.clock import SystemClock
from kafkaprod.compression import decompress
from kafkaprod.errors import KafkaError, RequestTimedOutError
from kafkaprod.net.pool import NodePool
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.protocol.error_codes import error_for
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH_BYTES: Final = 16 << 20
TIMEOUT_MS: Final = 30_000
NEWEST_FETCH_BY_NAME: Final = 12


class TopicReader:
    """Reads partitions of a topic from one broker that leads them all. Not thread-safe; close it."""

    def __init__(self, host: str, port: int) -> None:
        self._clock = SystemClock()
        self._pool = NodePool(ConnectionSettings(client_id="kafkaprod-reader"), self._clock)
        self._pool.set_bootstrap([(host, port)])

    def records(self, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
        """Yield the records with offsets from `start` up to, not including, `end`.

        Raises: KafkaError if the broker refuses, CorruptDataError for a damaged batch.
        """
        while start < end:
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchPartition(partition=partition, fetch_offset=start, partition_max_bytes=FETCH_BYTES)
                        ],
                    )
                ],
            )
            response = self._ask(request, NEWEST_FETCH_BY_NAME)
            answer = response.responses[0].partitions[0]
            if answer.error_code:
                raise error_for(answer.error_code, topic=topic, partition=partition)
            for batch in read_batches(answer.records or b"", decompress):
                if not batch.is_control:
                    yield from (record for record in batch.records() if start <= record.offset < end)
                start = max(start, batch.last_offset + 1)

    def _ask(self, request: FetchRequest, version: int) -> FetchResponse:
        deadline_ms = self._clock.now_ms() + TIMEOUT_MS
        is_sent = False
        while (now_ms := self._clock.now_ms()) < deadline_ms:
            if not is_sent and self._pool.is_ready(-1, now_ms):
                self._pool.send(-1, request, token=None, now_ms=now_ms, timeout_ms=TIMEOUT_MS, version=version)
                is_sent = True
            for completion in self._pool.poll(deadline_ms - now_ms if is_sent else 50):
                if completion.error is not None:
                    raise completion.error
                answer: FetchResponse = completion.response
                return answer
        failures = self._pool.bootstrap_failures()
        error: KafkaError = self._pool.bootstrap_error() if failures else RequestTimedOutError("no answer to a fetch")
        raise error

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()
