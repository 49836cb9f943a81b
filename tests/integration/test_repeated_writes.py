"""A write with a write_id is there once, whatever step its first try dies at, whoever else tries at the same time."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from array import array
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.settings import acls
from kafkaprod.cli.main import main
from kafkaprod.clock import SystemClock
from kafkaprod.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    WriteConflictError,
    WriteStaleError,
    WriteTakenOverError,
)
from kafkaprod.marks import looks
from kafkaprod.marks.calls import WriteBlock
from kafkaprod.marks.mark import Mark
from kafkaprod.marks.write import WriteTry
from tests.support.broker.fixtures_broker import wait_until
from tests.support.marks.repeated_write import KILLS, SHAPES, write

ROWS = 500


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(auto_create_topics=True, num_partitions=3) as broker:
        yield broker


def run_child(broker: EmbeddedBroker, topic: str, shape: str, step: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.marks.repeated_write", broker.bootstrap_servers, topic, topic]
    return subprocess.run([*command, shape, str(ROWS), step], capture_output=True, text=True, timeout=120)


def committed(broker: EmbeddedBroker, topic: str) -> Counter[bytes | None]:
    return Counter(record.value and record.value.strip() for record in broker.records(topic))


EACH_ONCE: Counter[bytes | None] = Counter(b"%d" % row for row in range(ROWS))


def wait_for_rows(broker: EmbeddedBroker, topic: str, expected: Counter[bytes | None]) -> None:
    """Wait until a topic has these rows and no others: a commit is answered before its markers are written."""
    wait_until(lambda: committed(broker, topic) == expected, f"{topic} has the rows")


@pytest.mark.parametrize("step", KILLS)
def test_a_try_that_is_killed_at_a_step_is_made_good_by_the_next(broker: EmbeddedBroker, step: str) -> None:
    topic = f"killed-{step.replace(':', '-')}"
    shape = SHAPES[KILLS.index(step) % len(SHAPES)]
    killed = run_child(broker, topic, shape, step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    is_committed = step in ("behind:commit", "before:report", "behind:report")
    wait_for_rows(broker, topic, EACH_ONCE if is_committed else Counter())
    again = run_child(broker, topic, shape, "none")
    assert again.stdout == f"{'already' if is_committed else 'wrote'} {ROWS}\n", again.stderr
    wait_for_rows(broker, topic, EACH_ONCE)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_second_run_writes_nothing(broker: EmbeddedBroker, shape: str) -> None:
    topic = f"again-{shape}"
    first = write(broker.bootstrap_servers, topic, topic, shape, ROWS)
    second = write(broker.bootstrap_servers, topic, topic, shape, ROWS)
    assert (first.already_written, second.already_written) == (False, True)
    assert (first.rows, second.rows, first.digest, first.written_by) == (
        *(ROWS, ROWS, second.digest, second.written_by),
    )
    wait_for_rows(broker, topic, EACH_ONCE)


@pytest.mark.parametrize("tries", [2, 5])
def test_of_tries_at_once_one_writes(broker: EmbeddedBroker, tries: int) -> None:
    for round_number in range(3):
        topic = f"at-once-{tries}-{round_number}"
        barrier = threading.Barrier(tries)

        def attempt(topic: str = topic, barrier: threading.Barrier = barrier) -> str:
            barrier.wait(60)
            try:
                outcome = write(broker.bootstrap_servers, topic, topic, "list", ROWS)
            except WriteTakenOverError:
                return "taken over"
            return "already" if outcome.already_written else "wrote"

        with ThreadPoolExecutor(tries) as pool:
            ends = Counter(each.result(120) for each in [pool.submit(attempt) for _ in range(tries)])
        assert ends["wrote"] == 1, ends
        assert ends.total() == tries
        wait_for_rows(broker, topic, EACH_ONCE)


def test_other_rows_under_a_known_id_are_refused(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        rows = [b"a", b"b", None]
        assert not producer.send_many("other-rows", rows, write_id="w").already_written
        for other in ([b"a", b"b"], [b"b", b"a", None], [b"a", b"b", b""], [*rows, b"c"]):
            with pytest.raises(
                WriteConflictError, match=r"write 'w' was committed at .* with 3 rows into 'other-rows'"
            ):
                producer.send_many("other-rows", other, write_id="w")
        with pytest.raises(WriteConflictError) as caught:
            producer.send_many("other-topic", rows, write_id="w")
        assert caught.value.reason == "topic"
        assert producer.send_many("other-rows", [b"x", b"y", b"z"], write_id="w", verify="count").already_written
        with pytest.raises(WriteConflictError):
            producer.send_many("other-rows", [b"x"], write_id="w", verify="count")
        assert producer.send_many("other-rows", [], write_id="w", verify="none").already_written
    assert Counter(record.value for record in broker.records("other-rows")) == Counter(rows)
    assert broker.records("other-topic") == []


def test_given_partitions_and_timestamps_are_compared_and_now_is_not(broker: EmbeddedBroker) -> None:
    rows = [b"a", b"b"]
    table: dict[str, Any] = {"value": rows, "at": [1_000, None]}
    places: list[dict[str, Any]] = [{"partitions": [0, 2]}, {"timestamps_ms": [5, 6]}, {"partition": 1}, {}]
    others: list[dict[str, Any]] = [{"partitions": [0, 1]}, {"timestamps_ms": [5, 7]}, {"partition": 2}]
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, options in enumerate(places):
            assert not producer.send_many("placed", rows, write_id=f"placed-{number}", **options).already_written
            assert producer.send_many("placed", rows, write_id=f"placed-{number}", **options).already_written
            for other in others:
                with pytest.raises(WriteConflictError):
                    producer.send_many("placed", rows, write_id=f"placed-{number}", **other)
        for _ in range(2):
            again = producer.send_table("placed", table, timestamp="at", write_id="placed-table").already_written
        assert again
        with pytest.raises(WriteConflictError):
            producer.send_table("placed", table | {"at": [1_001, None]}, timestamp="at", write_id="placed-table")


def test_a_given_timestamp_counts_even_if_it_is_the_present_one(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: dict[str, Any] = {"value": [b"a", b"b"], "at": [1_000, None]}
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for now_ms, is_there in ((1_000, False), (2_000, True)):
            monkeypatch.setattr(SystemClock, "wall_ms", lambda _, now_ms=now_ms: now_ms)
            result = producer.send_table("present", table, timestamp="at", write_id="present")
            assert result.already_written == is_there
    assert sorted((record.value, record.timestamp) for record in broker.records("present")) == [
        (b"a", 1_000),
        (b"b", 1_000),
    ]


def test_a_topic_that_was_made_again_is_written_again(broker: EmbeddedBroker) -> None:
    """Brokers delete the offsets of a topic with it, so its mark goes, too."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("made-again", [b"a"], write_id="made-again")
        mark = read(broker, "made-again")
        assert mark is not None
        assert (mark.rows, list(mark.topics)) == (1, ["made-again"])
        assert main(["topics", "delete", "made-again", "-q", "-b", broker.bootstrap_servers]) == 0
        assert main(["topics", "create", "made-again", "-q", "-b", broker.bootstrap_servers]) == 0
        assert read(broker, "made-again") is None
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert not producer.send_many("made-again", [b"b", b"c"], write_id="made-again").already_written
    assert Counter(record.value for record in broker.records("made-again")) == Counter([b"b", b"c"])


LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
RIGHTS = {
    "the id": (acls.TRANSACTIONAL_ID, "kafkaprod.write.", acls.WRITE),
    "the group": (acls.GROUP, "kafkaprod.write.", acls.READ),
    "reading the topic": (acls.TOPIC, "t", acls.READ),
    "writing the topic": (acls.TOPIC, "t", acls.WRITE),
}


@pytest.mark.parametrize("missing", [*RIGHTS, "none"])
def test_a_right_that_is_missing_is_named_and_nothing_is_written(missing: str) -> None:
    with EmbeddedBroker(
        listeners="SASL_PLAINTEXT://:0",
        sasl_users={"ann": "ann", "root": "root"},
        topics={"t": 1},
        options={"super.users": "User:root", "allow.everyone.if.no.acl.found": "false"},
    ) as broker:
        add_acls(broker.bootstrap_servers, [right for name, right in RIGHTS.items() if name != missing])
        options: dict[str, Any] = LOGIN | {"sasl_username": "ann", "sasl_password": "ann", "max_block_ms": 3_000}
        with Producer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
            if missing == "none":
                assert not producer.send_many("t", [b"a"], write_id="w").already_written
                return
            with pytest.raises(KafkaError) as caught:
                producer.send_many("t", [b"a"], write_id="w")
        assert "Read on group 'kafkaprod.write.w' and on the topic" in "".join(caught.value.__notes__)
        assert broker.records("t") == []


def add_acls(servers: str, rights: list[tuple[int, str, int]]) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "root"}
    root = AdminClient({"bootstrap.servers": servers, "sasl.password": "root", **login})
    found = [
        AclBinding(
            *(ResourceType(kind), name, ResourcePatternType.PREFIXED, "User:ann", "*"),
            *(AclOperation(operation), AclPermissionType.ALLOW),
        )
        for kind, name, operation in rights
    ]
    for done in root.create_acls(found).values():
        done.result(30)


def read(broker: EmbeddedBroker, write_id: str) -> Mark | None:
    from kafkaprod.admin.client import ClusterClient
    from kafkaprod.config import ProducerConfig

    with ClusterClient(ProducerConfig.from_options(bootstrap_servers=broker.bootstrap_servers)) as client:
        return looks.read_mark(client, f"kafkaprod.write.{write_id}", 1_000)


def test_a_mark_of_another_topic_of_the_same_name_is_refused(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("stale", [b"a"], write_id="stale")
        original = Mark.from_text

        def of_another(text: str, group: str) -> Mark:
            mark = original(text, group)
            return Mark(
                mark.write_id,
                mark.rows,
                mark.digest,
                {"stale": "another id"},
                *(mark.cluster, mark.written_by, mark.written_ms, mark.attempt),
            )

        monkeypatch.setattr(Mark, "from_text", of_another)
        with pytest.raises(WriteStaleError, match="it was made again"):
            producer.send_many("stale", [b"a"], write_id="stale")


def test_a_coordinator_that_forgot_the_mark_is_caught_by_the_guard(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that was deposed while it was paused answers that there is no mark."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("forgotten", [b"a", b"b"], write_id="forgotten")
        monkeypatch.setattr(looks, "read_mark", lambda *_: None)
        again = producer.send_many("forgotten", [b"a", b"b"], write_id="forgotten")
        assert again.already_written
        assert len(again) == 0
        with pytest.raises(WriteConflictError):
            producer.send_many("forgotten", [b"a", b"c"], write_id="forgotten")
    assert Counter(record.value for record in broker.records("forgotten")) == Counter([b"a", b"b"])


def test_without_the_guard_the_rows_would_be_there_twice(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many("unguarded", [b"a"], write_id="unguarded")
        monkeypatch.setattr(looks, "read_mark", lambda *_: None)
        monkeypatch.setattr(looks, "offsets_before", lambda *_: {})
        assert not producer.send_many("unguarded", [b"a"], write_id="unguarded").already_written
    assert len(broker.records("unguarded")) == 2


def fail_inside(block: WriteBlock) -> None:
    with block as tx:
        tx.send("raises", b"a")
        raise ZeroDivisionError


def test_a_block_that_raises_has_written_nothing(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        block = producer.transaction(write_id="raises")
        with pytest.raises(ZeroDivisionError):
            fail_inside(block)
        assert block.result is None
        with pytest.raises(IllegalStateError, match="not open"):
            block.send("raises", b"a")
        with producer.transaction(write_id="raises") as tx:
            assert not tx.already_written
            for number in range(2_300):
                tx.send(
                    "raises", b"%d" % number, headers=[("n", b"1")] if number % 2 else None, timestamp_ms=number or None
                )
        with producer.transaction(write_id="raises") as tx:
            assert tx.already_written  # and nothing to compare: the block may end early
        assert tx.result is not None
        assert (tx.result.rows, tx.result.already_written) == (2_300, True)
        with pytest.raises(WriteConflictError), producer.transaction(write_id="raises") as tx:
            tx.send("raises", b"0")
    records = broker.records("raises")
    assert Counter(record.value for record in records) == Counter(b"%d" % number for number in range(2_300))
    assert {record.timestamp for record in records if record.value == b"7"} == {7}


def test_a_write_of_no_rows_is_a_write(broker: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert not producer.send_many("no-rows", [], write_id="empty").already_written
        assert producer.send_many("no-rows", [], write_id="empty").already_written
        with pytest.raises(WriteConflictError):
            producer.send_many("no-rows", [b"a"], write_id="empty")
        with (
            pytest.raises(ConfigError, match="no topic whose offsets could keep its mark"),
            producer.transaction(write_id="nowhere"),
        ):
            pass


def test_serializers_and_a_transactional_producer_are_used_as_they_are(broker: EmbeddedBroker) -> None:
    options = {"bootstrap_servers": broker.bootstrap_servers, "value_serializer": lambda value: str(value).encode()}
    with Producer(options, transactional_id="of-its-own") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("beside", 1)
            assert not producer.send_many("beside", [2, 3], write_id="beside").already_written
            assert producer.send_many("beside", [2, 3], write_id="beside").already_written
    assert Counter(record.value for record in broker.records("beside")) == Counter([b"1", b"2", b"3"])


def test_a_producer_keeps_what_made_a_write_for_the_next_and_ends_it_with_itself(broker: EmbeddedBroker) -> None:
    async def write_two() -> list[int]:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(2):
                await producer.send_many("kept", [b"a"], write_id=f"asyncio-{number}")
            kept = [*producer._kept_writers]
            sending = kept[0]._sending
        assert sending is not None
        assert sending.producer._has_ended
        return [len(kept), sending.transactions.number]

    assert asyncio.run(write_two()) == [1, 2]
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(3):
        assert not producer.send_many("kept", [b"a"], write_id=f"w-{number}").already_written
        assert producer.send_many("kept", [b"a"], write_id=f"w-{number}").already_written
    (writer,) = producer._kept_writers
    sending = writer._sending
    producer.close()
    assert sending is not None
    assert sending.transactions.number == 3
    assert sending.producer._has_ended
    assert producer._kept_writers == []
    assert len(broker.records("kept")) == 5


def test_a_block_in_asyncio_is_written_once(broker: EmbeddedBroker) -> None:
    async def write(rows: int, **options: Any) -> Any:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            async with producer.transaction(write_id="in asyncio", **options) as tx:
                for row in range(rows):
                    await tx.send("in-asyncio", b"%d" % row, key=b"k")
                await tx.send_many("in-asyncio", [b"list"])
                await tx.send_columns("in-asyncio", (array("i", [0, 7]), b"columns"))
                await tx.send_table("in-asyncio", {"value": [b"table"]})
                await tx.send_offsets({("in-asyncio", 0): 1}, "readers")
            return tx.already_written, tx.result

    async def fail() -> None:
        async with (
            AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
            producer.transaction(write_id="in asyncio") as tx,
        ):
            await tx.send("in-asyncio", b"0")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())
    is_written, result = asyncio.run(write(2_500, parts=1_100))
    assert (is_written, result.rows, result.parts) == (False, 2_503, 3)
    is_written, again = asyncio.run(write(2_500))
    assert (is_written, again.digest) == (True, result.digest)
    with pytest.raises(WriteConflictError):
        asyncio.run(write(2_499))
    assert len(broker.records("in-asyncio")) == 2_503


def test_a_fenced_try_waits_for_the_mark_and_never_fences_back(broker: EmbeddedBroker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    calls = producer._writes
    first, second = (WriteTry(calls.writers, "fenced", wait_s=0.2) for _ in range(2))
    first.open("fenced")
    calls.pass_on(first, "send_many", ("fenced", [b"a"]), {})
    second.open("fenced")
    with pytest.raises(WriteTakenOverError, match=r"took over, and has not committed within 0\.2 s"):
        first.commit()
    calls.pass_on(second, "send_many", ("fenced", [b"a"]), {})
    assert not second.commit().already_written
    first.close()
    second.close()
    producer.close()
    assert len(broker.records("fenced")) == 1


def test_commands_write_once_and_list_show_and_forget(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"one\ntwo\n")
    server = ("-b", broker.bootstrap_servers)
    produce = ["produce", "-t", "by-command", "-l", str(lines), "--write-id", "by command", *server]
    assert main([*produce]) == 0
    assert capsys.readouterr().err == ""
    assert main([*produce]) == 0
    assert capsys.readouterr().err == "already written: 2 records of by command\n"
    lines.write_bytes(b"one\nTWO\n")
    assert main([*produce]) == 1
    assert "these have other contents, or another order. Nothing was written" in capsys.readouterr().err
    assert Counter(record.value for record in broker.records("by-command")) == Counter([b"one", b"two"])

    assert main(["writes", "list", "--prefix", "by ", *server]) == 0
    assert capsys.readouterr().out.startswith("by command  2 rows  by-command  20")
    assert main(["writes", "show", "by command", "--json", *server]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    capsys.readouterr()
    assert main(["writes", "forget", "by command", *server, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"write_id": "by command", "outcome": "forgotten"}
    assert main(["writes", "show", "by command", *server]) == 1
    assert main(["writes", "list", "--prefix", "by ", "--json", *server]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main([*produce]) == 0
    assert len(broker.records("by-command")) == 4


def test_forgetting_fences_a_try_that_is_at_work(broker: EmbeddedBroker) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    calls = producer._writes
    attempt = WriteTry(calls.writers, "forgotten-at-work", wait_s=0.2)
    attempt.open("at-work")
    calls.pass_on(attempt, "send_many", ("at-work", [b"a"]), {})
    main(["writes", "forget", "forgotten-at-work", "-b", broker.bootstrap_servers])
    with pytest.raises(WriteTakenOverError):
        attempt.commit()
    attempt.close()
    producer.close()
    assert broker.records("at-work") == []
