"""What is refused for long has one line in the log, and is in the error of whoever waited for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kafkaprod.engine.outages import LASTING_MS, LEAST_GAP_MS, RECORDS, Outages
from kafkaprod.errors import ConnectionLostError, DeliveryTimeoutError
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from tests.support.producer.sender_rig import TOPIC, Rig

Lines = Callable[[], list[logging.LogRecord]]
REFUSAL = error_for(ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "kafkaprod.engine.outages")
    return lambda: caplog.records


def refuse_all(outages: Outages, partition_count: int, now_ms: int, topic: str = "t") -> None:
    for number in range(partition_count):
        outages.note(RECORDS, REFUSAL, now_ms, (topic, number))


def test_refusals_that_last_have_one_line_with_the_number_of_partitions(lines: Lines) -> None:
    outages = Outages(1000)
    refuse_all(outages, 60, 0)
    refuse_all(outages, 60, LASTING_MS - 1)
    assert lines() == [], "what passes is not logged"
    outages.note(RECORDS, REFUSAL, LASTING_MS, ("t", 0))
    refuse_all(outages, 60, LASTING_MS + 500)
    (line,) = lines()
    assert line.levelno == logging.WARNING
    assert line.getMessage().startswith(
        f"60 partitions of t: refused for {LASTING_MS} ms now, and sent again: NOT_ENOUGH_REPLICAS (19): "
    )


def test_another_code_and_the_next_outage_have_lines_of_their_own(lines: Lines) -> None:
    outages = Outages(1000)
    other = error_for(ErrorCode.KAFKA_STORAGE_ERROR)
    for start_ms in (0, LASTING_MS + LEAST_GAP_MS):
        for at_ms in (0, LASTING_MS):
            outages.note(RECORDS, REFUSAL, start_ms + at_ms, ("t", 0))
            outages.note(RECORDS, other, start_ms + at_ms, ("t", 0))
    assert [line.getMessage().split(":")[2].split(" ")[1] for line in lines()] == [
        "NOT_ENOUGH_REPLICAS",
        "KAFKA_STORAGE_ERROR",
    ] * 2


def test_what_succeeded_between_begins_again(lines: Lines) -> None:
    outages = Outages(1000)
    outages.note("InitProducerId", REFUSAL, 0)
    outages.end("InitProducerId")
    outages.note("InitProducerId", REFUSAL, LASTING_MS)
    assert lines() == []


def test_a_line_names_few_topics(lines: Lines) -> None:
    outages = Outages(1000)
    for at_ms in (0, LASTING_MS):
        for number in range(5):
            refuse_all(outages, 6 - number, at_ms, f"t{number}")
    assert lines()[0].getMessage().startswith("6 partitions of t0, 5 partitions of t1, ")
    assert "and those of" not in lines()[0].getMessage()
    assert len(lines()) == 1


def test_a_lost_connection_is_no_outage_of_its_own(lines: Lines) -> None:
    outages = Outages(1000)
    for at_ms in (0, LASTING_MS):
        outages.note(RECORDS, ConnectionLostError("closed"), at_ms, ("t", 0))
    assert lines() == []


def test_refused_records_are_logged_once_by_the_sender(lines: Lines) -> None:
    rig = Rig()
    _, sent = rig.in_flight()
    for _ in range(8):
        rig.answer(sent, ErrorCode.NOT_ENOUGH_REPLICAS)
        rig.turn()
        rig.turn(advance_ms=1500)
        (sent,) = rig.produce_requests
    (line,) = lines()
    assert line.getMessage().startswith(f"1 partition of {TOPIC}: refused for ")


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_cluster_that_gives_no_producer_id_for_now_is_in_the_error_and_the_log(code: ErrorCode, lines: Lines) -> None:
    rig = Rig(enable_idempotence=True, delivery_timeout_ms=5000)
    rig.drain.set_producer(-1, -1)
    future = rig.send()
    while not future.done():
        rig.turn(advance_ms=500)
        if rig.pool.open:
            rig.answer_producer_id(-1, -1, code)
    error = future.exception(0)
    assert isinstance(error, DeliveryTimeoutError)
    assert not error.possibly_persisted
    assert f"before records can be sent: the cluster gave no producer id: {code.name} ({int(code)})" in str(error)
    (line,) = lines()
    assert line.getMessage().startswith("InitProducerId: refused for ")


def test_why_records_wait_is_forgotten_with_the_producer_id_that_comes() -> None:
    rig = Rig(enable_idempotence=True)
    rig.drain.set_producer(-1, -1)
    rig.send()
    rig.turn()
    rig.answer_producer_id(-1, -1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    rig.turn()
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(rig.sender.why_records_wait())
    rig.turn(advance_ms=1000)
    rig.answer_producer_id()
    rig.turn()
    assert rig.sender.why_records_wait() is None


def test_a_late_record_without_a_leader_says_so() -> None:
    rig = Rig(topics={TOPIC: (-1,)}, delivery_timeout_ms=1000)
    future = rig.send()
    rig.turn(advance_ms=1000)
    assert "; the partition has no leader" in str(future.exception(0))
