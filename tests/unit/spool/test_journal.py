"""The journal of a slot: what is written is found again, and no failure of the disk leaves half an entry."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkaprod.errors import ConfigError, IllegalStateError
from kafkaprod.spool.entries import FORMAT_VERSION, RANK_MASK, Incarnation, JournalPlace
from kafkaprod.spool.journal import DAMAGED_SUFFIX, Journal
from kafkaprod.spool.recovery import Recovered, recover
from kafkaprod.spool.reserve import CONTROL_RESERVE_BYTES
from kafkaprod.storage.batch_header import parse_header, seal_header
from kafkaprod.storage.disk import Disk
from tests.support.broker.fixtures_log import FaultyDisk, failing, flip_bit, make_batch
from tests.support.broker.memory_bytes import MemoryBytes

TOPIC_ID = bytes(range(16))
NO_LIMIT = 1 << 30


def open_journal(
    directory: Path, *, max_bytes: int = NO_LIMIT, segment_bytes: int = NO_LIMIT, disk: Disk | None = None
) -> Journal:
    directory.chmod(stat.S_IRWXU)
    return Journal(str(directory), max_bytes, segment_bytes, disk or FaultyDisk())


def stored_batch(batch: bytes, offset: int, mark: int, reference: int, rank: int) -> bytes:
    """Return a batch as a journal has it."""
    entry = bytearray(batch)
    header = parse_header(entry)._replace(
        base_offset=offset,
        partition_leader_epoch=mark,
        producer_id=reference,
        producer_epoch=0,
        base_sequence=rank & RANK_MASK,
    )
    seal_header(memoryview(entry), header)
    return bytes(entry)


def append(journal: Journal, reference: int, batch: bytes) -> int:
    """Append a batch to a journal; return the rank of its first record."""
    journal.roll()
    rank, count = journal.state.table[reference].next_rank, parse_header(batch).record_count
    entry = stored_batch(batch, journal.next_offset, journal.mark, reference, rank)
    journal.append(entry, journal.next_offset + count, [(reference, rank + count)])
    return rank


def resolve(journal: Journal, reference: int, rank: int, offset: int) -> None:
    """Note that a partition is resolved up to a rank, and remove what has no other records."""
    journal.resolve({reference: (rank, offset)}, 1)
    journal.free()


def batch_of(*values: str) -> bytes:
    return bytes(make_batch([value.encode() for value in values], producer_id=7, epoch=3, sequence=0))


def images(directory: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in directory.glob("*.log")}


def recovered(segments: dict[int, bytes], *, by_headers: bool = False) -> Recovered:
    return recover({offset: MemoryBytes(data) for offset, data in segments.items()}, by_headers=by_headers)


def ranks(found: Recovered) -> dict[int, list[int]]:
    """Reference -> the ranks that are left to send, in order."""
    left: dict[int, list[int]] = {reference: [] for reference in found.state.table}
    for batch in found.unresolved:
        left[batch.reference] += range(batch.rank, batch.last_rank + 1)
    return left


def fill(journal: Journal, reference: int) -> tuple[int, OSError]:
    """Append until nothing more has room; return how many batches had, and the refusal."""
    for count in range(1000):
        try:
            append(journal, reference, batch_of("value"))
        except OSError as error:
            return count, error
    pytest.fail("the journal has no limit")


def write_mixed(journal: Journal) -> list[tuple[int, int]]:
    """Write batches of two partitions with all kinds of control entries; return (reference, rank) of each record."""
    orders, bills = journal.enter("orders", TOPIC_ID, 0, 1), journal.enter("bills", TOPIC_ID, 5, 6)
    journal.begin_incarnations([(orders, Incarnation(7, 3, 0))])
    written = []
    for _ in range(6):
        for reference, values in ((orders, ("a", "b")), (bills, ("c",))):
            rank = append(journal, reference, batch_of(*values))
            written += [(reference, rank + delta) for delta in range(len(values))]
    journal.begin_incarnations([(bills, Incarnation(7, 4, 0))])
    journal.resolve({orders: (2, 55)}, 1)
    return [record for record in written if record not in ((orders, 0), (orders, 1))]


def test_a_journal_that_is_opened_again_has_what_was_written(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    written = write_mixed(journal)
    journal.close()
    again = open_journal(tmp_path)
    found = again.recovered
    assert sorted((key, rank) for key, left in ranks(found).items() for rank in left) == sorted(written)
    orders, bills = found.state.table[0], found.state.table[1]
    assert (orders.topic, orders.topic_id, orders.partition, orders.next_rank) == ("orders", TOPIC_ID, 0, 12)
    assert (orders.resolved_rank, orders.last_offset, orders.incarnation) == (2, 55, Incarnation(7, 3, 0))
    assert (bills.partition, bills.partition_count, bills.incarnation) == (5, 6, Incarnation(7, 4, 0))
    assert (found.damaged, found.lost, found.unassigned) == (set(), {}, [])
    assert again.enter("bills", TOPIC_ID, 5, 6) == 1
    assert append(again, 1, batch_of("d")) == 6


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    offset = journal.next_offset
    append(journal, reference, batch_of("a", "b"))
    journal.close()
    again = open_journal(tmp_path)
    batch = again.recovered.unresolved[0]
    entry = stored_batch(batch_of("a", "b"), offset, journal.mark, reference, 0)
    assert again.read(batch.segment, batch.position, batch.size_bytes) == entry


def test_a_cut_at_every_byte_costs_only_what_was_not_written_completely(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    write_mixed(journal)
    (data,) = images(tmp_path).values()
    complete = recovered({0: data})
    ends = {batch.position + batch.size_bytes: batch for batch in complete.unresolved}
    for size in range(len(data)):
        found = recovered({0: data[:size]})
        whole = {batch[3:] for end, batch in ends.items() if end <= size}
        assert whole <= {batch[3:] for batch in found.unresolved}, size
        assert (found.damaged, found.lost, found.unassigned) == (set(), {}, []), size
        assert found.valid_bytes[0] <= size


def test_a_journal_that_was_cut_goes_on(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abc":
        append(journal, reference, batch_of(value))
    journal.close()
    (data,) = images(tmp_path).values()
    for size in range(len(data) - len(batch_of("c")), len(data)):
        for path in tmp_path.glob("*.log"):
            path.unlink()
        (tmp_path / f"{0:020d}.log").write_bytes(data[:size])
        again = open_journal(tmp_path)
        assert ranks(again.recovered) == {0: [0, 1]}
        assert append(again, reference, batch_of("d")) == 2
        again.close()
        found = recovered(images(tmp_path))
        assert (ranks(found), found.damaged, found.lost) == ({0: [0, 1, 2]}, set(), {})


def spoiled(data: bytes) -> dict[str, bytes]:
    """Every byte of a segment inverted in one bit, and holes of zeros."""
    found = {f"bit {bit}": flip_bit(data, bit) for bit in range(3, len(data) * 8, 8)}
    for start in range(0, len(data), 31):
        found[f"hole at {start}"] = data[:start] + bytes(min(97, len(data) - start)) + data[start + 97 :]
    return found


@pytest.mark.parametrize("truncates", [True, False])
def test_what_a_refused_sync_may_have_lost_is_written_again_elsewhere(tmp_path: Path, truncates: bool) -> None:
    refused = {"fdatasync"}

    def fail(name: str, path: str) -> int | None:
        is_refused = name in refused and (name == "fdatasync" or path.endswith(f"{0:020d}.log"))
        return errno.EIO if is_refused else None

    journal = open_journal(tmp_path, disk=(disk := FaultyDisk()))
    orders = journal.enter("orders", TOPIC_ID, 0, 1)
    append(journal, orders, batch_of("a"))
    journal.sync()
    bills = journal.enter("bills", TOPIC_ID, 5, 6)
    append(journal, bills, batch_of("b"))
    append(journal, orders, batch_of("c", "d"))
    journal.begin_incarnations([])
    append(journal, orders, batch_of("e"))
    resolve(journal, orders, 1, 9)
    place = append(journal, bills, batch_of("f"))
    assert place == 1
    end = journal.size_bytes
    disk.fail = fail
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    with pytest.raises(OSError, match="has failed before"):
        append(journal, orders, batch_of("g"))
    with pytest.raises(OSError, match="Input/output"):  # nor does a new file take it
        journal.begin_again()
    assert journal.failure is not None
    refused.clear()
    if not truncates:
        refused.add("truncate")
    moved = journal.begin_again()
    assert (moved.old_segment, journal.failure) == (0, None)
    last = images(tmp_path)[0][end - len(batch_of("f")) : end] if not truncates else None
    entry = journal.read(moved.segment, end - len(batch_of("f")) + moved.distance, len(batch_of("f")))
    assert parse_header(entry).producer_id == bills
    assert last is None or entry[12:] == last[12:]  # but for its offset
    assert append(journal, orders, batch_of("h")) == 4
    journal.close()
    found = recovered(images(tmp_path))
    assert (ranks(found), found.damaged, found.lost) == ({orders: [1, 2, 3, 4], bills: [0, 1]}, set(), {})
    assert recovered(images(tmp_path), by_headers=True) == found


def test_a_full_disk_has_room_for_outcomes_and_gives_back_what_they_free(tmp_path: Path) -> None:
    disk = FaultyDisk()
    journal = open_journal(tmp_path, segment_bytes=200, disk=disk)
    orders = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abc":
        append(journal, orders, batch_of(value))
    names = sorted(images(tmp_path))
    disk.capacity = 0
    unlink = disk.unlink

    def unlink_and_gain(path: str) -> None:
        disk.capacity = (disk.capacity or 0) + os.path.getsize(path)
        unlink(path)

    disk.unlink = unlink_and_gain  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        append(journal, orders, batch_of("d"))
    resolve(journal, orders, 3, 2)
    assert len(images(tmp_path)) < len(names)
    assert append(journal, orders, batch_of("d")) == 3


def test_headers_alone_say_what_all_bytes_say_or_leave_it_to_them(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    write_mixed(journal)
    journal.close()
    open_journal(tmp_path).close()
    older, newer = (images(tmp_path)[offset] for offset in sorted(images(tmp_path)))
    last = max(images(tmp_path))
    whole = recovered({0: older, last: newer})
    assert recovered({0: older, last: newer}, by_headers=True) == whole
    trusted = 0
    for name, data in spoiled(older).items():
        found = recovered({0: data, last: newer}, by_headers=True)
        if found != recovered({0: data, last: newer}):  # it is in a record: found when the batch is read
            trusted += 1
            assert [batch[:6] for batch in found.unresolved] == [batch[:6] for batch in whole.unresolved], name
            assert (found.state, found.next_offset) == (whole.state, whole.next_offset), name
    assert trusted > 100


def test_damage_anywhere_is_counted_to_the_record(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, segment_bytes=600)
    written = write_mixed(journal)
    files = images(tmp_path)
    assert len(files) > 2
    newest = max(files)
    for offset, data in files.items():
        for what, changed in spoiled(data).items():
            if changed == data:
                continue
            found = recovered({**files, offset: changed})
            left = ranks(found)
            assert all(order == sorted(set(order)) for order in left.values()), (offset, what)
            missing = len(written) - sum(map(len, left.values()))
            if offset != newest:  # its last entries have nothing behind them that would count them
                assert missing == sum(found.lost.values()), (offset, what)
                assert not found.unassigned
                assert found.damaged, (offset, what)


def test_a_segment_that_is_missing_is_counted(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, segment_bytes=300)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abcdefghij":
        append(journal, reference, batch_of(value, value))
    files = images(tmp_path)
    gone = sorted(files)[1]
    there = sum(batch.segment == gone for batch in recovered(files).unresolved)
    found = recovered({offset: data for offset, data in files.items() if offset != gone})
    assert there > 0
    assert found.lost == {reference: 2 * there}


def test_a_removed_segment_that_comes_back_is_not_sent_again(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, segment_bytes=200)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abcd":
        append(journal, reference, batch_of(value))
    before = images(tmp_path)
    resolve(journal, reference, 3, 2)
    after = images(tmp_path)
    assert set(before) - set(after)
    found = recovered({**before, **after})
    assert (ranks(found), found.lost) == ({reference: [3]}, {})


def test_a_full_disk_at_every_byte_leaves_no_half_entry(tmp_path: Path) -> None:
    for capacity in range(0, 1500, 7):
        directory = tmp_path / str(capacity)
        directory.mkdir()
        disk = FaultyDisk(bytes_per_write=50)
        journal = open_journal(directory, disk=disk, segment_bytes=500)
        reference = journal.enter("orders", TOPIC_ID, 0, 1)
        disk.capacity = capacity
        count, refusal = fill(journal, reference)
        assert refusal.errno == errno.ENOSPC
        assert ranks(recovered(images(directory)))[reference] == list(range(count))
        assert sum(map(len, images(directory).values())) == journal.size_bytes
        disk.capacity = None
        assert append(journal, reference, batch_of("more")) == count
        found = recovered(images(directory))
        assert (ranks(found)[reference], found.damaged, found.lost) == (list(range(count + 1)), set(), {})
        journal.close()


def test_progress_is_recorded_when_batches_find_no_room(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, max_bytes=CONTROL_RESERVE_BYTES + 900, segment_bytes=300)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    count, refusal = fill(journal, reference)
    assert refusal.errno == errno.ENOSPC
    assert "at most 66436 bytes" in str(refusal)
    assert journal.size_bytes <= 900
    assert count
    resolve(journal, reference, count, 0)
    assert append(journal, reference, batch_of("b")) == count


def test_a_sync_that_fails_is_never_repeated(tmp_path: Path) -> None:
    disk = FaultyDisk()
    journal = open_journal(tmp_path, disk=disk)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    disk.fail = failing("fdatasync")
    with pytest.raises(OSError, match="Input/output error"):
        journal.sync()
    disk.fail = None
    for call in (journal.sync, lambda: append(journal, reference, batch_of("a"))):
        with pytest.raises(OSError, match="has failed before"):
            call()


def test_a_segment_is_removed_only_after_the_sync_of_what_resolved_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    journal = open_journal(tmp_path, disk=disk, segment_bytes=200)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abcd":
        append(journal, reference, batch_of(value))
    resolve(journal, reference, 4, 3)
    kinds = [kind for kind, _ in disk.calls]
    last_write = len(kinds) - kinds[::-1].index("pwrite")
    assert kinds[last_write : last_write + 2] == ["fdatasync", "unlink"]


def test_entries_that_were_cut_off_and_come_back_do_not_count(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abc":
        append(journal, reference, batch_of(value))
    journal.close()
    path = tmp_path / f"{0:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    append(open_journal(tmp_path), reference, batch_of("d"))
    path.write_bytes(whole)  # the cut was not on the disk when the power went
    assert ranks(recovered(images(tmp_path))) == {reference: [0, 1, 2]}


def test_a_damaged_segment_is_kept_aside(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    for value in "abc":
        append(journal, reference, batch_of(value))
    journal.close()
    path = tmp_path / f"{0:020d}.log"
    middle = recovered(images(tmp_path)).unresolved[1]
    path.write_bytes(flip_bit(path.read_bytes(), (middle.position + 62) * 8))
    again = open_journal(tmp_path)
    assert (again.recovered.lost, again.recovered.damaged) == ({reference: 1}, {0})
    resolve(again, reference, 3, 2)
    assert not path.exists()
    assert path.with_name(path.name + DAMAGED_SUFFIX).exists()


def test_records_of_a_partition_that_is_not_known_any_more_go_to_no_other(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    append(journal, reference, batch_of("a", "b"))
    journal.close()
    path = tmp_path / f"{0:020d}.log"
    position = path.read_bytes().index(b"orders")
    path.write_bytes(flip_bit(path.read_bytes(), position * 8))
    again = open_journal(tmp_path)
    assert sum(header.record_count for _, _, header in again.recovered.unassigned) == 2
    assert again.enter("bills", TOPIC_ID, 0, 1) != reference
    found = recovered(images(tmp_path))
    assert (found.unresolved, len(found.unassigned)) == ([], 1)


def test_a_slot_has_one_producer(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    with pytest.raises(ConfigError, match="in use by another producer"):
        open_journal(tmp_path)
    journal.close()
    open_journal(tmp_path)


def test_the_journal_of_a_newer_release_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.spool.entries.FORMAT_VERSION", FORMAT_VERSION + 1)
    journal = open_journal(tmp_path)
    journal.close()
    monkeypatch.undo()
    before = images(tmp_path)
    with pytest.raises(ConfigError, match=f"format {FORMAT_VERSION + 1}"):
        open_journal(tmp_path)
    assert images(tmp_path) == before


def test_a_batch_inside_a_record_is_not_taken_for_an_entry(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    reference = journal.enter("orders", TOPIC_ID, 0, 1)
    inner = stored_batch(batch_of("x"), 1000, 12345, reference, 50)
    append(journal, reference, bytes(make_batch([bytes(inner), b"end" * 30])))
    (data,) = images(tmp_path).values()
    found = recovered({0: data[:-10]})
    assert (ranks(found), found.damaged) == ({reference: []}, set())


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda journal: journal.begin_incarnations([(0, Incarnation(8, 0, 2))]), "records 1 to 1 are not resolved"),
        (lambda journal: journal.resolve({0: (4, 0)}, 1), "has 3 records"),
        (lambda journal: journal.resolve({0: (0, 0)}, 1), "up to 1"),
    ],
)
def test_what_could_lose_or_double_a_record_is_refused(
    tmp_path: Path, act: Callable[[Journal], object], why: str
) -> None:
    journal = open_journal(tmp_path)
    orders = journal.enter("orders", TOPIC_ID, 0, 2)
    journal.begin_incarnations([(orders, Incarnation(7, 3, 0))])
    for _ in range(3):
        append(journal, orders, batch_of("a"))
    journal.resolve({orders: (1, 0)}, 1)
    size = os.path.getsize(tmp_path / f"{0:020d}.log")
    with pytest.raises(IllegalStateError, match=why):
        act(journal)
    assert os.path.getsize(tmp_path / f"{0:020d}.log") == size


def test_a_journal_of_another_boot_or_directory_is_taken_for_a_moved_one(tmp_path: Path) -> None:
    here = JournalPlace(bytes(range(16)), 5, 6)
    tmp_path.chmod(stat.S_IRWXU)
    for place, was_moved in [
        (here, False),
        (here, False),
        (here._replace(inode=7), True),
        (here, True),
        (JournalPlace(), True),
    ]:
        journal = Journal(str(tmp_path), NO_LIMIT, NO_LIMIT, FaultyDisk(), place)
        assert journal.was_moved == was_moved
        journal.note_cluster("a cluster")
        journal.close()
    assert open_journal(tmp_path).state.slot.cluster_id == "a cluster"


def test_a_process_knows_the_last_producer_id_and_when_a_broker_answered(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    write_mixed(journal)
    journal.resolve({0: (4, 56)}, 123456)
    journal.close()
    for _ in range(2):
        again = open_journal(tmp_path)
        assert (again.state.slot.producer_id, again.state.slot.producer_epoch) == (7, 4)
        assert again.state.contact_ms == 123456
        again.close()
