"""One connection, broker's side, as pure state: bytes in, requests out; responses in, bytes out.

    socket -> receive_data() -> events(): RequestReceived* [, ConnectionRefused]
    RequestReceived.decode() -> handler -> send_response() | send_nothing() -> data_to_send() -> socket -> data_sent()

Responses are sent in the order of the requests, even if given in another: a client matches them by that order.
A request whose API or version the broker does not announce ends the connection without an answer, as Kafka does. Only
ApiVersions is answered in any version: UNSUPPORTED_VERSION in the encoding of version 0, with the range of ApiVersions
itself.

Bytes after a complete request are ignored. librdkafka (to 2.16) writes the null array of Metadata v9+, which means all
topics, as four zero bytes where one is right, so that three bytes are left over.

Threads: one at a time; no I/O, no clock, no lock inside. Source: protocol guide "Network", KIP-35, KIP-511.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkaprod.errors import CorruptDataError, IllegalStateError, KafkaError, UnsupportedVersionError
from kafkaprod.protocol.api_keys import API_KEYS, ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.frames import (
    FRAME_START,
    MAX_FRAME_BYTES,
    FrameSplitter,
    RequestHeader,
    encode_response,
    read_request_header,
    read_request_start,
)
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkaprod.protocol.outgoing import OutgoingBytes
from kafkaprod.protocol.primitives import UNLIMITED_ELEMENTS, Reader
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import BytesLike

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of the client.

    Attributes:
        header: Its API and version are among those the broker announces.
        body: The bytes after the header. It owns its memory and is writable.
        position: The number of the request on its connection, from 0.
    """

    header: RequestHeader
    body: memoryview = field(repr=False)
    position: int

    @property
    def api(self) -> ApiKey:
        """The API of the request."""
        return API_KEYS[self.header.api_key]

    def decode(self, max_elements: int = UNLIMITED_ELEMENTS) -> Request:
        """Decode the request; its records are views of `body`. Bytes after the message are ignored, as Kafka does.

        Args:
            max_elements: Most elements of all its arrays together.

        Raises:
            CorruptDataError: The body is damaged, or has more elements. Close the connection.
        """
        api, version = self.api, self.header.api_version
        request, left_bytes = REQUESTS[api].decode_start(self.body, version, max_elements)
        if left_bytes:
            _log_left_bytes(api, version, left_bytes)
        return request


@functools.lru_cache(maxsize=256)  # so that each kind of request is logged once
def _log_left_bytes(api: ApiKey, version: int, left_bytes: int) -> None:
    logger.debug("%s v%d: %d bytes after the request are ignored", api.name, version, left_bytes)


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The client broke the protocol: close the connection. The last event."""

    error: KafkaError


ServerEvent = RequestReceived | ConnectionRefused


class ServerConnection:
    """The broker's side of one connection.

    Args:
        versions: The versions the broker announces: API -> (lowest, highest). Must contain ApiVersions.
        max_frame_bytes: The largest request to accept.
        max_other_bytes: The largest one without records: only those of Produce may be larger.
    """

    def __init__(
        self,
        versions: Mapping[ApiKey, tuple[int, int]],
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_other_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self._versions = versions
        self._max_other_bytes = max_other_bytes
        self._splitter = FrameSplitter(max_frame_bytes)
        self._events: list[ServerEvent] = []
        self._received_count = 0
        self._is_refused = False
        # One entry for each unanswered request, oldest first; an early response waits in its entry.
        self._answers: deque[list[BytesLike] | None] = deque()
        self._out = OutgoingBytes()

    @property
    def max_frame_bytes(self) -> int:
        """The largest request to accept; raise it when the client has logged in."""
        return self._splitter.max_frame_bytes

    @max_frame_bytes.setter
    def max_frame_bytes(self, max_frame_bytes: int) -> None:
        self._splitter.max_frame_bytes = max_frame_bytes

    @property
    def incomplete_bytes(self) -> int:
        """The number of bytes of an incomplete request."""
        return self._splitter.incomplete_bytes

    @property
    def has_output(self) -> bool:
        """Whether bytes wait for the client: `receive_data` itself refuses an unknown version of ApiVersions."""
        return len(self._out) > 0

    def receive_data(self, data: BytesLike) -> None:
        """Take bytes from the client; `events` returns what they contain.

        Raises:
            IllegalStateError: The connection was refused before.
        """
        if self._is_refused:
            raise IllegalStateError("the connection was refused: it takes no data")
        try:
            for frame in self._splitter.feed(data):
                self._on_frame(frame)
            self._check_incomplete()
        except (CorruptDataError, UnsupportedVersionError) as error:
            self._is_refused = True
            # Without the frames that it went through: they hold the request, and are part of a cycle.
            self._events.append(ConnectionRefused(error.with_traceback(None)))

    def events(self) -> list[ServerEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def send_response(self, request: RequestReceived, response: Response) -> None:
        """Answer a request, in its version. Large records are referenced until `data_sent` has passed them.

        Raises:
            UnsupportedVersionError, ValueError: As `Message.encode`; nothing is queued.
            IllegalStateError: The request was answered already.
        """
        header = request.header
        if response.api != header.api_key:
            raise IllegalStateError(f"{type(response).__name__} cannot answer {request.api.name}")
        self._answer(request.position, encode_response(response, header.api_version, header.correlation_id))

    def send_encoded(self, request: RequestReceived, frame: list[BytesLike]) -> None:
        """Answer a request with what `encode_response` has made of the response.

        Raises:
            IllegalStateError: The request was answered already.
        """
        self._answer(request.position, frame)

    def send_nothing(self, request: RequestReceived) -> None:
        """Settle a request that has no response (produce with acks=0).

        Raises:
            IllegalStateError: The request was answered already.
        """
        self._answer(request.position, [])

    def data_to_send(self, limit: int) -> list[BytesLike]:
        """Return at most `limit` buffers for the client; valid until `data_sent`."""
        return self._out.front(limit)

    def data_sent(self, nbytes: int) -> None:
        """Note that the socket took `nbytes`."""
        self._out.advance(nbytes)

    def connection_lost(self) -> None:
        """Drop what is incomplete or not sent, and release its memory."""
        self._is_refused = True
        self._splitter.clear()
        self._events.clear()
        self._answers.clear()
        self._out.clear()

    def _check_incomplete(self) -> None:
        """Refuse a request that is too large before the rest of it comes."""
        if self._splitter.incomplete_bytes >= FRAME_START.size:
            self._check_size(*FRAME_START.unpack(self._splitter.incomplete_start))

    def _check_size(self, size: int, api_key: int) -> None:
        if size > self._max_other_bytes and api_key != ApiKey.PRODUCE:
            name = API_KEYS[api_key].name if api_key in API_KEYS else f"API {api_key}"
            raise CorruptDataError(
                f"{name} request of {size} bytes exceeds {self._max_other_bytes}: only Produce requests may be larger"
            )

    def _on_frame(self, frame: memoryview) -> None:
        api_key, version, correlation_id = read_request_start(frame)
        self._check_size(len(frame), api_key)
        request_class = self._request_class(api_key, version)
        position = self._received_count
        self._received_count += 1
        self._answers.append(None)
        if request_class is None:
            self._answer(position, encode_response(self._refusal_of_api_versions(), 0, correlation_id))
            return
        reader = Reader(frame)
        header = read_request_header(reader, request_class.is_flexible(version))
        self._events.append(RequestReceived(header, reader.read_view(reader.remaining), position))

    def _request_class(self, api_key: int, version: int) -> type[Request] | None:
        """Return the request's class; None: ApiVersions in an unknown version."""
        api = API_KEYS[api_key] if api_key in self._versions else None
        if api is not None:
            request_class = REQUESTS[api]
            # Both ranges: Kafka announces Produce from 0, for old librdkafka, but refuses 0 to 2 (KAFKA-18659).
            (lowest, highest), (first, last) = self._versions[api], request_class.versions
            if lowest <= version <= highest and first <= version <= last:
                return request_class
            if api is ApiKey.API_VERSIONS:
                return None
        if api is None:
            raise UnsupportedVersionError(f"API {api_key} version {version} is not among those this broker announces")
        (lowest, highest), (first, last) = self._versions[api], REQUESTS[api].versions
        raise UnsupportedVersionError(
            f"{api.name} version {version} is not among those this broker takes: {max(lowest, first)} to "
            f"{min(highest, last)}"
        )

    def _refusal_of_api_versions(self) -> ApiVersionsResponse:
        lowest, highest = self._versions[ApiKey.API_VERSIONS]
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])

    def _answer(self, position: int, frame: list[BytesLike]) -> None:
        place = position - (self._received_count - len(self._answers))
        if not 0 <= place < len(self._answers) or self._answers[place] is not None:
            raise IllegalStateError(
                f"request {position} of this connection was answered already, or the connection has ended"
            )
        self._answers[place] = frame
        while self._answers and (ready := self._answers[0]) is not None:
            self._out.append(ready)
            self._answers.popleft()
