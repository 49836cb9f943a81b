"""A range is read to its end: an answer without records is not the end, and lost records are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod.admin.topics import READ_COMMITTED, READ_UNCOMMITTED
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.spark import range_reader
from kafkaprod.spark.range_reader import RangeReader
from kafkaprod.spark.ranges import TopicRange


def batch(first: int, last: int, *, is_control: bool = False) -> Any:
    return SimpleNamespace(base_offset=first, last_offset=last, is_control=is_control)


OUT_OF_RANGE = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, topic="t", partition=0)


def reader_of(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[Any],
    *,
    isolation: int = READ_UNCOMMITTED,
    fails_on_loss: bool = True,
    log_start: int = 0,
    hidden: tuple[int, ...] = (),
    patience_s: float = 60,
) -> tuple[RangeReader, list[int]]:
    """A reader of offsets 0 to 9 that gets these answers, and the offsets that it requests."""
    requested: list[int] = []

    class Answers:
        end_offset = 4

        def __init__(self, client: object, topic: str, partition: int, level: int) -> None:
            assert level == isolation

        def fetch(self, offset: int) -> list[Any]:
            requested.append(offset)
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        def is_visible(self, batch: Any) -> bool:
            return batch.base_offset not in hidden

    monkeypatch.setattr(range_reader, "PartitionReader", Answers)
    monkeypatch.setattr(range_reader, "log_offsets", lambda *_: {0: log_start})
    options: Any = SimpleNamespace(isolation=isolation, fails_on_loss=fails_on_loss)
    client: Any = None
    return RangeReader(client, TopicRange("t", 0, 0, 10), options, patience_s), requested


def offsets(reader: RangeReader) -> list[int]:
    return [batch.base_offset for batch in reader.batches()]


def test_answer_without_records_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, requested = reader_of(monkeypatch, [[batch(0, 4)], [], [], [batch(5, 12), batch(13, 14)]])
    assert offsets(reader) == [0, 5]
    assert requested == [0, 5, 5, 5]


def test_end_that_does_not_come_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = reader_of(monkeypatch, [[batch(0, 3)], []], patience_s=-1)
    with pytest.raises(KafkaError, match=r"t\[0\] should be read up to offset 10, .* from 4 on .* ends at 4"):
        offsets(reader)


def test_lost_records_are_named_unless_what_is_left_is_wanted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, _ = reader_of(monkeypatch, [[batch(0, 1)], OUT_OF_RANGE], log_start=7)
    with pytest.raises(KafkaError, match=r"offsets 2\.\.6 of t\[0\] .* begins at 7 now: retention or deletion"):
        offsets(reader)
    reader, requested = reader_of(
        monkeypatch, [[batch(0, 1)], OUT_OF_RANGE, [batch(7, 9)]], log_start=7, fails_on_loss=False
    )
    assert offsets(reader) == [0, 7]
    assert requested == [0, 2, 7]
    assert "offsets 2..6 of t[0]" in caplog.text


def test_range_of_which_nothing_is_left_ends_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = reader_of(monkeypatch, [OUT_OF_RANGE], log_start=50, fails_on_loss=False)
    assert offsets(reader) == []


def test_truncated_log_is_an_error_also_where_loss_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _ = reader_of(monkeypatch, [OUT_OF_RANGE], fails_on_loss=False)
    with pytest.raises(KafkaError, match="its log ends before that"):
        offsets(reader)


@pytest.mark.parametrize(("isolation", "seen"), [(READ_COMMITTED, [0]), (READ_UNCOMMITTED, [0, 3])])
def test_aborted_records_are_left_out_if_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, isolation: int, seen: list[int]
) -> None:
    answer = [batch(0, 2), batch(3, 8), batch(9, 9, is_control=True)]
    reader, _ = reader_of(monkeypatch, [answer], isolation=isolation, hidden=(3, 9))
    assert offsets(reader) == seen
