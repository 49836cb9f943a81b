"""Tests of projects in Rust: cargo brings the crate, builds its tests and runs them against our broker.

cargo fetch -> copy -> cargo update -> cargo test --no-run -> leave the network -> broker -> cargo test --offline
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.foreign import network
from tests.foreign.results import Results

TIMEOUT_S = 1200
_OUTCOME = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")
_FILE = re.compile(r"^\s*Running (?:unittests )?\S*?(\w+)\.rs ")


@dataclass(frozen=True)
class RustSuite:
    """One crate's tests.

    Attributes:
        crate: name of the crate.
        version: its version.
        updates: dependencies whose locked version does not build with today's compiler.
        options: for `cargo test`.
        returns_early: matches names of tests that return without a test, and so pass, where something is missing.
        expected_failures: name of a test -> why it fails.
    """

    crate: str
    version: str
    updates: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    returns_early: str = "$^"
    expected_failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def requirement(self) -> str:
        """Name and version."""
        return f"{self.crate} {self.version}"


SUITES: Mapping[str, RustSuite] = {
    "rskafka": RustSuite(
        "rskafka",
        "0.6.0",
        updates=("rsasl",),
        options=("--features=full", "--tests"),
        # Java's client would be downloaded by the test; a SOCKS proxy is not there.
        returns_early=r"produce_consume::\w*_java_\w+|produce_consume::test_produce_rdkafka_consume_rdkafka_\w+"
        r"|client::test_socks5",
    ),
}


def run(suite: RustSuite, test_options: list[str]) -> Results:
    """Download and build the crate and its tests, run them, and return what came of them; print cargo's output."""
    with tempfile.TemporaryDirectory(prefix="foreign-") as name:
        source = _unpack(suite, Path(name))
        subprocess.run(["cargo", "test", "--no-run", *suite.options], cwd=source, check=True)
        network.leave()
        with EmbeddedBroker(
            listeners="PLAINTEXT://:0,SASL_PLAINTEXT://:0",
            sasl_users={"admin": "admin-secret"},
            auto_create_topics=False,
            options={"super.users": "User:ANONYMOUS;User:admin"},
        ) as broker:
            done = subprocess.run(
                ["cargo", "test", "--offline", "--no-fail-fast", *suite.options, "--", *test_options],
                cwd=source,
                env={
                    **os.environ,
                    "KAFKA_CONNECT": broker.listeners["PLAINTEXT"],
                    "KAFKA_SASL_CONNECT": broker.listeners["SASL_PLAINTEXT"],
                    "TEST_BROKER_IMPL": "kafka",
                    "TEST_INTEGRATION": "1",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
        print(done.stdout)
        return _read(done.stdout, re.compile(suite.returns_early))


def _unpack(suite: RustSuite, directory: Path) -> Path:
    """Have cargo fetch the crate, and copy it."""
    project = directory / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").touch()
    (project / "Cargo.toml").write_text(
        f'[package]\nname = "foreign"\nversion = "0.0.0"\n\n[dependencies]\n{suite.crate} = "={suite.version}"\n'
    )
    subprocess.run(["cargo", "fetch"], cwd=project, check=True)
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version=1", "--offline"],
        cwd=project,
        stdout=subprocess.PIPE,
        check=True,
    )
    (manifest,) = (
        package["manifest_path"]
        for package in json.loads(metadata.stdout)["packages"]
        if package["name"] == suite.crate
    )
    source = directory / "source"
    shutil.copytree(Path(manifest).parent, source)
    (source / "rust-toolchain.toml").unlink(missing_ok=True)  # it names a compiler; the one that is here must do
    for dependency in suite.updates:
        subprocess.run(["cargo", "update", "-p", dependency], cwd=source, check=True)
    return source


def _read(output: str, returns_early: re.Pattern[str]) -> Results:
    """Collect the outcomes from what cargo printed; a test's name begins with that of its file."""
    results = Results()
    file = ""
    for line in output.splitlines():
        if found := _FILE.match(line):
            file = found[1]
        elif found := _OUTCOME.match(line):
            name = f"{file}::{found[1]}"
            if found[2] == "FAILED":
                results.failed.add(name)
            elif found[2] == "ignored" or returns_early.fullmatch(name):
                results.skipped.add(name)
            else:
                results.passed.add(name)
    return results
