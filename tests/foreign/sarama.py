"""The functional tests of sarama, which want five brokers behind Toxiproxy, and Docker, against an embedded cluster.

The Go module proxy brings sarama and Toxiproxy. Clients reach the brokers through Toxiproxy alone, as there. Where
`docker` stands, a program passes `compose stop`, `start` and `logs` of a broker on to the cluster that runs here.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.foreign import network, reasons
from tests.foreign.go_modules import GoSuite, run_tests, unpack
from tests.foreign.results import Results

TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
BROKERS: Final = 5
FIRST_PORT: Final = 29091  # theirs, of the proxies
API: Final = "127.0.0.1:8474"
LIMIT_S: Final = 30.0

_DOCKER = """#!{python}
import json, socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect({path!r})
    sock.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    answer = json.loads(sock.makefile("rb").readline())
print(answer["text"])
sys.exit(answer["status"])
"""

REQUIREMENT: Final = "github.com/IBM/sarama@v1.61.1"
EXPECTED_FAILURES: Final = reasons.SARAMA


def run(go_options: list[str]) -> Results:
    """Download both, run the tests of the files that are functional, and return what came of them."""
    with tempfile.TemporaryDirectory(prefix="foreign-") as name:
        directory = Path(name)
        source = unpack(REQUIREMENT, directory)
        command = ["go", "list", "-mod=mod", "-tags=functional", "-deps", "-test", "."]
        subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
        environment = {**os.environ, "GOBIN": str(directory)}
        subprocess.run(["go", "install", TOXIPROXY], env=environment, cwd=directory, check=True)
        tests = "|".join(
            sorted(found for path in source.glob("functional_*_test.go") for found in _tests_in(path.read_text()))
        )
        if not any(option.startswith(("-run", "--run")) for option in go_options):
            go_options = [f"-run=^({tests})$", *go_options]
        network.leave()
        suite = GoSuite(REQUIREMENT, (".",), lambda: sarama_cluster(directory), ("-tags=functional",))
        return run_tests(suite, source, go_options)


def _tests_in(text: str) -> list[str]:
    return re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)


@contextmanager
def sarama_cluster(directory: Path) -> Iterator[Mapping[str, str]]:
    """Run five brokers, Toxiproxy before them, and what answers in place of Docker.

    Args:
        directory: Has Toxiproxy's server.
    """
    ports = [FIRST_PORT + number for number in range(BROKERS)]
    with ExitStack() as stack:
        cluster = stack.enter_context(
            EmbeddedCluster(
                BROKERS,
                racks=[str(number + 1) for number in range(BROKERS)],
                advertised=[f"localhost:{port}" for port in ports],
                replication_factor=2,
                auto_create_topics=False,
            )
        )
        proxy = subprocess.Popen([directory / "server"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(proxy.wait)
        stack.callback(proxy.terminate)
        _await_listening(API)
        for number, port in enumerate(ports, start=1):
            _make_proxy(f"kafka{number}", port, cluster.broker(number).port)
        stack.enter_context(_docker(cluster, directory))
        yield {
            "TOXIPROXY_ADDR": f"http://{API}",
            "KAFKA_VERSION": "4.3.1",
            "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
        }


def _await_listening(address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _make_proxy(name: str, port: int, upstream: int) -> None:
    body = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{upstream}", "enabled": True}
    request = urllib.request.Request(f"http://{API}/proxies", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        assert answer.status == 201


@contextmanager
def _docker(cluster: EmbeddedCluster, directory: Path) -> Iterator[None]:
    """Write a program `docker`, and do what it passes on."""
    path = directory / "docker.sock"
    program = directory / "docker"
    program.write_text(_DOCKER.format(python=sys.executable, path=str(path)))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_answer_all, args=(listener, cluster), daemon=True).start()
        yield


def _answer_all(listener: socket.socket, cluster: EmbeddedCluster) -> None:
    while True:
        sock, _ = listener.accept()
        with sock, sock.makefile("rwb") as stream:
            status, text = _compose(cluster, json.loads(stream.readline()))
            stream.write(json.dumps({"status": status, "text": text}).encode() + b"\n")


def _compose(cluster: EmbeddedCluster, arguments: list[str]) -> tuple[int, str]:
    """Do what a call of docker is for; return its exit status, and what it prints."""
    if arguments[:2] == ["compose", "logs"]:  # the test looks there for refused batches: errors of its producer here
        return 0, ""
    if arguments[:1] != ["compose"] or arguments[1] not in ("start", "stop"):
        return 1, f"not known here: {arguments}"
    broker = cluster.broker(int(arguments[2].removeprefix("kafka-")))
    if arguments[1] == "start" and not broker.is_running:
        broker.start()
    elif arguments[1] == "stop" and broker.is_running:
        broker.stop()
    return 0, ""
