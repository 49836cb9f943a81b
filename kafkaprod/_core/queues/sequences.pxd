"""When a batch of an idempotent producer may go out, and with which sequence number.

Theory. A leader remembers the last five batches of each producer. It appends a batch only if its sequence follows the last
one, acknowledges a remembered one again without appending it, and refuses any other. So a batch that is retried under its
own number can neither be lost nor doubled nor overtaken, as long as numbers have no gaps, no number is given to two batches,
and no more than five batches are between the first unacknowledged one and the newest. The rules below keep it so through
retries, failures and moves of the leader.

Each partition continues its own sequence under a (producer id, epoch); the producer's current epoch may be newer.
Rules (KIP-98, KIP-360; TransactionManager, TxnPartitionMap; deviations marked *):

- A batch gets its sequence when it is first drained and keeps it; it is *outstanding* until its outcome is known.
- A batch sent before goes out again only while it is the first outstanding one: retries are one at a time, in order.
- A partition starts over at 0 under the producer's current epoch once nothing of it is outstanding.
- * Until a batch under the current epoch is acknowledged, one batch at a time: a leader that has no state of the producer
  takes any sequence as the first. If it refuses the first batch for a moment (a new partition that it does not know yet)
  and accepts the second, the first can never be written after it. Java runs into this. The same holds for a topic that was
  created again: an acknowledgement from the old topic does not count, even if it arrives later.
- * Never more than five batches from the first outstanding one on. The in-flight limit of a connection does not
  ensure that when the leader moves: the new one would acknowledge later batches and forget the first before its retry.
- A sequence that may be missing from the log (a batch failed or expired after it was sent) sets `needs_new_epoch`:
  nothing unsent goes out until the partition is quiet and has a newer epoch. If it turns out that everything sent was
  acknowledged after all, it continues as before.
- So does a batch of a journal that failed before it was sent, although no sequence is missing: the journal knows those of
  later batches by their distance from the first.
- Where no newer epoch can be had (coordinators before Kafka 2.5), the sequences of batches that were all definitely
  rejected are used again, once the partition is quiet: the log ends with the last acknowledged one, or, if the leader has
  forgotten the producer, it expects 0.
- * A batch is given a new sequence only if every attempt of it was definitely rejected; one that may be in the log
  never is. Java renumbers whatever is in flight, which can write a record twice.

The caller of every function holds the partition's lock.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkaprod._core.queues.batch cimport Batch, Partition

cdef enum:
    SEQUENCE_MASK = 0x7FFFFFFF      # sequences wrap from 2**31 - 1 to 0
    BROKER_WINDOW = 5               # batches of a producer that a partition remembers


cdef inline int32_t advance_sequence(int32_t sequence, int32_t count) noexcept nogil:
    return <int32_t>((<uint32_t>sequence + <uint32_t>count) & <uint32_t>SEQUENCE_MASK)


cdef inline bint is_resolved(const Partition *p) noexcept nogil:
    """Whether the last sequence handed out is known to be in the log."""
    return p.last_acked_sequence >= 0 and advance_sequence(p.last_acked_sequence, 1) == p.next_sequence


cdef inline bint take_back_sequences(Partition *p) noexcept nogil:
    """Continue behind the last acknowledged sequence; refused (False) if a later one may be in the log."""
    if p.is_gap_in_doubt:
        return False
    p.next_sequence = 0 if p.last_acked_sequence < 0 else advance_sequence(p.last_acked_sequence, 1)
    return True


cdef inline bint sequence_allows(Partition *p, const Batch *b, int64_t producer_id, int16_t producer_epoch,
                                 bint reuses_sequences, bint *wants_epoch) noexcept nogil:
    """Whether the head batch may be drained now. Sets `wants_epoch` if the partition waits for a newer epoch."""
    if producer_id < 0:
        return False
    if b.base_sequence >= 0:
        return p.first_outstanding == b
    if not p.needs_new_epoch and p.producer_id == producer_id and p.producer_epoch == producer_epoch:
        return p.first_outstanding is NULL or (
            p.last_acked_sequence >= 0 and p.last_ordinal - p.first_outstanding.ordinal < BROKER_WINDOW - 1
        )
    if p.first_outstanding is not NULL:
        return False
    if p.needs_new_epoch and p.producer_id == producer_id and p.producer_epoch == producer_epoch:
        if (is_resolved(p) and not p.has_rank_gap) or (reuses_sequences and take_back_sequences(p)):
            p.needs_new_epoch = False
            p.has_rank_gap = False
            return True
        wants_epoch[0] = True
        return False
    return True


cdef inline void assign_sequence(Partition *p, Batch *b, int64_t producer_id, int16_t producer_epoch) noexcept nogil:
    """Give a batch that sequence_allows() let pass its sequence; one that has one keeps it."""
    if b.base_sequence >= 0:
        return
    if p.producer_id != producer_id or p.producer_epoch != producer_epoch:
        p.producer_id = producer_id
        p.producer_epoch = producer_epoch
        p.next_sequence = 0
        p.last_acked_sequence = -1
        p.needs_new_epoch = False
        p.is_gap_in_doubt = False
        p.has_rank_gap = False
    b.producer_id = producer_id
    b.producer_epoch = producer_epoch
    b.base_sequence = p.next_sequence
    p.last_ordinal += 1
    b.ordinal = p.last_ordinal
    b.sealed = False
    p.next_sequence = advance_sequence(p.next_sequence, b.record_count)
    insert_outstanding(p, b, p.last_outstanding)


cdef inline void insert_outstanding(Partition *p, Batch *b, Batch *behind) noexcept nogil:
    b.previous_outstanding = behind
    b.next_outstanding = p.first_outstanding if behind is NULL else behind.next_outstanding
    if b.previous_outstanding is NULL:
        p.first_outstanding = b
    else:
        b.previous_outstanding.next_outstanding = b
    if b.next_outstanding is NULL:
        p.last_outstanding = b
    else:
        b.next_outstanding.previous_outstanding = b


cdef inline bint is_outstanding(const Partition *p, const Batch *b) noexcept nogil:
    return p.first_outstanding == b or b.previous_outstanding is not NULL


cdef inline void remove_outstanding(Partition *p, Batch *b) noexcept nogil:
    if not is_outstanding(p, b):
        return
    if b.previous_outstanding is NULL:
        p.first_outstanding = b.next_outstanding
    else:
        b.previous_outstanding.next_outstanding = b.next_outstanding
    if b.next_outstanding is NULL:
        p.last_outstanding = b.previous_outstanding
    else:
        b.next_outstanding.previous_outstanding = b.previous_outstanding
    b.next_outstanding = NULL
    b.previous_outstanding = NULL


cdef inline void note_acked(Partition *p, const Batch *b) noexcept nogil:
    """Remember the highest acknowledged sequence of the current epoch; modulo 2**31.

    Not that of a batch sent before the topic was created again: the new log need not have it.
    """
    if b.base_sequence < 0 or b.producer_id != p.producer_id or b.producer_epoch != p.producer_epoch:
        return
    if b.sent_generation != p.topic_generation:
        return
    cdef int32_t last = advance_sequence(b.base_sequence, b.record_count - 1)
    if p.last_acked_sequence < 0 or ((<uint32_t>last - <uint32_t>p.last_acked_sequence) & <uint32_t>SEQUENCE_MASK) < 0x40000000:
        p.last_acked_sequence = last


cdef inline void note_failed(Partition *p, const Batch *b) noexcept nogil:
    """A batch has failed: its sequence, if it has one, is missing from the log, or may be.

    One of a journal without a sequence leaves a gap in the ranks, by which a later process finds the sequences of others.
    """
    if b.base_sequence < 0:
        if b.is_stored and p.producer_id >= 0:
            p.has_rank_gap = p.needs_new_epoch = True
        return
    p.needs_new_epoch = True
    if b.maybe_persisted:
        p.is_gap_in_doubt = True


cdef inline bint forget_sequence(Partition *p, Batch *b) noexcept nogil:
    """Make a batch that was definitely rejected each time as good as unsent; refused (False) if it may be in the log."""
    if b.maybe_persisted or b.base_sequence < 0:
        return False
    remove_outstanding(p, b)
    b.base_sequence = -1
    b.producer_id = -1
    b.producer_epoch = -1
    b.sealed = False
    p.needs_new_epoch = True
    return True
