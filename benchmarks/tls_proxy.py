"""A far end behind TLS: a proxy that decrypts what clients send and passes it on to the sink.

    with TlsProxy(certificate, key) as proxy, Sink(topics, advertised=[proxy.port]) as sink:
        proxy.forward_to(sink.ports[0])

The sink itself has the kernel drop what it need not see, which it cannot with TLS. Its own process, because a client's
CPU is measured. It takes about as much CPU as the client: on two cores rates are those of both together.
"""

import contextlib
import select
import socket
import ssl
import sys
import threading
from pathlib import Path

from benchmarks.proxy_process import ProxyProcess

_READ_BYTES = 256 * 1024


class TlsProxy(ProxyProcess):
    """A proxy process that decrypts.

    Args:
        certfile: the server's certificate, PEM.
        keyfile: its key.
    """

    def __init__(self, certfile: Path, keyfile: Path) -> None:
        super().__init__("benchmarks.tls_proxy", str(certfile), str(keyfile))


def _pass_on(client: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """Move bytes between a client and the sink until one of them closes."""
    buffer = bytearray(_READ_BYTES)
    view = memoryview(buffer)
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(client, server_side=True) as tls,
        socket.create_connection(("127.0.0.1", port)) as sink,
    ):
        sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            ready, _, _ = select.select([tls, sink], [], [])
            if sink in ready:
                answer = sink.recv(_READ_BYTES)
                if not answer:
                    return
                tls.sendall(answer)
            if tls in ready:
                size = tls.recv_into(view)
                if not size:
                    return
                while tls.pending() and size <= _READ_BYTES - 16_384:  # what OpenSSL has decrypted already
                    size += tls.recv_into(view[size:])
                sink.sendall(view[:size])


def _serve(certfile: str, keyfile: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certfile, keyfile)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    port = int(sys.stdin.readline())

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pass_on, args=(client, context, port), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
