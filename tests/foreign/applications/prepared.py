"""What the applications are made of: npm and Maven bring their libraries, javac compiles the one in Java."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kafka.runtime import FAST_START, applications_class_path, java

KAFKAJS: Final = "kafkajs@2.2.4"
_HERE: Final = Path(__file__).parent
_MIRROR: Final = """
clusters = here, there
here.bootstrap.servers = {servers}
there.bootstrap.servers = {servers}
here->there.enabled = true
here->there.topics = in
there->here.enabled = false
there.exactly.once.source.support = enabled
here.consumer.isolation.level = read_committed
replication.factor = {replicas}
offset-syncs.topic.replication.factor = {replicas}
checkpoints.topic.replication.factor = {replicas}
heartbeats.topic.replication.factor = {replicas}
config.storage.replication.factor = {replicas}
offset.storage.replication.factor = {replicas}
status.storage.replication.factor = {replicas}
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
tasks.max = 4
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0
there.session.timeout.ms = 10000
there.scheduled.rebalance.max.delay.ms = 1000
"""


@dataclass(frozen=True)
class Application:
    """One that copies `in`.

    Attributes:
        name: What it is.
        directory: Where it runs.
        command: Of one process: addresses, a directory of its own, replicas -> what to run.
        out: Where it copies to.
        topics: Those to make before.
        has_counts: Whether the counts of each key are in topic `counts`.
        instances: How many processes at first.
        ends_with_stdin: Whether it ends when its standard input does; else by SIGTERM.
    """

    name: str
    directory: Path
    command: Callable[[str, Path, int], list[str]]
    out: str = "out"
    topics: tuple[str, ...] = ("in", "out")
    has_counts: bool = False
    instances: int = 2
    ends_with_stdin: bool = True


def _streams(directory: Path) -> Application:
    path = applications_class_path()
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(directory), str(_HERE / "Copy.java")], check=True)

    def command(servers: str, state: Path, replicas: int) -> list[str]:
        return java(f"{directory}:{path}", "Copy", [servers, str(state), str(replicas)], FAST_START)

    topics = ("in", "out", "counts")
    return Application("Kafka Streams, exactly_once_v2", directory, command, topics=topics, has_counts=True)


def _kafkajs(directory: Path) -> Application:
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", KAFKAJS], cwd=directory, check=True)
    program = directory / "copy.js"
    program.write_bytes((_HERE / "copy.js").read_bytes())
    # One process at a time: its commits of offsets do not name the generation of the group, so that who had a partition
    # before a rebalance could commit beside the one who has it now.
    return Application(KAFKAJS, directory, lambda servers, _, __: ["node", str(program), servers], instances=1)


def _mirrormaker(directory: Path) -> Application:
    path = applications_class_path()

    def command(servers: str, state: Path, replicas: int) -> list[str]:
        options = state / "mirror.properties"
        options.write_text(_MIRROR.format(servers=servers, replicas=replicas))
        return java(path, "org.apache.kafka.connect.mirror.MirrorMaker", [str(options)], FAST_START)

    return Application(
        "MirrorMaker 2, exactly once",
        directory,
        command,
        out="here.in",
        topics=("in", "here.in"),
        ends_with_stdin=False,
    )


APPLICATIONS: Final[Mapping[str, Callable[[Path], Application]]] = {
    "streams": _streams,
    "kafkajs": _kafkajs,
    "mirrormaker": _mirrormaker,
}
