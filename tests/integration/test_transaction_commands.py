"""`kafkaprod transactions` and `tail --isolation`, as people call them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.cli.main import main
from tests.support.broker.fixtures_log import make_batch

TOPIC = "orders"
MINUTE_MS = 60_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerServer]:
    """A broker in this process, so that a test can damage its logs."""
    server = BrokerServer(BrokerConfig(data_dir=str(tmp_path / "data"), port=0, topics={TOPIC: 2}))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join(30)
    assert not thread.is_alive()


def address_of(server: BrokerServer) -> str:
    return f"{server.broker.endpoint.host}:{server.broker.endpoint.port}"


def producer_of(server: BrokerServer, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": address_of(server), "transactional.id": transactional_id})
    producer.init_transactions(30)
    return producer


def write(producer: Producer, value: bytes, partition: int = 0) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(30) == 0


def run(server: BrokerServer, *arguments: str) -> int:
    return main([*arguments, "-b", address_of(server)])


def test_transactions_are_listed_and_described(server: BrokerServer, capsys: pytest.CaptureFixture[str]) -> None:
    idle, busy = producer_of(server, "idle"), producer_of(server, "busy")
    write(busy, b"open", partition=1)
    assert run(server, "transactions", "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["transactional_id"], row["state"]) for row in rows] == [("busy", "Ongoing"), ("idle", "Empty")]
    assert run(server, "transactions", "list", "--state", "Ongoing") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["transactional_id", "busy"]
    assert run(server, "transactions", "list", "--longer-than", "3600000", "--state", "Ongoing") == 0
    assert capsys.readouterr().out == ""
    assert run(server, "transactions", "list", "--id-pattern", "b.*") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["transactional_id", "busy"]
    assert run(server, "transactions", "list", "--id-pattern", "[") == 1
    assert "INVALID_REGULAR_EXPRESSION" in capsys.readouterr().err
    assert run(server, "transactions", "list", "--state", "Nonsense") == 1
    assert "Nonsense" in capsys.readouterr().err

    assert run(server, "transactions", "describe", "busy", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["partitions"], shown["epoch"]) == ("Ongoing", [f"{TOPIC}-1"], 0)
    assert shown["open_ms"] >= 0
    assert run(server, "transactions", "describe", "idle") == 0
    assert "Empty" in capsys.readouterr().out
    assert run(server, "transactions", "describe", "unknown") == 1
    assert "unknown" in capsys.readouterr().err

    assert run(server, "transactions", "producers", TOPIC, "-p", "1", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["producer_id"], row["transaction_start"]) == (shown["producer_id"], 0)
    busy.commit_transaction(30)
    del idle


def test_hanging_transaction_is_found_and_aborted(server: BrokerServer, capsys: pytest.CaptureFixture[str]) -> None:
    producer = producer_of(server, "alive")
    write(producer, b"of an id that is alive")
    partition = server.broker.topics.partition(TOPIC, 0)
    assert partition is not None
    old_ms = int(time.time() * 1000) - 2 * MINUTE_MS
    partition.log.append(
        make_batch([b"hangs"], timestamps=[old_ms], producer_id=999, epoch=0, sequence=0, is_transactional=True), 0
    )
    assert run(server, "transactions", "find-hanging", "-t", TOPIC) == 0
    assert capsys.readouterr().out == ""  # younger than the default of 15 minutes
    find = ("transactions", "find-hanging", "--max-transaction-timeout", "1", "--json")
    assert run(server, *find) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["topic"], row["partition"], row["producer_id"], row["transaction_start"]) == (TOPIC, 0, 999, 1)

    abort = ("transactions", "abort", TOPIC, "-p", "0", "--start-offset")
    assert run(server, *abort, "77") == 2
    assert "no open transaction" in capsys.readouterr().err
    assert run(server, *abort, "1", "--json") == 0
    aborted = json.loads(capsys.readouterr().out)
    assert (aborted["topic"], aborted["partition"], aborted["producer_id"]) == (TOPIC, 0, 999)
    assert aborted["outcome"] == "aborted"
    assert run(server, *find) == 0
    assert json.loads(capsys.readouterr().out) == []
    producer.commit_transaction(30)


def test_tail_leaves_out_what_was_not_committed(server: BrokerServer, capsys: pytest.CaptureFixture[str]) -> None:
    producer = producer_of(server, "tx")
    for number in range(4):
        write(producer, b"%d" % number)
        if number == 3:
            break
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    def values(*arguments: str) -> list[str]:
        assert run(server, "tail", TOPIC, "-p", "0", "-n", "100", *arguments) == 0
        return [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()]

    assert values() == ["0", "2"]
    assert values("--isolation", "read_uncommitted") == ["0", "1", "2", "3"]
    producer.commit_transaction(30)
    assert values() == ["0", "2", "3"]


def test_doctor_looks_at_what_transactions_need(server: BrokerServer, capsys: pytest.CaptureFixture[str]) -> None:
    doctor = ("doctor", "-t", TOPIC, "-X", "transactional.id=busy")
    assert run(server, *doctor) == 0
    assert "transactions: transaction.version: level 2" in capsys.readouterr().out
    write(producer_of(server, "busy"), b"open")
    assert run(server, *doctor, "-q") == 0
    assert "'busy' has a transaction in state Ongoing" in capsys.readouterr().out
    assert run(server, *doctor, "-q", "-X", "transaction.timeout.ms=900001") == 1
    assert "lower transaction_timeout_ms to 900000" in capsys.readouterr().out


def test_doctor_names_a_right_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    users = {"admin": "secret", "ann": "hers"}
    with EmbeddedBroker(sasl_users=users, topics={TOPIC: 1}, options={"super.users": "User:admin"}) as broker:
        login = ["-b", broker.bootstrap_servers, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
        login += ["-X", "transactional.id=mine"]
        as_admin = ["-X", "sasl.username=admin", "-X", "sasl.password=secret"]
        admin = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "secret",
            }
        )
        operation, permission = AclOperation.WRITE, AclPermissionType.ALLOW
        kind, pattern = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.LITERAL
        bobs = AclBinding(kind, "mine", pattern, "User:bob", "*", operation, permission)
        admin.create_acls([bobs])[bobs].result(30)
        assert main(["doctor", "-q", *login, *as_admin]) == 0
        capsys.readouterr()
        assert main(["doctor", "-q", *login, "-X", "sasl.username=ann", "-X", "sasl.password=hers"]) == 1
        assert "this user may not use the transactional id 'mine'" in capsys.readouterr().out
