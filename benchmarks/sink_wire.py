"""The replies of the sink, encoded by hand: ApiVersions 0-4, Metadata 0-12, InitProducerId 0-4, Produce 3-11.

Pure functions from bytes to bytes. Requests other than Produce are small and read with `Cursor`; Produce requests
are read in place by `benchmarks.sink_server`, only their reply is built here.

Source: Kafka protocol guide; message schemas of Apache Kafka 4.3.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 10, 18, 22

# Fetch, ListOffsets and FindCoordinator are named because librdkafka derives features (record batch v2, lz4) from
# their presence; a client that sends one is disconnected. Produce says 0 because librdkafka turns compression off when
# it does not see it (KAFKA-18659).
ADVERTISED = {
    PRODUCE: (0, 11),
    FETCH: (4, 12),
    LIST_OFFSETS: (1, 7),
    METADATA: (0, 12),
    FIND_COORDINATOR: (0, 4),
    API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 4),
}
UNSUPPORTED_VERSION, UNKNOWN_TOPIC = 35, 3
PRODUCE_FLEXIBLE_FROM, METADATA_FLEXIBLE_FROM, INIT_PRODUCER_ID_FLEXIBLE_FROM = 9, 9, 2
_NO_TAGS = b"\0"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the sink pretends to be: one port a node at its host, and for each topic its number of partitions."""

    ports: Sequence[int]
    partition_counts: Mapping[str, int]
    host: str = "127.0.0.1"


class Cursor:
    """Reads one small request from its header on."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def array_length(self, *, flexible: bool) -> int:
        """Number of elements, -1 if null."""
        return self.uvarint() - 1 if flexible else self.unpack(_INT32)[0]

    def string(self, *, flexible: bool) -> str | None:
        length = self.uvarint() - 1 if flexible else self.unpack(_INT16)[0]
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position].decode()

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            size = self.uvarint()
            self.position += size


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_THROTTLE = _INT32.pack(0)


def uvarint(value: int) -> bytes:
    """Unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def frame(correlation_id: int, body: bytes, *, flexible_header: bool) -> bytes:
    """A whole response: size, header (v1 with a tag section, or v0) and body."""
    header = _INT32.pack(correlation_id) + (_NO_TAGS if flexible_header else b"")
    return _INT32.pack(len(header) + len(body)) + header + body


def api_versions_body(version: int) -> bytes:
    """Body for a request of this version; an unknown version is answered in v0 with error 35 (KIP-511)."""
    known = version <= ADVERTISED[API_VERSIONS][1]
    flexible = known and version >= 3
    body = _INT16.pack(0 if known else UNSUPPORTED_VERSION)
    body += _length(len(ADVERTISED), flexible=flexible)
    for key, (lowest, highest) in ADVERTISED.items():
        body += struct.pack(">hhh", key, lowest, highest) + (_NO_TAGS if flexible else b"")
    if known and version >= 1:
        body += _THROTTLE
    return body + (_NO_TAGS if flexible else b"")


def init_producer_id_body(version: int, producer_id: int) -> bytes:
    """Epoch 0 of a new producer id."""
    tags = _NO_TAGS if version >= INIT_PRODUCER_ID_FLEXIBLE_FROM else b""
    return _THROTTLE + struct.pack(">hqh", 0, producer_id, 0) + tags


def requested_topics(version: int, cursor: Cursor) -> list[str] | None:
    """Topic names of a Metadata request; None: all topics."""
    flexible = version >= METADATA_FLEXIBLE_FROM
    count = cursor.array_length(flexible=flexible)
    if count < 0 or (version == 0 and count == 0):
        return None
    names = []
    for _ in range(count):
        if version >= 10:
            cursor.position += 16
        names.append(cursor.string(flexible=flexible) or "")
        if flexible:
            cursor.skip_tags()
    return names


def metadata_body(version: int, layout: Layout, names: Iterable[str] | None) -> bytes:
    """Brokers of the layout, and the topics; the leader of partition p is node p modulo the number of nodes."""
    flexible = version >= METADATA_FLEXIBLE_FROM
    tags = _NO_TAGS if flexible else b""
    body = _THROTTLE if version >= 3 else b""
    body += _length(len(layout.ports), flexible=flexible)
    for node_id, port in enumerate(layout.ports):
        body += _INT32.pack(node_id) + _string(layout.host, flexible=flexible) + _INT32.pack(port)
        body += (_string(None, flexible=flexible) if version >= 1 else b"") + tags
    if version >= 2:
        body += _string("sink", flexible=flexible)
    if version >= 1:
        body += _INT32.pack(0)
    topics = list(layout.partition_counts if names is None else names)
    body += _length(len(topics), flexible=flexible)
    body += b"".join(_topic(version, layout, name) for name in topics)
    if 8 <= version <= 10:
        body += _INT32.pack(-(2**31))
    return body + tags


def _topic(version: int, layout: Layout, name: str) -> bytes:
    flexible = version >= METADATA_FLEXIBLE_FROM
    tags = _NO_TAGS if flexible else b""
    partition_count = layout.partition_counts.get(name, 0)
    encoded = _INT16.pack(0 if partition_count else UNKNOWN_TOPIC) + _string(name, flexible=flexible)
    if version >= 10:
        encoded += uuid5(NAMESPACE_URL, name).bytes
    if version >= 1:
        encoded += b"\0"
    encoded += _length(partition_count, flexible=flexible)
    for index in range(partition_count):
        leader = _INT32.pack(index % len(layout.ports))
        replicas = _length(1, flexible=flexible) + leader
        encoded += struct.pack(">hi", 0, index) + leader
        encoded += _INT32.pack(0) if version >= 7 else b""
        encoded += replicas + replicas
        encoded += (_length(0, flexible=flexible) if version >= 5 else b"") + tags
    if version >= 8:
        encoded += _INT32.pack(-(2**31))
    return encoded + tags


# One accepted partition: index, error, base offset, append time, [v5] log start offset, [v8] no record errors and no
# message, [v9] no tags.
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_PARTITION_V8 = struct.Struct(">ihqqqih")
_PARTITION_V9 = struct.Struct(">ihqqq3s")


def produced_partition(version: int) -> tuple[Callable[..., bytes], tuple[int | bytes, ...]]:
    """How to encode one partition of a Produce reply: ``pack(index, error, base_offset, append_time, *tail)``."""
    if version >= 9:
        return _PARTITION_V9.pack, (0, b"\x01\0\0")
    if version == 8:
        return _PARTITION_V8.pack, (0, 0, -1)
    if version >= 5:
        return _PARTITION_V5.pack, (0,)
    return _PARTITION_V3.pack, ()


def produced_topic(version: int, name: bytes, count: int, partitions: bytes) -> bytes:
    """One topic of a Produce reply, around its ``count`` encoded partitions."""
    flexible = version >= PRODUCE_FLEXIBLE_FROM
    encoded_name = uvarint(len(name) + 1) + name if flexible else _INT16.pack(len(name)) + name
    return encoded_name + _length(count, flexible=flexible) + partitions + (_NO_TAGS if flexible else b"")


def produce_body(version: int, topics: Sequence[bytes]) -> bytes:
    """Body of a Produce reply."""
    flexible = version >= PRODUCE_FLEXIBLE_FROM
    tags = _NO_TAGS if flexible else b""
    return _length(len(topics), flexible=flexible) + b"".join(topics) + _THROTTLE + tags


def _length(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (uvarint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded
