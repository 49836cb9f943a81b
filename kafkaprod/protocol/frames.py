"""Frames of a connection: the headers before a body, and the splitting of a byte stream.

    frame             int32 size | header | body                   size excludes itself
    request header 1  int16 api key | int16 version | int32 correlation id | int16-prefixed nullable client id
    request header 2  the same | tagged fields                     for flexible versions; the client id stays classic
    response header 0 int32 correlation id
    response header 1 the same | tagged fields                     for flexible versions, except ApiVersions: always 0

Source: protocol guide "Common Request and Response Structure", KIP-482, KIP-511 (ApiVersions).

Sizes are checked before memory is allocated, and memory grows only as bytes arrive: a peer cannot make this side
allocate what it did not send (KAFKA-4090). Threads: one at a time.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import BytesLike

MAX_FRAME_BYTES = 104_857_600  # 100 MiB, Kafka's default for socket.request.max.bytes

FRAME_START = struct.Struct(">ih")
"""Size and API key of a request."""
_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_FRAME_START = struct.Struct(">ihhi")


class RequestHeader(NamedTuple):
    """The header of a request.

    `api_key` is an int, not an ApiKey: a peer may request an API without a name here.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def encode_request_header(header: RequestHeader, is_flexible: bool) -> bytes:
    """Encode the header of a request, without the frame size."""
    writer = Writer()
    writer.pack(_REQUEST_START, header[:3])
    writer.write_nullable_string(header.client_id)
    if is_flexible:
        writer.write_uvarint(0)
    return writer.getvalue()


def encode_request_frame_start(
    api_key: int, version: int, correlation_id: int, client_id: str | None, is_flexible: bool, body_bytes: int
) -> bytes:
    """Encode size and header of a frame whose body is `body_bytes` long."""
    rest = _client_id_field(client_id, is_flexible)
    return _FRAME_START.pack(_REQUEST_START.size + len(rest) + body_bytes, api_key, version, correlation_id) + rest


@functools.lru_cache(maxsize=64)
def _client_id_field(client_id: str | None, is_flexible: bool) -> bytes:
    return encode_request_header(RequestHeader(0, 0, 0, client_id), is_flexible)[_REQUEST_START.size :]


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None = None
) -> list[BytesLike]:
    """Encode a whole frame. Large records are referenced, not copied.

    Raises:
        UnsupportedVersionError, ValueError: As `Message.encode`.
    """
    header = RequestHeader(request.api, version, correlation_id, client_id)
    writer = Writer()
    writer.write_raw(encode_request_header(header, request.is_flexible(version)))
    request.write_to(writer, version)
    return with_size(writer.parts())


def encode_response(response: Response, version: int, correlation_id: int) -> list[BytesLike]:
    """Encode a whole frame. Large records are referenced, not copied.

    Raises:
        UnsupportedVersionError, ValueError: As `Message.encode`.
    """
    writer = Writer()
    writer.write_raw(encode_response_header(response.api, response.is_flexible(version), correlation_id))
    response.write_to(writer, version)
    return with_size(writer.parts())


def encode_response_header(api_key: int, is_flexible: bool, correlation_id: int) -> bytes:
    """Encode the header of a response, without the frame size."""
    encoded = _SIZE.pack(correlation_id)
    return encoded + b"\0" if has_tagged_response_header(api_key, is_flexible) else encoded


def has_tagged_response_header(api_key: int, is_flexible: bool) -> bool:
    """Return whether the response header is version 1. ApiVersions stays at 0, so that any client can read it."""
    return is_flexible and api_key != ApiKey.API_VERSIONS


def with_size(parts: Iterable[BytesLike]) -> list[BytesLike]:
    """Return the buffers of one frame, the size first."""
    content = list(parts)
    return [_SIZE.pack(sum([memoryview(part).nbytes for part in content])), *content]


def read_request_start(frame: BytesLike) -> tuple[int, int, int]:
    """Read (api key, version, correlation id), which are the same in all versions.

    Raises:
        CorruptDataError: The frame is too short.
    """
    if len(frame) < _REQUEST_START.size:
        Reader(frame).unpack(_REQUEST_START)  # raises the error
    api_key, version, correlation_id = _REQUEST_START.unpack_from(frame)
    return api_key, version, correlation_id


def read_request_header(reader: Reader, is_flexible: bool) -> RequestHeader:
    """Read the header of a request; the reader is at the body afterwards.

    Raises:
        CorruptDataError: The header is damaged.
    """
    api_key, version, correlation_id = reader.unpack(_REQUEST_START)
    client_id = reader.read_nullable_string()
    if is_flexible:
        reader.skip_tagged_fields()
    return RequestHeader(api_key, version, correlation_id, client_id)


def split_response(frame: BytesLike, api_key: int, is_flexible: bool) -> tuple[int, memoryview]:
    """Split a response frame into (correlation id, body); the body is a view of it.

    Raises:
        CorruptDataError: The header is damaged.
    """
    is_tagged = has_tagged_response_header(api_key, is_flexible)
    view = memoryview(frame).cast("B")
    if is_tagged and len(view) > _SIZE.size and view[_SIZE.size] == 0:  # no fields: what every broker sends
        return _SIZE.unpack_from(view)[0], view[_SIZE.size + 1 :]
    reader = Reader(view)
    correlation_id = reader.read_int32()
    if is_tagged:
        reader.skip_tagged_fields()
    return correlation_id, reader.read_view(reader.remaining)


def peek_correlation_id(frame: BytesLike) -> int:
    """Return the correlation id of a response frame of any header version.

    Raises:
        CorruptDataError: The frame is too short.
    """
    if len(frame) < _SIZE.size:
        return Reader(frame).read_int32()  # raises the error
    correlation_id: int = _SIZE.unpack_from(frame)[0]
    return correlation_id


class FrameSplitter:
    """Cuts the bytes of a connection into frames.

    Attributes:
        max_frame_bytes: The largest frame to accept. May be changed between calls, e.g. raised after the first reply.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pending = bytearray()  # less than one frame, size included

    @property
    def incomplete_bytes(self) -> int:
        """The number of bytes of an incomplete frame."""
        return len(self._pending)

    @property
    def incomplete_start(self) -> bytes:
        """The first bytes of an incomplete frame: its size and an API key, if both are there."""
        return bytes(self._pending[: FRAME_START.size])

    def feed(self, data: BytesLike) -> Iterator[memoryview]:
        """Take bytes; yield each frame they complete, without its size. A frame owns its memory and is writable.

        The iterator takes the bytes: consume it to the end before the next call.

        Raises:
            CorruptDataError: A size is negative or above the limit; the rest of this connection is unreadable.
        """
        view = memoryview(data).cast("B")
        if self._pending:
            taken = self._complete_pending(view)
            view = view[taken:]
            if len(self._pending) < _SIZE.size or len(self._pending) < _SIZE.size + self._checked_size(self._pending):
                return
            frame = memoryview(self._pending)[_SIZE.size :]
            self._pending = bytearray()
            yield frame
        while len(view) >= _SIZE.size:
            end = _SIZE.size + self._checked_size(view)
            if len(view) < end:
                break
            yield memoryview(bytearray(view[_SIZE.size : end]))
            view = view[end:]
        self._pending += view

    def clear(self) -> None:
        """Drop the bytes of an incomplete frame."""
        self._pending = bytearray()

    def _complete_pending(self, view: memoryview) -> int:
        """Move the missing bytes of the incomplete frame, as many as there are; return their number."""
        taken = 0
        if len(self._pending) < _SIZE.size:
            taken = min(_SIZE.size - len(self._pending), len(view))
            self._pending += view[:taken]
        if len(self._pending) >= _SIZE.size:
            lacking = _SIZE.size + self._checked_size(self._pending) - len(self._pending)
            self._pending += view[taken : taken + lacking]
            taken = min(taken + lacking, len(view))
        return taken

    def _checked_size(self, buffer: BytesLike) -> int:
        size: int = _SIZE.unpack_from(buffer)[0]
        if not 0 <= size <= self.max_frame_bytes:
            start = bytes(buffer[: _SIZE.size])
            raise CorruptDataError(
                f"frame of {size} bytes exceeds {self.max_frame_bytes}: "
                f"it starts with {start.hex(' ')}, {_likely_cause(start)}"
            )
        return size


def _likely_cause(start: bytes) -> str:
    if start == b"HTTP" or start[:3] in (b"GET", b"PUT") or start in (b"POST", b"HEAD", b"OPTI"):
        return "which is HTTP: check host and port"
    if start[0] in (0x14, 0x15, 0x16, 0x17) and start[1] == 0x03:
        return "which is TLS: one side speaks TLS and the other does not, check security_protocol"
    if start == b"SSH-":
        return "which is SSH: check host and port"
    return "so the peer is not speaking Kafka's protocol, or frames are larger than this side accepts"
