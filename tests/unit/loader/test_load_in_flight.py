"""The manifest follows the blocks that were acknowledged, and can be read at every step."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from kafkaprod.loader.positions.in_flight import InFlight, SentBlock
from kafkaprod.loader.positions.manifest import Manifest, PartitionState, Position
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.results.block import BlockResult


class Acknowledged:
    """A result that is there, with the end of each partition that is known."""

    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends

    def done(self) -> bool:
        return True

    def first_error(self) -> None:
        return None

    def ends(self) -> dict[int, int]:
        return self._ends


def manifest() -> Manifest:
    states = {number: PartitionState(0, 0, 100) for number in range(3)}
    return Manifest("t", None, "c", 1, 0, 3, 4, {}, [{"path": "/a"}], Position(), states)


def part(rows: list[int], sent: dict[int, int | None], position: Position | None) -> SentBlock:
    """A part of a block of `rows`: the partitions that it was sent to, with the ends that the broker told."""
    ends = {number: end for number, end in sent.items() if end is not None}
    return SentBlock(
        result=cast(BlockResult, Acknowledged(ends)) if sent else None,
        source=0,
        numbers=np.arange(2, dtype=np.int64),
        rows=np.array(rows, dtype=np.int64),
        sent_to=np.array(list(sent), dtype=np.int32),
        position=position,
        byte_count=8,
        bad_count=1,
        dead_letter_bytes=0,
    )


def settled(state: Manifest, *parts: SentBlock) -> Any:
    in_flight = InFlight(state, LoadReport("t"), can_resume=True, has_least_batches=False)
    for each in parts:
        in_flight.add(each)
    seen = []
    while in_flight:
        in_flight.settle(0.0)
        read = Manifest.from_json(state.to_json())
        seen.append([(each.rows, each.sent, each.offset) for each in read.partitions.values()])
    return seen


def test_the_ends_of_all_parts_of_a_block_are_in_the_manifest() -> None:
    state = manifest()
    rows, end = [4, 2, 0], Position(0, 6, 60)
    before, after = settled(state, part(rows, {0: 104, 1: 101}, None), part(rows, {1: 102}, end))
    assert before == [(0, 0, 100)] * 3
    assert after == [(4, 4, 104), (2, 2, 102), (0, 0, 100)]
    assert (state.position, state.bad_count, state.sent_count) == (end, 1, 4)


@pytest.mark.parametrize("is_told_later", [True, False])
def test_an_end_that_a_broker_did_not_tell_holds_the_manifest_back_until_it_is_known(is_told_later: bool) -> None:
    state = manifest()
    first = part([2, 2, 0], {0: None, 1: 102}, Position(0, 4, 40))
    second = part([2, 0, 0], {0: 104 if is_told_later else None}, Position(0, 6, 60))
    before, after = settled(state, first, second)
    assert before == [(0, 0, 100)] * 3
    assert after == ([(4, 4, 104), (2, 2, 102), (0, 0, 100)] if is_told_later else before)
    assert state.position == (Position(0, 6, 60) if is_told_later else Position())


def test_rows_that_the_log_had_already_leave_its_end_as_it_was() -> None:
    state = manifest()
    state.partitions[0] = PartitionState(0, 5, 105)
    (after,) = settled(state, part([4, 2, 0], {1: 102}, Position(0, 6, 60)))
    assert after == [(4, 5, 105), (2, 2, 102), (0, 0, 100)]
