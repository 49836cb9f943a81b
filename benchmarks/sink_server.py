"""The sink's event loop: accepts connections, counts the batches of Produce requests, acknowledges, forgets.

Runs in the sink's own process, on one thread. Of a produce request only the framing and each batch's 61-byte header
come into memory: once a batch's header is read, the kernel is told to drop the rest of it (``MSG_TRUNC`` on a TCP
socket discards without copying), unless CRCs are to be checked. Record contents are never looked at.
"""

import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Generator

from benchmarks import sink_wire as wire

# A read that does not know what comes is short, so that most of a large batch is left to be dropped by the kernel.
_READ_BYTES = 16 * 1024
_BUFFER_BYTES = 256 * 1024
_DROP_BYTES = 64 * 1024 * 1024
_DROP_AT_LEAST = 4 * 1024

_FRAME_HEADER = struct.Struct(">ihhih")  # size, api key, version, correlation id, client id length
_LENGTH_AND_COUNT = struct.Struct(">8xi45xi")  # of a batch header: batchLength at 8, recordCount at 57
_LOG_OVERHEAD_BYTES = 12  # baseOffset and batchLength, which batchLength does not count
_CRC_AT = 17
_SMALLEST_BATCH_BYTES = 61 + 7
# Partition index, shortest length of records, smallest batch: so many bytes there are for every partition.
_PARTITION_BYTES = 4 + 1 + _SMALLEST_BATCH_BYTES
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_TWO_INT32 = struct.Struct(">ii")
_ACKS_TIMEOUT = struct.Struct(">hi")


class ProtocolError(Exception):
    """The client sent something the sink does not speak; its connection is closed."""


class Totals:
    """What was accepted since the last reset."""

    def __init__(self) -> None:
        self.requests = self.batches = self.records = self.batch_bytes = self.crc_errors = 0
        self.cpu_start_s = time.process_time()

    def as_dict(self) -> dict[str, float]:
        """The counters, and the CPU seconds this process used."""
        return {
            "requests": self.requests,
            "batches": self.batches,
            "records": self.records,
            "batch_bytes": self.batch_bytes,
            "crc_errors": self.crc_errors,
            "cpu_s": time.process_time() - self.cpu_start_s,
        }


class Server:
    """Everything the connections share.

    Args:
        layout: topics to advertise, and the ports found free (one listener a node).
        checksum: CRC-32C over a buffer, or None to leave CRCs unchecked.
        keep_bytes: read every byte into memory as a broker would, instead of dropping it in the kernel.
    """

    def __init__(
        self, layout: wire.Layout, *, checksum: Callable[[memoryview], int] | None = None, keep_bytes: bool = False
    ) -> None:
        self.layout = layout
        self.checksum = checksum
        self.keep_bytes = keep_bytes or checksum is not None
        self.totals = Totals()
        self.next_offsets = {
            name.encode(): [0] * partition_count for name, partition_count in layout.partition_counts.items()
        }
        self.producer_ids = 0
        self.connections: dict[int, Connection] = {}

    def reset(self) -> None:
        """Counters to zero; offsets go on."""
        self.totals = Totals()

    def run(self, listeners: list[socket.socket], commands: int, answers: int) -> None:
        """Serve until the command pipe is closed. Commands are the lines ``counts``, ``offsets`` and ``reset``."""
        poll = select.epoll()
        accepting = {listener.fileno(): listener for listener in listeners}
        for descriptor in (*accepting, commands):
            poll.register(descriptor, select.EPOLLIN)
        while True:
            for descriptor, mask in poll.poll():
                if descriptor in accepting:
                    connection = Connection(self, accepting[descriptor].accept()[0])
                    self.connections[connection.descriptor] = connection
                    poll.register(connection.descriptor, select.EPOLLIN)
                elif descriptor == commands:
                    text = os.read(commands, 4096)
                    if not text:
                        return
                    for line in text.split():
                        os.write(answers, json.dumps(self._obey(line)).encode() + b"\n")
                elif not self.connections[descriptor].on_ready(mask):
                    poll.unregister(descriptor)
                    self.connections.pop(descriptor).close()
                elif interest := self.connections[descriptor].changed_interest():
                    poll.modify(descriptor, interest)

    def _obey(self, command: bytes) -> object:
        if command == b"offsets":
            return {name.decode(): offsets for name, offsets in self.next_offsets.items()}
        answer = self.totals.as_dict()
        if command == b"reset":
            self.reset()
        return answer


class Connection:
    """One client. `_serve` is a generator: it runs until bytes are missing and says how many it needs in a row."""

    def __init__(self, server: Server, peer: socket.socket) -> None:
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.descriptor = peer.fileno()
        self._server = server
        self._socket = peer
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._position = 0  # unread bytes are buffer[position:end]
        self._end = 0
        self._drop = 0  # bytes still on the wire that nobody wants
        self._replies: list[bytes] = []
        self._unsent = b""
        self._program = self._serve()
        self._needed = next(self._program)
        self.interest = select.EPOLLIN

    def changed_interest(self) -> int:
        """Events to wait for from now on, 0 if the same as before: who does not read replies is not read from."""
        interest = select.EPOLLOUT if self._unsent else select.EPOLLIN
        if interest == self.interest:
            return 0
        self.interest = interest
        return interest

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def on_ready(self, mask: int) -> bool:
        """Read, serve and reply; False when the connection is to be closed."""
        try:
            if mask & select.EPOLLOUT:
                self._send(b"")
                return True
            more = True
            while more:
                more = self._receive()
                while not self._drop and self._end - self._position >= self._needed:
                    self._needed = self._program.send(None)
                if self._replies:
                    self._send(b"".join(self._replies))
                    self._replies.clear()
        except BlockingIOError:
            return True
        except (OSError, EOFError, ProtocolError):
            return False
        return True

    def _receive(self) -> bool:
        """Read or drop once; whether there may be more (asking again is cheaper than polling)."""
        if self._drop:
            wanted = min(self._drop, _DROP_BYTES)
            received = self._socket.recv_into(_NOWHERE, wanted, socket.MSG_TRUNC)
            self._drop -= received
        else:
            room = self._room()
            wanted = len(room)
            received = self._socket.recv_into(room)
            self._end += received
        if not received:
            raise EOFError
        return received == wanted

    def _send(self, data: bytes) -> None:
        data = self._unsent + data
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        self._unsent = data[sent:]

    def _room(self) -> memoryview:
        """Where to read to; moves what is unread to the front when the rest of the buffer is too small."""
        missing = max(self._needed - (self._end - self._position), _READ_BYTES)
        if self._end + missing > len(self._buffer):
            unread = bytes(self._view[self._position : self._end])
            if len(unread) + missing > len(self._buffer):
                self._buffer = bytearray(len(unread) + missing)
                self._view = memoryview(self._buffer)
            self._view[: len(unread)] = unread
            self._position, self._end = 0, len(unread)
        return self._view[self._end : self._end + missing]

    # -- the protocol, as a generator that yields the number of bytes it needs next ------------------------------------

    def _serve(self) -> Generator[int, None, None]:
        while True:
            if self._end - self._position < _FRAME_HEADER.size:
                yield _FRAME_HEADER.size
            size, key, version, correlation_id, client_id_length = _FRAME_HEADER.unpack_from(
                self._buffer, self._position
            )
            lowest, highest = wire.ADVERTISED.get(key, (0, -1))
            if key == wire.PRODUCE and 3 <= version <= highest:
                self._position += _FRAME_HEADER.size
                yield from self._skip(max(client_id_length, 0))
                yield from self._produce(version, correlation_id)
            elif key == wire.API_VERSIONS or lowest <= version <= highest:
                yield size + 4
                request = bytes(self._view[self._position : self._position + size + 4])
                self._position += size + 4
                self._replies.append(self._answer(request))
            else:
                raise ProtocolError(f"api {key} version {version}")

    def _answer(self, request: bytes) -> bytes:
        _, key, version, correlation_id, client_id_length = _FRAME_HEADER.unpack_from(request)
        cursor = wire.Cursor(request, _FRAME_HEADER.size + max(client_id_length, 0))
        if key == wire.API_VERSIONS:
            return wire.frame(correlation_id, wire.api_versions_body(version), flexible_header=False)
        if key == wire.METADATA:
            flexible = version >= wire.METADATA_FLEXIBLE_FROM
            if flexible:
                cursor.skip_tags()
            body = wire.metadata_body(version, self._server.layout, wire.requested_topics(version, cursor))
            return wire.frame(correlation_id, body, flexible_header=flexible)
        if key == wire.INIT_PRODUCER_ID:
            self._server.producer_ids += 1
            body = wire.init_producer_id_body(version, self._server.producer_ids)
            return wire.frame(correlation_id, body, flexible_header=version >= wire.INIT_PRODUCER_ID_FLEXIBLE_FROM)
        raise ProtocolError(f"api {key} version {version}")

    def _produce(self, version: int, correlation_id: int) -> Generator[int, None, None]:
        flexible = version >= wire.PRODUCE_FLEXIBLE_FROM
        if flexible:
            yield from self._skip_tags()
        yield from self._string(flexible)  # transactional id
        yield _ACKS_TIMEOUT.size
        acks, _ = _ACKS_TIMEOUT.unpack_from(self._buffer, self._position)
        self._position += _ACKS_TIMEOUT.size
        topics = []
        for _ in range((yield from self._array_length(flexible))):
            name = yield from self._string(flexible)
            count = yield from self._array_length(flexible)
            partitions = yield from self._partitions(version, self._server.next_offsets.get(name, []), count)
            topics.append(wire.produced_topic(version, name, count, partitions))
            if flexible:
                yield from self._skip_tags()
        if flexible:
            yield from self._skip_tags()
        self._server.totals.requests += 1
        if acks:
            body = wire.produce_body(version, topics)
            self._replies.append(wire.frame(correlation_id, body, flexible_header=flexible))

    def _partitions(self, version: int, offsets: list[int], count: int) -> Generator[int, None, bytes]:
        """Count and pass over the batches of one topic; returns their part of the reply. The sink's hot loop."""
        flexible = version >= wire.PRODUCE_FLEXIBLE_FROM
        pack, tail = wire.produced_partition(version)
        reply = []
        record_count = batch_bytes = 0
        for _ in range(count):
            if self._end - self._position < _PARTITION_BYTES:
                yield _PARTITION_BYTES
            buffer, position = self._buffer, self._position
            if flexible:
                (index,) = _INT32.unpack_from(buffer, position)
                size, position = _read_uvarint(buffer, position + 4)
                size -= 1
            else:
                index, size = _TWO_INT32.unpack_from(buffer, position)
                position += 8
            batch_length, records = _LENGTH_AND_COUNT.unpack_from(buffer, position)
            if size < _SMALLEST_BATCH_BYTES or batch_length != size - _LOG_OVERHEAD_BYTES:
                raise ProtocolError(f"batch of {batch_length + _LOG_OVERHEAD_BYTES} bytes in records of {size} bytes")
            if index < len(offsets):
                reply.append(pack(index, 0, offsets[index], -1, *tail))
                offsets[index] += records
                record_count += records
                batch_bytes += size
            else:
                reply.append(pack(index, wire.UNKNOWN_TOPIC, -1, -1, *tail))
            self._position = position
            if self._server.checksum is not None:
                yield size
                self._check_crc(size)
            if self._end - self._position > size:
                self._position += size
            else:
                yield from self._skip(size)
            if flexible:
                if self._position < self._end and not self._buffer[self._position]:
                    self._position += 1  # no tags: the usual case, without a generator
                else:
                    yield from self._skip_tags()
        totals = self._server.totals
        totals.batches += count
        totals.records += record_count
        totals.batch_bytes += batch_bytes
        return b"".join(reply)

    def _check_crc(self, size: int) -> None:
        (crc,) = _UINT32.unpack_from(self._buffer, self._position + _CRC_AT)
        if self._server.checksum(self._view[self._position + _CRC_AT + 4 : self._position + size]) != crc:
            self._server.totals.crc_errors += 1

    def _skip(self, count: int) -> Generator[int, None, None]:
        have = self._end - self._position
        if count <= have:
            self._position += count
        elif self._server.keep_bytes or count - have < _DROP_AT_LEAST:
            while count > have:
                self._position = self._end
                count -= have
                yield 1
                have = self._end - self._position
            self._position += count
        else:
            self._position = self._end = 0
            self._drop = count - have
            yield 0

    def _string(self, flexible: bool) -> Generator[int, None, bytes]:
        if flexible:
            length = (yield from self._uvarint()) - 1
        else:
            if self._end - self._position < 2:
                yield 2
            (length,) = _INT16.unpack_from(self._buffer, self._position)
            self._position += 2
        if length <= 0:
            return b""
        if self._end - self._position < length:
            yield length
        self._position += length
        return bytes(self._view[self._position - length : self._position])

    def _array_length(self, flexible: bool) -> Generator[int, None, int]:
        if flexible:
            return (yield from self._uvarint()) - 1
        if self._end - self._position < 4:
            yield 4
        (length,) = _INT32.unpack_from(self._buffer, self._position)
        self._position += 4
        return length

    def _uvarint(self) -> Generator[int, None, int]:
        value = shift = 0
        while True:
            if self._position == self._end:
                yield 1
            byte = self._buffer[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _skip_tags(self) -> Generator[int, None, None]:
        for _ in range((yield from self._uvarint())):
            yield from self._uvarint()
            yield from self._skip((yield from self._uvarint()))


def _read_uvarint(buffer: bytearray, position: int) -> tuple[int, int]:
    """Value of an unsigned varint that is there in full, and the position after it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


_NOWHERE = bytearray(_DROP_BYTES)  # never written: MSG_TRUNC only wants a length that fits
