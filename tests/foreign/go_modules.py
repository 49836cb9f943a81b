"""Tests of projects in Go: the Go module proxy brings the module, `go test` runs its tests against our broker."""

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
from tests.foreign.results import Results

TIMEOUT_S = 1200


@dataclass(frozen=True)
class GoSuite:
    """One module's tests.

    Attributes:
        requirement: module and version.
        packages: in it.
        broker: runs a broker, and gives the environment that the tests want to see.
        expected_failures: name of a test -> why it fails.
    """

    requirement: str
    packages: tuple[str, ...]
    broker: Callable[[], AbstractContextManager[Mapping[str, str]]]
    expected_failures: Mapping[str, str] = field(default_factory=dict)


def run(suite: GoSuite, go_options: list[str]) -> Results:
    """Download the module, run its tests, and return what came of them; `go test` prints what fails."""
    with tempfile.TemporaryDirectory(prefix="foreign-") as directory:
        source = _unpack(suite.requirement, Path(directory))
        with suite.broker() as environment:
            command = [
                "go",
                "test",
                "-mod=mod",
                "-json",
                "-count=1",
                f"-timeout={TIMEOUT_S}s",
                *go_options,
                *suite.packages,
            ]
            with subprocess.Popen(
                command, cwd=source, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                return _read(process.stdout)


def _unpack(requirement: str, directory: Path) -> Path:
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


SUITES: Mapping[str, GoSuite] = {
    "franz-go": GoSuite("github.com/twmb/franz-go@v1.22.2", ("./pkg/kgo",), franz_go_broker),
}
