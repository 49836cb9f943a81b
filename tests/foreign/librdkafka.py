"""The C and C++ tests of librdkafka: a clone of its repository has them, make builds them, they run against our broker.

    configure, make (in the clone; what is built already is kept) -> leave the network -> broker -> test-runner

Only those that need a broker run (-L). Needs a C and a C++ compiler, the headers of OpenSSL and zlib, Java and Maven:
some tests call Kafka's own tools.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.foreign import network, reasons
from tests.foreign.results import Results
from tests.kafka.runtime import FAST_START, java, tools_class_path

TIMEOUT_S = 3600
TOOLS = {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-acls.sh": "org.apache.kafka.tools.AclCommand"}
KAFKA_VERSION = "4.0.0"  # tests of newer features, which are share groups, skip themselves


@dataclass(frozen=True)
class LibrdkafkaSuite:
    """The tests with one group protocol.

    Attributes:
        requirement: project and version of the clone that the expected failures are of.
        group_protocol: "classic" or "consumer".
        expected_failures: name of a test -> why it fails.
        broker_count: more than 1: they run against an `EmbeddedCluster`.
    """

    requirement: str
    group_protocol: str
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    broker_count: int = 1


SUITES: Mapping[str, LibrdkafkaSuite] = {
    "librdkafka": LibrdkafkaSuite("librdkafka 2.15.0", "classic", reasons.LIBRDKAFKA),
    "librdkafka-consumer": LibrdkafkaSuite("librdkafka 2.15.0, KIP-848", "consumer", reasons.LIBRDKAFKA),
    "librdkafka-cluster": LibrdkafkaSuite("librdkafka 2.15.0, three brokers", "classic", broker_count=3),
}


def run(suite: LibrdkafkaSuite, clone: Path, options: list[str]) -> Results:
    """Build the tests in the clone, run them, and return what came of them.

    Args:
        suite: which.
        clone: of the repository.
        options: for test-runner; the number of a test, say.
    """
    tests = clone.resolve() / "tests"
    _build(clone.resolve())
    tools_class_path()  # downloads it
    network.leave()
    with (
        tempfile.TemporaryDirectory(prefix="foreign-") as name,
        _broker(suite.broker_count) as servers,
    ):
        report, conf = Path(name, "report.json"), Path(name, "test.conf")
        conf.write_text(f"bootstrap.servers={servers}\ntest.timeout.multiplier=4\n")
        _write_tools(Path(name, "bin"))
        environment = {
            **os.environ,
            "BROKERS": servers,
            "KAFKA_PATH": name,
            "LD_LIBRARY_PATH": f"{clone.resolve()}/src:{clone.resolve()}/src-cpp",
            "RDKAFKA_TEST_CONF": str(conf),
            "TEST_CONSUMER_GROUP_PROTOCOL": suite.group_protocol,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TEST_REPORT": str(report),
        }
        command = ["./test-runner", "-L", "-p2", "-Q", *options]
        subprocess.run(command, cwd=tests, env=environment, check=False, timeout=TIMEOUT_S)
        return _read(report)


@contextmanager
def _broker(count: int) -> Iterator[str]:
    """Run a broker, or a cluster of several, as their scripts start Kafka; give its addresses."""
    options = {
        "group.min.session.timeout.ms": 1000,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.backoff.ms": 1000,  # a test waits 3 minutes for a topic to be compacted
    }
    if count == 1:
        with EmbeddedBroker(num_partitions=4, options=options) as broker:
            yield broker.bootstrap_servers
    else:
        with EmbeddedCluster(count, num_partitions=4, options=options) as cluster:
            yield cluster.bootstrap_servers


def _build(clone: Path) -> None:
    """Build the libraries and the tests."""
    if not (clone / "Makefile.config").exists():
        subprocess.run(["./configure", "--disable-gssapi", "--disable-curl"], cwd=clone, check=True)
    jobs = f"-j{os.cpu_count()}"
    for command in (["make", jobs, "libs"], ["make", jobs, "-C", "tests", "test-runner"]):
        subprocess.run(command, cwd=clone, check=True, stdout=subprocess.DEVNULL)


def _write_tools(directory: Path) -> None:
    """Write scripts as in Kafka's bin directory; the classes come from Maven."""
    directory.mkdir()
    for name, main_class in TOOLS.items():
        command = shlex.join(java(tools_class_path(), main_class, (), FAST_START))
        (directory / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (directory / name).chmod(0o755)


def _read(report: Path) -> Results:
    """Collect the outcomes from the runner's report; leave out what was not chosen."""
    results = Results()
    for name, test in json.loads(report.read_text())["tests"].items():
        if name == "<MAIN>":
            continue
        match test["state"]:
            case "PASSED":
                results.passed.add(name)
            case "FAILED":
                results.failed.add(name)
            case "SKIPPED":
                results.skipped.add(name)
    return results
