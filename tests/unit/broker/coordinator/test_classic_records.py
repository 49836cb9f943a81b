"""Records of classic groups: Kafka's bytes, and what is read of older and newer versions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkaprod.broker.coordinator import internal_log
from kafkaprod.broker.coordinator.classic_records import (
    decode_key,
    encode_key,
    group_record,
    group_tombstone,
    read_group,
)
from kafkaprod.broker.coordinator.consumer_records import group_record as consumer_group_record
from kafkaprod.broker.coordinator.group import Group, GroupState
from kafkaprod.broker.coordinator.member import GroupConfig, JoinAttempt, SyncAttempt
from kafkaprod.broker.coordinator.offset_log import OffsetLog
from kafkaprod.errors import CorruptDataError
from tests.support.broker.fixtures_log import open_log

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)


def stable_group(*instance_ids: str | None) -> Group:
    """Return a group whose members have an assignment each."""
    group = Group("g", CONFIG, iter(range(10)).__next__)
    for number, instance_id in enumerate(instance_ids):
        attempt = JoinAttempt(
            "", instance_id, f"c{number}", "h", 6_000, 9_000, "consumer", {"range": b"wants", "x": b""}, False, False
        )
        group.join(attempt, 0, lambda _: None)
    assignments = {member_id: b"gets %d" % number for number, member_id in enumerate(group.members)}
    for member_id in list(group.members):
        if group.state is GroupState.PREPARING:
            again = attempt._replace(member_id=member_id, instance_id=group.members[member_id].instance_id)
            group.join(again, 0, lambda _: None)
    for member_id in group.members:
        sync = SyncAttempt(member_id, None, group.generation_id, None, None, assignments)
        group.sync(sync, 0, lambda _: None)
    return group


def text(content: str) -> bytes:
    return struct.pack(">h", len(content)) + content.encode()


def blob(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def test_the_record_has_kafkas_bytes() -> None:
    key, value = group_record(stable_group(None), 77)
    assert key == b"\x00\x02" + text("g")
    member = text("c0-0") + struct.pack(">h", -1) + text("c0") + text("h") + struct.pack(">ii", 9_000, 6_000)
    group = text("consumer") + struct.pack(">i", 1) + text("range") + text("c0-0") + struct.pack(">q", 77)
    assert value == b"\x00\x03" + group + struct.pack(">i", 1) + member + blob(b"wants") + blob(b"gets 0")


def test_a_group_is_read_as_it_was() -> None:
    group = stable_group(None, "static")
    key, value = group_record(group, 0)
    assert decode_key(key) == "g"
    assert value is not None
    read = read_group("g", value, CONFIG, 1_000)
    assert (read.state, read.generation_id, read.protocol_name) == (GroupState.STABLE, group.generation_id, "range")
    assert (read.leader_id, list(read.members)) == (group.leader_id, list(group.members))
    assert read.roster.static_ids == group.roster.static_ids
    for member_id, member in group.members.items():
        found = read.members[member_id]
        assert (found.assignment, found.protocols) == (member.assignment, {"range": b"wants"})
        assert (found.session_timeout_ms, found.rebalance_timeout_ms) == (6_000, 9_000)
        assert found.session_deadline_ms == 7_000


def test_an_empty_group_keeps_its_generation() -> None:
    group = stable_group(None)
    for member_id in list(group.members):
        group.leave(member_id, None, 0)
    _, value = group_record(group, 0)
    assert value is not None
    read = read_group("g", value, CONFIG, 0)
    assert (read.state, read.generation_id, read.protocol_type) == (GroupState.EMPTY, 2, "consumer")
    assert (read.protocol_name, read.leader_id) == (None, None)


def test_version_0_has_no_rebalance_timeout() -> None:
    member = text("m") + text("c") + text("h") + struct.pack(">i", 6_000) + blob(b"wants") + blob(b"gets")
    value = b"\x00\x00" + text("consumer") + struct.pack(">i", 5) + text("range") + text("m")
    read = read_group("g", value + struct.pack(">i", 1) + member, CONFIG, 0)
    assert (read.generation_id, read.members["m"].rebalance_timeout_ms) == (5, 6_000)


@pytest.mark.parametrize("value", [b"\x00\x03", b"\x00\x09", b""], ids=["short", "version 9", "empty"])
def test_damaged_records_are_refused(value: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_group("g", value, CONFIG, 0)


def test_keys_of_other_records_are_left_alone() -> None:
    assert decode_key(b"") is None
    assert decode_key(consumer_group_record("g", 1, 0)[0]) is None
    assert decode_key(encode_key("group")) == "group"


def test_a_log_keeps_groups_and_drops_those_that_change_their_protocol(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    offsets = OffsetLog(log, lambda: log)
    offsets.write_group_records([group_record(stable_group(None), 0)], 0)
    assert OffsetLog(log, lambda: log).classic_groups == offsets.classic_groups != {}
    offsets.write_group_records([consumer_group_record("g", 1, 0)], 0)
    assert (offsets.classic_groups, list(offsets.group_records)) == ({}, ["g"])
    again = OffsetLog(log, lambda: log)
    assert (again.classic_groups, list(again.group_records)) == ({}, ["g"])
    offsets.write_group_records([group_record(stable_group(None), 0), group_tombstone("g")], 0)
    assert OffsetLog(log, lambda: log).classic_groups == {}


def test_a_rewritten_log_has_the_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_log, "_COMPACT_ABOVE_BYTES", 0)
    log = open_log(tmp_path)
    offsets = OffsetLog(log, lambda: log)
    for now_ms in range(40):
        offsets.write_group_records([group_record(stable_group(None), now_ms)], now_ms)
    assert offsets.maybe_compact(0)
    assert log.log_start_offset > 0
    assert OffsetLog(log, lambda: log).classic_groups == offsets.classic_groups


def test_a_rewritten_log_has_a_batch_for_each_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's record may be as long as a batch."""
    monkeypatch.setattr(internal_log, "_COMPACT_ABOVE_BYTES", 0)
    log = open_log(tmp_path)
    offsets = OffsetLog(log, lambda: log)
    for name in ["g", "h"] * 20:
        offsets.write_group_records([(encode_key(name), group_record(stable_group(None), 0)[1])], 0)
    counts: list[int] = []

    def build(records: list[object], *arguments: object, **options: object) -> bytearray:
        counts.append(len(records))
        return build_batch(records, *arguments, **options)  # type: ignore[arg-type]

    build_batch = internal_log.build_batch
    monkeypatch.setattr(internal_log, "build_batch", build)
    assert offsets.maybe_compact(0)
    assert counts == [1, 1]
