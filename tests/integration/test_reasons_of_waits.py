"""Calls that give up say what the cluster last answered to the requests that they waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.cli.main import main
from kafkaprod.errors import BufferFullError, MetadataTimeoutError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode

LOADING = reply_with(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker


def send_many_bytes(producer: Producer) -> None:
    for _ in range(20):
        producer.send("t", b"x" * 10_000)


def test_a_full_buffer_says_why_no_record_leaves(broker: EmbeddedBroker) -> None:
    broker.faults.on(ApiKey.INIT_PRODUCER_ID, LOADING)
    producer = Producer(
        bootstrap_servers=broker.bootstrap_servers, buffer_memory=64 << 10, batch_size=16384, max_block_ms=1000
    )
    with pytest.raises(BufferFullError, match=r"the last error: .*COORDINATOR_LOAD_IN_PROGRESS") as raised:
        send_many_bytes(producer)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(raised.value.__cause__)
    producer.close(0)


def test_a_wait_for_metadata_says_what_was_answered_last(broker: EmbeddedBroker) -> None:
    with (
        Producer(
            bootstrap_servers=broker.bootstrap_servers, max_block_ms=1000, allow_auto_create_topics=False
        ) as producer,
        pytest.raises(MetadataTimeoutError, match=r"within max_block_ms=1000; the last answer: unknown: UNKNOWN_TOPIC"),
    ):
        producer.send("unknown", b"x")


def test_doctor_says_that_no_producer_id_can_be_had(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.faults.on(ApiKey.INIT_PRODUCER_ID, reply_with(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert main(["doctor", "-b", broker.bootstrap_servers, "-t", "t"]) == 1
    said = capsys.readouterr().out
    assert "producer id" in said
    assert "CLUSTER_AUTHORIZATION_FAILED" in said
    assert "enable_idempotence" in said
