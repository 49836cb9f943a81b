"""Ports that are handed out are nobody else's."""

import socket

import pytest

from tests.kafka.ports import _reserve, free_ports


def test_reserved_port_is_taken_for_others_and_free_for_its_server_again_and_again() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        assert not _reserve(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for _ in range(2):
            with (
                socket.create_server(("127.0.0.1", port)) as server,
                socket.create_connection(("127.0.0.1", port)),
                server.accept()[0],
            ):
                assert not _reserve(port)
