"""What a test breaks is broken from the call on, and mended by `heal`, the end of a `with` block or `restore`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError
from kafkaprod.broker.embedding.faults import close
from kafkaprod.errors import ConfigError, IllegalStateError
from kafkaprod.protocol.api_keys import ApiKey
from tests.support.clock import Stopwatch
from tests.support.net.certificates import Authority


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics={"orders": 2}, session_timeout_ms=1_000, replica_lag_ms=500) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.restore()


def serves(broker: ClusterBroker) -> bool:
    """Whether a client's connection stays open: a closed one ends at once."""
    with socket.create_connection((broker.address.split(":")[0], broker.port), 5) as sock:
        sock.settimeout(0.3)
        try:
            return sock.recv(1) != b""
        except TimeoutError:
            return True
        except ConnectionResetError:
            return False


def rules(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Return what the host has sent to the processes last."""
    sent: list[Any] = []
    real = cluster.ask

    def ask(command: Any) -> Any:
        sent.append(dict(command))
        return real(command)

    cluster.ask = ask  # type: ignore[method-assign]
    try:
        cluster._links.send()
    finally:
        del cluster.ask  # type: ignore[method-assign]
    return dict(sent[0])


def test_a_bare_cut_from_the_clients_acts_at_once_until_it_is_healed(cluster: EmbeddedCluster) -> None:
    broker = cluster.broker(1)
    assert serves(broker)
    cluster.cut(1, "clients")
    assert not serves(broker)  # the connection opens, and is closed
    cluster.heal()
    assert serves(broker)


def test_a_cut_from_the_clients_outlasts_a_restart(cluster: EmbeddedCluster) -> None:
    cut = cluster.cut(1, "clients")
    cluster.broker(1).restart()
    cluster.wait_for(lambda view: len(view.active_brokers) == 3)
    assert not serves(cluster.broker(1))
    cut.heal()
    assert serves(cluster.broker(1))


@pytest.mark.parametrize(
    ("begin", "cuts"),
    [
        (lambda cluster: cluster.cut(1, 2), [["1", "2"], ["2", "1"]]),
        (lambda cluster: cluster.cut(1, "controller", one_way=True), [["1", "controller"]]),
        (
            lambda cluster: cluster.isolate(3),
            [["1", "3"], ["2", "3"], ["3", "1"], ["3", "2"], ["3", "controller"], ["controller", "3"]],
        ),
    ],
)
def test_a_with_block_mends_only_its_own(
    cluster: EmbeddedCluster, begin: Callable[[EmbeddedCluster], Any], cuts: list[list[str]]
) -> None:
    with cluster.slow(1, 2, 5):
        with begin(cluster) as disturbance:
            assert (rules(cluster)["cuts"], rules(cluster)["delays_ms"]) == (cuts, {"1>2": 5})
        disturbance.heal()  # once more
        assert (rules(cluster)["cuts"], rules(cluster)["delays_ms"]) == ([], {"1>2": 5})
    assert rules(cluster)["delays_ms"] == {}


def test_a_slow_link_takes_its_time() -> None:
    with (
        EmbeddedCluster(topics={"orders": 1}, replica_lag_ms=60_000) as cluster,  # else slow followers leave the ISR
        Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=1 << 20) as producer,
        ExitStack() as disturbances,
    ):
        leader = cluster.leader("orders", 0)
        for follower in cluster.followers("orders", 0):
            disturbances.enter_context(cluster.slow(leader.id, follower.id, bytes_per_s=200_000))
        waited = Stopwatch()
        producer.send("orders", bytes(100_000), partition=0).result(20)
        assert waited.ms >= 400  # acks=all: the followers have fetched it
        disturbances.close()
        assert rules(cluster)["bytes_per_s"] == {}


def test_a_paused_broker_gets_what_was_healed_meanwhile(cluster: EmbeddedCluster) -> None:
    cluster.isolate(1)
    with cluster.broker(1).pause():
        cluster.wait_for(lambda view: 1 not in view.active_brokers)
        cluster.heal()
    cluster.wait_for(lambda view: 1 in view.active_brokers)
    cluster.wait_until_in_sync()


def test_a_pause_ends_also_if_the_broker_was_killed(cluster: EmbeddedCluster) -> None:
    with cluster.broker(1).pause():
        cluster.broker(1).kill()
    assert not cluster.broker(1).is_running


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cluster: cluster.isolate(9), "there is no broker 9: brokers are 1, 2, 3"),
        (lambda cluster: cluster.isolate("controller"), "there is no broker 'controller'"),
        (lambda cluster: cluster.cut(1, "client"), 'there is no broker \'client\'.*"controller".*"clients"'),
        (lambda cluster: cluster.cut("clients", 1), "there is no broker 'clients'"),
        (lambda cluster: cluster.cut("controller", "clients"), "there is no broker 'controller'"),
        (lambda cluster: cluster.cut(1, 1), "1 and 1 are the same process"),
        (
            lambda cluster: cluster.cut(1, "clients", one_way=True),
            r'one_way=True cannot be combined with target "clients"',
        ),
        (lambda cluster: cluster.slow(1, "x", 5), "there is no broker 'x'"),
        (lambda cluster: cluster.slow(1, 2, 0.1), "0.1 s are 100 ms"),
        (lambda cluster: cluster.slow(1, 2, -1), "delay_ms=-1 is not at least 0"),
        (lambda cluster: cluster.slow(1, 2, bytes_per_s=0), "bytes_per_s=0 is not at least 1"),
        (lambda cluster: cluster.slow(1, 2, bytes_per_s=1.5), "bytes_per_s=1.5 is not a whole number"),
        (lambda cluster: cluster.broker(7), "there is no broker 7: brokers are 1, 2, 3"),
        (
            lambda cluster: cluster.leader("nosuch", 0),
            r"no leader of nosuch-0: there is no such topic \(topics: orders",
        ),
        (lambda cluster: cluster.leader("orders", 2), "no leader of orders-2: the topic has partitions 0 to 1"),
        (lambda cluster: cluster.followers("nosuch", 0), "no followers of nosuch-0: there is no such topic"),
        (lambda cluster: cluster.isr("nosuch", 0), "no ISR of nosuch-0: there is no such topic"),
        (lambda cluster: cluster.replicas("orders", -1), "no replicas of orders--1: the topic has partitions"),
        (lambda cluster: cluster.coordinator_of("nogroup"), "no coordinator of 'nogroup': no client has used a group"),
        (lambda cluster: cluster.coordinator_of("x", "grp"), "kind='grp' is not one of group, transaction"),
        (lambda cluster: cluster.shrink_isr("orders", 0, to=0), "to=0 is not at least 1"),
        (lambda cluster: cluster.move_leader("orders", 0, 9), "there is no broker 9"),
        (lambda cluster: cluster.elect("best"), "kind='best' is not one of preferred, unclean"),
        (lambda cluster: cluster.chaos(seed=1, kinds="kill"), "kinds='kill' is not a list"),
        (lambda cluster: cluster.chaos(seed=1, period_ms=0.5), "0.5 s are 500 ms"),
        (lambda cluster: cluster.create_topic("a", 0), "partitions=0 is not at least 1"),
        (lambda cluster: cluster.create_topic("a", replication_factor=4), "replication_factor=4 is not in 1..3"),
        (lambda cluster: cluster.create_topic("a", assignment=[1, 2]), "assignment=1 is not a list"),
        (lambda cluster: cluster.create_topic("a", assignment=[[1, 4]]), "there is no broker 4"),
        (lambda cluster: cluster.create_topic("a", configs="x"), "configs='x' is not a mapping"),
        (lambda cluster: cluster.wait_for(True), "condition=True is not a function of a view"),
        (lambda cluster: cluster.broker(1).power_cut("x"), "seed='x' is not a whole number"),
    ],
)
def test_what_does_not_exist_is_refused_at_once(
    cluster: EmbeddedCluster, call: Callable[[EmbeddedCluster], Any], message: str
) -> None:
    before, start_s = rules(cluster), time.monotonic()
    with pytest.raises(ValueError, match=message):
        call(cluster)
    assert rules(cluster) == before
    assert time.monotonic() - start_s < 10


def test_a_wait_in_vain_begins_with_what_it_was_for(cluster: EmbeddedCluster) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"^no orders at all within 0 s(\n|$)") as failure:
        cluster.wait_for(lambda _: False, 0, what="no orders at all")
    assert "\norders-0: " in failure.value.__notes__[0]
    assert "\nlast changes of the embedded cluster:\n" in failure.value.__notes__[0]


def test_everything_is_restored(cluster: EmbeddedCluster) -> None:
    cluster.reassign("orders", 0, [1, 2, cluster.add_broker().id])
    cluster.chaos(seed=1, kinds=("one-way cut",), period_ms=1)
    cluster.broker(1).kill()
    cluster.broker(2).pause()
    cluster.broker(3).faults.on(ApiKey.PRODUCE, close())
    cluster.controller.kill()
    cluster.cut(3, "clients")
    cluster.restore()
    assert cluster.broker_ids == [1, 2, 3]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for partition in range(2):
            producer.send("orders", b"x", partition=partition).result(20)
    assert cluster.broker(3).faults.fired_count(ApiKey.PRODUCE) == 0


def test_chaos_without_a_with_block_ends_with_the_cluster() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        chaos = cluster.chaos(seed=1, kinds=("kill",), period_ms=1)
        assert chaos.done is not None
        deadline = time.monotonic() + 30
        while not chaos.done:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not chaos._thread.is_alive()
    with pytest.raises(IllegalStateError, match="does not run"):
        cluster.chaos(seed=1)


def test_a_cluster_outlives_the_thread_that_started_it() -> None:
    cluster = EmbeddedCluster(brokers=1)
    thread = threading.Thread(target=cluster.start)
    thread.start()
    thread.join()
    try:
        assert cluster.view().active_brokers == [1]
    finally:
        cluster.close()


def test_clients_of_a_cluster_log_in_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("broker", names=["127.0.0.1"])
    files = (pem.certfile, pem.keyfile)
    with EmbeddedCluster(brokers=3, topics={"orders": 3}, sasl_users={"ann": "hers"}, tls_files=files) as cluster:
        producer = ConfluentProducer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(authority.cafile),
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "ann",
                "sasl.password": "hers",
            }
        )
        errors: list[object] = []
        for partition in range(3):
            producer.produce("orders", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
        assert errors == [None] * 3


def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"TLS files .*nosuch\.pem"):
        EmbeddedCluster(brokers=1, tls_files=(tmp_path / "nosuch.pem", tmp_path / "key.pem")).start()


def test_options_that_need_other_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"node\.id is set by the argument brokers"):
        EmbeddedCluster(options={"node.id": 7})
