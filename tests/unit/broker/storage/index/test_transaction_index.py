"""Transaction index: Kafka's bytes, overlap queries."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction, TransactionIndex, read_entries
from kafkaprod.storage.disk import Disk

FIRST = AbortedTransaction(producer_id=7, first_offset=10, last_offset=20, last_stable_offset=15)
SECOND = AbortedTransaction(producer_id=8, first_offset=15, last_offset=30, last_stable_offset=31)


def test_file_appears_with_the_first_entry_in_kafkas_layout(tmp_path: Path) -> None:
    path = str(tmp_path / "0.txnindex")
    index = TransactionIndex(Disk(), path)
    assert not os.path.exists(path)
    index.append(FIRST)
    index.append(SECOND)
    expected = struct.pack(">hqqqq", 0, 7, 10, 20, 15) + struct.pack(">hqqqq", 0, 8, 15, 30, 31)
    assert (tmp_path / "0.txnindex").read_bytes() == expected == index.content()
    assert read_entries(path) == [FIRST, SECOND]


def test_query_returns_overlapping_transactions(tmp_path: Path) -> None:
    index = TransactionIndex(Disk(), str(tmp_path / "0.txnindex"), [FIRST, SECOND])
    assert index.collect(0, 10) == ([], True)
    assert index.collect(0, 16) == ([FIRST, SECOND], True)
    assert index.collect(21, 40) == ([SECOND], False)
    assert index.collect(31, 40) == ([], False)


def test_truncate_drops_markers_at_or_above_the_offset(tmp_path: Path) -> None:
    path = str(tmp_path / "0.txnindex")
    index = TransactionIndex(Disk(), path)
    index.append(FIRST)
    index.append(SECOND)
    index.truncate_to(30)
    assert read_entries(path) == [FIRST]
    index.truncate_to(0)
    assert not os.path.exists(path)


def test_file_of_impossible_size_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    path.write_bytes(b"x" * 33)
    assert read_entries(str(path)) == []
