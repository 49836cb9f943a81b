"""The log of transactional ids: what survives a restart, a compaction, a failed write; directories of Kafka."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod.broker.coordinator import internal_log
from kafkaprod.broker.coordinator.transaction import ProducerIdAndEpoch, Transaction, TransactionState
from kafkaprod.broker.coordinator.transaction_log import TransactionLog, _java_hash
from kafkaprod.broker.coordinator.transaction_records import encode_transaction
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.errors import IllegalStateError
from kafkaprod.storage.internal_records import build_batch
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import open_log

NOW_MS = 1_700_000_000_000
T0 = frozenset({TopicPartition("t", 0)})


def refuse_to_make() -> PartitionLog:
    raise IllegalStateError("there is a log")


def state(name: str, **changes: object) -> Transaction:
    return replace(Transaction(name, 4000, 1, 60_000, NOW_MS), **changes)  # type: ignore[arg-type]


def test_last_state_of_an_id_survives(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    store = TransactionLog([log], refuse_to_make, lambda: 2)
    for number in range(5):
        store.write(state("a", epoch=number))
    store.write(state("b"))
    store.write(state("c"))
    store.remove(["c"], NOW_MS)
    again = TransactionLog([log], refuse_to_make, lambda: 2)
    assert again.states == store.states == {"a": state("a", epoch=4), "b": state("b")}


def test_compaction_keeps_the_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "_COMPACT_ABOVE_BYTES", 1000)
    log = open_log(tmp_path)
    store = TransactionLog([log], refuse_to_make, lambda: 2)
    store.write(state("b"))
    assert not store.maybe_compact(NOW_MS)
    for number in range(50):
        store.write(state("a", epoch=number))
    assert store.maybe_compact(NOW_MS)
    assert log.log_start_offset == 51
    assert TransactionLog([log], refuse_to_make, lambda: 2).states == store.states


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    store = TransactionLog([log], refuse_to_make, lambda: 2)
    store.write(state("a"))
    log.close()
    with pytest.raises(Exception, match="closed"):
        store.write(state("a", epoch=7))
    with pytest.raises(Exception, match="closed"):
        store.remove(["a"], NOW_MS)
    assert store.states == {"a": state("a")}


def test_all_partitions_of_a_directory_of_kafka_are_used(tmp_path: Path) -> None:
    directories = [tmp_path / str(number) for number in range(3)]
    for directory in directories:
        directory.mkdir()
    logs = [open_log(directory) for directory in directories]
    names = ["a", "b", "c", "größe", "hello world"]
    for name in names:
        record = encode_transaction(state(name), 2)
        logs[abs(_java_hash(name)) % 3].append_internal(build_batch([record], NOW_MS), 4)
    store = TransactionLog(logs, refuse_to_make, lambda: 2)
    assert sorted(store.states) == sorted(names)
    assert store.coordinator_epoch == 4  # a lower one in markers would be refused
    before = [log.log_end_offset for log in logs]
    store.write(state("hello world", epoch=9))
    grown = [number for number, log in enumerate(logs) if log.log_end_offset > before[number]]
    assert grown == [abs(_java_hash("hello world")) % 3]
    store.remove(names, NOW_MS)
    assert TransactionLog(logs, refuse_to_make, lambda: 2).states == {}


def test_outcomes_are_found_as_long_as_the_log_has_them(tmp_path: Path) -> None:
    store = TransactionLog([open_log(tmp_path)], refuse_to_make, lambda: 2)
    decided = {"client_version": 2, "partitions": T0, "start_ms": NOW_MS}
    store.write(state("a", state=TransactionState.PREPARE_COMMIT, epoch=2, **decided))
    store.write(state("a", state=TransactionState.COMPLETE_COMMIT, epoch=2, client_version=2))
    store.write(state("a", state=TransactionState.PREPARE_ABORT, epoch=3, **decided))
    store.write(state("a", state=TransactionState.ONGOING, epoch=3, **decided))
    store.write(state("b", state=TransactionState.COMPLETE_COMMIT, epoch=0, previous_producer_id=7, client_version=2))
    store.write(state("c", state=TransactionState.PREPARE_COMMIT, epoch=6, partitions=T0))  # TV1: not certain
    wanted = {ProducerIdAndEpoch(4000, epoch) for epoch in range(8)} | {ProducerIdAndEpoch(7, 32_766)}
    assert store.find_outcomes(wanted) == {(4000, 1): True, (4000, 2): False, (7, 32_766): True}
    assert store.find_outcomes(set()) == {}


def test_log_cut_at_any_byte_holds_the_states_before_it(tmp_path: Path) -> None:
    """As a crash in the midst of a write leaves it: each whole write is there, nothing of the one that was cut."""
    (tmp_path / "whole").mkdir()
    log = open_log(tmp_path / "whole")
    store = TransactionLog([log], refuse_to_make, lambda: 2)
    path = next((tmp_path / "whole").rglob("*.log"))
    expected: list[tuple[int, dict[str, Transaction]]] = [(0, {})]
    for name, changes in (
        ("a", {"epoch": 0}),
        ("b", {}),
        ("a", {"state": TransactionState.ONGOING, "partitions": T0, "start_ms": NOW_MS}),
        ("a", {"state": TransactionState.PREPARE_COMMIT, "partitions": T0, "start_ms": NOW_MS, "client_version": 2}),
        ("a", {"state": TransactionState.COMPLETE_COMMIT, "epoch": 2, "client_version": 2}),
    ):
        store.write(state(name, **changes))
        expected.append((path.stat().st_size, dict(store.states)))
    store.remove(["b"], NOW_MS)
    expected.append((path.stat().st_size, dict(store.states)))
    log.close()
    content = path.read_bytes()
    assert len(content) == expected[-1][0] > 500
    for size in range(len(content) + 1):
        place = tmp_path / str(size)
        cut = place / path.relative_to(tmp_path / "whole")
        cut.parent.mkdir(parents=True)
        cut.write_bytes(content[:size])
        torn = open_log(place)
        states = next(states for end, states in reversed(expected) if end <= size)
        assert TransactionLog([torn], refuse_to_make, lambda: 2).states == states, size
        torn.close()
        shutil.rmtree(place)
