"""One client's connection: its socket, the protocol state, and what waits to be handled or sent. The event loop owns
it.

At most one request is in progress; those behind it wait, and nothing more is read while they do: a client can make
the broker hold one frame and one read. Responses are pushed as far as the socket takes them and the rest waits for it.
"""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from kafkaprod.broker.calls.file_records import is_stand_in
from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.errors import KafkaError
from kafkaprod.net.poller import WRITABLE
from kafkaprod.net.transport import IOV_MAX, TcpTransport, Transport
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.schema import Response
from kafkaprod.protocol.server import ConnectionRefused, RequestReceived, ServerConnection
from kafkaprod.structs import BytesLike

_SEND_TURN_BYTES = 4 * 1024 * 1024  # after that other connections get their turn
_LARGE_BODY_BYTES = 64 * 1024  # decoded in milliseconds
_READ_BYTES = 64 * 1024  # of a file that is read and then sent
_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # not of this file, or to this socket
_CLIENT_LEFT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR  # elsewhere only a reset is seen


class SessionStage(Enum):
    """The stages of a session's request in progress. There is one at most."""

    IDLE = "none is in progress"
    HANDLING = "no answer yet"
    ANSWERED = "the answer is queued"


class Session:
    """See the module docstring.

    Attributes:
        host: The client's address.
        is_open: Connect and TLS handshake are through.
        is_closed: The socket is closed; answers that come now go nowhere.
        stage: The stage of the request in progress.
        abandon: Releases what its outcome waits for; called if the connection is closed before.
        waiting: Requests behind it.
        login: How far its login is; None where no login is needed.
        endpoint: The endpoint of the listener it came through.
        listener: The name of that listener; empty for the other processes of the cluster.
        is_peer: It comes from another process of the cluster.
        opened_ms: When it was accepted.
        last_active_ms: When a request or an answer was last complete.
        unfinished_since_ms: When the first bytes of an unfinished request came; None if there is none.
        is_paused: Nothing is read because the memory for unfinished requests is used up; kept by the server.
        incomplete_bytes: The bytes of the request that is not complete.
        in_progress_bytes: The bytes of the request in progress, as long as they are held.
        watched: What the poller looks for now; kept by the server.
        has_output: bytes wait for the socket.
        closes_after_answer: The client is refused.
        send_limit_bytes: Close after so many more bytes (fault scripts); None for no limit.
    """

    def __init__(
        self,
        transport: Transport,
        host: str,
        versions: Mapping[ApiKey, tuple[int, int]],
        max_frame_bytes: int,
        max_other_bytes: int,
        login: Login | None,
        endpoint: Endpoint,
        now_ms: int,
        *,
        listener: str = "",
        is_peer: bool = False,
    ) -> None:
        self.transport = transport
        self.host = host
        self.is_open = False
        self.is_closed = False
        self.stage = SessionStage.IDLE
        self.abandon: Callable[[], None] | None = None
        self.waiting: deque[RequestReceived] = deque()
        self.login = login
        self.endpoint = endpoint
        self.listener = listener
        self.is_peer = is_peer
        self.opened_ms = self.last_active_ms = now_ms
        self.unfinished_since_ms: int | None = None
        self.is_paused = False
        self.incomplete_bytes = 0
        self.in_progress_bytes = 0
        self.watched = 0
        self.has_output = False
        self.closes_after_answer = False
        self.send_limit_bytes: int | None = None
        self._connection = ServerConnection(versions, max_frame_bytes, max_other_bytes)
        self._ranges: deque[FileSlice] = deque()  # one for each stand-in that is not sent yet
        self._has_asked = False

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.transport.fileno()

    @property
    def wants_input(self) -> bool:
        """More may be read: no request waits behind the one in progress, and there is memory."""
        return not self.waiting and not self.is_paused

    @property
    def interest(self) -> int:
        """What to poll for: input unless requests wait, output if there is some."""
        if not self.is_open:
            return self.transport.interest(has_output=False)
        wanted = self.transport.interest(has_output=self.has_output)
        return wanted if self.wants_input else wanted & WRITABLE

    @property
    def has_client_left(self) -> bool:
        """The client has closed its end, whether or not all that it sent has been read."""
        poll = select.poll()
        poll.register(self.transport.fileno(), _CLIENT_LEFT)
        return any(mask & _CLIENT_LEFT for _, mask in poll.poll(0))

    @property
    def is_trusted(self) -> bool:
        """The client may send any request: it has logged in, or need not."""
        return self.login is None or self.login.user is not None

    @property
    def is_stranger(self) -> bool:
        """The client has not logged in; where it need not, it has not sent a request."""
        return not self.is_trusted or (self.login is None and not self._has_asked)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are not handled yet."""
        held_bytes = self.incomplete_bytes + self.in_progress_bytes
        return held_bytes + sum([request.body.nbytes for request in self.waiting]) if self.waiting else held_bytes

    def accept_frames_up_to(self, max_frame_bytes: int) -> None:
        """Change the size of the largest request."""
        self._connection.max_frame_bytes = max_frame_bytes

    @property
    def is_next_large(self) -> bool:
        """Whether the next request takes long to decode, as one of many elements does; records are not decoded."""
        if self.is_peer or not self.waiting:
            return False
        request = self.waiting[0]
        return request.body.nbytes > _LARGE_BODY_BYTES and request.api is not ApiKey.PRODUCE

    def receive(self, scratch: memoryview, now_ms: int) -> bool:
        """Read once, as much as `scratch` takes; whole requests go to `waiting`. Return False at the end of the stream.

        Raises:
            OSError: The connection failed.
            KafkaError: The client broke the protocol, or requested a version that is not announced.
        """
        size = self.transport.receive_into(scratch)
        if size is None:
            return True
        if size == 0:
            return False
        self._connection.receive_data(scratch[:size])
        for event in self._connection.events():
            if isinstance(event, ConnectionRefused):
                error = event.error
                del event
                try:
                    raise error
                finally:
                    del error  # the error knows this frame: with a name for it here it would be freed by the collector
            self.waiting.append(event)
            self._has_asked = True
            self.unfinished_since_ms = None
        self.has_output = self._connection.has_output
        self.incomplete_bytes = self._connection.incomplete_bytes
        if not self.incomplete_bytes:
            self.unfinished_since_ms = None
        elif self.unfinished_since_ms is None:
            self.unfinished_since_ms = now_ms
        return True

    def queue_response(self, request: RequestReceived, response: Response, ranges: list[FileSlice]) -> None:
        """Queue the answer to the request in progress; `ranges` are the files behind its stand-ins.

        Raises:
            UnsupportedVersionError, ValueError: The handler set what the version cannot express.
        """
        self._connection.send_response(request, response)
        self._ranges.extend(ranges)

    def queue_encoded(self, request: RequestReceived, frame: list[BytesLike]) -> None:
        """Queue the answer to the request in progress, which is encoded already."""
        self._connection.send_encoded(request, frame)

    def skip_response(self, request: RequestReceived) -> None:
        """The request in progress has no answer."""
        self._connection.send_nothing(request)

    def cut_output_in_half(self) -> None:
        """Close the connection after half of what is queued (fault scripts)."""
        self.send_limit_bytes = sum(len(view) for view in self._connection.data_to_send(IOV_MAX)) // 2

    def send(self) -> bool:
        """Push output to the socket; return whether all is sent.

        Raises:
            OSError: The connection failed, or a file ended early.
        """
        sent_bytes = 0
        while views := self._connection.data_to_send(IOV_MAX):
            if sent_bytes >= _SEND_TURN_BYTES:
                break
            count = self._send_front(views)
            if count == 0:
                break
            sent_bytes += count
            self._connection.data_sent(count)
        self.has_output = bool(views)
        return not views

    def close(self) -> None:
        """Close the socket and drop what waits. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self.transport.close()
        self._connection.connection_lost()
        self._ranges.clear()
        self.waiting.clear()
        abandon, self.abandon = self.abandon, None  # it knows this session: a cycle
        if abandon is not None:
            abandon()

    def _send_front(self, views: list[BytesLike]) -> int:
        if self.send_limit_bytes is not None:
            return self._send_limited(views[0], self.send_limit_bytes)
        if not is_stand_in(views[0]):
            return self.transport.send(_memory_in_front(views))
        source, left_bytes = self._ranges[0], len(views[0])
        count = self._send_file(source, source.position + source.length - left_bytes, left_bytes)
        if count == left_bytes:
            self._ranges.popleft()
        return count

    def _send_file(self, source: FileSlice, position: int, length: int) -> int:
        if isinstance(self.transport, TcpTransport):
            try:
                count = os.sendfile(self.transport.fileno(), source.file.fileno(), position, length)
            except BlockingIOError:
                return 0
            except OSError as error:
                if error.errno not in _NO_SENDFILE:
                    raise
            else:
                return self._check_sent(source, count, length)
        content = os.pread(source.file.fileno(), min(length, _READ_BYTES), position)
        self._check_sent(source, len(content), length)
        return self.transport.send([content])

    @staticmethod
    def _check_sent(source: FileSlice, count: int, length: int) -> int:
        if count == 0:
            raise ConnectionAbortedError(f"{source.file.path} ended {length} bytes early: it was truncated")
        return count

    def _send_limited(self, view: BytesLike, limit_bytes: int) -> int:
        if limit_bytes <= 0:
            raise CutOutputError("half of the answer is sent")
        count = self.transport.send([view[:limit_bytes]])
        self.send_limit_bytes = limit_bytes - count
        return count


def _memory_in_front(views: list[BytesLike]) -> list[BytesLike]:
    """The buffers before the first stand-in."""
    buffers: list[BytesLike] = []
    for view in views:
        if is_stand_in(view):
            break
        buffers.append(view)
    return buffers


class CutOutputError(KafkaError, ConnectionError):
    """The connection is closed in the middle of an answer, on purpose."""
