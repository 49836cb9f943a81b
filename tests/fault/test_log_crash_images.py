"""Crashes as images of a log's bytes: every truncation, torn and stale tails, every flipped bit.

The marker `slow` runs millions; by hand: `python -m tests.campaigns.images_log <seed> <images>`.
"""

from __future__ import annotations

import itertools
import os
import random

import pytest

from kafkaprod.broker.storage.format.log_files import LOG_SUFFIX, file_name
from kafkaprod.broker.storage.recovery.recovery import Recovery
from tests.campaigns.images_log import MemoryImage, MixedLog, check_truncation, make_mixed_log, run_truncations
from tests.support.broker.fixtures_log import flip_bit, make_batch

LOG = file_name(0, LOG_SUFFIX)
PAGE = 4096


@pytest.mark.parametrize("seed", [1000, 2000])
def test_log_cut_at_every_byte_keeps_exactly_the_whole_batches(seed: int) -> None:
    assert max(run_truncations(seed, 50_000)) == 50_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_log_cut_at_every_byte_of_many_logs() -> None:
    limit = int(os.environ.get("KAFKAPROD_CRASH_IMAGES", "1500000"))
    assert max(run_truncations(1, limit)) == limit


def test_log_of_records_up_to_a_megabyte_is_cut_at_and_around_its_batches_and_anywhere() -> None:
    log = make_mixed_log(seed=20, batch_count=5, largest_value=1 << 20)
    assert max(end - start for start, end in itertools.pairwise((0, *log.ends))) > 1_000_000
    rng = random.Random(20)
    sizes = {end + delta for end in log.ends for delta in (-61, -12, -1, 0, 1, 11, 12, 60, 61)}
    sizes |= {rng.randrange(len(log.data)) for _ in range(30)}
    appended = bytes(make_batch([b"appended"]))
    for size in sorted(size for size in sizes if size <= len(log.data)):
        check_truncation(log, size, appended)


def recover_bytes(data: bytes) -> Recovery:
    return MemoryImage({LOG: data}).recover()


def check_prefix(log: MixedLog, damaged: bytes, first_bad: int) -> Recovery:
    """Everything before the batch that holds byte `first_bad` survives, nothing at or after it is served."""
    found = recover_bytes(damaged)
    expected_bytes, expected_offset = log.end_of(log.whole_batches(first_bad))
    assert (found.segments[-1].size_bytes, found.log_end_offset) == (expected_bytes, expected_offset)
    return found


@pytest.mark.parametrize("kind", ["zeros", "stale", "random"])
def test_tail_of_torn_pages_is_dropped(kind: str) -> None:
    log = make_mixed_log(seed=11, batch_count=60, largest_value=3000)
    rng = random.Random(kind)
    for pages in range(1, 9):
        start = len(log.data) // PAGE * PAGE - (pages - 1) * PAGE
        tail = {
            "zeros": bytes(len(log.data) - start),
            "stale": (log.data[:PAGE] * 9)[: len(log.data) - start],  # blocks of an earlier file with valid batches
            "random": rng.randbytes(len(log.data) - start),
        }[kind]
        found = check_prefix(log, log.data[:start] + tail, start)
        assert found.damage is None
        assert (LOG in found.truncations) == (found.segments[-1].size_bytes < len(log.data))


def test_preallocated_zeros_after_the_tail_are_dropped() -> None:
    log = make_mixed_log(seed=12, batch_count=10)
    for count in (1, 16, 17, 60, 61, 62, 5000):
        found = check_prefix(log, log.data + bytes(count), len(log.data))
        assert found.truncations == {LOG: len(log.data)}


BASE_OFFSET_BYTES = range(8)  # under no checksum: a batch with another offset is a valid batch after a gap
LEADER_EPOCH_BYTES = range(12, 16)  # under no checksum: see below


def test_every_flipped_bit_is_noticed_and_cut_in_the_last_batch_or_fenced_before_it() -> None:
    log = make_mixed_log(seed=13, batch_count=7, largest_value=60)
    last_start = log.ends[-2]
    for bit in range(8 * len(log.data)):
        byte = bit // 8
        start = log.end_of(log.whole_batches(byte))[0]
        if byte - start in LEADER_EPOCH_BYTES:
            continue
        found = check_prefix(log, flip_bit(log.data, bit), byte)
        if start < last_start:
            assert found.damage is not None, bit
        elif byte - start not in BASE_OFFSET_BYTES:
            assert found.truncations == {LOG: start}, bit
        assert (LOG in found.truncations) == (found.damage is None), bit


def test_flipped_leader_epoch_never_changes_records_or_offsets() -> None:
    """Kafka leaves the leader epoch outside the CRC; a flip is noticed only if the epochs then fall."""
    log = make_mixed_log(seed=14, batch_count=5, largest_value=60)
    start = log.ends[1]
    for bit in range(8 * (start + 12), 8 * (start + 16)):
        found = recover_bytes(flip_bit(log.data, bit))
        if found.damage is None:
            assert found.log_end_offset == log.next_offsets[-1]
        else:
            assert found.log_end_offset in (log.next_offsets[1], log.next_offsets[2])


def test_crash_during_recovery_at_any_step_leads_to_the_same_files() -> None:
    log = make_mixed_log(seed=15, batch_count=10)
    torn = {LOG: log.data[:-5], file_name(999, ".index"): b"orphan", "old.tmp": b"x"}
    whole = MemoryImage(torn)
    plan = whole.recover()
    whole.apply(plan)
    steps = [("cut", name) for name in plan.truncations]
    steps += [("delete", name) for name in plan.deletions] + [("write", name) for name in plan.writes]
    for done in range(len(steps) + 1):
        partial = MemoryImage(torn)
        for kind, name in steps[:done]:
            if kind == "cut":
                partial.files[name] = partial.files[name][: plan.truncations[name]]
            elif kind == "delete":
                partial.files.pop(name, None)
            else:
                partial.files[name] = plan.writes[name]
        partial.apply(partial.recover())
        assert partial.files == whole.files, steps[:done]
