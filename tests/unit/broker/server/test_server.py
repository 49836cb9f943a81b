"""The server's sockets before it serves."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.server.server import BrokerServer


@pytest.mark.filterwarnings("error")
def test_port_that_is_taken_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = BrokerConfig(data_dir=str(tmp_path / "data"), port=other.getsockname()[1])
        before = os.listdir("/proc/self/fd")
        with pytest.raises(OSError, match="in use"):
            BrokerServer(config)
        assert os.listdir("/proc/self/fd") == before
        assert not os.path.exists(config.data_dir)


def test_directory_that_is_in_use_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="data"):
        BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0))
    assert os.listdir("/proc/self/fd") == before
