"""Ports for servers that come and go during a test."""

import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, below the ephemeral range: no outgoing connection takes one while its server is down."""
    chosen: list[int] = []
    source = random.SystemRandom()
    while len(chosen) < count:
        port = source.randrange(12_000, 32_000)
        if port not in chosen and _is_free(port):
            chosen.append(port)
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
