"""Tests of projects in Go: the Go module proxy brings the module, `go test` runs its tests against our broker.

go mod download -> copy -> go list (downloads what the tests import) -> leave the network -> broker -> go test
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.foreign import network, reasons
from tests.foreign.results import Results

TIMEOUT_S = 1800


@dataclass(frozen=True)
class GoSuite:
    """One module's tests.

    Attributes:
        requirement: module and version.
        packages: in it.
        broker: runs a broker, and gives the environment that the tests want to see.
        options: for `go test`.
        expected_failures: name of a test -> why it fails.
    """

    requirement: str
    packages: tuple[str, ...]
    broker: Callable[[], AbstractContextManager[Mapping[str, str]]]
    options: tuple[str, ...] = ()
    expected_failures: Mapping[str, str] = field(default_factory=dict)


def run(suite: GoSuite, go_options: list[str]) -> Results:
    """Download the module, run its tests, and return what came of them; `go test` prints what fails."""
    with tempfile.TemporaryDirectory(prefix="foreign-") as directory:
        source = unpack(suite.requirement, Path(directory))
        subprocess.run(
            ["go", "list", "-mod=mod", "-deps", "-test", *suite.packages],
            cwd=source,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        network.leave()
        return run_tests(suite, source, go_options)


def run_tests(suite: GoSuite, source: Path, go_options: list[str]) -> Results:
    """Run the broker, and the tests in a copy of the module, without the network."""
    command = ["go", "test", "-mod=mod", "-json", "-count=1", f"-timeout={TIMEOUT_S}s"]
    with (
        suite.broker() as environment,
        subprocess.Popen(
            [*command, *suite.options, *go_options, *suite.packages],
            cwd=source,
            env={**os.environ, "GOPROXY": "off", **environment},
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        return _read(process.stdout)


def unpack(requirement: str, directory: Path) -> Path:
    """Have Go fetch the module into its cache, and copy it: files there are read-only."""
    (directory / "go.mod").write_text("module foreign\n")
    done = subprocess.run(
        ["go", "mod", "download", "-json", requirement], cwd=directory, stdout=subprocess.PIPE, text=True, check=True
    )
    source = directory / "source"
    shutil.copytree(json.loads(done.stdout)["Dir"], source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return source


def _read(lines: Iterator[str]) -> Results:
    """Collect the events of `go test -json`; print the output of tests that fail."""
    results = Results()
    output: dict[str, list[str]] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="")  # of the compiler
            continue
        name, action = event.get("Test", ""), event["Action"]
        if action in ("build-output", "build-fail"):
            print(event.get("Output", ""), end="")
            continue
        if action == "output":
            output.setdefault(name, []).append(event["Output"])
        elif name and action in ("pass", "fail", "skip"):
            place = {"pass": results.passed, "fail": results.failed, "skip": results.skipped}[action]
            place.add(name)
            if action == "fail":
                print("".join(output.get(name, [])[-40:]), end="")
            output.pop(name, None)
    return results


@contextmanager
def franz_go_broker() -> Iterator[Mapping[str, str]]:
    """Run a broker with a listener for SCRAM."""
    user, password = "kgo", "secret"
    with EmbeddedBroker(
        listeners="PLAINTEXT://:0,SASL_PLAINTEXT://:0",
        sasl_users={user: password},
        options={"super.users": f"User:ANONYMOUS;User:{user}"},
    ) as broker:
        yield {
            "KGO_SEEDS": broker.listeners["PLAINTEXT"],
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": "20000",
            "KGO_TEST_SCRAM_SEEDS": broker.listeners["SASL_PLAINTEXT"],
            "KGO_TEST_SCRAM": f"{user}:{password}",
        }


@contextmanager
def kafka_go_broker() -> Iterator[Mapping[str, str]]:
    """Run a broker with the ports, the id, the users and the options that their CI gives Kafka."""
    users = {"adminplain": "admin-secret", "adminscram256": "admin-secret-256", "adminscram512": "admin-secret-512"}
    with EmbeddedBroker(
        listeners="PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9093",
        sasl_users=users,
        topics={"test-writer-0": 1},  # the tests of SASL count on one that another package makes
        options={
            "node.id": 1,
            "message.max.bytes": 200_000_000,
            "super.users": ";".join(f"User:{user}" for user in users),
        },
    ):
        yield {"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"}


_KAFKA_GO_PANICS = "^TestReaderConsumerGroup$/^(verify_offset_committed.*|consumer_group_commits_on_close)$"

SUITES: Mapping[str, GoSuite] = {
    "franz-go": GoSuite("github.com/twmb/franz-go@v1.22.2", ("./pkg/kgo",), franz_go_broker),
    "kafka-go": GoSuite(
        "github.com/segmentio/kafka-go@v0.4.51",
        ("./...",),
        kafka_go_broker,
        # One package after the other: they use the same topics. What is skipped calls a function of theirs that is nil,
        # and would end the other tests with it.
        options=("-p=1", f"-skip={_KAFKA_GO_PANICS}"),
        expected_failures=reasons.KAFKA_GO,
    ),
}
