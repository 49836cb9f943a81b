"""Committed offsets: the table, the records, and the log they survive in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaprod.broker.coordinator import internal_log
from kafkaprod.broker.coordinator.offset_log import OffsetLog
from kafkaprod.broker.coordinator.offsets import (
    OffsetCommitValue,
    OffsetKey,
    OffsetTable,
    decode_offset,
    encode_offsets,
)
from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log.group_commit import each
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.errors import CorruptDataError, IllegalStateError
from kafkaprod.storage.batch_header import compute_crc, parse_header
from kafkaprod.storage.internal_records import TransactionOwner, build_batch
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import make_environment, open_log

NOW_MS = 1_700_000_000_000
ORDERS_0 = OffsetKey("g", TopicPartition("orders", 0))
ORDERS_1 = OffsetKey("g", TopicPartition("orders", 1))
OTHER = OffsetKey("other", TopicPartition("orders", 0))


def at(offset: int, timestamp_ms: int = NOW_MS) -> OffsetCommitValue:
    return OffsetCommitValue(offset, 3, "note", timestamp_ms)


def refuse_to_make() -> PartitionLog:
    raise IllegalStateError("there is a log")


def test_table_finds_by_group_and_topic() -> None:
    table = OffsetTable()
    for number, key in enumerate((ORDERS_0, ORDERS_1, OTHER)):
        table.put(key, at(number))
    assert table.of_group("g") == {ORDERS_0.topic_partition: at(0), ORDERS_1.topic_partition: at(1)}
    assert table.keys(group_id="g") == [ORDERS_0, ORDERS_1]
    assert table.keys(topic="orders") == [ORDERS_0, ORDERS_1, OTHER]
    table.put(OTHER, None)
    table.put(OTHER, None)
    assert (len(table), table.has_group("other"), table.group_ids()) == (2, False, ["g"])


@pytest.mark.parametrize(
    ("commit_ms", "start_ms", "is_active", "now_ms", "is_expired"),
    [
        (0, 0, False, 99, False),
        (0, 0, False, 100, True),
        (0, 50, False, 149, False),
        (0, 50, False, 150, True),
        (0, 0, True, 1000, False),
    ],
)
def test_offset_expires_after_the_commit_the_start_and_the_last_member(
    commit_ms: int, start_ms: int, is_active: bool, now_ms: int, is_expired: bool
) -> None:
    table = OffsetTable()
    table.put(ORDERS_0, at(1, commit_ms))
    active_ids = {"g"} if is_active else set()
    assert table.expired(active_ids, start_ms, now_ms, 100) == ([ORDERS_0] if is_expired else [])


def test_group_that_lost_its_members_keeps_its_offsets_for_the_retention_time() -> None:
    table = OffsetTable()
    table.put(ORDERS_0, at(1, 0))
    assert table.expired({"g"}, 0, 500, 100) == []
    assert table.expired(set(), 0, 599, 100) == []
    assert table.expired(set(), 0, 600, 100) == [ORDERS_0]


def test_records_carry_what_they_were_made_of() -> None:
    changes = [(ORDERS_0, at(7)), (OffsetKey("größe", TopicPartition("t", 9)), at(2**40)), (ORDERS_1, None)]
    records = encode_offsets(changes)
    assert [decode_offset(key, value) for key, value in records] == changes


def test_record_of_an_offset_equals_kafkas_layout() -> None:
    [(key, value)] = encode_offsets([(ORDERS_0, OffsetCommitValue(5, 1, "m", 9))])
    assert key == bytes.fromhex("0001 0001 67 0006 6f7264657273 00000000")
    assert value == bytes.fromhex("0003 0000000000000005 00000001 0001 6d 0000000000000009")


def test_older_value_without_leader_epoch_is_read() -> None:
    key = encode_offsets([(ORDERS_0, None)])[0][0]
    value = bytes.fromhex("0001 0000000000000005 0001 6d 0000000000000009 0000000000000010")
    assert decode_offset(key, value) == (ORDERS_0, OffsetCommitValue(5, -1, "m", 9))


def test_record_of_a_group_is_passed_over() -> None:
    assert decode_offset(bytes.fromhex("0002 0001 67"), b"whatever") is None


def test_record_cut_anywhere_raises() -> None:
    [(key, value)] = encode_offsets([(ORDERS_0, at(5))])
    assert value is not None
    for size in range(len(key)):
        with pytest.raises(CorruptDataError, match="offset record"):
            decode_offset(key[:size], value)
    for size in range(len(value)):
        with pytest.raises(CorruptDataError, match="offset record"):
            decode_offset(key, value[:size])


def test_internal_batch_is_valid_and_holds_its_records() -> None:
    records = [(b"k" * size, None if size % 3 == 0 else b"v" * size) for size in (1, 63, 64, 9000, 3)]
    batch = memoryview(build_batch(records, NOW_MS))
    header = parse_header(batch)
    assert header.crc == compute_crc(batch, 0, len(batch))
    assert header.size_bytes == len(batch)
    assert [(record.key, record.value) for record in iterate_records(batch)] == records


def test_log_brings_the_table_back(tmp_path: Path) -> None:
    log = open_log(tmp_path, environment=make_environment(policy=each()))
    store = OffsetLog(log, refuse_to_make)
    store.write([(ORDERS_0, at(1)), (ORDERS_1, at(2))], NOW_MS)
    store.write([(ORDERS_0, at(10)), (ORDERS_1, None)], NOW_MS)
    store.write([], NOW_MS)
    assert OffsetLog(log, refuse_to_make).table.of_group("g") == {ORDERS_0.topic_partition: at(10)}
    log.close()
    assert OffsetLog(open_log(tmp_path), refuse_to_make).table.of_group("g") == {ORDERS_0.topic_partition: at(10)}


def test_log_is_made_by_the_first_write(tmp_path: Path) -> None:
    made: list[PartitionLog] = []

    def make() -> PartitionLog:
        made.append(open_log(tmp_path))
        return made[-1]

    store = OffsetLog(None, make)
    assert not store.maybe_compact(NOW_MS)
    store.write([], NOW_MS)
    assert made == []
    store.write([(ORDERS_0, at(1))], NOW_MS)
    store.write([(ORDERS_1, at(1))], NOW_MS)
    assert len(made) == 1


def test_log_of_many_batches_and_reads_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "_READ_BYTES", 500)
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    keys = [OffsetKey(f"group {number}", TopicPartition("t", number)) for number in range(2500)]
    store.write([(key, at(number)) for number, key in enumerate(keys)], NOW_MS)
    for number, key in enumerate(keys[:50]):
        store.write([(key, at(number + 1))], NOW_MS)
    assert dict(OffsetLog(log, refuse_to_make).table.items()) == dict(store.table.items())


def test_compaction_keeps_the_table_and_drops_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "_COMPACT_ABOVE_BYTES", 1000)
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    store.write([(ORDERS_0, at(0))], NOW_MS)
    assert not store.maybe_compact(NOW_MS)
    for number in range(50):
        store.write([(ORDERS_1, at(number))], NOW_MS)
    end_offset = log.log_end_offset
    assert store.maybe_compact(NOW_MS)
    assert log.log_start_offset == end_offset
    again = OffsetLog(log, refuse_to_make)
    assert again.table.of_group("g") == {ORDERS_0.topic_partition: at(0), ORDERS_1.topic_partition: at(49)}


def test_failed_write_leaves_the_table_unchanged(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    store.write([(ORDERS_0, at(1))], NOW_MS)
    log.close()
    with pytest.raises(Exception, match="closed"):
        store.write([(ORDERS_0, at(2))], NOW_MS)
    assert store.table.of_group("g") == {ORDERS_0.topic_partition: at(1)}
    assert os.listdir(tmp_path)


# -- transactions ------------------------------------------------------------------------------------------------------

WRITER = TransactionOwner(4000, 2)


def add_marker(log: PartitionLog, store: OffsetLog, *, is_commit: bool, writer: TransactionOwner = WRITER) -> None:
    log.append_marker(writer.producer_id, writer.epoch, EndTransactionMarker(is_commit, 0), 0)
    store.end_transaction(writer.producer_id, is_commit=is_commit)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("reopens", [True, False])
def test_offset_of_a_transaction_waits_for_the_marker(tmp_path: Path, is_commit: bool, reopens: bool) -> None:
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    store.write([(ORDERS_0, at(1))], NOW_MS)
    store.write([(ORDERS_0, at(5)), (ORDERS_1, at(6))], NOW_MS, WRITER)
    if reopens:
        store = OffsetLog(log, refuse_to_make)
    assert store.table.of_group("g") == {ORDERS_0.topic_partition: at(1)}
    assert store.table.is_pending(ORDERS_0)
    assert store.table.is_pending(ORDERS_1)
    assert store.table.keys(group_id="g") == [ORDERS_0, ORDERS_1]
    add_marker(log, store, is_commit=is_commit)
    expected = {ORDERS_0.topic_partition: at(1)}
    if is_commit:
        expected = {ORDERS_0.topic_partition: at(5), ORDERS_1.topic_partition: at(6)}
    assert store.table.of_group("g") == OffsetLog(log, refuse_to_make).table.of_group("g") == expected
    assert not store.table.is_pending(ORDERS_0)


def test_tombstone_drops_the_pending_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    store.write([(ORDERS_0, at(5))], NOW_MS, WRITER)
    store.write([(ORDERS_0, None)], NOW_MS)
    assert not store.table.has_group("g")
    add_marker(log, store, is_commit=True)
    assert store.table.of_group("g") == OffsetLog(log, refuse_to_make).table.of_group("g") == {}


@pytest.mark.parametrize("is_commit", [True, False])
def test_rewritten_log_keeps_what_is_pending_and_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    """Of a pending offset and a commit outside the transaction the later one wins, also after a compaction."""
    monkeypatch.setattr(internal_log, "_COMPACT_ABOVE_BYTES", 1000)
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    other = TransactionOwner(4001, 0)
    for number in range(50):
        store.write([(OTHER, at(number))], NOW_MS)
    store.write([(ORDERS_0, at(1))], NOW_MS)
    store.write([(ORDERS_0, at(2)), (ORDERS_1, at(2))], NOW_MS, WRITER)
    store.write([(ORDERS_1, at(3))], NOW_MS)
    store.write([(ORDERS_1, at(4))], NOW_MS, other)
    assert store.maybe_compact(NOW_MS)
    assert log.log_start_offset > 50
    for read in (store, OffsetLog(log, refuse_to_make)):
        assert read.table.of_group("g") == {ORDERS_0.topic_partition: at(1), ORDERS_1.topic_partition: at(3)}
    add_marker(log, store, is_commit=is_commit)
    add_marker(log, store, is_commit=False, writer=other)
    expected = {ORDERS_0.topic_partition: at(2 if is_commit else 1), ORDERS_1.topic_partition: at(3)}
    assert store.table.of_group("g") == OffsetLog(log, refuse_to_make).table.of_group("g") == expected
    assert log.last_stable_offset == log.log_end_offset


def test_offset_of_a_fenced_producer_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    store = OffsetLog(log, refuse_to_make)
    store.write([(ORDERS_0, at(5))], NOW_MS, WRITER)
    with pytest.raises(RecordsRefusedError) as raised:
        store.write([(ORDERS_0, at(6))], NOW_MS, WRITER._replace(epoch=1))
    assert raised.value.code == 47
    add_marker(log, store, is_commit=True)
    assert store.table.of_group("g") == {ORDERS_0.topic_partition: at(5)}


def test_offsets_of_a_group_do_not_expire_while_a_transaction_may_commit_others() -> None:
    table = OffsetTable()
    table.put(ORDERS_0, at(1, 0))
    table.put_pending(4000, ORDERS_0, at(2, 0), 7)
    assert table.expired(set(), 0, 1000, 100) == []
    table.end_transaction(4000, is_commit=False)
    assert table.expired(set(), 0, 1000, 100) == [ORDERS_0]
