"""A relay of bytes on loopback whose connections can all be cut at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Relay:
    """Passes bytes to and from a server, whatever they are. Its methods may be called from any thread.

    Args:
        upstream: Address of the server.

    Attributes:
        address: Where it listens.
    """

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []  # guarded by _lock

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener)
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            ended, self._sockets = self._sockets, []
        for sock in ended:
            _end(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._upstream)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._sockets += (client, server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    _end(source)
    _end(target)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
