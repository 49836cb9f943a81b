"""Whether the rows of a repeated task are those that were written: their number, or their content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.spark.options import CONTENT, NONE, TransactionOptions
from kafkaprod.spark.write_marks import WriteMark

_MASK: Final = (1 << 64) - 1


class ReplayError(KafkaError):
    """A repeated task has other rows than those that are in Kafka; nothing was written now."""


class RowCount:
    """Counts the rows that pass, and sums up their content if that is wanted; the order makes no difference."""

    def __init__(self, options: TransactionOptions) -> None:
        self.rows = 0
        self.checksum: int | None = 0 if options.verify == CONTENT else None

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches and count their rows."""
        for batch in batches:
            self.rows += batch.num_rows
            if self.checksum is not None:
                self.checksum = (self.checksum + _sum(batch)) & _MASK
            yield batch


def _sum(batch: pa.RecordBatch) -> int:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return sum(int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest(), "big") for row in rows)


def check_rows(options: TransactionOptions, mark: WriteMark, batches: Iterable[pa.RecordBatch], task: str) -> None:
    """Compare the rows of a task with those that an earlier attempt has written.

    Raises:
        ReplayError: They differ.
    """
    if options.verify == NONE:
        return
    count = RowCount(options)
    for _ in count.watch(batches):
        pass
    is_other = mark.checksum is not None and count.checksum is not None and mark.checksum != count.checksum
    if count.rows != mark.rows or is_other:
        raise ReplayError(
            f"{task} has {count.rows} rows, but other ones were written by an earlier attempt "
            f"({mark.rows} rows): the rows of a partition must be the same whenever they are computed. They are not "
            "with random or current values, an unordered limit, other shuffle partitions, or a changed source or "
            "program. A new batch needs a write.id of its own"
        )


def check_frame(df: DataFrame, options: TransactionOptions) -> None:
    """Refuse a DataFrame whose partitions may come out differently when they are computed again.

    Spark Connect does not show the plan; there only the rows of repeated tasks are compared.

    Raises:
        ConfigError: It computes random or current values, has a limit without an order, or Spark may choose other
            partitions.
    """
    if options.verify == CONTENT or not hasattr(df, "_jdf"):
        return
    execution = df._jdf.queryExecution()
    cure = "or set verify.replay=content, which makes a different repetition an error"
    if not execution.analyzed().deterministic():
        raise ConfigError(
            "delivery=transactional needs the same rows when a partition is computed again, but this DataFrame has "
            "expressions such as rand(), input_file_name() or monotonically_increasing_id(), which Spark counts among "
            f"those of changing values: store its rows first, {cure}"
        )
    if _has_current_values(df, execution.analyzed()):
        raise ConfigError(
            "delivery=transactional needs the same rows when a write is repeated, but this DataFrame has the current "
            f"time, date or user: store its rows first, or give the value as a literal, {cure}"
        )
    if _has_unordered_limit(execution.analyzed()):
        raise ConfigError(
            "delivery=transactional needs the same rows when a write is repeated, but this DataFrame has a limit() or "
            f"offset() of rows without an order: put orderBy() before it, {cure}"
        )
    if is_adaptive(df):
        raise ConfigError(
            "delivery=transactional needs the same partitions when a write is repeated, but Spark chooses those of "
            f"this DataFrame by the sizes it meets: set spark.sql.adaptive.enabled=false, {cure}"
        )


def _has_current_values(df: Any, plan: Any) -> bool:
    pattern = df.sparkSession.sparkContext._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return bool(plan.containsPattern(pattern))


_LIMITS: Final = frozenset(("GlobalLimit", "LocalLimit", "Offset", "Tail"))
_KEEP_ORDER: Final = _LIMITS | {"Project", "Filter", "SubqueryAlias"}


def _has_unordered_limit(plan: Any) -> bool:
    """Whether a plan takes the first rows of what has no order."""
    name = plan.getClass().getSimpleName()
    children = plan.children()
    below = [children.apply(i) for i in range(children.size())]
    if name in _LIMITS:
        node = plan
        while node.getClass().getSimpleName() in _KEEP_ORDER:
            node = node.children().apply(0)
        if node.getClass().getSimpleName() != "Sort":
            return True
    return any(map(_has_unordered_limit, below))


def is_adaptive(df: Any) -> bool:
    """Return whether Spark chooses partitions of a DataFrame while it computes them."""
    plan = df._jdf.queryExecution().executedPlan()
    return bool(plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec")
