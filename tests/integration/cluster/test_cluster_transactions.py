"""Transactions in a cluster: they survive the broker that coordinates them and the leaders that they write to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.errors import ProducerFencedError, TransactionAbortableError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

PARTITIONS = 2
ROUNDS = 9
RECORDS = 5


def read_committed(cluster: EmbeddedCluster, topic: str) -> dict[int, list[bytes]]:
    """Read a topic as consumers of committed records see it, to the last stable offset of each partition."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    left = set(found)
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in left])
    while left:
        message = consumer.poll(20)
        assert message is not None, f"no end of {left}"
        error = message.error()
        if error is None:
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            found[partition].append(value)
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            left.discard(message.partition())
        else:
            assert error.retriable(), error
    consumer.close()
    return found


def expected(committed: list[int]) -> dict[int, list[bytes]]:
    return {
        index: [b"%d-%d" % (number, record) for number in committed for record in range(RECORDS)]
        for index in range(PARTITIONS)
    }


def kill(cluster: EmbeddedCluster, topic: str) -> ClusterBroker:
    """Kill the leader of a topic's first partition, and wait for its successor."""
    victim = cluster.leader(topic, 0)
    victim.kill()
    cluster.wait_for(lambda view: view.leader(topic, 0) not in (None, victim.id))
    return victim


def with_kafkaprod(cluster: EmbeddedCluster, on_round: Callable[[int], None]) -> list[int]:
    """Send transactions, every third one aborted; return the numbers of the committed ones."""
    committed = []
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="ours", request_timeout_ms=1_500
    ) as producer:
        producer.init_transactions()
        for number in range(ROUNDS):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                for record in range(RECORDS):
                    producer.send("orders", b"%d-%d" % (number, record), partition=partition)
            on_round(number)
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed.append(number)
    return committed


def with_confluent(cluster: EmbeddedCluster, on_round: Callable[[int], None]) -> list[int]:
    """As `with_kafkaprod`."""
    committed = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "theirs",
            "socket.timeout.ms": 3_000,
            "transaction.timeout.ms": 60_000,
        }
    )
    retried(lambda: producer.init_transactions(30))
    for number in range(ROUNDS):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for record in range(RECORDS):
                producer.produce("orders", b"%d-%d" % (number, record), partition=partition)
        if number % 3 == 2:
            producer.flush(30)  # librdkafka ends fatally if it aborts while it does not know what it has begun
        on_round(number)
        if number % 3 == 2:
            retried(lambda: producer.abort_transaction(30))
        else:
            retried(lambda: producer.commit_transaction(30))
            committed.append(number)
    return committed


def retried(call: Callable[[], object]) -> None:
    """Call again what librdkafka says may be called again."""
    for _ in range(20):
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
    raise AssertionError("never succeeded")


@pytest.mark.parametrize("send", [with_kafkaprod, with_confluent])
@pytest.mark.parametrize("topic", ["__transaction_state", "orders"])
def test_transactions_survive_kills_of_coordinator_and_leader(send: Any, topic: str) -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": PARTITIONS}) as cluster:
        dead: list[ClusterBroker] = []

        def on_round(number: int) -> None:
            if number % 4 == 1:
                dead.append(kill(cluster, topic))
            elif number % 4 == 3 and dead:
                dead.pop().start()
                cluster.wait_until_in_sync()

        committed = send(cluster, on_round)
        for broker in dead:
            broker.start()
        cluster.wait_until_in_sync()
        assert len(committed) == ROUNDS - ROUNDS // 3
        assert read_committed(cluster, "orders") == expected(committed)


def test_offsets_of_a_transaction_survive_their_coordinators() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": PARTITIONS}) as cluster:
        servers = cluster.bootstrap_servers
        with Producer(bootstrap_servers=servers, transactional_id="copier", request_timeout_ms=1_500) as producer:
            producer.init_transactions()
            for topic, offset in (("__consumer_offsets", 3), ("__transaction_state", 5), ("__consumer_offsets", 7)):
                producer.begin_transaction()
                producer.send("orders", b"copied", partition=0)
                producer.send_offsets_to_transaction({("orders", 0): offset}, "copy")
                victim = kill(cluster, topic)
                producer.commit_transaction()
                victim.start()
                cluster.wait_until_in_sync()
                consumer = Consumer({"bootstrap.servers": servers, "group.id": "copy"})
                found = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], timeout=30)
                assert [each.offset for each in found] == [offset]
                consumer.close()
        assert read_committed(cluster, "orders")[0] == [b"copied"] * 3


def test_a_producer_that_returns_aborts_what_it_left_open() -> None:
    with EmbeddedCluster(brokers=2, topics={"orders": PARTITIONS}) as cluster:
        first = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine", acks="all")
        first.init_transactions()
        first.begin_transaction()
        first.send("orders", b"left open", partition=0).result(20)
        kill(cluster, "__transaction_state")
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine") as second:
            second.init_transactions()
            second.begin_transaction()
            second.send("orders", b"whole", partition=0)
            second.commit_transaction()
        assert read_committed(cluster, "orders") == {0: [b"whole"], 1: []}
        first.close(timeout=1)


STATE = "__transaction_state"
BACKOFF_MS = 6_000  # after an answer that is repeated: long enough for the successor


def test_commit_that_a_successor_completed_is_not_called_not_committed() -> None:
    """The coordinator has written the commit, not all replicas have it, and it moves: NOT_COORDINATOR.

    The next coordinator completes the commit. Another instance takes over before the repetition, which is fenced.
    """
    with EmbeddedCluster(session_timeout_ms=60_000, replica_lag_ms=60_000, topics={"orders": PARTITIONS}) as cluster:
        servers = cluster.bootstrap_servers
        ours = Producer(
            bootstrap_servers=servers,
            transactional_id="mine",
            retry_backoff_ms=BACKOFF_MS,
            retry_backoff_max_ms=BACKOFF_MS,
        )
        with Producer(bootstrap_servers=servers, transactional_id="mine") as successor, ThreadPoolExecutor() as pool:
            ours.init_transactions()
            ours.begin_transaction()
            ours.send("orders", b"committed", partition=0).result(20)
            coordinator = cluster.coordinator_of("mine", "transaction").id
            near, far = (broker.id for broker in cluster.brokers if broker.id != coordinator)
            cluster.cut(far, coordinator)
            before = cluster.replicas(STATE, 0)[coordinator][2]
            commit = pool.submit(ours.commit_transaction)
            wait_until(lambda: cluster.replicas(STATE, 0)[near][2] > before, "the commit is in no other log")
            assert cluster.replicas(STATE, 0)[far][2] == before
            cluster.move_leader(STATE, 0, near)
            cluster.heal()
            successor.init_transactions()
            error = commit.exception(60)
            assert isinstance(error, TransactionAbortableError)
            assert (error.name, error.outcome) == ("PRODUCER_FENCED", "unknown")
            with pytest.raises(ProducerFencedError) as fenced:
                ours.abort_transaction()
            assert fenced.value.outcome == "unknown"
        assert read_committed(cluster, "orders") == {0: [b"committed"], 1: []}
        ours.close(timeout=0)


MARKERS_MS = 1_000  # between the coordinator and the leader


def produce_in(transaction: str, opened: InitProducerIdResponse) -> ProduceRequest:
    batch = make_batch(producer_id=opened.producer_id, epoch=opened.producer_epoch, sequence=0, is_transactional=True)
    return produce_request(batch, topic="orders", transaction=transaction)


def answered(response: EndTxnResponse, expected: set[ErrorCode]) -> bool:
    assert response.error_code in expected
    return response.error_code == ErrorCode.NONE


def test_the_end_of_an_empty_transaction_waits_for_the_markers_of_the_one_before() -> None:
    """Java's producer sends it (EndTxn 5): the answer names an epoch at once, and the markers are still under way."""
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine") as earlier:
            earlier.init_transactions()
        coordinator = cluster.coordinator_of("mine", "transaction")
        leader = next(broker for broker in cluster.brokers if broker.id != coordinator.id)
        cluster.move_leader("orders", 0, leader.id)
        with RawClient(coordinator.address) as ends, RawClient(leader.address) as writes:

            def end(epoch: int) -> EndTxnResponse:
                request = EndTxnRequest(
                    transactional_id="mine", producer_id=opened.producer_id, producer_epoch=epoch, committed=False
                )
                return ends.call(request, EndTxnResponse, 5)

            begin = InitProducerIdRequest(transactional_id="mine", transaction_timeout_ms=60_000)
            opened = ends.call(begin, InitProducerIdResponse, 5)
            written = writes.call(produce_in("mine", opened), ProduceResponse, 12).responses[0].partition_responses[0]
            assert written.error_code == ErrorCode.NONE
            with cluster.slow(coordinator.id, leader.id, MARKERS_MS):
                first = end(opened.producer_epoch)
                assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, opened.producer_epoch + 1)
                assert end(first.producer_epoch).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            errors = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE}
            wait_until(lambda: answered(end(first.producer_epoch), errors), "the second end is not taken")
            assert end(opened.producer_epoch).error_code != ErrorCode.NONE
