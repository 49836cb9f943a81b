"""A client that sends any bytes and reads whole answers: for tests of what no real client would do."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar

from kafkaprod.protocol.frames import encode_request, split_response
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)


class RawClient:
    """One blocking connection; every wait is bounded by `patience_s`."""

    def __init__(self, bootstrap_servers: str, *, patience_s: float = 30.0) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=patience_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def send(self, request: Request, version: int) -> int:
        """Send without waiting; return the correlation id."""
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, "raw client")
        self.socket.sendall(b"".join(map(bytes, frame)))
        return self._correlation_id

    def receive(self, response_class: type[ResponseT], version: int) -> tuple[int, ResponseT]:
        """Wait for an answer; return (correlation id, response)."""
        is_flexible = response_class.is_flexible(version)
        correlation_id, body = split_response(self.receive_frame(), response_class.api, is_flexible)
        return correlation_id, response_class.decode(body, version)

    def call(self, request: Request, response_class: type[ResponseT], version: int) -> ResponseT:
        """Send and wait for the answer."""
        correlation_id = self.send(request, version)
        answered_id, response = self.receive(response_class, version)
        assert answered_id == correlation_id
        return response

    def receive_frame(self) -> bytes:
        """One frame without its size. Raises ConnectionError if the broker closed instead."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def is_closed_by_broker(self) -> bool:
        """Wait for the end of the stream; False if a byte comes instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _receive(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            part = self.socket.recv(size - len(content))
            if not part:
                raise ConnectionError(f"closed by the broker after {len(content)} of {size} bytes")
            content += part
        return bytes(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_served(address: str, stack: ExitStack) -> bool:
    """Whether a new connection gets an answer; it stays open until the stack ends."""
    client = stack.enter_context(RawClient(address))
    try:
        client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    except ConnectionError:
        return False
    return True


def response_class_of(request: Request) -> type[Response]:
    """The response that belongs to a request."""
    return RESPONSES[request.api]
