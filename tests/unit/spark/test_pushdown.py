"""Which filters the reader takes from Spark, and what is left to read."""

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kafkaprod.spark.pushdown import Bounds


def taken(*conditions: Filter) -> tuple[list[bool], Bounds]:
    bounds = Bounds()
    return [bounds.take(condition) for condition in conditions], bounds


def test_offsets_narrow_from_both_sides() -> None:
    answers, bounds = taken(
        GreaterThan(("offset",), 3),
        GreaterThanOrEqual(("offset",), 2),
        LessThan(("offset",), 9),
        LessThanOrEqual(("offset",), 7),
        IsNotNull(("offset",)),
    )
    assert answers == [True] * 5
    assert (bounds.first, bounds.end) == (4, 8)


def test_one_offset_is_a_range_of_one() -> None:
    for condition in (EqualTo(("offset",), 5), EqualNullSafe(("offset",), 5)):
        answers, bounds = taken(condition)
        assert answers == [True]
        assert (bounds.first, bounds.end) == (5, 6)


def test_contradictions_leave_nothing() -> None:
    _, bounds = taken(EqualTo(("partition",), 1), In(("partition",), (2, 3)), EqualTo(("topic",), "a"))
    assert not any(bounds.allow("a", partition) for partition in range(5))


def test_topic_and_partition_are_chosen_together() -> None:
    answers, bounds = taken(In(("partition",), (1, 2)), EqualTo(("topic",), "a"))
    assert answers == [True, True]
    assert [bounds.allow(*place) for place in (("a", 1), ("a", 0), ("b", 1))] == [True, False, False]


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), None),
        In(("offset",), (1, 2)),
        GreaterThan(("partition",), 1),
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "a"),
        IsNotNull(("key",)),
        EqualTo(("headers", "partition"), 1),
        GreaterThan(("offset",), 1.5),
    ],
)
def test_what_cannot_be_applied_in_full_is_left_to_spark(condition: Filter) -> None:
    answers, bounds = taken(condition)
    assert answers == [False]
    assert bounds == Bounds()
