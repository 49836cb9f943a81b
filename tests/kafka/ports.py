"""Ports for servers that come and go during a test."""

import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports for servers of this process and its children, below the ephemeral range: no outgoing connection takes one
    while its server is down.

    They are kept for this process until it ends, by sockets that are bound and do not listen: nobody who looks for a
    free port gets one of them, but a server that binds with SO_REUSEADDR does, as Java's and Python's all do.
    """
    chosen: list[int] = []
    source = random.SystemRandom()
    while len(chosen) < count:
        port = source.randrange(12_000, 32_000)
        if _reserve(port):
            chosen.append(port)
    return chosen


def _reserve(port: int) -> bool:
    keeper = socket.socket()
    try:
        keeper.bind(("127.0.0.1", port))  # exclusive: fails if anybody is bound to it, listening or not
    except OSError:
        keeper.close()
        return False
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.detach()  # the descriptor stays open
    return True
