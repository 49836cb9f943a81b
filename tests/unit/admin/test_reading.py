"""Reading a range of a partition ends, whatever a broker answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkaprod.admin.reading import MAX_REFUSALS, PartitionReader
from kafkaprod.errors import CorruptDataError


def batch(first: int, last: int) -> Any:
    return SimpleNamespace(base_offset=first, last_offset=last)


def reader_of(monkeypatch: pytest.MonkeyPatch, answers: list[list[Any]]) -> tuple[PartitionReader, list[int]]:
    """A reader that gets these answers, the last one again and again; and how long it waited after each."""
    waits: list[int] = []
    client: Any = SimpleNamespace(wait=waits.append)
    reader = PartitionReader(client, "t", 0)
    monkeypatch.setattr(reader, "fetch", lambda _: answers.pop(0) if len(answers) > 1 else answers[0])
    return reader, waits


@pytest.mark.parametrize("answer", [[], [batch(0, 4)]], ids=["empty", "before its start"])
def test_answers_that_do_not_advance_end_in_an_error(monkeypatch: pytest.MonkeyPatch, answer: list[Any]) -> None:
    reader, waits = reader_of(monkeypatch, [[batch(5, 6)], answer])
    reader.end_offset = 7
    seen: list[Any] = []
    with pytest.raises(CorruptDataError, match=r"t-0: 100 answers had no record at offset 7 or later.*watermark is 7"):
        seen.extend(reader.batches(5, 10))
    assert [found.base_offset for found in seen] == [5]
    assert len(waits) == MAX_REFUSALS - 1


def test_answers_without_progress_between_others_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[list[Any]] = [[]] * (MAX_REFUSALS - 1)
    reader, _ = reader_of(monkeypatch, [*slow, [batch(0, 4)], *slow, [batch(5, 9)]])
    assert [found.base_offset for found in reader.batches(0, 10)] == [0, 5]
