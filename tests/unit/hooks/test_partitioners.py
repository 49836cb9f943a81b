import itertools
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest

from kafkaprod.errors import InvalidRecordError
from kafkaprod.hooks.partitioners import CheckedPartitioner, RoundRobinPartitioner, make_partitioner

LEADERS = (1, -1, 2, 1)


class Fixed:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[Any] = []

    def partition(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Vectorised(Fixed):
    def partition_many(self, *arguments: Any) -> Any:
        return self.partition(*arguments)


def test_partitioner_is_told_the_count_and_the_available_partitions() -> None:
    fixed = Fixed(2)
    assert CheckedPartitioner(fixed).choose("t", b"k", b"v", LEADERS) == 2
    assert fixed.calls == [("t", b"k", b"v", 4, (0, 2, 3))]


def test_integers_of_numpy_are_accepted() -> None:
    assert CheckedPartitioner(Fixed(np.int64(3))).choose("t", None, None, LEADERS) == 3


@pytest.mark.parametrize("answer", [-1, 4, 2**40])
def test_partition_out_of_range_is_refused(answer: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"Fixed chose partition {answer} of topic 't', which has 4"):
        CheckedPartitioner(Fixed(answer)).choose("t", None, b"v", LEADERS)


@pytest.mark.parametrize("answer", [None, 1.0, "1", ValueError("broken")])
def test_failing_partitioner_is_reported_with_its_cause(answer: Any) -> None:
    with pytest.raises(InvalidRecordError, match="partitioner Fixed failed for topic 't'") as caught:
        CheckedPartitioner(Fixed(answer)).choose("t", None, b"v", LEADERS)
    assert caught.value.__cause__ is not None


def test_available_partitions_follow_the_leaders() -> None:
    fixed = Fixed(0)
    checked = CheckedPartitioner(fixed)
    for leaders in (LEADERS, LEADERS, (-1, 5)):
        checked.choose("t", None, None, leaders)
    checked.choose("u", None, None, (7,))
    assert [call[4] for call in fixed.calls] == [(0, 2, 3), (0, 2, 3), (1,), (0,)]
    assert fixed.calls[0][4] is fixed.calls[1][4]


def test_block_is_one_call_of_a_vectorised_partitioner() -> None:
    fixed = Vectorised([3, 0])
    chosen = CheckedPartitioner(fixed).choose_many("t", [b"a", None], [b"x", b"y"], LEADERS)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [3, 0]
    assert fixed.calls == [("t", [b"a", None], [b"x", b"y"], 4, (0, 2, 3))]


def test_block_is_many_calls_of_a_plain_partitioner() -> None:
    fixed = Fixed(1)
    assert CheckedPartitioner(fixed).choose_many("t", None, [b"x", b"y"], LEADERS).tolist() == [1, 1]
    assert [call[1:3] for call in fixed.calls] == [(None, b"x"), (None, b"y")]


@pytest.mark.parametrize("answer", [[1], [1, 2, 3], [[1, 2]], [1.0, 2.0], None, ValueError("broken")])
def test_block_answer_of_wrong_shape_or_type_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidRecordError, match="failed for topic 't'"):
        CheckedPartitioner(Vectorised(answer)).choose_many("t", None, [b"x", b"y"], LEADERS)


@pytest.mark.parametrize(("answer", "index"), [([0, 4], 1), ([-1, 0], 0), ([2**40, 0], 0)])
def test_block_answer_out_of_range_names_the_record(answer: list[int], index: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"for record {index} of the block, which has 4"):
        CheckedPartitioner(Vectorised(answer)).choose_many("t", None, [b"x", b"y"], LEADERS)


def test_round_robin_takes_available_partitions_in_turn_per_topic() -> None:
    turns = make_partitioner("round_robin")
    assert turns is not None
    assert [turns.choose("t", b"same", None, LEADERS) for _ in range(5)] == [0, 2, 3, 0, 2]
    assert turns.choose("u", b"same", None, LEADERS) == 0


def test_round_robin_takes_all_partitions_if_none_is_available() -> None:
    turns = CheckedPartitioner(RoundRobinPartitioner())
    assert [turns.choose("t", None, None, (-1, -1)) for _ in range(3)] == [0, 1, 0]


def test_round_robin_is_even_over_threads() -> None:
    turns = CheckedPartitioner(RoundRobinPartitioner())
    barrier = threading.Barrier(4)
    chosen: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        barrier.wait()
        mine.extend(turns.choose("t", None, None, LEADERS) for _ in range(300))

    threads = [threading.Thread(target=work, args=(each,)) for each in chosen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(itertools.chain(*chosen)) == {0: 400, 2: 400, 3: 400}


def test_option_without_partitioner_leaves_the_choice_to_the_core() -> None:
    assert make_partitioner(None) is None
    made = make_partitioner(Fixed(1))
    assert made is not None
    assert made.choose("t", None, None, LEADERS) == 1


def test_a_function_is_a_partitioner_and_is_named_in_errors() -> None:
    def last(topic: str, key: Any, value: Any, partition_count: int, available: Any) -> int:
        return partition_count - 1 if key is None else 99

    made = make_partitioner(last)
    assert made is not None
    assert made.choose("t", None, b"v", LEADERS) == 3
    with pytest.raises(InvalidRecordError, match=r"last chose partition 99 of topic 't', which has 4"):
        made.choose("t", b"k", b"v", LEADERS)
