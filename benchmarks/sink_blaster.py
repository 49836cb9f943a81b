"""How fast is the sink? Sends one prebuilt Produce request over and over and reports bytes a second.

    python -m benchmarks.sink_blaster [--batch-bytes 262144] [--partitions 6] [--seconds 3] [--keep-bytes]

A producer benchmark whose figure comes near this ceiling measures the sink, not the producer.
"""

import argparse
import socket
import struct
import threading
import time
from collections.abc import Sequence

from crc32c import crc32c

from benchmarks.sink import Sink
from benchmarks.sink_wire import uvarint


def record_batch(
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
    timestamp_ms: int = 1_700_000_000_000,
) -> bytes:
    """An uncompressed batch without a producer id; every record has the headers."""
    records = bytearray()
    end = uvarint(len(headers) * 2) + b"".join(_field(name.encode()) + _field(value) for name, value in headers)
    for delta, value in enumerate(values):
        key = None if keys is None else keys[delta]
        body = b"\0\0" + uvarint(delta * 2) + _field(key) + _field(value) + end
        records += uvarint(len(body) * 2) + body
    header = struct.pack(">hiqqqhii", 0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
    checked = header + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def _field(data: bytes | None) -> bytes:
    return b"\x01" if data is None else uvarint(len(data) * 2) + data


def produce_request(
    version: int, correlation_id: int, batches: Sequence[tuple[str, int, bytes]], *, acks: int = -1
) -> bytes:
    """A whole Produce frame, versions 3 to 12; batches are (topic, partition, batch)."""
    flexible = version >= 9
    tags = b"\0" if flexible else b""

    def length(count: int) -> bytes:
        return uvarint(count + 1) if flexible else struct.pack(">i", count)

    body = b"\0" if flexible else b"\xff\xff"
    topics: dict[str, list[bytes]] = {}
    for topic, index, batch in batches:
        topics.setdefault(topic, []).append(struct.pack(">i", index) + length(len(batch)) + batch + tags)
    body += struct.pack(">hi", acks, 30_000) + length(len(topics))
    for topic, partitions in topics.items():
        name = topic.encode()
        body += (uvarint(len(name) + 1) if flexible else struct.pack(">h", len(name))) + name
        body += length(len(partitions)) + b"".join(partitions) + tags
    header = struct.pack(">hhih", 0, version, correlation_id, 5) + b"blast" + tags
    return struct.pack(">i", len(header) + len(body) + len(tags)) + header + body + tags


def blast(sink: Sink, request: bytes, seconds: float) -> float:
    """Send one request again and again, reading the replies on another thread; return acknowledged bytes a second."""
    with socket.create_connection(("127.0.0.1", sink.ports[0])) as connection:
        connection.sendall(request)
        reply_bytes = 4 + int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        connection.recv(reply_bytes - 4, socket.MSG_WAITALL)

        def read_replies() -> None:
            while connection.recv(64 * 1024):
                pass

        reader = threading.Thread(target=read_replies)
        reader.start()
        sink.reset()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        reader.join()
        return sink.counts().requests * len(request) / (time.perf_counter() - start)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-bytes", type=int, default=256 * 1024)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--keep-bytes", action="store_true")
    parser.add_argument("--check-crc", action="store_true")
    options = parser.parse_args()
    batch = record_batch([bytes(100)] * (options.batch_bytes // 108))
    request = produce_request(9, 1, [("bench", index, batch) for index in range(options.partitions)])
    with Sink({"bench": options.partitions}, keep_bytes=options.keep_bytes, check_crc=options.check_crc) as sink:
        rate = blast(sink, request, options.seconds)
        counts = sink.counts()
        print(
            f"{rate / 1e9:.2f} GB/s, {counts.records / options.seconds / 1e6:.1f} M records/s, "
            f"{counts.batches / options.seconds:,.0f} batches/s, sink CPU {counts.cpu_s / options.seconds:.0%}"
        )


if __name__ == "__main__":
    main()
