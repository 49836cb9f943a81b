"""What the applications are made of: npm, cargo, go and Maven bring libraries; javac, cargo and go compile."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.foreign.sarama import REQUIREMENT as SARAMA
from tests.kafka.runtime import FAST_START, applications_class_path, cache_dir, class_path, java

KAFKAJS: Final = "kafkajs@2.2.4"
PLATFORMATIC: Final = "@platformatic/kafka@2.12.1"
NODE: Final = "node@24.9.0"  # what @platformatic/kafka wants is newer than what many systems have
RDKAFKA: Final = "0.38.0"
ROWS: Final = 6_000
_FLINK_OPENS: Final = ("--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED")
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
        may_repeat: How many rows it may copy twice, because it promises each row at least once.
        ends_with_stdin: Whether it ends when its standard input does; else by SIGTERM.
    """

    name: str
    directory: Path
    command: Callable[[str, Path, int], list[str]]
    out: str = "out"
    topics: tuple[str, ...] = ("in", "out")
    has_counts: bool = False
    instances: int = 2
    may_repeat: int = 0
    ends_with_stdin: bool = True


def _streams(directory: Path) -> Application:
    path = applications_class_path()
    program = _compiled("Copy", path, directory)

    def command(servers: str, state: Path, replicas: int) -> list[str]:
        return java(program, "Copy", [servers, str(state), str(replicas)], FAST_START)

    topics = ("in", "out", "counts")
    return Application("Kafka Streams, exactly_once_v2", directory, command, topics=topics, has_counts=True)


def _compiled(name: str, path: str, directory: Path) -> str:
    """Compile a program in Java; return the class path to run it with."""
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(directory), str(_HERE / f"{name}.java")], check=True)
    return f"{directory}:{path}"


def _kafkajs(directory: Path) -> Application:
    # One process at a time: its commits of offsets do not name the generation of the group, so that who had a partition
    # before a rebalance could commit beside the one who has it now.
    return _node([KAFKAJS], "copy.js", directory)


def _platformatic(directory: Path) -> Application:
    # One process at a time: who gets a partition reads its offset without waiting for transactions that are open.
    return _node([PLATFORMATIC, NODE], "platformatic.mjs", directory)


def _node(packages: Sequence[str], source: str, directory: Path) -> Application:
    """Install packages and a program that uses the first; `node` is that of the packages if it is among them."""
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *packages], cwd=directory, check=True)
    shutil.copy(_HERE / source, directory)
    node = directory / "node_modules" / ".bin" / "node"
    program = [str(node) if node.exists() else "node", str(directory / source)]
    return Application(packages[0], directory, lambda servers, _, __: [*program, servers], instances=1)


def _rdkafka(directory: Path) -> Application:
    project = directory / "copy"
    (project / "src").mkdir(parents=True)
    shutil.copy(_HERE / "copy.rs", project / "src" / "main.rs")
    (project / "Cargo.toml").write_text(
        '[package]\nname = "copy"\nversion = "0.0.0"\nedition = "2021"\n\n'
        f'[dependencies]\nrdkafka = {{ version = "={RDKAFKA}", default-features = false }}\n'
    )
    built = cache_dir() / f"rdkafka-{RDKAFKA}"  # librdkafka takes minutes to compile
    subprocess.run(["cargo", "build", "--quiet", "--target-dir", str(built)], cwd=project, check=True)
    program = shutil.copy(built / "debug" / "copy", directory / "program")

    def command(servers: str, state: Path, _: int) -> list[str]:
        return [str(program), servers, state.name]

    return Application(f"rust-rdkafka {RDKAFKA}", directory, command)


def _sarama(directory: Path) -> Application:
    shutil.copy(_HERE / "copy.go", directory / "main.go")
    (directory / "go.mod").write_text("module copy\n")
    program = directory / "program"
    for command in (["go", "get", SARAMA], ["go", "build", "-o", str(program), "."]):
        subprocess.run(command, cwd=directory, check=True)
    return Application("sarama 1.61.1", directory, lambda servers, state, _: [str(program), servers, state.name])


def _spring(directory: Path) -> Application:
    program = _compiled("SpringCopy", class_path(_HERE / "spring-pom.xml"), directory)

    def command(servers: str, state: Path, _: int) -> list[str]:
        return java(program, "SpringCopy", [servers, state.name], FAST_START)

    return Application("Spring Kafka 4.0.0", directory, command, topics=("in", "out", "in-dlt"))


def _camel(directory: Path) -> Application:
    program = _compiled("CamelCopy", class_path(_HERE / "camel-pom.xml"), directory)

    def command(servers: str, _: Path, __: int) -> list[str]:
        return java(program, "CamelCopy", [servers], FAST_START)

    return Application(
        "Apache Camel 4.14.0, at least once, idempotent consumer",
        directory,
        command,
        topics=("in", "out", "copied"),
        may_repeat=2,  # the killed process has two consumers, and a row of each may not be in `copied` yet
        ends_with_stdin=False,
    )


def _flink(directory: Path) -> Application:
    program = _compiled("FlinkCopy", class_path(_HERE / "flink-pom.xml"), directory)
    checkpoints = directory / "checkpoints"

    def command(servers: str, _: Path, __: int) -> list[str]:
        # One process at a time: the next goes on from the newest checkpoint that is complete.
        done = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
        start = [str(path.parent) for path in done[-1:]]
        return java(program, "FlinkCopy", [servers, str(checkpoints), *start], (*FAST_START, *_FLINK_OPENS))

    return Application("Apache Flink 2.2.0, EXACTLY_ONCE", directory, command, instances=1)


def _connect(directory: Path) -> Application:
    program = _compiled("ConnectCopy", applications_class_path(), directory)
    for first, half in enumerate(("even", "odd")):
        _write_lines(directory / half, range(first, ROWS, 2))

    def command(servers: str, _: Path, replicas: int) -> list[str]:
        return java(program, "ConnectCopy", [servers, str(directory), str(replicas)], FAST_START)

    return Application("Kafka Connect, exactly-once source", directory, command, topics=("out",))


def _debezium(directory: Path) -> Application:
    program = _compiled("DebeziumCopy", class_path(_HERE / "debezium-pom.xml"), directory)
    lines = directory / "lines"
    _write_lines(lines, range(ROWS))

    def command(servers: str, _: Path, replicas: int) -> list[str]:
        return java(program, "DebeziumCopy", [servers, str(lines), str(replicas)], FAST_START)

    return Application(
        "Debezium engine 3.3.0, at least once",
        directory,
        command,
        topics=("out",),
        instances=1,
        may_repeat=10,  # lines of a batch, after which offsets are written
    )


def _write_lines(path: Path, rows: Iterable[int]) -> None:
    """Write rows to a file."""
    # Connect's source of files takes lines from its buffer of 1,024 bytes only while there is more to read. Here, what
    # follows the rows is a line without an end, which it never copies.
    path.write_text("".join(f"{row}\n" for row in rows) + "." * 4_096)


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
    "camel": _camel,
    "connect": _connect,
    "streams": _streams,
    "kafkajs": _kafkajs,
    "debezium": _debezium,
    "flink": _flink,
    "mirrormaker": _mirrormaker,
    "platformatic": _platformatic,
    "rdkafka": _rdkafka,
    "sarama": _sarama,
    "spring": _spring,
}
