"""A broker whose secrets change while clients run, and the certificates of both sides."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from kafkaprod.broker import EmbeddedBroker
from tests.support.net.certificates import Authority


class RotatingBroker:
    """A broker that is started again at its port, with the same data and other secrets."""

    def __init__(self, data_dir: Path, **options: Any) -> None:
        self._data_dir = data_dir
        self._port = 0
        self.start(**options)

    def start(self, **options: Any) -> None:
        self._broker = EmbeddedBroker(self._data_dir, port=self._port, topics={"t": 1}, **options).start()
        self.bootstrap = self._broker.bootstrap_servers
        self._port = int(self.bootstrap.rpartition(":")[2])

    def restart(self, **options: Any) -> None:
        self.close()
        self.start(**options)

    def close(self) -> None:
        self._broker.close()


def issue(directory: Path, name: str) -> list[Path]:
    """Put `client-ca`, `client-certificate` and `client-key` of a new authority there; return the server's files."""
    authority = Authority(directory, name)
    own = authority.issue(f"{name}-server", ["127.0.0.1"])
    client = authority.issue(f"{name}-client", ["client"], is_for_clients=True)
    sources = {"ca": authority.cafile, "certificate": client.certfile, "key": client.keyfile}
    for place, source in sources.items():
        shutil.copy(source, directory / f"client-{place}.new")
        os.replace(directory / f"client-{place}.new", directory / f"client-{place}")
    return [own.certfile, own.keyfile, authority.cafile]
