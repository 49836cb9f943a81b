"""A SOCKS5, SOCKS4a and HTTP CONNECT proxy on loopback, which knows names that nobody else knows."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

USER, PASSWORD = "me", "proxy-secret"
_GRANTED = {b"\x05": b"\x05\0\0\x01\0\0\0\0\0\0", b"\x04": b"\0\x5a\0\0\0\0\0\0"}


class LoopbackProxy:
    """Takes all three protocols on one port; names are all taken for 127.0.0.1.

    Attributes:
        targets: Where clients wanted to go, `host:port`.
    """

    def __init__(self) -> None:
        self.targets: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            first = _exactly(client, 1)
            protocol = {b"\x05": self._socks5, b"\x04": self._socks4}.get(first)
            target = self._http(client, first) if protocol is None else protocol(client)
            if target is None:
                client.close()
                return
            server = socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])), 10)
            server.settimeout(None)
            self._sockets.append(server)
            client.sendall(_GRANTED.get(first, b"HTTP/1.1 200 OK\r\n\r\n"))
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            _copy(client, server)

    def _socks5(self, client: socket.socket) -> str | None:
        methods = _exactly(client, _exactly(client, 1)[0])
        if 2 not in methods:
            client.sendall(b"\x05\xff")
            return None
        client.sendall(b"\x05\x02")
        _exactly(client, 1)
        user = _exactly(client, _exactly(client, 1)[0]).decode()
        password = _exactly(client, _exactly(client, 1)[0]).decode()
        is_known = (user, password) == (USER, PASSWORD)
        client.sendall(b"\x01\0" if is_known else b"\x01\x01")
        if not is_known:
            return None
        kind = _exactly(client, 4)[3]
        host = socket.inet_ntoa(_exactly(client, 4)) if kind == 1 else _exactly(client, _exactly(client, 1)[0]).decode()
        return self._note(f"{host}:{int.from_bytes(_exactly(client, 2), 'big')}")

    def _socks4(self, client: socket.socket) -> str | None:
        _exactly(client, 1)
        port, address = int.from_bytes(_exactly(client, 2), "big"), _exactly(client, 4)
        if _until_zero(client) != USER:  # there are no passwords
            client.sendall(b"\0\x5d\0\0\0\0\0\0")
            return None
        has_name = address[:3] == b"\0\0\0"
        return self._note(f"{_until_zero(client) if has_name else socket.inet_ntoa(address)}:{port}")

    def _http(self, client: socket.socket, first: bytes) -> str | None:
        head = first
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(client, 1)
        proof = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if f"basic {proof}".lower() not in head.decode().lower():
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return None
        return self._note(head.split()[1].decode())

    def _note(self, target: str) -> str:
        self.targets.append(target)
        return target


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _until_zero(sock: socket.socket) -> str:
    text = b""
    while (byte := _exactly(sock, 1)) != b"\0":
        text += byte
    return text.decode()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
