"""Producer state: duplicates, sequences, epochs, transactions, snapshots, with Kafka's error codes."""

from __future__ import annotations

import struct

import pytest

from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker, build_marker
from kafkaprod.broker.storage.producers.producer_entry import parse_snapshot
from kafkaprod.broker.storage.producers.producer_state import ProducerState, TransactionGuard, load_snapshot
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import INT16_MAX, BatchHeader, parse_header
from kafkaprod.structs import INT32_MAX
from tests.support.broker.fixtures_log import NOW_MS, flip_bit, make_batch

PRODUCER = 4000


def data(sequence: int, count: int = 1, epoch: int = 0, is_transactional: bool = False) -> BatchHeader:
    return parse_header(
        make_batch(
            [b"v"] * count,
            producer_id=PRODUCER,
            epoch=epoch,
            sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def marker(epoch: int = 0) -> BatchHeader:
    return parse_header(build_marker(PRODUCER, epoch, EndTransactionMarker(True, 0), NOW_MS))


def refusal(state: ProducerState, header: BatchHeader, guard: TransactionGuard | None = None) -> int | None:
    try:
        state.check(header, guard or TransactionGuard())
    except RecordsRefusedError as error:
        return error.code
    return None


def with_batches(*headers: BatchHeader) -> ProducerState:
    state, offset = ProducerState(), 0
    for header in headers:
        state.check(header)
        state.add(header, offset)
        offset += header.last_offset_delta + 1
    return state


def test_unknown_producer_may_start_anywhere_unless_it_speaks_transactions_v2() -> None:
    assert refusal(ProducerState(), data(77)) is None
    guard = TransactionGuard(is_verified=True, starts_at_sequence_zero=True)
    assert refusal(ProducerState(), data(77, is_transactional=True), guard) == 45
    assert refusal(ProducerState(), data(0, is_transactional=True), guard) is None
    assert refusal(ProducerState(), data(77), guard) is None  # an idempotent one, whose records were deleted


def test_sequence_must_follow_the_last() -> None:
    state = with_batches(data(0, 3))
    assert refusal(state, data(3)) is None
    assert refusal(state, data(4)) == 45
    assert refusal(state, data(1)) == 45


def test_sequence_wraps_to_zero_after_int32_max() -> None:
    state = with_batches(data(INT32_MAX))
    assert refusal(state, data(0)) is None
    assert refusal(state, data(1)) == 45
    spanning = with_batches(data(INT32_MAX - 1, 4))
    assert spanning.producers[PRODUCER].last_sequence == 1
    assert refusal(spanning, data(2)) is None
    assert spanning.find_duplicate(data(INT32_MAX - 1, 4)) is not None


def test_epoch_may_grow_from_sequence_zero_and_never_shrink() -> None:
    state = with_batches(data(0, epoch=5))
    assert refusal(state, data(1, epoch=4)) == 47
    assert refusal(state, data(1, epoch=6)) == 45
    assert refusal(state, data(0, epoch=6)) is None


def test_five_last_batches_are_duplicates_and_the_sixth_last_is_a_gap() -> None:
    state = with_batches(*(data(sequence) for sequence in range(6)))
    assert state.find_duplicate(data(0)) is None
    assert refusal(state, data(0)) == 45
    for sequence in range(1, 6):
        found = state.find_duplicate(data(sequence))
        assert found is not None
        assert found.first_offset == sequence


def test_duplicate_needs_the_exact_range_and_epoch() -> None:
    state = with_batches(data(0, 3))
    assert state.find_duplicate(data(0, 3)) is not None
    assert state.find_duplicate(data(0, 2)) is None
    assert state.find_duplicate(data(0, 3, epoch=1)) is None


def test_new_epoch_forgets_the_batches_of_the_old() -> None:
    state = with_batches(data(0), data(0, epoch=1))
    assert len(state.producers[PRODUCER].batches) == 1
    assert state.find_duplicate(data(0)) is None


def test_plain_batch_inside_a_transaction_is_refused() -> None:
    state = with_batches(data(0, is_transactional=True))
    assert refusal(state, data(1)) == 48
    assert refusal(state, data(1, is_transactional=True)) is None


def test_first_batch_of_a_transaction_must_be_verified_and_later_ones_need_not() -> None:
    unverified = TransactionGuard(is_verified=False)
    assert refusal(ProducerState(), data(0, is_transactional=True), unverified) == 48
    state = with_batches(data(0, is_transactional=True))
    assert refusal(state, data(1, is_transactional=True), unverified) is None


def test_marker_ends_the_transaction_and_frees_the_stable_offset_once_below_the_watermark() -> None:
    state = with_batches(data(0, 2, is_transactional=True))
    assert state.first_unstable_offset() == 0
    completed = state.add_marker(marker(), EndTransactionMarker(False, 1), 2)
    assert completed is not None
    assert completed.is_aborted
    assert (completed.first_offset, completed.last_offset) == (0, 2)
    assert state.first_unstable_offset() == 0
    state.on_high_watermark(2)
    assert state.first_unstable_offset() == 0
    state.on_high_watermark(3)
    assert state.first_unstable_offset() is None


def test_aborted_entry_carries_the_stable_offset_left_behind() -> None:
    state = with_batches(data(0, is_transactional=True))
    other = parse_header(make_batch(producer_id=9, epoch=0, sequence=0, is_transactional=True))
    state.add(other, 1)
    completed = state.add_marker(marker(), EndTransactionMarker(False, 1), 2)
    assert completed is not None
    assert state.aborted(completed).last_stable_offset == 1


def test_marker_without_data_ends_nothing() -> None:
    state = ProducerState()
    assert state.add_marker(marker(), EndTransactionMarker(False, 1), 0) is None
    assert state.first_unstable_offset() is None


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "version", "code"),
    [(4, 3, 0, 47), (5, 3, 0, None), (5, 2, 0, 52), (5, 3, 2, 47), (6, 3, 2, None)],
)
def test_marker_checks(epoch: int, coordinator_epoch: int, version: int, code: int | None) -> None:
    state = with_batches(data(0, epoch=5, is_transactional=True))
    state.producers[PRODUCER].coordinator_epoch = 3
    try:
        state.check_marker(marker(epoch), EndTransactionMarker(True, coordinator_epoch), version)
        found = None
    except RecordsRefusedError as error:
        found = error.code
    assert found == code


def test_marker_retry_of_transactions_v2_passes_when_the_transaction_is_over() -> None:
    state = with_batches(data(0, epoch=5, is_transactional=True))
    state.add_marker(marker(6), EndTransactionMarker(True, 0), 1)
    state.check_marker(marker(6), EndTransactionMarker(True, 0), 2)
    assert refusal(state, data(1, epoch=6)) == 45
    assert refusal(state, data(0, epoch=6)) is None


def test_marker_of_transactions_v2_passes_at_the_last_epoch() -> None:
    """No epoch is above it; the producer gets another id after this transaction (KAFKA-20090)."""
    state = with_batches(data(0, epoch=INT16_MAX, is_transactional=True))
    state.check_marker(marker(INT16_MAX), EndTransactionMarker(True, 0), 2)


def test_stale_epoch_is_refused_before_the_missing_verification() -> None:
    state = with_batches(data(0, epoch=5, is_transactional=True))
    stale = data(0, epoch=4, is_transactional=True)
    assert refusal(state, stale, TransactionGuard(is_verified=False)) == 47
    assert state.verification_token(stale, NOW_MS) is None


def test_batch_needs_a_token_unless_its_transaction_is_open_or_it_is_a_duplicate() -> None:
    first, second = data(0, is_transactional=True), data(1, is_transactional=True)
    state = ProducerState()
    assert state.verification_token(first, NOW_MS) is not None
    state.add(first, 0)
    assert state.verification_token(second, NOW_MS) is None
    state.add_marker(marker(), EndTransactionMarker(True, 0), 1)
    assert state.verification_token(first, NOW_MS) is None
    assert state.verification_token(second, NOW_MS) is not None


@pytest.mark.parametrize(
    ("marker_epoch", "version", "code"),
    [(0, 0, 48), (1, 0, 47), (1, 2, 47), (0, 2, None)],
    ids=["TV1", "fenced", "TV2", "TV2, and the next transaction has begun"],
)
def test_marker_makes_tokens_worthless(marker_epoch: int, version: int, code: int | None) -> None:
    state = ProducerState()
    batch = data(0, is_transactional=True)
    guard = TransactionGuard(token=state.verification_token(batch, NOW_MS))
    state.add_marker(marker(marker_epoch), EndTransactionMarker(False, 0), 0, version)
    assert refusal(state, batch, guard) == code


def test_token_belongs_to_one_append_and_the_lowest_sequence_goes_first() -> None:
    state = ProducerState()
    first, second = data(0, is_transactional=True), data(1, is_transactional=True)
    token = state.verification_token(second, NOW_MS)
    assert state.verification_token(first, NOW_MS) is token
    guard = TransactionGuard(token=token)
    assert refusal(state, second, guard) == 45
    assert refusal(state, first, guard) is None
    state.add(first, 0)
    state.add_marker(marker(), EndTransactionMarker(False, 0), 1)
    assert refusal(state, second, guard) == 48
    newer = state.verification_token(data(0, epoch=1, is_transactional=True), NOW_MS)
    assert newer is not token


def test_tokens_expire_like_producers() -> None:
    state = ProducerState()
    batch = data(0, is_transactional=True)
    guard = TransactionGuard(token=state.verification_token(batch, NOW_MS))
    state.expire(NOW_MS + 999, 1000)
    assert refusal(state, batch, guard) is None
    state.expire(NOW_MS + 1000, 1000)
    assert refusal(state, batch, guard) == 48


def test_idle_producers_expire_and_those_in_a_transaction_do_not() -> None:
    state = with_batches(data(0))
    state.expire(NOW_MS + 999, 1000)
    assert PRODUCER in state.producers
    state.expire(NOW_MS + 1000, 1000)
    assert not state.producers
    state = with_batches(data(0, is_transactional=True))
    state.expire(NOW_MS + 1000, 1000)
    assert PRODUCER in state.producers


def test_snapshot_keeps_the_whole_window_and_the_open_transaction() -> None:
    state = with_batches(*(data(sequence, is_transactional=True) for sequence in range(7)))
    loaded = load_snapshot(state.snapshot())
    assert loaded.producers == state.producers
    assert loaded.first_unstable_offset() == 0
    assert loaded.snapshot() == state.snapshot()


def test_snapshot_starts_with_kafkas_layout() -> None:
    content = with_batches(data(0, 3), data(3, 2)).snapshot()
    version, _, count = struct.unpack_from(">hIi", content)
    entry = struct.unpack_from(">qhiqiqiq", content, 10)
    assert (version, count) == (1, 1)
    assert entry == (PRODUCER, 0, 4, 4, 1, NOW_MS, -1, -1)


def test_kafkas_own_snapshot_without_older_batches_is_read() -> None:
    content = with_batches(data(0)).snapshot()
    assert len(content) == 10 + 46
    assert load_snapshot(content).find_duplicate(data(0)) is not None


def test_snapshot_damaged_anywhere_is_refused() -> None:
    content = with_batches(data(0), data(1)).snapshot()
    for size in range(len(content)):
        with pytest.raises(CorruptDataError):
            parse_snapshot(content[:size])
    for bit in range(8 * len(content)):
        with pytest.raises(CorruptDataError):
            parse_snapshot(flip_bit(content, bit))
