"""The oracle finds each planted defect, and only that one."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.fault.record_checker import (
    SMALLEST_VALUE_BYTES,
    UNKNOWN_OFFSET,
    SendLedger,
    check_records,
    read_journal,
    read_stamp,
)
from tests.kafka.cluster import KafkaCluster
from tests.kafka.reading import read_all


@dataclass
class Written:
    """A record in a log made by hand."""

    offset: int
    value: bytes | None


class World:
    """A ledger, a producer that always succeeds, and the logs it wrote: the state each test then damages."""

    def __init__(self, count: int = 10, ledger: SendLedger | None = None) -> None:
        self.ledger = ledger or SendLedger()
        self.logs: dict[str, dict[int, list[Written]]] = {"orders": {0: [], 1: []}, "other": {0: []}}
        self.values = [self.send(partition=index % 2) for index in range(count)]

    def send(self, topic: str = "orders", partition: int = 0) -> bytes:
        value = self.ledger.make_value(topic, partition)
        offset = self.write(value, topic, partition)
        self.ledger.on_completion(value, topic=topic, partition=partition, offset=offset)
        return value

    def write(self, value: bytes | None, topic: str = "orders", partition: int = 0) -> int:
        log = self.logs[topic][partition]
        log.append(Written(len(log), value))
        return len(log) - 1

    def defects(self) -> dict[str, int]:
        return check_records([self.ledger], self.logs).defects


def test_intact_log_has_no_defect() -> None:
    world = World()
    report = check_records([world.ledger], world.logs)
    assert report.is_ok
    assert (report.sent, report.acknowledged, report.failed, report.read) == (10, 10, 0, 10)
    assert str(report) == "ok (sent 10, acknowledged 10, failed 0, read 10)"


def test_acknowledged_record_that_is_not_there_is_lost() -> None:
    world = World()
    world.logs["orders"][1].pop()
    assert world.defects() == {"lost": 1}


def test_second_copy_is_a_duplicate() -> None:
    world = World()
    world.write(world.values[-2])
    assert world.defects() == {"duplicated": 1}


def test_copy_in_another_partition_is_duplicate_and_misrouted() -> None:
    world = World()
    world.write(world.values[-1], partition=0)
    assert world.defects() == {"duplicated": 1, "misrouted": 1}


def test_record_behind_a_later_one_is_reordered() -> None:
    world = World()
    first, second = world.logs["orders"][0][:2]
    first.value, second.value = second.value, first.value
    assert world.defects() == {"reordered": 1, "wrong_offset": 2}


def test_order_between_ledgers_and_partitions_is_free() -> None:
    world = World()
    other = SendLedger()
    mixed = [world.ledger.make_value("other", 0), other.make_value("other", 0), other.make_value("other", 0)]
    for value, ledger in zip(reversed(mixed), (other, other, world.ledger), strict=True):
        offset = world.write(value, "other")
        ledger.on_completion(value, topic="other", partition=0, offset=offset)
    assert check_records([world.ledger, other], world.logs).defects == {"reordered": 1}
    log = world.logs["other"][0]
    log[0].value, log[1].value = log[1].value, log[0].value
    for ledger in (world.ledger, other):
        for send in ledger.sends:
            send.completions[0].offset = UNKNOWN_OFFSET
    assert check_records([other, world.ledger], world.logs).is_ok


def test_log_of_another_run_is_all_lost_and_all_phantoms() -> None:
    assert check_records([World().ledger], World().logs).defects == {"lost": 10, "phantom": 10}


def test_record_in_another_topic_is_misrouted() -> None:
    world = World()
    moved = world.logs["orders"][1].pop()
    world.write(moved.value, "other")
    assert world.defects() == {"misrouted": 1, "wrong_offset": 1}


def test_record_in_another_partition_than_asked_for_is_misrouted() -> None:
    world = World(count=0)
    value = world.ledger.make_value("orders", 1)
    offset = world.write(value, partition=0)
    world.ledger.on_completion(value, topic="orders", partition=0, offset=offset)
    assert world.defects() == {"misrouted": 1}


def test_record_in_another_partition_than_reported_is_misrouted_even_without_an_offset() -> None:
    world = World(count=0)
    value = world.ledger.make_value("orders")
    world.write(value, partition=0)
    world.ledger.on_completion(value, topic="orders", partition=1)
    assert world.defects() == {"misrouted": 1}


@pytest.mark.parametrize("value", [None, b"", b"foreign" * 20, SendLedger().make_value("orders")])
def test_record_nobody_sent_is_a_phantom(value: bytes | None) -> None:
    world = World()
    world.write(value)
    assert world.defects() == {"phantom": 1}


def test_each_flipped_bit_is_found() -> None:
    world = World(count=2)
    intact = world.logs["orders"][0][0].value
    assert intact is not None
    for bit in random.Random(1).sample(range(8 * len(intact)), 100):
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        world.logs["orders"][0][0].value = bytes(damaged)
        assert world.defects() == {"phantom": 1, "lost": 1}


def test_record_that_failed_for_certain_must_not_be_there() -> None:
    world = World()
    for may_be_in_log in (True, False):
        value = world.ledger.make_value("orders", 0)
        world.write(value)
        world.ledger.on_completion(value, error=TimeoutError("no answer"), may_be_in_log=may_be_in_log)
    assert world.defects() == {"phantom": 1}


def test_failed_record_may_be_absent() -> None:
    world = World()
    world.ledger.on_completion(world.ledger.make_value("orders"), error=TimeoutError())
    assert world.defects() == {}


def test_acknowledged_offset_of_another_record_is_wrong() -> None:
    world = World(count=0)
    value = world.ledger.make_value("orders", 0)
    world.write(value)
    world.ledger.on_completion(value, topic="orders", partition=0, offset=5)
    assert world.defects() == {"wrong_offset": 1}


def test_unknown_offset_is_not_checked() -> None:
    world = World(count=0)
    value = world.ledger.make_value("orders", 0)
    world.write(value)
    world.ledger.on_completion(value, topic="orders", partition=0)
    assert world.defects() == {}


def test_send_without_an_answer_is_uncompleted() -> None:
    world = World()
    world.ledger.make_value("orders")
    assert world.defects() == {"uncompleted": 1}


def test_second_answer_is_found() -> None:
    world = World()
    world.ledger.on_completion(world.values[0], topic="orders", partition=0, offset=0)
    assert world.defects() == {"completed_twice": 1}


def test_record_of_an_aborted_transaction_must_not_be_read() -> None:
    world = World()
    world.ledger.on_abort(world.values[:3])
    assert world.defects() == {"aborted_read": 3}
    for log in world.logs["orders"].values():
        log[:] = [record for record in log if record.value not in world.values[:3]]
    assert world.defects() == {}


def test_memory_not_returned_is_reported() -> None:
    world = World()
    report = check_records([world.ledger], world.logs, pool_bytes_not_returned=16384)
    assert report.defects == {"pool_bytes_not_returned": 16384}


def test_report_names_the_first_findings() -> None:
    world = World(count=0)
    world.ledger.ledger_id = 0xAB
    for _ in range(20):
        world.ledger.make_value("orders")
    text = str(check_records([world.ledger], world.logs))
    assert text.startswith("20 uncompleted (sent 20, acknowledged 0, failed 0, read 0)\n  uncompleted: 0 of ab\n")
    assert len(text.splitlines()) == 6


@pytest.mark.parametrize("size", [SMALLEST_VALUE_BYTES, 37, 100, 1000])
def test_value_has_the_size_asked_for_and_tells_its_counter(size: int) -> None:
    ledger = SendLedger()
    values = [ledger.make_value("orders", 3, size) for _ in range(3)]
    assert [len(value) for value in values] == [size] * 3
    assert [read_stamp(value).counter for value in values] == [0, 1, 2]
    assert {read_stamp(value).partition for value in values} == {3}


def test_value_too_small_is_refused_and_not_counted() -> None:
    ledger = SendLedger()
    with pytest.raises(ValueError, match="smallest of 36"):
        ledger.make_value("orders", size=35)
    assert ledger.sends == []


def test_journal_of_a_killed_process_gives_the_same_ledger(tmp_path: Path) -> None:
    world = World(ledger=SendLedger(journal=tmp_path / "journal"))
    world.ledger.on_completion(world.ledger.make_value("orders"), error=TimeoutError("late"), may_be_in_log=False)
    world.ledger.on_abort(world.values[:1])
    world.ledger.make_value("other", 0)
    world.ledger.close()
    with (tmp_path / "journal").open("a") as file:
        file.write("done\t0\tord")
    again = read_journal(tmp_path / "journal")
    assert again.ledger_id == world.ledger.ledger_id
    assert again.sends == world.ledger.sends
    assert check_records([again], world.logs).defects == {"uncompleted": 1, "aborted_read": 1}


@pytest.mark.external
def test_real_log_agrees_with_the_ledger(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, 3)
    ledger = SendLedger()
    producer = Producer({"bootstrap.servers": kafka.bootstrap(), "enable.idempotence": True, "log_level": 0})

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        ledger.on_completion(
            message.value(),
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            error=error,
        )

    for index in range(3000):
        fixed = index % 4 - 1
        producer.produce(topic_name, ledger.make_value(topic_name, fixed), partition=fixed, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    report = check_records([ledger], {topic_name: read_all(kafka.bootstrap(), topic_name)})
    assert report.is_ok, report
    assert report.read == 3000
