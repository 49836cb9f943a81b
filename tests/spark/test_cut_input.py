"""A stage before the sink fails, and Spark cuts the rows of the sink's task off: they never count as a whole task."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.spark import write
from tests.spark.failing_stages import (
    BATCHES,
    ROWS,
    SETTINGS,
    Stage,
    expected_values,
    fails_in_jvm,
    fails_in_python,
    numbered_rows,
)
from tests.spark.streams import run_stream
from tests.spark.topics import committed_values, values_of


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name in SETTINGS:
        spark.conf.unset(name)


def options_for(broker: EmbeddedBroker, topic: str, delivery: str, verify: str = "content") -> dict[str, str]:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "write.id": topic}
    if delivery == "transactional":
        options |= {"delivery": delivery, "verify.replay": verify}
    return options


PLACES = {"before the first batch": 0, "after the first": 1, "after the second": 2, "after the last": BATCHES}
IN_PYTHON = [pytest.param(fails_in_python(at), id=f"Python raises {place}") for place, at in PLACES.items()]
IN_JVM = [pytest.param(fails_in_jvm(at), id=f"the JVM raises {place}") for place, at in PLACES.items()]
DIES = [pytest.param(fails_in_python(2, "die"), id="Python dies after the second batch")]


@pytest.mark.parametrize("stage", IN_PYTHON + IN_JVM + DIES)
def test_task_whose_rows_are_cut_off_commits_none_of_them(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, stage: Stage
) -> None:
    write(stage(numbered_rows(spark)), options_for(embedded_broker, topic_name, "transactional"))
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected_values()


@pytest.mark.spark("4.0")
@pytest.mark.parametrize("stage", [fails_in_python(2), fails_in_jvm(1)], ids=["Python", "JVM"])
def test_data_source_commits_none_of_the_rows_of_a_cut_task(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, stage: Stage
) -> None:
    df = stage(numbered_rows(spark))
    options = options_for(embedded_broker, topic_name, "transactional")
    df.write.format("kafkaprod").mode("append").options(**options).save()
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected_values()


@pytest.mark.parametrize("verify", ["count", "none"])
def test_repetition_is_not_blamed_and_loses_nothing(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, verify: str
) -> None:
    df = fails_in_python(2)(numbered_rows(spark))
    report = write(df, options_for(embedded_broker, topic_name, "transactional", verify))
    assert (report.rows, report.already_written) == (ROWS, 0)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected_values()


def test_attempt_whose_rows_are_cut_off_fences_no_later_one(spark: SparkSession) -> None:
    """It has a batch, and looks for its write mark, while the stage before it fails and Spark begins the next one."""
    df = fails_in_python(2)(numbered_rows(spark, tasks=1))
    with EmbeddedBroker(topics={"t": 1}) as broker:
        broker.faults.on(
            ApiKey.OFFSET_FETCH, delay(5_000), times=1
        )  # the stage fails long before, on a busy machine, too
        broker.faults.on(ApiKey.OFFSET_FETCH, delay(9_000), times=1)  # the next attempt begins to write after that
        broker.faults.on(ApiKey.INIT_PRODUCER_ID, delay(1))
        assert write(df, options_for(broker, "t", "transactional")).rows == ROWS
        assert broker.faults.fired_count(ApiKey.INIT_PRODUCER_ID) == 2  # the driver's check, and the attempt that wrote
        assert committed_values(broker.bootstrap_servers, "t") == expected_values()


def test_lost_shuffle_is_computed_again_and_each_row_is_written_once(
    embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> None:
    rows = 40_000
    program = [sys.executable, "-m", "tests.spark.lost_shuffle_program"]
    arguments = [embedded_broker.bootstrap_servers, topic_name, str(rows), str(tmp_path)]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected_values(rows)


def test_write_that_fails_for_good_commits_no_half_task_and_can_be_repeated(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    options = options_for(embedded_broker, topic_name, "transactional")
    good = numbered_rows(spark, tasks=1)
    number = ROWS - 10
    bad = good.selectExpr(f"if(cast(right(value, 9) as int) = {number}, raise_error('bad row'), value) as value")
    with pytest.raises(Exception, match="bad row"):
        write(bad, options)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == []
    write(good, options)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected_values()


@pytest.mark.parametrize("stage", [fails_in_python(2), fails_in_jvm(2)], ids=["Python", "JVM"])
def test_at_least_once_loses_no_row_of_a_cut_task(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, stage: Stage
) -> None:
    report = write(stage(numbered_rows(spark)), options_for(embedded_broker, topic_name, "at_least_once"))
    assert report.rows == ROWS
    assert set(values_of(embedded_broker.bootstrap_servers, topic_name)) == set(expected_values())


@pytest.mark.parametrize("by_batch", [pytest.param(False, marks=pytest.mark.spark("4.1")), True])
@pytest.mark.parametrize("stage", [fails_in_python(1), fails_in_jvm(2)], ids=["Python", "JVM"])
def test_micro_batch_whose_rows_are_cut_off_is_written_once(
    spark: SparkSession,
    embedded_broker: EmbeddedBroker,
    topic_name: str,
    tmp_path: Path,
    stage: Stage,
    by_batch: bool,
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.txt").write_bytes(b"\n".join(expected_values()))
    options = options_for(embedded_broker, topic_name, "transactional")
    run_stream(stage(spark.readStream.text(str(source))), tmp_path / "checkpoint", options, by_batch)
    assert committed_values(embedded_broker.bootstrap_servers, topic_name) == expected_values()
