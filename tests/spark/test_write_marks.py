"""Write marks say whose they are: those of another stream or of other partitions are never taken for ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.producer import Producer
from kafkaprod.spark import exactly_once, write
from kafkaprod.spark.mark_checks import check_marks
from kafkaprod.spark.options import TransactionOptions, parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.replay import check_frame
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.task import write_task
from tests.spark.attempts import VALUE, Become, batches_of
from tests.spark.streams import run_stream
from tests.spark.topics import committed_values, values_of


def options_for(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": "t",
        "delivery": "transactional",
        "write.id": "w",
    } | more


def plan_for(broker: EmbeddedBroker, **more: str) -> WritePlan:
    return make_plan(VALUE, parse_options(options_for(broker, **more)))


def commit_mark(broker: EmbeddedBroker, offset: int, text: str, group: str = "kafkaprod-w-0") -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=group) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({("t", 0): (offset, text)}, group)
        producer.commit_transaction()


OF_STREAM = "kp1 rows=2&sum=&at=0&run=r&write=x"
OF_BATCH = "kp1 rows=2&sum=&at=0&run=&write=x"


@pytest.mark.parametrize("batch", [0, 1, 2, 9])
def test_another_stream_with_the_same_write_id_is_refused_and_both_are_named(attempts: Become, batch: int) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        attempts(0, 2, stream="first")
        write_task(plan_for(broker), batches_of(["a", "b"]))
        attempts(0, batch, stream="second")
        with pytest.raises(ConfigError, match=r"'w' is that of stream first, .* and this is stream second"):
            write_task(plan_for(broker), batches_of(["c", "d"]))
        assert committed_values(broker.bootstrap_servers, "t") == [b"a", b"b"]


def test_stream_goes_on_after_a_restart_from_its_checkpoint(attempts: Become) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        reports = []
        for batch, run in ((0, "r1"), (1, "r1"), (1, "r2"), (2, "r2")):
            attempts(0, batch, stream="s", run=run)
            reports.append(write_task(plan_for(broker), batches_of([f"{batch}a", f"{batch}b"])))
        assert [report.already_written for report in reports] == [0, 0, 1, 0]
        assert [report.has_gone_on for report in reports] == [False, True, False, False]
        assert len(committed_values(broker.bootstrap_servers, "t")) == 6


@pytest.mark.parametrize("is_stream_first", [True, False])
def test_stream_and_batch_with_the_same_write_id_are_refused(attempts: Become, is_stream_first: bool) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        for batch in (0, None) if is_stream_first else (None, 0):
            attempts(0, batch, stream="s")
            if batch is (0 if is_stream_first else None):
                write_task(plan_for(broker), batches_of(["a", "b"]))
                continue
            with pytest.raises(ConfigError, match="a write that is no stream"):
                write_task(plan_for(broker), batches_of(["c", "d"]))


@pytest.mark.parametrize(("text", "batch"), [(OF_STREAM, 3), (OF_STREAM, 2), (OF_BATCH, 3), (OF_STREAM, None)], ids=str)
def test_mark_of_an_earlier_version_is_not_believed_where_it_does_not_say_whose_it_is(
    attempts: Become, text: str, batch: int | None
) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        commit_mark(broker, 4, text)
        attempts(0, batch, stream="s")
        with pytest.raises(ConfigError, match=r"write mark of kafkaprod 0\.2 .* cannot be known whether these rows"):
            write_task(plan_for(broker), batches_of(["a", "b"]))
        assert committed_values(broker.bootstrap_servers, "t") == []


def test_mark_of_an_earlier_version_is_read_where_it_is_plain_whose_it_is(attempts: Become) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        commit_mark(broker, 1, OF_BATCH)
        attempts(0, None)
        assert write_task(plan_for(broker), batches_of(["a", "b"])).already_written == 1  # a repeated batch
        commit_mark(broker, 4, OF_STREAM)
        attempts(0, 4, stream="s")
        assert write_task(plan_for(broker), batches_of(["a", "b"])).already_written == 0  # the micro-batch after it
        commit_mark(broker, 4, OF_STREAM, "kafkaprod-s-0")
        attempts(0, 3, stream="s")
        plan = make_plan(VALUE, parse_options(options_for(broker, **{"write.id": ""})))
        assert write_task(plan, batches_of(["a", "b"])).already_written == 1  # its name has the stream


def test_mark_of_a_later_version_is_refused_as_such(attempts: Become) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        commit_mark(broker, 1, "kp3 anything")
        attempts(0, 0)
        with pytest.raises(ConfigError, match="format 'kp3', which this version of kafkaprod cannot read"):
            write_task(plan_for(broker), batches_of(["a", "b"]))


@pytest.mark.parametrize(
    ("marked", "tasks", "error"),
    [
        (17, 2, "has 2 partitions now, but an earlier attempt wrote partition 17"),
        (1, 40, "partition 1 of micro-batch 0 of w has no rows now, but an earlier attempt wrote rows of it"),
    ],
)
def test_sparse_partitions_of_an_earlier_attempt_are_found(
    attempts: Become, marked: int, tasks: int, error: str
) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        plan = plan_for(broker)
        attempts(0, None, partition=marked)
        write_task(plan, batches_of(["a", "b"]))
        attempts(0, None, partition=0)
        reports = [write_task(plan, batches_of(["a", "b"]))]
        reports += [WriteReport(partition=number) for number in range(1, tasks)]
        assert plan.options.transactions is not None
        with pytest.raises(KafkaError, match=error):
            check_marks(plan, plan.options.transactions, reports)


def test_marks_of_other_names_and_of_earlier_micro_batches_are_no_earlier_attempt(attempts: Become) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        attempts(0, 3, partition=5)
        write_task(plan_for(broker), batches_of(["a", "b"]))
        for name in ("w-5", "v"):
            attempts(0, 4, partition=5)
            write_task(plan_for(broker, **{"write.id": name}), batches_of(["a", "b"]))
        attempts(0, 4)
        plan = plan_for(broker)
        report = write_task(plan, batches_of(["a", "b"]))
        assert plan.options.transactions is not None
        check_marks(plan, plan.options.transactions, [report])


def test_mark_that_a_deposed_coordinator_does_not_know_is_seen_before_the_commit(
    attempts: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        plan = plan_for(broker)
        attempts(0, None)
        write_task(plan, batches_of(["a", "b"]))
        with monkeypatch.context() as deposed:
            deposed.setattr(exactly_once, "read_mark", lambda *_: None)
            attempts(1, None)
            with pytest.raises(KafkaError, match="was written by another attempt"):
                write_task(plan, batches_of(["a", "b"]))
        attempts(2, None)
        assert write_task(plan, batches_of(["a", "b"])).already_written == 1
        assert committed_values(broker.bootstrap_servers, "t") == [b"a", b"b"]


# -- with Spark --------------------------------------------------------------------------------------------------------


def frame(spark: SparkSession, partitions: int) -> DataFrame:
    rows = spark.range(0, 300, 1, 1).selectExpr("cast(id % 3 as string) key", "cast(id as string) value")
    return rows.repartition(partitions, "key")


def test_new_checkpoint_with_the_same_write_id_is_an_error_and_not_a_loss(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> None:
    options = options_for(embedded_broker, topic=topic_name, **{"write.id": topic_name})
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.txt").write_text("a\nb")
    run_stream(spark.readStream.text(str(source)), tmp_path / "A", options, by_batch=True)
    (source / "1.txt").write_text("c\nd")
    with pytest.raises(Exception, match=rf"write.id '{topic_name}' is that of stream"):
        run_stream(spark.readStream.text(str(source)), tmp_path / "B", options, by_batch=True)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("select current_timestamp() as t, value from rows", "has the current time"),
        ("select * from rows where value < cast(unix_timestamp() as string)", "has the current time"),
        ("select * from rows where current_date() > date'2024-01-01'", "has the current time"),
        ("select * from rows limit 3", "without an order"),
        ("select * from (select * from rows limit 3) where value > '1'", "without an order"),
        ("select input_file_name() as f, value from rows", "expressions such as rand"),
    ],
)
def test_frame_whose_rows_change_is_refused(spark: SparkSession, change: str, words: str) -> None:
    spark.range(5).selectExpr("cast(id as string) value").createOrReplaceTempView("rows")
    with pytest.raises(ConfigError, match=words):
        check_frame(spark.sql(change), TransactionOptions("p", "t", 1000, "count"))


def test_limit_of_ordered_rows_is_taken(spark: SparkSession) -> None:
    spark.range(5).selectExpr("cast(id as string) value").createOrReplaceTempView("rows")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        for text in (
            "select * from rows order by value limit 3",
            "select value from rows order by value limit 3 offset 1",
        ):
            check_frame(spark.sql(text), TransactionOptions("p", "t", 1000, "count"))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_columns_with_dots_and_of_one_name_in_two_cases_are_written(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "topic": topic_name}
    frame = spark.createDataFrame([(1, 2, 3, "v")], ["a.b", "x", "X", "value"])
    assert write(frame, options).rows == 1
    assert write(frame, options | {"value.format": "json", "value.columns": "a.b,x,X"}).rows == 1
    assert values_of(embedded_broker.bootstrap_servers, topic_name) == [b"v", b'{"a.b":1,"x":2,"X":3}']


def test_repeated_batch_with_fewer_partitions_is_refused_before_anything_is_sent(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    options = options_for(embedded_broker, topic=topic_name, **{"write.id": topic_name})
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        assert write(frame(spark, 8), options).rows == 300
        with pytest.raises(KafkaError, match=r"has 2 partitions now, .* nothing was written now"):
            write(frame(spark, 2), options)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert len(committed_values(embedded_broker.bootstrap_servers, topic_name)) == 300
