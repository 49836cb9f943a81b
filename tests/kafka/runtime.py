"""Where the JVM side of the tests comes from: class paths from Maven and formatted storage, kept in a user cache.

The first use on a machine resolves the jars with Maven (its ordinary settings); later uses read the class path
from the cache directory: ``$KAFKAPROD_TEST_CACHE``, or ``~/.cache/kafkaprod-tests``. Everything in it can be deleted.
Nothing here starts a broker.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

BROKER_VERSION = "4.4.0"  # the newest release on the central Maven repository
OLD_BROKER_VERSION = "3.9.2"  # the last line with KRaft and the old message formats; no KIP-890 by default
OLDEST_BROKER_VERSION = "2.8.2"  # with ZooKeeper
WITHOUT_EPOCHS_VERSION = "2.4.1"  # its coordinators give a running producer no newer epoch (KIP-360 is of Kafka 2.5)
SPARK_CONNECTOR_CLIENTS = (
    "3.9.2"  # the clients that the connector of Spark 4.2 is made for; its POM file names the rest
)
TOOLS_VERSION = "4.3.1"  # the newest kafka-tools published

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_HERE = Path(__file__).parent
# C1 alone halves the start-up time of a broker; the serial collector needs the fewest threads.
METADATA_SHELL = "org.apache.kafka.shell.MetadataShell"
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
QUIET_LOG = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class KafkaUnavailableError(RuntimeError):
    """Java, Maven or the jars are missing: Apache Kafka cannot be started on this machine."""


def cache_dir() -> Path:
    """The directory that keeps class paths, class data archives and formatted storage between runs."""
    path = Path(os.environ.get("KAFKAPROD_TEST_CACHE") or Path.home() / ".cache" / "kafkaprod-tests")
    path.mkdir(parents=True, exist_ok=True)
    return path


@cache
def broker_class_path(version: str = BROKER_VERSION) -> str:
    """Class path of a broker of this version. Raises KafkaUnavailableError."""
    return _resolve("broker-pom.xml", version)


@cache
def tools_class_path(version: str = TOOLS_VERSION) -> str:
    """Class path of the Java command line tools. Raises KafkaUnavailableError."""
    return _resolve("tools-pom.xml", version)


@cache
def applications_class_path(version: str = TOOLS_VERSION) -> str:
    """Class path of Kafka Streams, Connect and MirrorMaker. Raises KafkaUnavailableError."""
    return _resolve("applications-pom.xml", version)


@cache
def class_path(pom: Path) -> str:
    """Class path of what a POM file names, with versions of its own. Raises KafkaUnavailableError."""
    return _resolve(str(pom), TOOLS_VERSION)


@cache
def spark_connector_class_path() -> str:
    """Jars of Spark's own Kafka sink and source, besides those of PySpark. Raises KafkaUnavailableError."""
    return _resolve("spark-connector-pom.xml", SPARK_CONNECTOR_CLIENTS)


def java(class_path: str, main_class: str, arguments: Sequence[str], jvm_options: Sequence[str] = ()) -> list[str]:
    """Command line that runs a main class. Raises KafkaUnavailableError if there is no java."""
    return [_executable("java"), *QUIET_LOG, *jvm_options, "-cp", class_path, main_class, *arguments]


def run_java(class_path: str, main_class: str, arguments: Sequence[str], timeout_s: float = 60) -> str:
    """Run a main class to its end and return its standard output.

    Raises:
        RuntimeError: it failed; the message holds both outputs.
        subprocess.TimeoutExpired: it took longer than ``timeout_s``.
    """
    command = java(class_path, main_class, arguments, FAST_START)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{main_class} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def read_metadata(class_path: str, log: Path, words: Sequence[str], last_change: str) -> str:
    """Run kafka-metadata-shell on a copy of a metadata log and return what it prints.

    The shell answers as soon as it has applied one batch (MetadataShell.waitUntilCaughtUp). On a busy machine that is
    before the last one; so it is asked again until its image has what `last_change`, a regular expression, describes.

    Raises:
        AssertionError: the change was in none of five answers.
    """
    for _ in range(5):
        printed = run_java(class_path, METADATA_SHELL, ["--snapshot", str(log), *words], timeout_s=120)
        if re.search(last_change, printed):
            return printed
    raise AssertionError(f"no {last_change!r} in {printed}")


def class_data_archive(version: str) -> Path:
    """Where the class data archive (AppCDS) of a broker version is or will be; it halves the start-up time again."""
    digest = hashlib.sha256(broker_class_path(version).encode()).hexdigest()[:12]
    return cache_dir() / f"broker-{version}-{digest}.jsa"


def format_storage(
    target: Path, *, version: str, node_id: int, scram_users: Mapping[str, str], features: Mapping[str, int]
) -> None:
    """Fill ``target`` as `kafka.tools.StorageTool format` does for this node.

    The tool runs once per version, user list and feature levels; its directory is kept and copied with the node's own
    ids, because a JVM start costs more than a second.
    """
    arguments = [
        argument
        for user, password in scram_users.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
    for feature, level in features.items():
        arguments += ["--feature", f"{feature}={level}"]
    key = hashlib.sha256(repr((version, CLUSTER_ID, arguments)).encode()).hexdigest()[:12]
    template = cache_dir() / f"format-{version}-{key}"
    with _lock(template.with_name(template.name + ".lock")):
        if not template.exists():
            _run_storage_tool(template, version, arguments)
    shutil.copytree(template, target)
    for path in target.rglob("*"):
        path.chmod(path.stat().st_mode | 0o200)
    properties = target / "meta.properties"
    lines = [
        line
        for line in properties.read_text().splitlines()
        if not line.startswith(("node.id=", "directory.id=", "broker.id="))
    ]
    properties.write_text("\n".join([*lines, f"node.id={node_id}", f"directory.id={_directory_id(node_id)}", ""]))


def format_further(target: Path, node_id: int, number: int) -> None:
    """Make a log directory of a node besides that of its metadata."""
    target.mkdir()
    (target / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node_id}\ndirectory.id={_directory_id(node_id, number)}\n"
    )


def _directory_id(node_id: int, number: int = 0) -> str:
    # A Kafka uuid is 16 bytes in url-safe base64 without padding; the last letter may only be A, Q, g or w.
    return f"KafkaprodNode{1_000_000 * number + node_id:08d}A"


def _run_storage_tool(template: Path, version: str, arguments: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(dir=template.parent) as scratch:
        data = Path(scratch) / "data"
        config = Path(scratch) / "server.properties"
        config.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
            "listeners=INTERNAL://127.0.0.1:2,CONTROLLER://127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
            "inter.broker.listener.name=INTERNAL\n"
            "listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={data}\n"
        )
        run_java(
            broker_class_path(version),
            "kafka.tools.StorageTool",
            ["format", "-t", CLUSTER_ID, "-c", str(config), *arguments],
        )
        os.replace(data, template)


def _executable(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KafkaUnavailableError(f"{name} is not on the PATH: Apache Kafka cannot be started")
    return path


def _resolve(pom: str, version: str) -> str:
    _executable("java")
    name = f"{Path(pom).stem}-{version}-{hashlib.sha256((_HERE / pom).read_bytes()).hexdigest()[:12]}.classpath"
    path = cache_dir() / name
    # One for all: processes of Maven that fill one repository at a time disturb each other.
    with _lock(cache_dir() / "maven.lock"):
        if not _is_complete(path):
            _ask_maven(pom, version, path)
    return path.read_text().strip()


def _is_complete(class_path_file: Path) -> bool:
    return class_path_file.exists() and all(
        Path(jar).exists() for jar in class_path_file.read_text().strip().split(os.pathsep)
    )


def _ask_maven(pom: str, version: str, output: Path) -> None:
    command = [
        _executable("mvn"),
        "-q",
        "-B",
        "-f",
        str(_HERE / pom),
        f"-Dkafka.version={version}",
        "dependency:build-classpath",
        f"-Dmdep.outputFile={output}",
        f"-Dmdep.pathSeparator={os.pathsep}",
    ]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    except subprocess.CalledProcessError as error:
        raise KafkaUnavailableError(
            f"Maven could not resolve {pom} {version}:\n{error.stdout}{error.stderr}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(f"Maven took more than {error.timeout} s to resolve {pom} {version}") from error


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time: several test runs may share the cache."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
