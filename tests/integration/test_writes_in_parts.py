"""A write in parts is there once: what a dead try has committed is compared, and the next one continues behind it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.cli.main import main
from kafkaprod.errors import ConfigError, WriteConflictError, WriteTakenOverError
from kafkaprod.marks.calls import WriteBlock
from kafkaprod.marks.write import WriteTry
from tests.support.broker.fixtures_broker import wait_until

ROWS = [b"%d" % row for row in range(25)]
LIMIT_S = 30.0  # a commit is answered before its markers are written, and readers see what is before them


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=True, num_partitions=3) as broker:
        yield broker


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        yield producer


def values(broker: EmbeddedBroker, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in broker.records(topic))


def write(block: WriteBlock, topic: str, rows: list[bytes], dies_at: int = -1) -> None:
    with block as tx:
        for number, row in enumerate(rows):
            if number == dies_at:
                raise ZeroDivisionError
            tx.send(topic, row)


def begin(broker: EmbeddedBroker, producer: Producer, topic: str) -> None:
    """Commit a part of ten rows, and die."""
    with pytest.raises(ZeroDivisionError):
        write_singly(producer.transaction(write_id=topic, parts=10), topic)
    broker.check_records(topic, *ROWS[:10], timeout=LIMIT_S)


def write_singly(block: WriteBlock, topic: str) -> None:
    with block as tx:
        for row in ROWS[:14]:
            tx.send_many(topic, [row])
        raise ZeroDivisionError


@pytest.mark.parametrize("parts", [7, 10, 1000, True, False])
def test_the_next_try_continues_behind_the_parts_that_are_there(
    broker: EmbeddedBroker, producer: Producer, parts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"continues-{parts}"
    begin(broker, producer, topic)
    main(["writes", "show", topic, "-b", broker.bootstrap_servers])
    assert "10 rows" in (shown := capsys.readouterr().out)
    assert "not complete: run it again" in shown
    block = producer.transaction(write_id=topic, parts=parts)
    write(block, topic, ROWS)
    assert block.result is not None
    assert (block.result.already_written, block.result.rows) == (False, 25)
    assert block.result.parts == {7: 4, 10: 3}.get(parts, 2)
    again = producer.transaction(write_id=topic)
    write(again, topic, ROWS)
    assert again.result is not None
    assert (again.result.already_written, again.result.digest) == (True, block.result.digest)
    broker.check_records(topic, *ROWS, timeout=LIMIT_S)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("other", [b"x", *ROWS[1:]]),
        ("order", [ROWS[1], ROWS[0], *ROWS[2:]]),
        ("fewer", ROWS[:9]),
        ("none", []),
    ],
)
def test_other_rows_than_those_of_the_parts_that_are_there_are_refused(
    broker: EmbeddedBroker, producer: Producer, name: str, rows: list[bytes]
) -> None:
    topic = f"refused-{name}"
    begin(broker, producer, topic)
    with pytest.raises(WriteConflictError):
        write(producer.transaction(write_id=topic, parts=10), topic, rows)
    with pytest.raises(WriteConflictError, match="ends within a call"):
        producer.send_many(topic, ROWS, write_id=topic)
    broker.check_records(topic, *ROWS[:10], timeout=LIMIT_S)
    write(producer.transaction(write_id=topic, parts=10), topic, ROWS)
    broker.check_records(topic, *ROWS, timeout=LIMIT_S)


def end_piece(write: WriteTry) -> None:
    try:
        write.end_piece()
    except Exception as error:
        write.give_up(error)
        raise


def test_a_part_is_not_committed_over_that_of_a_later_try(broker: EmbeddedBroker, producer: Producer) -> None:
    topic = "taken-over"
    calls = producer._writes
    first, second = (WriteTry(calls.writers, topic, parts=2, wait_s=0.2) for _ in range(2))
    first.open(topic)
    calls.pass_on(first, "send_many", (topic, ROWS[:2]), {})
    first.end_piece()
    second.open(topic)
    calls.pass_on(second, "send_many", (topic, ROWS[:2]), {})
    second.end_piece()
    calls.pass_on(first, "send_many", (topic, ROWS[2:4]), {})
    with pytest.raises(WriteTakenOverError, match="wrote no row behind the 2 that are committed") as caught:
        end_piece(first)
    assert caught.value.write_id == topic
    calls.pass_on(second, "send_many", (topic, ROWS[2:3]), {})
    assert second.commit().parts == 2
    first.close()
    second.close()
    broker.check_records(topic, *ROWS[:3], timeout=LIMIT_S)


def write_to_two(block: WriteBlock) -> None:
    with block as tx:
        for row in ROWS:
            tx.send(f"two-{len(row)}", row)


def test_parts_are_a_number_and_for_one_topic(broker: EmbeddedBroker, producer: Producer) -> None:
    with pytest.raises(ConfigError, match="parts=-1 must be a number of rows"):
        producer.transaction(write_id="w", parts=-1)
    with pytest.raises(ConfigError, match="has rows for 2 topics"):
        write_to_two(producer.transaction(write_id="two", parts=4))
    wanted = Counter(ROWS[:8])
    wait_until(lambda: values(broker, "two-1") + values(broker, "two-2") == wanted, "the parts are there")


@pytest.mark.parametrize("step", ["before:commit", "behind:commit", "behind:mark"])
def test_a_process_that_is_killed_between_parts_is_made_good(broker: EmbeddedBroker, step: str) -> None:
    topic = f"killed-{step.replace(':', '-')}"

    def run(step: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.support.marks.repeated_write", broker.bootstrap_servers, topic, topic]
        return subprocess.run([*command, "parts", "25", step], capture_output=True, text=True, timeout=120)

    assert run(step).returncode == -signal.SIGKILL
    broker.check_records(topic, *ROWS[: 5 if step == "behind:commit" else 0], timeout=LIMIT_S)
    assert run("none").stdout == "wrote 25\n"
    assert run("none").stdout == "already 25\n"
    broker.check_records(topic, *ROWS, timeout=LIMIT_S)
