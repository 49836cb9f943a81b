"""What the producer's threads import: nothing, for a fork() in that moment leaves its child a locked import lock.

Left out is what the main thread waits for: it does not fork then.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.broker.subscriptions import subscribe
from tests.support.net.certificates import Authority
from tests.support.net.proxies import PASSWORD, USER, LoopbackProxy

PROGRAM = textwrap.dedent(
    """
    import sys, threading
    from kafkaprod import Producer

    imported = []

    def hook(event, arguments):
        if event == "import" and threading.current_thread() is not threading.main_thread() and not main_waits():
            imported.append((threading.current_thread().name, arguments[0]))

    def main_waits():
        frame = sys._current_frames()[threading.main_thread().ident]
        return frame.f_code.co_filename.endswith("kafkaprod/threads.py")

    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.addaudithook(hook)
    with Producer(options) as producer:
        if "transactional_id" in options:
            producer.init_transactions()
            producer.begin_transaction()
        producer.send("orders", b"value", key=b"key").result(30)
        producer.send_many("orders", [b"value"] * 1000)
        if "transactional_id" in options:
            producer.commit_transaction()
        producer.flush()
    print(*imported, sep="\\n", end="")
    """
)
CASES: dict[str, dict[str, str]] = {
    "plain": {},
    "lz4": {"compression_type": "lz4"},
    "zstd": {"compression_type": "zstd"},
    "gzip": {"compression_type": "gzip"},
    "snappy": {"compression_type": "snappy"},
    "transactional": {"transactional_id": "imports"},
}
LOGIN = {"sasl_username": "ann", "sasl_password": "secret"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[EmbeddedBroker]:
    pem = authority.issue("broker", names=["localhost", "127.0.0.1"])
    with EmbeddedBroker(
        topics={"orders": 2},
        listeners="PLAINTEXT://:0,SSL://:0,SASL_PLAINTEXT://:0,SASL_SSL://:0",
        tls_files=(pem.certfile, pem.keyfile),
        sasl_users={"ann": "secret"},
        client_metrics=True,
    ) as broker:
        subscribe(broker, interval_ms="100", metrics="*")
        yield broker


def _imports(place: str, options: dict[str, str]) -> str:
    """Return what threads of a producer of these options import, a line each."""
    bootstrap_servers = place.replace("127.0.0.1", "localhost")  # a name, which must be resolved
    arguments = [f"bootstrap_servers={bootstrap_servers}", *(f"{name}={value}" for name, value in options.items())]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("case", CASES)
def test_no_thread_of_a_producer_imports(case: str, broker: EmbeddedBroker) -> None:
    assert _imports(broker.listeners["PLAINTEXT"], CASES[case]) == ""
    assert broker.take_client_metrics(), "metrics were not pushed"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_no_thread_imports_for_tls_or_a_login(
    protocol: str, mechanism: str, broker: EmbeddedBroker, authority: Authority
) -> None:
    options = {"security_protocol": protocol, "sasl_mechanism": mechanism, **LOGIN}
    if protocol == "SASL_SSL":
        options["ssl_cafile"] = str(authority.cafile)
    assert _imports(broker.listeners[protocol], options) == ""


def test_no_thread_imports_while_connections_are_refused(broker: EmbeddedBroker) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        place = f"127.0.0.1:{closed.getsockname()[1]},{broker.listeners['PLAINTEXT']}"
        assert _imports(place, {}) == ""


@pytest.mark.parametrize("scheme", ["socks5", "http"])
def test_no_thread_imports_to_connect_through_a_proxy(scheme: str, broker: EmbeddedBroker) -> None:
    with LoopbackProxy() as proxy:
        url = f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{proxy.port}"
        assert _imports(broker.listeners["PLAINTEXT"], {"proxy_url": url}) == ""
