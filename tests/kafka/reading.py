"""Read back what a producer wrote, with clients that are not ours: librdkafka and the Java console consumer."""

import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tests.kafka.runtime import FAST_START, java, run_java, tools_class_path

CREATE_TIME = 1
LOG_APPEND_TIME = 2

# consume() returns early only when it is full: a short slice keeps small topics quick.
_CONSUME_SLICE_S = 0.02

_FIELD = "\x1f"
_RECORD = "\x1e"
_NULL = "\x1cnull"


class ReadRecord(NamedTuple):
    """One record as a consumer saw it; ``timestamp`` in ms, ``timestamp_type`` CREATE_TIME or LOG_APPEND_TIME."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    timestamp_type: int


def read_all(
    bootstrap: str,
    topic: str,
    *,
    start_offsets: Mapping[int, int] | None = None,
    isolation_level: str = "read_committed",
    timeout_s: float = 60,
    config: Mapping[str, object] | None = None,
) -> dict[int, list[ReadRecord]]:
    """Read a topic from its beginning (or ``start_offsets``) to its end; CRCs are checked.

    Returns:
        For every partition of the topic its records in log order.

    Raises:
        KafkaException: the broker or a batch is bad.
        TimeoutError: the end of a partition was not reached for ``timeout_s`` without a new record.
    """
    wide = {"fetch.wait.max.ms": 10, "queued.min.messages": 1_000_000}
    consumer = _reader(bootstrap, isolation_level, {**wide, **(config or {})})
    try:
        partitions = _partitions_of(consumer, topic)
        starts = start_offsets or {}
        consumer.assign([TopicPartition(topic, index, starts.get(index, OFFSET_BEGINNING)) for index in partitions])
        records: dict[int, list[ReadRecord]] = {index: [] for index in partitions}
        unread = set(partitions)
        deadline = time.monotonic() + timeout_s
        while unread:
            batch = consumer.consume(10_000, timeout=_CONSUME_SLICE_S)
            if batch:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: end of partitions {sorted(unread)} not reached")
            for message in batch:
                index = cast(int, message.partition())
                error = message.error()
                if error is None:
                    timestamp_type, timestamp = message.timestamp()
                    records[index].append(
                        ReadRecord(
                            cast(int, message.offset()),
                            message.key(),
                            message.value(),
                            cast(list[tuple[str, bytes | None]], message.headers() or []),
                            timestamp,
                            timestamp_type,
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(index)
                else:
                    raise KafkaException(error)
        return records
    finally:
        consumer.close()


def read_values(bootstrap: str, topic: str, *, isolation_level: str = "read_committed") -> Iterator[bytes]:
    """Yield the values of a topic up to the end of each partition, without keeping them.

    Raises:
        KafkaException: the broker or a batch is bad.
        TimeoutError: no record and no end came for 60 s.
    """
    consumer = _reader(bootstrap, isolation_level, {})
    try:
        unread = set(_partitions_of(consumer, topic))
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in unread])
        while unread:
            message = consumer.poll(60)
            if message is None:
                raise TimeoutError(f"{topic}: end of partitions {sorted(unread)} not reached")
            error = message.error()
            if error is None:
                yield message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(cast(int, message.partition()))
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def _reader(bootstrap: str, isolation_level: str, config: Mapping[str, object]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"read-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation_level,
            "log_level": 0,
            **config,
        }
    )


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """The next offset of each partition (control records count)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"read-{uuid.uuid4().hex}",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        return {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1]
            for index in _partitions_of(consumer, topic)
        }
    finally:
        consumer.close()


def read_with_java(
    bootstrap: str, topic: str, count: int, *, isolation_level: str = "read_committed", timeout_ms: int = 60_000
) -> dict[int, list[ReadRecord]]:
    """Read ``count`` records with Java's console consumer; the first missing one ends it after ``timeout_ms``.

    On a busy machine a JVM takes more than 15 s to join its group and fetch the first record.

    Keys, values and headers must be UTF-8 text without control characters: the tool prints text.
    """
    properties = {
        "print.timestamp": "true",
        "print.partition": "true",
        "print.offset": "true",
        "print.headers": "true",
        "print.key": "true",
        "print.value": "true",
        "key.separator": _FIELD,
        "headers.separator": "\x1d",
        "line.separator": _RECORD,
        "null.literal": _NULL,
    }
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
    arguments += ["--max-messages", str(count), "--timeout-ms", str(timeout_ms), "--isolation-level", isolation_level]
    for name, value in properties.items():
        arguments += ["--formatter-property", f"{name}={value}"]
    tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    output = run_java(tools_class_path(), tool, arguments, timeout_s=60 + timeout_ms / 1000)
    records: dict[int, list[ReadRecord]] = {}
    for line in output.split(_RECORD)[:-1]:
        partition, record = _parse_java_line(line)
        records.setdefault(partition, []).append(record)
    return records


def values_with_java(
    bootstrap: str, topic: str, most: int, *, isolation_level: str = "read_committed", timeout_ms: int = 20_000
) -> Iterator[bytes]:
    """Yield the values that Java's console consumer prints, which ends after `most` or when none comes for a while.

    Values must be text without line ends. Ask for one more than there should be, to see the one too many.
    """
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", str(most)]
    arguments += ["--timeout-ms", str(timeout_ms), "--isolation-level", isolation_level]
    command = java(tools_class_path(), "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, FAST_START)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield line.removesuffix(b"\n")
    if process.returncode:
        raise RuntimeError(f"Java's console consumer ended with {process.returncode}")


def _parse_java_line(line: str) -> tuple[int, ReadRecord]:
    timestamp, partition, offset, headers, key, value = line.split(_FIELD)
    timestamp_type, _, timestamp_ms = timestamp.partition(":")
    return int(partition.removeprefix("Partition:")), ReadRecord(
        int(offset.removeprefix("Offset:")),
        _java_bytes(key),
        _java_bytes(value),
        [] if headers == "NO_HEADERS" else [_java_header(header) for header in headers.split("\x1d")],
        int(timestamp_ms),
        {"CreateTime": CREATE_TIME, "LogAppendTime": LOG_APPEND_TIME}[timestamp_type],
    )


def _java_header(text: str) -> tuple[str, bytes | None]:
    name, _, value = text.partition(":")
    return name, _java_bytes(value)


def _java_bytes(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


def _partitions_of(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=30).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return sorted(metadata.partitions)
