"""Runs the programs of docs/frameworks.md: `python -m tests.foreign.frameworks NAME… [--environments DIRECTORY]`.

Each framework gets a virtual environment of its own, from the package registry, with this tree on its path. Its
program runs twice against an embedded broker: without the lines that install kafkaprod, and as the page has it. Prints
what arrived, what differs, and where a program failed; exit status 0 if nothing differs. Without a NAME: all of them.
A program that has no client but kafkaprod is compared with the records that it must send.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.pages.documentation import ROOT, blocks

PAGE = ROOT / "docs" / "frameworks.md"
OURS = ("numpy", "lz4", "zstandard", "crc32c")  # what kafkaprod needs
PATIENCE_S = 240.0
_INSTALLATION = "from kafkaprod.compat import install\n"
_ORDERS = Counter(
    {(b"customer-%d" % (n % 10), b'{"customer":"customer-%d","id":%d}' % (n % 10, n)): 1 for n in range(1000)}
)


@dataclass(frozen=True)
class Framework:
    """A framework whose program is on the page.

    Attributes:
        marker: A line of its program that no other one has.
        packages: For pip.
        ids_differ: Whether each run has ids of its own in its records, so that only their number is compared.
        arguments: Of the program's command line.
        expected: (key, value) of what must arrive, where there is no run to compare with; None: anything.
    """

    marker: str
    packages: tuple[str, ...]
    ids_differ: bool = False
    arguments: tuple[str, ...] = ()
    expected: Counter[tuple[bytes, bytes]] | None = None


FRAMEWORKS: Mapping[str, Framework] = {
    "faststream-aiokafka": Framework("from faststream.kafka import KafkaBroker", ("faststream[kafka]==0.7.8",), True),
    "faststream-confluent": Framework(
        "from faststream.confluent import KafkaBroker", ("faststream[confluent]==0.7.8",), True
    ),
    "faust": Framework("import faust", ("faust-streaming==0.15.3",), arguments=("worker", "-l", "warning")),
    "quixstreams": Framework("from quixstreams import Application", ("quixstreams==3.28.1",)),
    "kombu": Framework("from kombu import Connection", ("kombu[confluentkafka]==5.7.0",), True),
    "arroyo": Framework("from arroyo.types import Topic", ("sentry-arroyo==2.48.0",)),
    "kstreams": Framework("import kstreams", ("kstreams==0.34.6",)),
    "bytewax": Framework("from bytewax.dataflow import Dataflow", ("bytewax[kafka]==0.21.1",)),
    "airflow": Framework(
        "from airflow.providers.apache.kafka.operators.produce import ProduceToTopicOperator",
        ("apache-airflow==3.3.2", "apache-airflow-providers-apache-kafka==2.1.0"),
    ),
    "locust": Framework(
        "from locust_plugins.users.kafka import KafkaUser", ("locust==2.47.0", "locust-plugins[kafka]==5.0.3")
    ),
    "ray": Framework("from ray.data import from_items", ("ray[data]==2.60.0", "confluent-kafka")),
    "ray-table": Framework("import ray.data", ("ray[data]==2.60.0",), expected=_ORDERS),
    "daft": Framework("import daft", ("daft==0.7.26", "pyarrow"), expected=_ORDERS),
    "dlt": Framework("import dlt", ("dlt[parquet]==1.31.0",), expected=_ORDERS),
    "opentelemetry": Framework(
        "from opentelemetry.sdk.trace import TracerProvider",
        ("opentelemetry-instrumentation-confluent-kafka==0.66b1", "opentelemetry-sdk", "confluent-kafka"),
        True,
    ),
    "ddtrace": Framework("import ddtrace", ("ddtrace==4.16.0", "confluent-kafka"), True),
    "structlog": Framework("import structlog", ("structlog==26.1.0", "orjson")),
    "loguru": Framework("from loguru import logger", ("loguru==0.7.3",)),
}


class Arrived(NamedTuple):
    """A record in a topic.

    Attributes:
        partition: None if the record has no key: it may then be in any one.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Run:
    """What a run of a program came to.

    Attributes:
        error: The end of what it printed, if it failed.
        records: Of what arrived, with how often.
    """

    error: str
    records: Counter[Arrived]


def program_of(framework: Framework) -> str:
    """Return the program that the page has. Raises LookupError: it has none, or several."""
    found = [block.text for block in blocks(PAGE) if block.language == "py" and f"{framework.marker}\n" in block.text]
    if len(found) != 1:
        raise LookupError(f"{PAGE.name} has {len(found)} programs with the line {framework.marker!r}")
    return found[0]


def original_of(program: str) -> str | None:
    """Return a program without kafkaprod in place of a client; None: it is not made for one."""
    if _INSTALLATION not in program:
        return None
    return "".join(line for line in program.splitlines(keepends=True) if "install" not in line)


def environment_of(name: str, framework: Framework, directory: Path) -> Path:
    """Make the virtual environment of a framework if it is not there; return its Python."""
    python = directory / name / "bin" / "python"
    if not (directory / name / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory / name)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, *OURS, *framework.packages], check=True)
        (directory / name / "complete").touch()
    return python


def run(python: Path, program: str, arguments: tuple[str, ...]) -> Run:
    """Run a program against a broker of its own."""
    topics = {"orders": 3, "new-orders": 1}
    with EmbeddedBroker(topics=topics) as broker, tempfile.TemporaryDirectory(prefix="framework-") as directory:
        path = Path(directory) / "program.py"
        path.write_text(program.replace("localhost:9092", broker.bootstrap_servers), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": directory}
        try:
            done = subprocess.run(
                [str(python), path.name, *arguments],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=PATIENCE_S,
                check=False,
            )
            error = "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout[-3000:]}"
        except subprocess.TimeoutExpired as late:
            error = f"no end within {PATIENCE_S} s\n{str(late.stdout or '')[-3000:]}"
        found = [(topic, record) for topic in topics for record in broker.records(topic)]
    records = Counter(
        Arrived(
            topic,
            None if record.key is None else record.partition,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers),
        )
        for topic, record in found
    )
    return Run(error, records)


def differences(framework: Framework, before: Run | None, after: Run) -> list[str]:
    """Return what differs between two runs, or from what must arrive, in words."""
    counts: list[Counter[Any]]
    if before is None:
        found = Counter((each.key, each.value) for each in after.records.elements())
        counts = [found if framework.expected is None else framework.expected, found]
    elif framework.ids_differ:
        counts = [
            Counter((each.topic, tuple(name for name, _ in each.headers)) for each in one.records.elements())
            for one in (before, after)
        ]
    else:
        counts = [before.records, after.records]
    return [
        f"{count} {what}: {record}"
        for what, rest in (("missing", counts[0] - counts[1]), ("too many", counts[1] - counts[0]))
        for record, count in rest.items()
    ]


def examine(name: str, directory: Path) -> bool:
    """Run one framework's program and print what came of it; return whether it is as without kafkaprod."""
    framework = FRAMEWORKS[name]
    program = program_of(framework)
    original = original_of(program)
    python = environment_of(name, framework, directory)
    before = None if original is None else run(python, original, framework.arguments)
    after = run(python, program, framework.arguments)
    failed = [each for each in (before, after) if each is not None and each.error]
    different = differences(framework, before, after)
    count = "-" if before is None else str(before.records.total())
    outcome = "failed" if failed else f"{len(different)} differ" if different else "the same"
    print(f"{name} ({', '.join(framework.packages)}): {count} records without, {after.records.total()} with: {outcome}")
    for each in failed:
        print(f"  {'without' if each is before else 'with'} kafkaprod: {each.error}")
    for line in different[:10]:
        print(f"  {line}")
    sys.stdout.flush()
    return not failed and not different and after.records.total() > 0


def main() -> int:
    """Run the frameworks that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign.frameworks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FRAMEWORKS))
    parser.add_argument("--environments", type=Path, help="where virtual environments are kept (default: nowhere)")
    options = parser.parse_args()
    unknown = set(options.names) - FRAMEWORKS.keys()
    if unknown:
        parser.error(f"no framework {min(unknown)!r}: there are {', '.join(FRAMEWORKS)}")
    with tempfile.TemporaryDirectory(prefix="frameworks-") as temporary:
        directory = options.environments or Path(temporary)
        directory.mkdir(exist_ok=True)
        results = [examine(name, directory.absolute()) for name in options.names or FRAMEWORKS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
