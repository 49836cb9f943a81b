"""Other projects' example programs that write and read: `python -m tests.foreign.programs NAME --source CLONE`.

Each runs as it is, and by `python -m kafkaprod.compat CLIENT -- program`, against an embedded broker; only the address
is another one. Prints the end of what each run printed and how many records were in its topics. Exit status 0 if both
ended well and left as many.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.pages.documentation import ROOT
from tests.support.net.certificates import Authority

PASSWORD = "123123"  # that of the program's key
PATIENCE_S = 120


@dataclass(frozen=True)
class Program:
    """A program in a clone of its project.

    Attributes:
        client: What `kafkaprod.compat.install` calls its client.
        path: Where it is in the clone.
        topics: Those that it writes to.
        arguments: Of its command line; {servers}: the address.
        end: What the last line of its output begins with.
    """

    client: str
    path: str
    topics: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    end: str = ""


PROGRAMS: Mapping[str, Program] = {
    "eos_transactions": Program(
        "confluent_kafka",
        "examples/eos_transactions.py",
        ("copies",),
        ("-b", "{servers}", "-t", "orders", "-o", "copies"),
        "=== Committing final transaction",
    ),
    "context_manager": Program(
        "confluent_kafka",
        "examples/context_manager_example.py",
        ("context-manager-example",),
        ("{servers}",),
    ),
    "ssl_consume_produce": Program(
        "aiokafka", "examples/ssl_consume_produce.py", ("my_topic",), end="Success RecordMetadata("
    ),
}


def run(program: Program, source: Path, *, installed: bool) -> tuple[int, str, int]:
    """Return the exit code of a run, what it printed, and how many records its topics have then."""
    with tempfile.TemporaryDirectory(prefix="program-") as name:
        directory = Path(name)
        authority = Authority(directory)
        pem = authority.issue("broker", names=["localhost", "127.0.0.1"])
        client = authority.issue("client", names=[], is_for_clients=True, password=PASSWORD.encode())
        (directory / "ca-cert").write_bytes(authority.cafile.read_bytes())
        client.certfile.rename(directory / "cert-signed")
        client.keyfile.rename(directory / "cert-key")
        with EmbeddedBroker(
            listeners="PLAINTEXT://:0,SSL://:0",
            tls_files=(pem.certfile, pem.keyfile),
            topics={"orders": 1, "my_topic": 1},
        ) as broker:
            servers = broker.listeners["PLAINTEXT"]
            with Producer(bootstrap_servers=servers) as producer:
                producer.send_many("orders", [b"order %d" % number for number in range(250)])
            port = broker.listeners["SSL"].rpartition(":")[2]
            text = (source / program.path).read_text(encoding="utf-8").replace("localhost:9093", f"localhost:{port}")
            (directory / "program.py").write_text(text, encoding="utf-8")
            how = ["-m", "kafkaprod.compat", program.client, "--"] if installed else []
            arguments = [argument.format(servers=servers) for argument in program.arguments]
            done = subprocess.run(
                [sys.executable, *how, "program.py", *arguments],
                cwd=directory,
                env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": name},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            return done.returncode, done.stdout, sum(len(broker.records(topic)) for topic in program.topics)


def main() -> int:
    """Run one program twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign.programs", description=__doc__.splitlines()[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--source", type=Path, required=True, help="a clone of the project's repository")
    options = parser.parse_args()
    program = PROGRAMS[options.program]
    counts = []
    is_well = True
    for installed in (False, True):
        code, output, count = run(program, options.source, installed=installed)
        last = output.splitlines()[-1] if output.strip() else ""
        print(f"{'with kafkaprod in place' if installed else 'as it is'}: exit code {code}, {count} records; {last}")
        if code or program.end not in output:
            is_well = False
            print(output[-3000:])
        counts.append(count)
    return 0 if is_well and counts[0] == counts[1] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
