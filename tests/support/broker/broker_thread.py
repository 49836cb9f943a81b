"""A `FakeBroker` behind a real socket: one thread, any number of connections, scripted per connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from tests.support.net.fake_broker import FakeBroker


class BrokerThread:
    """Serves `make_broker()` for each connection on 127.0.0.1 until closed.

    Attributes:
        brokers: One for each connection accepted so far, oldest first.
    """

    def __init__(
        self,
        make_broker: Callable[[], FakeBroker] = FakeBroker,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.brokers: list[FakeBroker] = []
        self._make_broker = make_broker
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        if receive_buffer_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.host, self.port = self._listener.getsockname()
        self._connections: dict[FakeBroker, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._stopper, self._stop = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stopper, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="broker")
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def reset(self, broker: FakeBroker) -> None:
        """Cut a broker's connection with an RST. From a handler, i.e. on the thread."""
        if broker in self._connections:
            linger = struct.pack("ii", 1, 0)
            self._connections[broker].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._drop(broker)

    def __enter__(self) -> BrokerThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._listener, self._stopper, self._selector:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._stopper:
                        for broker in list(self._connections):
                            self._drop(broker)
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._serve(key.data)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        if self._tls is not None:
            sock.settimeout(10)
            try:
                sock = self._tls.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                return
        broker = self._make_broker()
        self.brokers.append(broker)
        self._connections[broker] = sock
        self._selector.register(sock, selectors.EVENT_READ, broker)

    def _serve(self, broker: FakeBroker) -> None:
        sock = self._connections[broker]
        try:
            data = sock.recv(1 << 16)
            while isinstance(sock, ssl.SSLSocket) and sock.pending():
                data += sock.recv(1 << 16)
            if not data:
                self._drop(broker)
                return
            answer = broker.receive(data)
            if broker in self._connections:  # a handler may have cut it
                sock.sendall(answer)
        except OSError:
            self._drop(broker)

    def _drop(self, broker: FakeBroker) -> None:
        sock = self._connections.pop(broker, None)
        if sock is not None:
            self._selector.unregister(sock)
            with contextlib.suppress(OSError):
                sock.close()
