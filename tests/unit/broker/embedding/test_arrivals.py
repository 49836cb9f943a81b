"""A test asks an embedded broker, or a cluster, what has arrived."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.broker.embedding.arrivals import ArrivedRecord, MissingRecordsError
from kafkaprod.errors import ConfigError

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(num_partitions=3, sasl_users={"ann": "secret"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    user = {"sasl_plain_username": "ann", "sasl_plain_password": "secret"}
    with Producer({**login, **user, "bootstrap_servers": broker.bootstrap_servers, "linger_ms": 0}) as producer:
        yield producer


def test_records_have_what_was_sent_in_the_order_of_the_log(broker: EmbeddedBroker, producer: Producer) -> None:
    producer.send("whole", b"v", b"k", [("h", b"1"), ("null", None)], 1, 1_700_000_000_000)
    producer.send("whole", None, b"k", None, 0, 1_700_000_000_001)
    producer.send("whole", b"w", None, None, 1, 1_700_000_000_002).result(10)
    producer.flush(10)
    assert broker.records("whole") == [
        ArrivedRecord(0, 0, b"k", None, [], 1_700_000_000_001),
        ArrivedRecord(1, 0, b"k", b"v", [("h", b"1"), ("null", None)], 1_700_000_000_000),
        ArrivedRecord(1, 1, None, b"w", [], 1_700_000_000_002),
    ]


def test_many_large_records_come_in_pages(broker: EmbeddedBroker, producer: Producer) -> None:
    values = [b"%06d" % number * 5_000 for number in range(200)]
    producer.send_many("large", values, partition=0).wait()
    assert [record.value for record in broker.records("large", at_least=200)] == values


def test_records_are_waited_for(broker: EmbeddedBroker, producer: Producer) -> None:
    is_waiting = threading.Event()

    def send_later() -> None:
        is_waiting.wait(10)
        producer.send("late", b"1")

    sender = threading.Thread(target=send_later)
    sender.start()
    assert broker.records("late") == []
    is_waiting.set()
    assert [record.value for record in broker.records("late", at_least=1, timeout=10)] == [b"1"]
    sender.join()


def test_too_few_are_an_assertion_that_shows_what_there_is(broker: EmbeddedBroker, producer: Producer) -> None:
    producer.send("few", b"x" * 200, b"k", [("h", b"1")], 2).result(10)
    with pytest.raises(AssertionError) as caught:
        broker.records("few", at_least=2, timeout=0.05)
    assert str(caught.value) == "1 of at least 2 records of topic 'few' arrived within 0.05 s"
    (text,) = caught.value.__notes__
    assert text.startswith("few: 1 record (partition 2: 1)\n")
    assert "\nother topics: " in text
    assert "2:0 key=b'k' value=b'" + "x" * 120 + "'... (200 bytes) headers=[('h', b'1')]" in text


def test_open_and_aborted_transactions_are_left_out(broker: EmbeddedBroker, producer: Producer) -> None:
    given = producer.config
    login = {name: getattr(given, name) for name in ("security_protocol", "sasl_mechanism", "sasl_plain_username")}
    with Producer(
        {
            **login,
            "bootstrap_servers": broker.bootstrap_servers,
            "sasl_plain_password": "secret",
            "transactional_id": "t",
        }
    ) as transactional:
        transactional.init_transactions()
        for value, is_kept in ((b"aborted", False), (b"kept", True), (b"aborted too", False)):
            transactional.begin_transaction()
            transactional.send("transactions", value, partition=0).result(10)
            if is_kept:
                transactional.commit_transaction()
            else:
                transactional.abort_transaction()
        transactional.begin_transaction()
        transactional.send("transactions", b"open", partition=0).result(10)
        assert [record.value for record in broker.records("transactions", at_least=1)] == [b"kept"]
        transactional.abort_transaction()
    assert [record.value for record in broker.records("transactions")] == [b"kept"]


def test_check_records_takes_values_or_pairs_in_any_order(broker: EmbeddedBroker, producer: Producer) -> None:
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"1")):
        producer.send("checked", value, key)
    assert len(broker.check_records("checked", "2", b"1", b"1")) == 3
    broker.check_records("checked", ("a", b"1"), ("b", "2"), ("a", "1"))
    with pytest.raises(MissingRecordsError, match=r"(?m)missing: b'3'; not expected: b'1'$"):
        broker.check_records("checked", "2", b"1", b"3")
    with pytest.raises(MissingRecordsError, match=r"(?m)not expected: \(b'a', b'1'\), \(b'b', b'2'\)$"):
        broker.check_records("checked", ("a", "1"))
    with pytest.raises(MissingRecordsError, match="3 of at least 4 records of topic 'checked'"):
        broker.check_records("checked", "2", "1", "1", "1", timeout=0.05)
    with pytest.raises(MissingRecordsError) as caught:
        broker.check_records("chekced", "1", timeout=0)
    assert caught.value.__notes__[0].startswith("there is no topic 'chekced'\nother topics: checked")
    with pytest.raises(TypeError, match="not both at once"):
        broker.check_records("checked", "2", ("a", "1"), "1")


@pytest.mark.parametrize("arguments", [{"topic": 7}, {"topic": "t", "at_least": -1}])
def test_wrong_arguments_are_refused_by_name(broker: EmbeddedBroker, arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=list(arguments)[-1]):
        broker.records(**arguments)  # type: ignore[arg-type]


def test_a_cluster_has_the_records_of_all_leaders() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(12):
                producer.send("orders", b"%d" % number, partition=number % 6)
            producer.flush(30)
        assert [record.partition for record in cluster.records("orders", at_least=12)] == sorted(list(range(6)) * 2)
        cluster.check_records("orders", *(str(number) for number in range(12)))
        assert "orders: 12 records (partition 0: 2, 1: 2" in cluster.last_records()


def test_a_cluster_whose_leaders_have_just_died_or_moved_has_all_records() -> None:
    """For a moment no broker leads a partition, or its leader does not know yet what its replicas have."""
    with EmbeddedCluster(brokers=3, topics={"orders": 12}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(120):
                producer.send("orders", b"%d" % number, partition=number % 12)
            producer.flush(30)
        cluster.leader("orders", 0).kill()
        assert len(cluster.records("orders")) == 120
        followers = [broker.id for broker in cluster.followers("orders", 1) if broker.is_running]
        for target in (*followers, cluster.leader("orders", 1).id):
            cluster.move_leader("orders", 1, target)
            assert len(cluster.records("orders")) == 120


def test_a_cluster_leaves_out_a_partition_that_has_no_leader() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", assignment=[[1], [2]])
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("orders", [b"1"], partition=0).wait()
            producer.send_many("orders", [b"2"], partition=1).wait()
        cluster.broker(2).kill()
        assert [record.value for record in cluster.records("orders", timeout=0.3)] == [b"1"]
        assert [record.value for record in cluster.records("orders", timeout=0)] == [b"1"]


_TESTS = """
from kafkaprod import Producer

def test_a_fails(kafkaprod_fresh_broker):
    with Producer(bootstrap_servers=kafkaprod_fresh_broker.bootstrap_servers) as producer:
        producer.send("orders", b"one")
    assert False
"""


def test_the_report_of_a_failed_test_shows_the_records(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)
    result = pytester.runpytest_subprocess("-p", "kafkaprod.broker.embedding.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*last records of kafkaprod_fresh_broker*", "orders: 1 record*", "*value=b'one'*"])


def test_a_record_that_comes_too_late_is_noticed_by_looking_again(broker: EmbeddedBroker) -> None:
    broker.create_topic("settled")
    broker.send("settled", "1")
    late = threading.Timer(0.1, lambda: broker.send("settled", "1"))
    late.start()
    with pytest.raises(MissingRecordsError, match="not expected"):
        broker.check_records("settled", "1", settle=0.5)
    late.join()
    assert broker.check_records("never-made", settle=0.01) == []
    assert len(broker.check_records("settled", "1", "1", settle=0.01)) == 2


def test_a_report_shows_topics_that_were_written_and_short_headers(broker: EmbeddedBroker) -> None:
    for name in ("before", "since"):
        broker.create_topic(name, 2)
        broker.send(name, "x")
    broker.note_topics()
    for number in range(30):
        broker.send("since", f"{number}", headers=[("h", b"y" * 3_000)] * 20, partition=1)
    text = broker.last_records()
    assert "since: 31 records (partition 0: 1, 1: 30)\n  ...\n" in text
    assert "1:29 key=None value=b'29' headers=[('h', b'yyy" in text
    assert "1:19 " not in text
    assert "(3000 bytes)), " in text
    assert "and 12 more" in text
    assert "before" not in text
    assert "since the test began" in text
    assert len(text) < 20_000


def test_a_report_reads_what_it_shows(broker: EmbeddedBroker, producer: Producer) -> None:
    producer.send_many("many", [b"x" * 1_000] * 3_000, partition=0).wait()
    asked = []
    command = broker.command

    def count(wanted: Any, timeout_s: float = 30.0) -> dict[str, Any]:
        answer = command(wanted, timeout_s)
        asked.append(len(json.dumps(answer)))
        return answer

    broker.command = count  # type: ignore[method-assign, assignment]
    try:
        broker.last_records()
    finally:
        del broker.command
    assert sum(asked) < 1_000_000
