"""Read the record batches of a topic as its log holds them, which is as they were on the wire: sizes, codecs."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from kafkaprod._core.records.batch_reader import RecordBatchReader, read_batches
from kafkaprod.compression import CODEC_NAMES, decompress
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.net.raw_client import RawClient

LARGE_BYTES = 64 << 10
_FETCH_VERSION = 11  # Kafka 2.3 to 4, librdkafka's mock cluster
_MOST_BYTES = 64 << 20


def read_log(bootstrap: str, topic: str) -> dict[int, list[RecordBatchReader]]:
    """Each partition's batches from offset 0 to the high watermark, CRCs checked, from the partitions' leaders."""
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30)
    partitions = metadata.topics[topic].partitions
    return {
        index: _read_partition(f"{leader.host}:{leader.port}", topic, index)
        for index, leader in ((index, metadata.brokers[each.leader]) for index, each in partitions.items())
    }


def _read_partition(leader: str, topic: str, index: int) -> list[RecordBatchReader]:
    found: list[RecordBatchReader] = []
    with RawClient(leader) as client:
        while True:
            offset = found[-1].last_offset + 1 if found else 0
            wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_MOST_BYTES)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=_MOST_BYTES,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            answer = client.call(request, FetchResponse, _FETCH_VERSION).responses[0].partitions[0]
            assert answer.error_code == 0, f"{topic}[{index}] at {offset}: error {answer.error_code}"
            if offset >= answer.high_watermark:
                return found
            assert answer.records, f"{topic}[{index}] at {offset} of {answer.high_watermark}: nothing came"
            found += read_batches(answer.records, decompress)


def codecs_of_large_batches(log: Mapping[int, list[RecordBatchReader]]) -> set[str]:
    """Names of the codecs of all batches that took more than 64 KiB on the wire, compressed as they were.

    64 KiB is where codecs begin another block.
    """
    batches = [batch for partition in log.values() for batch in partition]
    return {CODEC_NAMES[batch.codec_id] for batch in batches if batch.size_bytes > LARGE_BYTES}
