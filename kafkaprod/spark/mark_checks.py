"""Looks of the driver at all write marks of a write, for rows that an earlier attempt wrote as other partitions.

A task looks at the mark of its own partition. If a write is repeated with other partitions, rows may be in Kafka under
the mark of a partition that has no task now, or none with rows. The groups of the cluster say which marks there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import DataFrame

from kafkaprod.admin.client import ClusterClient
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import BrokerError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.spark.exactly_once import TaskPlace
from kafkaprod.spark.options import TransactionOptions
from kafkaprod.spark.plan import WritePlan
from kafkaprod.spark.replay import ReplayError, is_adaptive
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.write_marks import marked_partitions, read_mark

_CURE = "The partitions must be the same in every repetition"


def check_marks(plan: WritePlan, options: TransactionOptions, tasks: Sequence[WriteReport]) -> None:
    """Look, when all tasks are done, for rows that an earlier attempt wrote as partitions that have no rows now.

    Args:
        plan: The plan of the write.
        options: Its transactions.
        tasks: The reports of all tasks.

    Raises:
        KafkaError: There are such rows: some are in Kafka twice.
        ConfigError: Another stream has the same write.id.
    """
    named = next((task for task in tasks if task.query), None)
    if named is None or any(task.has_gone_on for task in tasks):
        return  # no task had rows, or this start of the stream has written the micro-batch before: it is no repetition
    held = {task.partition for task in tasks if task.query}
    place = TaskPlace(named.query, named.batch, 0, "", named.stream)
    count = len(tasks)
    for partition in written_partitions(plan, options, place, held):
        if partition >= count:
            raise KafkaError(
                f"micro-batch {place.batch} of {place.query} has {count} partitions now, but an earlier attempt wrote "
                f"partition {partition}: some rows are in Kafka twice. {_CURE}"
            )
        raise KafkaError(
            f"partition {partition} of micro-batch {place.batch} of {place.query} has no rows now, but an earlier "
            f"attempt wrote rows of it: some rows are in Kafka twice. {_CURE}"
        )


def check_earlier(df: DataFrame, plan: WritePlan, options: TransactionOptions) -> None:
    """Refuse, before anything is sent, a repeated batch that has fewer partitions than an earlier attempt has written.

    Where the number of partitions is not known before they are computed, `check_marks` finds out later.

    Args:
        df: The rows.
        plan: The plan of a write that is no stream.
        options: Its transactions.

    Raises:
        ReplayError: An earlier attempt had more; nothing was written now.
        ConfigError: A stream has the same write.id.
    """
    assert plan.options.write_id is not None
    place = TaskPlace(plan.options.write_id, 0, 0, "", "")
    written = max(written_partitions(plan, options, place, ()), default=-1)
    if written < 0 or not hasattr(df, "_jdf") or is_adaptive(df):
        return
    count = df.rdd.getNumPartitions()
    if written >= count:
        raise ReplayError(
            f"the write {place.query} has {count} partitions now, but an earlier attempt wrote partition {written}: "
            f"nothing was written now. {_CURE}; new rows need a write.id of their own"
        )


def written_partitions(
    plan: WritePlan, options: TransactionOptions, place: TaskPlace, known: Collection[int]
) -> Iterator[int]:
    """Yield the partitions, but those that are known, whose mark says that the micro-batch is written.

    Raises:
        ConfigError: A mark is of another stream, or of something else.
        KafkaError: As a broker answered.
    """
    with ClusterClient(ProducerConfig.from_options(plan.options.kafka)) as client:
        for partition, mark_place in marked_partitions(client, options, place.query):
            if partition in known:
                continue
            try:
                mark = read_mark(client, mark_place, 0)
            except BrokerError as error:
                if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
                continue  # of an attempt that is not done
            if mark is not None:
                place.at(partition).check_owner(mark)
                if mark.batch >= place.batch:
                    yield partition
