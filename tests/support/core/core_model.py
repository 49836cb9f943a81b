"""Record batches and Produce bodies in plain Python, from the protocol guide alone: the oracle of the core's tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
CRC_START = 21
INT32_MAX = 2**31 - 1

Headers = tuple[tuple[str, bytes | None], ...]


class ModelRecord(NamedTuple):
    """A record as it was given and as it should be read back."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """A decoded batch: the fields of its header and its records."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[ModelRecord, ...]
    size: int


def wrapped(n: int) -> int:
    """A sum or difference of 64-bit integers as Java and C compute it: timestamps of a batch may be that far apart."""
    return (n + 2**63) % 2**64 - 2**63


def varint(n: int) -> bytes:
    """Zigzag varint of any 64-bit integer."""
    u = ((n << 1) ^ (n >> 63)) & (2**64 - 1)
    out = bytearray()
    while u >= 0x80:
        out.append(u & 0x7F | 0x80)
        u >>= 7
    out.append(u)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag varint at `at` and the position after it."""
    u = shift = 0
    while True:
        u |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (u >> 1) ^ -(u & 1), at
        shift += 7


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: ModelRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    """A record as it stands in a batch."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + _field(record.key) + _field(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _field(name.encode()) + _field(value)
    return varint(len(body)) + body


def encode_batch(
    records: Sequence[ModelRecord],
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """A sealed batch; `payload` replaces the records section (compressed)."""
    base = records[0].timestamp
    if payload is None:
        payload = b"".join(encode_record(r, wrapped(r.timestamp - base), i) for i, r in enumerate(records))
    rest = struct.pack(
        ">hiqqqhii",
        attributes,
        len(records) - 1,
        base,
        max(r.timestamp for r in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c.crc32c(rest + payload)
    return struct.pack(">qiibI", 0, HEADER_BYTES + len(payload) - 12, -1, 2, crc) + rest + payload


def decode_batch(data: bytes, records_section: bytes | None = None) -> ModelBatch:
    """Decode one batch and check every length and the CRC; `records_section` is the decompressed one."""
    fields = HEADER.unpack_from(data)
    base_offset, length, leader_epoch, magic, crc, attributes, last_delta, base, latest, pid, epoch, seq, count = fields
    assert magic == 2
    size = length + 12
    assert crc == crc32c.crc32c(data[CRC_START:size])
    payload = data[HEADER_BYTES:size] if records_section is None else records_section
    at = 0
    records = []
    for i in range(count):
        body_size, at = read_varint(payload, at)
        end = at + body_size
        assert payload[at] == 0
        timestamp_delta, at = read_varint(payload, at + 1)
        offset_delta, at = read_varint(payload, at)
        assert offset_delta == i
        key, at = _read_field(payload, at)
        value, at = _read_field(payload, at)
        header_count, at = read_varint(payload, at)
        headers = []
        for _ in range(header_count):
            name, at = _read_field(payload, at)
            header_value, at = _read_field(payload, at)
            assert name is not None
            headers.append((name.decode(), header_value))
        assert at == end
        records.append(ModelRecord(key, value, tuple(headers), wrapped(base + timestamp_delta)))
    assert at == len(payload)
    return ModelBatch(
        base_offset, leader_epoch, attributes, last_delta, base, latest, pid, epoch, seq, tuple(records), size
    )


def _read_field(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    assert at + length <= len(data)
    return data[at : at + length], at + length


class ProduceBody(NamedTuple):
    """A decoded Produce request body; topics are names, or ids from version 13 on."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: list[tuple[str | bytes, int, bytes]]


def decode_produce_body(version: int, data: bytes) -> ProduceBody:
    """Decode versions 3 to 13 and check that nothing is left over."""
    reader = _BodyReader(data, flexible=version >= 9)
    transactional_id = reader.text()
    acks, timeout_ms = struct.unpack(">hi", reader.take(6))
    batches: list[tuple[str | bytes, int, bytes]] = []
    for _ in range(reader.count()):
        topic = reader.take(16) if version >= 13 else reader.text()
        assert topic is not None
        for _ in range(reader.count()):
            (partition,) = struct.unpack(">i", reader.take(4))
            batches.append((topic, partition, reader.take(reader.count())))
            reader.end_struct()
        reader.end_struct()
    reader.end_struct()
    assert reader.at == len(data)
    return ProduceBody(transactional_id, acks, timeout_ms, batches)


class _BodyReader:
    def __init__(self, data: bytes, flexible: bool) -> None:
        self.data = data
        self.at = 0
        self.flexible = flexible

    def take(self, size: int) -> bytes:
        assert self.at + size <= len(self.data)
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self) -> int:
        """An array count or a byte length; never null."""
        if not self.flexible:
            return int(struct.unpack(">i", self.take(4))[0])
        return self._uvarint() - 1

    def text(self) -> str | None:
        size = self._uvarint() - 1 if self.flexible else struct.unpack(">h", self.take(2))[0]
        return None if size < 0 else self.take(size).decode()

    def end_struct(self) -> None:
        if self.flexible:
            assert self.take(1) == b"\x00"

    def _uvarint(self) -> int:
        u = shift = 0
        while True:
            byte = self.take(1)[0]
            u |= (byte & 0x7F) << shift
            if byte < 0x80:
                return u
            shift += 7


def records_of(batches: Iterable[bytes]) -> list[ModelRecord]:
    """The records of uncompressed batches, in order."""
    return [record for batch in batches for record in decode_batch(batch).records]


def with_crc(batch: bytes) -> bytes:
    """The batch with its length and CRC made right."""
    fixed = bytearray(batch)
    fixed[8:12] = struct.pack(">i", len(batch) - 12)
    fixed[17:21] = struct.pack(">I", crc32c.crc32c(bytes(fixed[CRC_START:])))
    return bytes(fixed)
