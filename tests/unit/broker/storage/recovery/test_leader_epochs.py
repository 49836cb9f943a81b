"""Leader epochs: assignment, truncation, end offsets (Kafka's answers)."""

from __future__ import annotations

import pytest

from kafkaprod.broker.storage.recovery.checkpoints import encode_epochs, parse_epochs
from kafkaprod.broker.storage.recovery.leader_epochs import EpochStart, LeaderEpochs
from kafkaprod.errors import CorruptDataError


def make_epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, offset in entries:
        epochs.assign(epoch, offset)
    return epochs


def test_only_a_newer_epoch_is_news() -> None:
    epochs = make_epochs((2, 6))
    assert not epochs.assign(2, 7)
    assert not epochs.assign(-1, 8)
    assert epochs.assign(3, 9)
    assert epochs.entries == [EpochStart(2, 6), EpochStart(3, 9)]


def test_assigning_removes_entries_that_conflict() -> None:
    epochs = make_epochs((1, 5), (2, 10), (4, 20))
    epochs.assign(3, 10)
    assert epochs.entries == [EpochStart(1, 5), EpochStart(3, 10)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),  # undefined
        (1, (1, 6)),  # below the oldest
        (2, (2, 9)),
        (3, (2, 9)),  # unknown between two known: the lower one's end
        (4, (4, 15)),
        (5, (5, 30)),  # newest: log end
        (6, (-1, -1)),  # above the newest
    ],
)
def test_end_offset_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    assert make_epochs((2, 6), (4, 9), (5, 15)).end_offset_for(epoch, 30) == expected


def test_no_epochs_know_no_end() -> None:
    assert LeaderEpochs().end_offset_for(0, 5) == (-1, -1)


def test_epoch_for_an_offset() -> None:
    epochs = make_epochs((2, 6), (4, 9))
    assert [epochs.epoch_for(offset) for offset in (5, 6, 8, 9, 99)] == [-1, 2, 2, 4, 4]


def test_truncation_at_both_ends() -> None:
    epochs = make_epochs((2, 6), (4, 9), (5, 15))
    assert epochs.truncate_from_end(15)
    assert not epochs.truncate_from_end(15)
    assert epochs.truncate_from_start(10)
    assert epochs.entries == [EpochStart(4, 10)]
    assert not epochs.truncate_from_start(3)


def test_checkpoint_text_is_kafkas() -> None:
    entries = [EpochStart(0, 0), EpochStart(3, 77)]
    assert encode_epochs(entries) == b"0\n2\n0 0\n3 77\n"
    assert parse_epochs(b"0\n2\n0 0\n3 77\n") == entries
    assert parse_epochs(b"") == []


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 0\n1 1\n", b"0\n1\n0\n", b"0\nx\n", b"0\n2\n1 5\n1 9\n", b"\xff\xfe"],
)
def test_malformed_checkpoint_is_refused_whole(content: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_epochs(content)


def test_an_epoch_without_a_record_gives_way_to_the_one_before() -> None:
    epochs = LeaderEpochs([EpochStart(0, 0), EpochStart(4, 7), EpochStart(5, 15)])
    assert epochs.assign(4, 15)
    assert epochs.entries == [(0, 0), (4, 7)]
    assert epochs.end_offset_for(0, 16) == (0, 7)
