"""A broker's side of one connection as bytes in, bytes out, written from the protocol guide without our codec.

It answers ApiVersions and SASL by itself; everything else goes to `handlers`. What it received is in `requests`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
DEFAULT_RANGES = {0: (0, 11), 3: (0, 12), 17: (0, 1), 18: (0, 4), 22: (0, 5), 36: (0, 2)}
FLEXIBLE_FROM = {0: 9, 3: 9, 18: 3, 22: 2, 36: 2}


@dataclass
class Received:
    """A request as the broker sees it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: bytes

    @property
    def is_flexible(self) -> bool:
        return self.version >= FLEXIBLE_FROM.get(self.api_key, 1 << 15)


Handler = Callable[[Received], bytes | None]


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def uvarint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def response(request: Received, body: bytes, *, correlation_id: int | None = None) -> bytes:
    """A whole response frame; ApiVersions has the old header in every version."""
    header = struct.pack(">i", request.correlation_id if correlation_id is None else correlation_id)
    if request.is_flexible and request.api_key != API_VERSIONS:
        header += b"\0"
    return frame(header + body)


def api_versions_body(
    version: int, ranges: dict[int, tuple[int, int]], *, error: int = 0, transaction_version: int | None = None
) -> bytes:
    entries = [struct.pack(">hhh", key, *bounds) for key, bounds in sorted(ranges.items())]
    if version < 3:
        body = struct.pack(">hi", error, len(entries)) + b"".join(entries)
        return body if version == 0 else body + struct.pack(">i", 0)
    body = struct.pack(">hB", error, len(entries) + 1) + b"".join(entry + b"\0" for entry in entries)
    body += struct.pack(">i", 0)
    if transaction_version is None:
        return body + b"\0"
    name = b"transaction.version"
    feature = bytes([2, len(name) + 1]) + name + struct.pack(">hh", transaction_version, transaction_version) + b"\0"
    epoch = struct.pack(">q", 7)
    unknown = b"future"
    return (
        body
        + b"\x03"
        + bytes([1, len(epoch)]) + epoch
        + bytes([2, len(feature)]) + feature
        + bytes([90, len(unknown)]) + unknown
    )  # fmt: skip


@dataclass(eq=False)
class FakeBroker:
    """One connection's broker.

    Attributes:
        refuse_versions_above: ApiVersions versions above it get error 35.
        refusal: Makes the body of that error; None: as brokers since 2.4 do it.
        sasl: Answers a token with (error code, answer); None: no SASL.
    """

    ranges: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(DEFAULT_RANGES))
    refuse_versions_above: int = 4
    refusal: Callable[[int], bytes] | None = None
    transaction_version: int | None = None
    mechanisms: tuple[str, ...] = ("PLAIN",)
    sasl: Callable[[bytes], tuple[int, bytes]] | None = None
    session_lifetime_ms: int = 0
    handlers: dict[int, Handler] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    _buffer: bytes = b""

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the client; return the bytes to answer."""
        self._buffer += data
        out = b""
        while len(self._buffer) >= 4:
            size = struct.unpack_from(">i", self._buffer)[0]
            if len(self._buffer) < 4 + size:
                break
            request = self._parse(self._buffer[4 : 4 + size])
            self._buffer = self._buffer[4 + size :]
            self.requests.append(request)
            out += self._answer(request)
        return out

    @property
    def seen(self) -> list[tuple[int, int]]:
        """(api key, version) of all requests."""
        return [(request.api_key, request.version) for request in self.requests]

    def _parse(self, payload: bytes) -> Received:
        api_key, version, correlation_id, length = struct.unpack_from(">hhih", payload)
        position = 10 + max(length, 0)
        client_id = payload[10:position].decode() if length >= 0 else None
        request = Received(api_key, version, correlation_id, client_id, b"")
        if request.is_flexible:
            assert payload[position] == 0, "no tagged fields in the header"
            position += 1
        request.body = payload[position:]
        return request

    def _answer(self, request: Received) -> bytes:
        if request.api_key in self.handlers:
            body = self.handlers[request.api_key](request)
        elif request.api_key == API_VERSIONS:
            body = self._api_versions(request)
        elif request.api_key == SASL_HANDSHAKE:
            body = self._sasl_handshake(request)
        elif request.api_key == SASL_AUTHENTICATE:
            body = self._sasl_authenticate(request)
        else:
            body = None
        return b"" if body is None else response(request, body)

    def _api_versions(self, request: Received) -> bytes:
        if request.version > self.refuse_versions_above:
            if self.refusal is not None:
                return self.refusal(request.version)
            return api_versions_body(0, {18: (0, self.refuse_versions_above)}, error=35)
        return api_versions_body(request.version, self.ranges, transaction_version=self.transaction_version)

    def _sasl_handshake(self, request: Received) -> bytes:
        assert request.version == 1
        length = struct.unpack_from(">h", request.body)[0]
        error = 0 if request.body[2 : 2 + length].decode() in self.mechanisms else 33
        names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in self.mechanisms)
        return struct.pack(">hi", error, len(self.mechanisms)) + names

    def _sasl_authenticate(self, request: Received) -> bytes:
        assert self.sasl is not None
        prefix_bytes = len(uvarint(len(request.body))) if request.is_flexible else 4
        token = request.body[prefix_bytes:-1] if request.is_flexible else request.body[4:]
        if request.is_flexible:
            assert request.body[:prefix_bytes] == uvarint(len(token) + 1)
        error, answer = self.sasl(token)
        text = b"go away" if error else None
        if request.is_flexible:
            message = b"\0" if text is None else bytes([len(text) + 1]) + text
            return (
                struct.pack(">h", error) + message + uvarint(len(answer) + 1) + answer
                + struct.pack(">q", self.session_lifetime_ms) + b"\0"
            )  # fmt: skip
        message = struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text
        body = struct.pack(">h", error) + message + struct.pack(">i", len(answer)) + answer
        return body + struct.pack(">q", self.session_lifetime_ms) if request.version == 1 else body
