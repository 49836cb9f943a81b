"""Problems that users met with transactions in other clients (`tests/PITFALLS.md`)."""

from __future__ import annotations

import json

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.cli.main import main
from kafkaprod.errors import InvalidProducerIdMappingError, KafkaError, ProducerFencedError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode

TIMEOUT_S = 30


def make(broker: EmbeddedBroker) -> Producer:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx", linger_ms=0)
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_id_that_expired_is_explained() -> None:
    with EmbeddedBroker(topics={"t": 1}, transaction_version=1) as broker:
        producer = make(broker)
        broker.faults.on(ApiKey.ADD_PARTITIONS_TO_TXN, reply_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        producer.begin_transaction()
        producer.send("t", b"v")
        with pytest.raises(InvalidProducerIdMappingError, match=r"transactional.id.expiration.ms") as caught:
            producer.commit_transaction(TIMEOUT_S)
        assert caught.value.category == "recoverable"
        producer.close(0)
        broker.faults.clear()
        with make(broker) as successor, successor.transaction():
            successor.send("t", b"w")


def test_markers_at_the_end_do_not_keep_a_reader_waiting(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        with make(broker) as producer:
            for value in (b"a", b"b"):
                with producer.transaction():
                    producer.send("t", value)
            producer.begin_transaction()
            producer.send("t", b"c").result(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        assert main(["tail", "t", "-b", broker.bootstrap_servers, "-o", "beginning", "--json"]) == 0
        assert [json.loads(line)["value"] for line in capfd.readouterr().out.splitlines()] == ["a", "b"]


@pytest.mark.parametrize("version", [1, 2])
def test_fenced_producer_names_who_and_why(version: int) -> None:
    with EmbeddedBroker(topics={"t": 1}, transaction_version=version) as broker:
        producer = make(broker)
        producer.begin_transaction()
        producer.send("t", b"v").result(TIMEOUT_S)
        make(broker).close(TIMEOUT_S)
        with pytest.raises(KafkaError) as caught:
            producer.commit_transaction(TIMEOUT_S)
        if not isinstance(caught.value, ProducerFencedError):
            with pytest.raises(ProducerFencedError) as caught:  # type: ignore[assignment]
                producer.abort_transaction(TIMEOUT_S)
        for part in ("transactional_id='tx'", "epoch 0", "another producer", "transaction_timeout_ms"):
            assert part in str(caught.value)
        producer.close(0)
