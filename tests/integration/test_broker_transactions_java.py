"""Apache Kafka's tools against transactions of the embedded broker, and its reader of log files on what that wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.runtime import run_java

pytestmark = pytest.mark.external

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
TIMEOUT_S = 120
TOPIC = "orders"
FIRST_SEGMENT = f"{0:020d}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(directory / "data", topics={TOPIC: 2}) as broker:
        yield broker


def run(kafka_tools: str, main_class: str, *arguments: str) -> str:
    return run_java(kafka_tools, main_class, list(arguments), timeout_s=TIMEOUT_S)


def test_java_producer_consumer_and_tools_understand_transactions(kafka_tools: str, broker: EmbeddedBroker) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    aborting = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "aborting"})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    for partition in range(2):
        aborting.produce(TOPIC, b"aborted", partition=partition)
    assert aborting.flush(30) == 0
    aborting.abort_transaction(30)

    # The Java producer follows the feature: each transaction has an epoch of its own, partitions are added by Produce.
    load = ["--topic", TOPIC, "--num-records", "2000", "--record-size", "100", "--throughput", "4000"]
    transaction = ["--transactional-id", "of java", "--transaction-duration-ms", "50"]
    servers = f"bootstrap.servers={broker.bootstrap_servers}"
    assert "2000 records sent" in run(kafka_tools, PERFORMANCE, *load, *transaction, "--producer-props", servers)

    read = ["--topic", TOPIC, "--from-beginning", "--max-messages", "2000", "--timeout-ms", "60000"]
    committed = ["--command-property", "isolation.level=read_committed"]
    lines = run(kafka_tools, CONSOLE_CONSUMER, *server, *read, *committed).splitlines()
    assert [len(line) for line in lines] == [100] * 2000

    listed = [line.split("\t") for line in run(kafka_tools, TRANSACTIONS, *server, "list").splitlines()[1:]]
    states = {row[0].strip(): row[3].strip() for row in listed}
    assert states == {"aborting": "CompleteAbort", "of java": "CompleteCommit"}
    described = run(kafka_tools, TRANSACTIONS, *server, "describe", "--transactional-id", "of java").splitlines()
    row = dict(zip((name.strip() for name in described[0].split("\t")), described[1].split("\t"), strict=True))
    assert row["TransactionState"].strip() == "CompleteCommit"
    assert int(row["ProducerEpoch"]) > 1  # raised by each transaction


def test_java_tools_read_the_files_of_transactions(kafka_tools: str, broker: EmbeddedBroker) -> None:
    def dump(partition: str, suffix: str, *flags: str) -> str:
        file = Path(broker.data_dir) / partition / f"{FIRST_SEGMENT}{suffix}"
        return run(kafka_tools, DUMP, "--files", str(file), *flags)

    states = dump("__transaction_state-0", ".log", "--transaction-log-decoder")
    for fact in (
        '"transactionalId":"of java"',
        '"transactionStatus":2',  # PrepareCommit
        '"transactionStatus":5',  # CompleteAbort
        '"clientTransactionVersion":2',
        f'"transactionPartitions":[{{"topic":"{TOPIC}","partitionIds":[',
    ):
        assert fact in states
    markers = dump(f"{TOPIC}-0", ".log", "--print-data-log")
    assert "endTxnMarker: COMMIT" in markers
    assert "endTxnMarker: ABORT" in markers
    aborted = dump(f"{TOPIC}-0", ".txnindex")
    assert "firstOffset: 0" in aborted
