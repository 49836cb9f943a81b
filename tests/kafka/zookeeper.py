"""The ZooKeeper an old Kafka needs; it comes with that broker's jars."""

import subprocess
from pathlib import Path

from tests.kafka.process import start_process
from tests.kafka.runtime import FAST_START, broker_class_path, java

FIRST_VERSION_WITHOUT = (3, 3)  # KRaft is complete from here on


def needs_zookeeper(version: str) -> bool:
    """Whether brokers of this release are run with ZooKeeper."""
    major, minor, *_ = version.split(".")
    return (int(major), int(minor)) < FIRST_VERSION_WITHOUT


class ZooKeeper:
    """One ZooKeeper server. Brokers wait for it by themselves, so nothing here waits.

    Args:
        version: Kafka release whose jars to use.
        directory: for its data and output.
        port: to listen on.
    """

    def __init__(self, version: str, directory: Path, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._version = version
        self._directory = directory

    def start(self) -> None:
        """Start it unless it runs."""
        if self._process is not None:
            return
        config = self._directory / "zookeeper.properties"
        config.write_text(
            f"dataDir={self._directory / 'zookeeper'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=500\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )
        command = java(
            broker_class_path(self._version),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            [str(config)],
            (*FAST_START, "-Xmx128m"),
        )
        self._process = start_process(command, self._directory / "zookeeper.out")

    def close(self) -> None:
        """Kill it; may be called twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
