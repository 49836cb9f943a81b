"""The side of the controller's connections that answers: accept, read, hand on, write. The event loop owns it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from kafkaprod.errors import ConnectionLostError, KafkaError
from kafkaprod.net.poller import READABLE, WRITABLE, Poller
from kafkaprod.net.transport import IOV_MAX, TcpTransport
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.long_messages import shorten_messages
from kafkaprod.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.protocol.server import ConnectionRefused, RequestReceived, ServerConnection

OnRequest = Callable[[Request, Callable[[Response], None]], None]
"""Takes a request, and the function that takes its answer."""

_READ_BYTES = 256 * 1024
_BACKLOG = 128


def listen(path: str) -> socket.socket:
    """Return a Unix socket that listens at a path, where an earlier process may have left one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


class PeerServer:
    """See the module docstring."""

    def __init__(
        self, poller: Poller, path: str, versions: Mapping[ApiKey, tuple[int, int]], on_request: OnRequest
    ) -> None:
        """Listen at a path.

        Args:
            poller: The poller of the loop that calls `on_ready` of this and of its sessions.
            path: The path of the socket.
            versions: What is announced.
            on_request: Called with each request.
        """
        self.poller = poller
        self.versions = {ApiKey.API_VERSIONS: (0, 4), **versions}
        self.on_request = on_request
        self.sessions: set[PeerSession] = set()
        self._sock = listen(path)
        poller.register(self._sock, READABLE, self)

    def on_ready(self, mask: int) -> None:
        """Accept what waits."""
        while True:
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue  # the peer gave up before we came
            sock.setblocking(False)
            session = PeerSession(self, sock)
            self.sessions.add(session)
            self.poller.register(sock, READABLE, session)

    def close(self) -> None:
        """Close all."""
        for session in list(self.sessions):
            session.close()
        self.poller.unregister(self._sock)
        self._sock.close()


class PeerSession:
    """One connection to the controller."""

    def __init__(self, server: PeerServer, sock: socket.socket) -> None:
        self._server = server
        self._transport = TcpTransport(sock)
        self._transport.try_open()
        self._connection = ServerConnection(server.versions)
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._is_closed = False

    def on_ready(self, mask: int) -> None:
        """Read and write what the socket allows."""
        try:
            if mask & READABLE:
                self._receive()
            self._flush()
        except (OSError, KafkaError):
            self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._server.sessions.discard(self)
        self._server.poller.unregister(self._transport)
        self._transport.close()
        self._connection.connection_lost()

    def _receive(self) -> None:
        size = self._transport.receive_into(self._scratch)
        if size is None:
            return
        if size == 0:
            raise ConnectionLostError("the peer closed the connection")
        self._connection.receive_data(self._scratch[:size])
        for event in self._connection.events():
            if isinstance(event, ConnectionRefused):
                raise event.error
            self._handle(event)

    def _handle(self, received: RequestReceived) -> None:
        if received.api is ApiKey.API_VERSIONS:
            keys = [
                ApiVersion(api_key=api, min_version=low, max_version=high)
                for api, (low, high) in self._server.versions.items()
            ]
            self._answer(received, ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=keys))
        else:
            self._server.on_request(received.decode(), lambda response: self._answer(received, response))

    def _answer(self, received: RequestReceived, response: Response) -> None:
        if self._is_closed:
            return
        try:
            try:
                self._connection.send_response(received, response)
            except ValueError:
                if not shorten_messages(response):
                    raise
                self._connection.send_response(received, response)
            self._flush()
        except (OSError, KafkaError, ValueError):  # what a request makes of an answer ends no process
            self.close()

    def _flush(self) -> None:
        if self._is_closed:
            return
        while views := self._connection.data_to_send(IOV_MAX):
            taken = self._transport.send(views)
            if not taken:
                break
            self._connection.data_sent(taken)
        self._server.poller.modify(self._transport, READABLE | WRITABLE if views else READABLE, self)
