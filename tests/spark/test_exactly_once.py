"""`delivery=transactional`: whatever runs again, readers of committed data see each row once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import rand

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay, drop_reply
from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.producer import Producer
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.spark import exactly_once, write
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.task import REPORT_SCHEMA, report_task, write_task
from tests.kafka.reading import end_offsets
from tests.spark.attempts import VALUE, Become, batches_of
from tests.spark.streams import run_stream
from tests.spark.topics import committed_values
from tests.support.broker.fixtures_broker import wait_until
from tests.support.net.raw_client import RawClient

ROWS = 2000
Fault = Callable[[], None]


def expected(rows: int = ROWS) -> list[bytes]:
    return sorted(str(number).encode().rjust(1000, b"0") for number in range(rows))


def rows_of(spark: SparkSession, rows: int = ROWS, tasks: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, tasks).selectExpr("lpad(cast(id as string), 1000, '0') as value")


def options_for(broker: EmbeddedBroker, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.batch.size": "4096",
        "topic": topic,
        "delivery": "transactional",
        "txn.twin.wait.ms": "20000",
    } | more


def fail() -> None:
    raise RuntimeError("half way")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- faults in a task: each in a worker process, so that they are put there by the task itself -------------------------


def faulty_task(
    plan: WritePlan, where: str, fault: Fault, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The sink's task, whose first attempt ends at a place."""
    context = TaskContext.get()
    assert context is not None
    is_first = context.attemptNumber() == 0

    def act(at: str) -> None:
        if is_first and at == where:
            fault()

    def disturbed() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 2:
                act("within the rows")
            yield batch

    class Faulty(Producer):
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            act("after the rows")
            super().send_offsets_to_transaction(*arguments)

        def commit_transaction(self, timeout: float | None = None) -> None:
            act("before the commit")
            super().commit_transaction(timeout)
            act("after the commit")

    module: Any = exactly_once
    module.Producer = Faulty
    try:
        yield from report_task(plan, disturbed())
    finally:
        module.Producer = Producer
    act("before the message")


@pytest.mark.parametrize("fault", [fail, die])
@pytest.mark.parametrize(
    "where", ["within the rows", "after the rows", "before the commit", "after the commit", "before the message"]
)
def test_task_that_is_run_again_writes_each_row_once(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, where: str, fault: Fault
) -> None:
    options = options_for(embedded_broker, topic_name, **{"write.id": topic_name, "kafka.linger.ms": "0"})
    plan = make_plan(rows_of(spark).schema, parse_options(options))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    try:
        reports = rows_of(spark).mapInArrow(partial(faulty_task, plan, where, fault), REPORT_SCHEMA).collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(reports) == 2
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected()


def test_write_that_is_repeated_by_hand_finds_its_rows(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    options = options_for(embedded_broker, topic_name, **{"write.id": topic_name, "verify.replay": "content"})
    first = write(rows_of(spark), options)
    again = write(rows_of(spark), options)
    rows_of(spark).write.format("kafkaprod").mode("append").options(**options).save()
    assert (first.rows, first.already_written) == (ROWS, 0)
    assert (again.rows, again.already_written, again.offsets) == (ROWS, 2, {})
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected()


@pytest.mark.parametrize(
    ("verify", "change"),
    [("count", "id < 1500"), ("content", "true")],
)
def test_repetition_with_other_rows_is_an_error_and_writes_nothing(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, verify: str, change: str
) -> None:
    options = options_for(embedded_broker, topic_name, **{"write.id": topic_name, "verify.replay": verify})
    write(rows_of(spark), options)
    other = spark.range(0, ROWS, 1, 2).where(change).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match="other ones were written by an earlier attempt"):
        write(other, options)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected()


def test_more_partitions_in_the_first_attempt_are_noticed(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    options = options_for(embedded_broker, topic_name, **{"write.id": topic_name, "verify.replay": "none"})
    write(rows_of(spark, tasks=3), options)
    with pytest.raises(Exception, match="has 2 partitions now, but an earlier attempt wrote partition 2"):
        write(rows_of(spark, tasks=2), options)


def test_conditions_are_checked_before_the_first_record(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    named = options_for(embedded_broker, topic_name, **{"write.id": topic_name})
    with pytest.raises(ConfigError, match=r"transaction_timeout_ms=900001 is over .*transaction.max.timeout.ms=900000"):
        write(rows_of(spark), named | {"kafka.transaction.timeout.ms": "900001"})
    with pytest.raises(ConfigError, match="expressions such as rand"):
        write(rows_of(spark).where(rand() < 0.5), named)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    with pytest.raises(ConfigError, match="adaptive"):
        write(rows_of(spark).distinct(), named)
    with pytest.raises(ConfigError, match=r"needs the option write.id for a batch"):
        write(rows_of(spark), options_for(embedded_broker, topic_name))
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == []


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_batch", [pytest.param(False, marks=pytest.mark.spark("4.1")), True])
def test_replayed_micro_batch_is_recognised(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path, by_batch: bool
) -> None:
    """As after a driver that died between a micro-batch's last commit and the note that it is done."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    options = options_for(embedded_broker, topic_name)
    source.mkdir()
    (source / "1.txt").write_text("\n".join(str(number) for number in range(1000)))
    run_stream(spark.readStream.text(str(source)), checkpoint, options, by_batch)
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()
    (source / "2.txt").write_text("\n".join(str(number) for number in range(1000, 1500)))
    run_stream(spark.readStream.text(str(source)), checkpoint, options, by_batch)
    values = committed_values(embedded_broker.bootstrap_servers, topic_name)
    assert values == sorted(str(number).encode() for number in range(1500))


def test_two_writes_of_a_micro_batch_need_two_ids(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> None:
    options = options_for(embedded_broker, topic_name)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb")
    errors: list[Exception] = []

    def write_twice(df: DataFrame, batch: int) -> None:
        write(df, options)
        try:
            write(df, options)
        except Exception as error:
            errors.append(error)
        write(df, options, write_id="second")

    writer = spark.readStream.text(str(tmp_path / "in")).writeStream.foreachBatch(write_twice)
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(120)
    assert "have the same id" in str(errors[0])
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == [b"a", b"a", b"b", b"b"]


# -- two attempts at once ----------------------------------------------------------------------------------------------

VALUES = [f"{number:0>600}" for number in range(2000)]  # so much that the first batch is not joined with the second


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("does_twin_end", [True, False], ids=["twin commits", "twin dies"])
def test_attempt_that_is_fenced_takes_the_rows_of_its_twin_or_fails(
    attempts: Become, version: int, does_twin_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(topics={"t": 2}, transaction_version=version) as broker:
        wait_ms = "20000" if does_twin_end else "300"
        options = options_for(broker, "t", **{"txn.twin.wait.ms": wait_ms, "kafka.linger.ms": "0"})
        plan = make_plan(VALUE, parse_options(options))
        has_begun, may_end = threading.Event(), threading.Event()
        outcomes: list[object] = []

        def first() -> None:
            attempts(0, 0)
            try:
                outcomes.append(write_task(plan, batches_of(VALUES, has_begun, may_end)))
            except Exception as error:
                outcomes.append(error)

        thread = threading.Thread(target=first)
        thread.start()
        assert has_begun.wait(60)
        attempts(1, 0)
        if does_twin_end:
            report = write_task(plan, batches_of(VALUES))
            assert (report.rows, report.already_written) == (len(VALUES), 0)
        else:
            with pytest.raises(ZeroDivisionError):
                write_task(plan, dying(batches_of(VALUES)))
        may_end.set()
        thread.join(60)
        (outcome,) = outcomes
        if does_twin_end:
            assert isinstance(outcome, WriteReport), outcome
            assert (outcome.rows, outcome.already_written) == (len(VALUES), 1)
            assert "was replaced by attempt 1, which has written the same rows: nothing is lost" in caplog.text
            assert "not delivered" not in caplog.text
        else:
            assert isinstance(outcome, KafkaError)
            attempts(2, 0)
            assert write_task(plan, batches_of(VALUES)).already_written == 0
        assert committed_values(broker.bootstrap_servers, "t") == sorted(value.encode() for value in VALUES)


@pytest.mark.parametrize("refused", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT])
def test_attempt_whose_transaction_is_ended_for_its_twin_waits_for_it(
    attempts: Become, monkeypatch: pytest.MonkeyPatch, refused: ApiKey
) -> None:
    """Until the twin's second InitProducerId the coordinator agrees to an abort of the fenced attempt."""
    has_begun, may_end = threading.Event(), threading.Event()
    if refused is ApiKey.TXN_OFFSET_COMMIT:
        monkeypatch.setattr(exactly_once, "WriteMark", partial(_after, has_begun, may_end, exactly_once.WriteMark))
    with EmbeddedBroker(topics={"t": 1}, transaction_version=2) as broker, ThreadPoolExecutor(1) as pool:
        plan = make_plan(VALUE, parse_options(options_for(broker, "t", **{"kafka.linger.ms": "0"})))

        def first() -> WriteReport:
            attempts(0, 0)
            is_between = refused is ApiKey.PRODUCE
            return write_task(plan, batches_of(VALUES, has_begun if is_between else None, may_end))

        for api in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT):
            broker.faults.on(api, delay(1))
        outcome = pool.submit(first)
        assert has_begun.wait(60)
        # All that are sent by now: a request on its way would be refused before the count, and nothing after it.
        written = len(VALUES) // 2 if refused is ApiKey.PRODUCE else len(VALUES)
        wait_until(lambda: end_offsets(broker.bootstrap_servers, "t")[0] >= written, "the rows in the log")
        fence = InitProducerIdRequest(transactional_id="kafkaprod-q-0", transaction_timeout_ms=60_000)
        with RawClient(broker.bootstrap_servers) as client:
            answer = client.call(fence, InitProducerIdResponse, 4)
            assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        count = broker.faults.fired_count(refused)
        may_end.set()
        wait_until(lambda: broker.faults.fired_count(refused) > count, "the fenced attempt to be refused")
        attempts(1, 0)
        assert write_task(plan, batches_of(VALUES)).already_written == 0
        assert outcome.result(60).already_written == 1
        assert committed_values(broker.bootstrap_servers, "t") == sorted(value.encode() for value in VALUES)


def _after(sign: threading.Event, wait: threading.Event, make: Callable[..., Any], *arguments: Any) -> Any:
    sign.set()
    assert wait.wait(60)
    return make(*arguments)


def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield next(batches)
    raise ZeroDivisionError


def test_late_attempt_of_an_earlier_micro_batch_fences_no_attempt(attempts: Become) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        plan = make_plan(VALUE, parse_options(options_for(broker, "t")))
        for batch in range(2):
            attempts(0, batch)
            write_task(plan, batches_of([f"{batch}-{row}" for row in range(4)]))
        attempts(1, 0)
        report = write_task(plan, batches_of(["0-0", "0-1"]))
        assert (report.rows, report.already_written) == (0, 1)
        assert len(committed_values(broker.bootstrap_servers, "t")) == 8


@pytest.mark.parametrize("version", [1, 2])
def test_commit_whose_answer_is_lost_is_repeated(attempts: Become, version: int) -> None:
    with EmbeddedBroker(topics={"t": 1}, transaction_version=version) as broker:
        options = options_for(broker, "t", **{"kafka.max.block.ms": "1500", "kafka.request.timeout.ms": "1000"})
        plan = make_plan(VALUE, parse_options(options | {"kafka.delivery.timeout.ms": "2000"}))
        broker.faults.on(ApiKey.END_TXN, drop_reply(), times=2)
        attempts(0, 0)
        assert write_task(plan, batches_of(["a", "b"])).rows == 2
        assert committed_values(broker.bootstrap_servers, "t") == [b"a", b"b"]


def test_attempt_that_died_with_its_offsets_sent_holds_up_no_reader(attempts: Become) -> None:
    """An open transaction holds the mark: readers of stable offsets would wait for its timeout."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        plan = make_plan(VALUE, parse_options(options_for(broker, "t")))
        dead = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="kafkaprod-q-0")
        dead.init_transactions()
        dead.begin_transaction()
        dead.send("t", b"of the dead")
        dead.send_offsets_to_transaction({("t", 0): (1, "kp1 rows=1&sum=&at=0&run=&write=x")}, "kafkaprod-q-0")
        dead.close(0)
        attempts(1, 0)
        assert write_task(plan, batches_of(["a", "b"])).already_written == 0
        assert committed_values(broker.bootstrap_servers, "t") == [b"a", b"b"]


def test_group_of_something_else_is_refused(attempts: Become) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        plan = make_plan(VALUE, parse_options(options_for(broker, "t")))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "kafkaprod-q-0"})
        consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        consumer.close()
        attempts(0, 0)
        with pytest.raises(ConfigError, match="something else uses this group"):
            write_task(plan, batches_of(["a", "b"]))
