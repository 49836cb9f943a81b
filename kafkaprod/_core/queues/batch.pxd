"""A record batch under construction, in the queue or in a request; and the partition that queues it.

State of the records (one table, see batch.pyx TRANSITIONS):

    OPEN -> CLOSED -> SENT -> DONE        SENT -> CLOSED: requeued        OPEN, CLOSED -> DONE: expired, aborted

State of the memory is another matter: slabs go back to the pool when the batch is DONE *and* no request references
them (`request_count` is 0). A batch that expires in flight is DONE at once and keeps its slabs until the request is
answered or its socket is closed (KAFKA-19012).
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from libc.stdlib cimport abort

from kafkaprod._core.queues.buffer_pool cimport BufferPool, KP_DEBUG
from kafkaprod._core.queues.slabs cimport Slab
from kafkaprod._core.queues.waiting_line cimport Account
from kafkaprod._core.machine.cache_lines cimport CACHE_LINE
from kafkaprod._core.machine.lock cimport add32, load_address, load_object, mutex_t, store_address, store_object
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.records.record_view cimport AppendStatus, RecordView
from kafkaprod._core.records.record_writer cimport record_body_size, uvarint_size, write_record


cdef enum:
    BYTES_AHEAD = 512           # between prefetching memory and writing to it
    SUM_STEP = 768              # bytes: what checksum.pyx sums in its shortest three streams
    SUM_FROM = 6 * SUM_STEP     # with less than that written it does not pay to look at the slab
    OPEN_BIAS = 1 << 30         # in `references` of an OPEN batch, so that they cannot fall to 0


cdef enum BatchState:
    OPEN = 0                    # takes records
    CLOSED = 1                  # in the partition's queue, full or requeued
    SENT = 2                    # in a request
    DONE = 3                    # its records have their one outcome


cdef enum Outcome:
    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2
    SPLIT = 3                   # its records live on in the batches split from it


cdef struct Batch:
    # guarded by partition.lock until DONE; afterwards only the holders of references read it
    Partition *partition
    uint8_t state
    uint8_t outcome
    uint8_t is_full             # has reached batch_size: sendable, and growing on while it is OPEN
    int references              # atomic; held by: incomplete list, queue or request, block, BatchRef
    PyObject *completion        # completion.BatchResult, or NULL until one is needed
    # without meaning while OPEN: see OpenBatch
    char *position              # end of what is written
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t record_count
    # lists
    Batch *next                 # in the partition's queue
    Batch *older                # incomplete batches of the accumulator in order of creation
    Batch *newer
    Batch *next_outstanding     # sequenced batches of the partition that are not DONE, by sequence
    Batch *previous_outstanding
    int request_count           # 1 while a request may read the slabs
    bint sealed                 # header and CRC are written (and the payload compressed)
    bint maybe_persisted        # some attempt ended without a definite answer
    bint is_stored              # it is in a journal; the fields below mean nothing otherwise
    int64_t journal_rank        # of its first record in its partition
    int64_t journal_segment     # where its entry is
    int32_t journal_position    # -1: it is a part of an entry
    int32_t journal_bytes       # of its entry
    int32_t journal_skipped     # records at the beginning of its entry that are not the batch's
    # memory
    Account *account            # whose share of the pool its slabs are: that of the leader when it was opened
    Slab *first
    Slab *last
    uint32_t last_generation
    Py_ssize_t limit            # bytes that the batch may grow to for now, header included; see batch_extend()
    Py_ssize_t closed_bytes     # bytes in all slabs but the last
    long long held_bytes        # what its slabs count against the pool; load64 and store64
    # content
    PyObject *compressed        # bytes object with the compressed records, or NULL
    int8_t codec
    # sending
    int64_t serial              # order of creation; split batches keep their original's
    int64_t rank                # index of its first record in the batch it was split from: order among equal serials
    int64_t backoff_ms          # not before last_attempt_ms + this, unless the leader changed
    int64_t created_ms
    int64_t linger_end_us       # when it has lingered long enough: a millisecond is a large part of that
    int64_t last_attempt_ms
    int64_t sent_ms
    int32_t attempts
    int32_t sent_leader_epoch
    int64_t producer_id
    int16_t producer_epoch
    uint16_t sent_generation    # the partition's topic_generation when it was last sent
    int32_t base_sequence       # -1: not sequenced yet
    int64_t ordinal             # of the partition's sequenced batches
    bint transactional
    # result
    int64_t base_offset
    int64_t log_append_time
    PyObject *error             # exception object of a FAILED batch
    PyObject *record_errors     # dict of the records that the broker named, or NULL
    PyObject *children          # list of (first index, BatchResult) of a SPLIT batch


cdef struct Batching:
    # How the batches of one topic are made: see Accumulator.topic_batching. Constant once the topic has partitions.
    Py_ssize_t batch_size       # a batch is sendable from here on
    Py_ssize_t max_batch_size   # and grows up to here, until the sender takes it
    int64_t linger_us
    int new_batch_events        # what a new batch is to the sender
    uint8_t codec               # which of the producer's codecs compresses them; 0: its first
    bint sums_records           # records are summed when they are written: nothing compresses them later


cdef struct OpenBatch:
    # What an append reads and writes of the OPEN batch; batch_move() copies it into the Batch when it leaves that state.
    Batch *batch                # NULL: there is none, and the rest means nothing
    char *position              # where the next record goes; written with store_address(), for prefetch_write_position()
    char *end                   # end of the tail slab, or of the batch limit if that comes first
    int64_t base_timestamp
    int64_t max_timestamp
    PyObject *completion        # batch.completion
    int32_t record_count
    int32_t holds               # references to the batch that are not counted in `batch.references` yet


cdef struct Partition:
    # One cache line, and all that an append to an open batch needs: with thousands of partitions it is a miss for each.
    mutex_t lock
    # guarded by lock:
    int queue_length            # written under lock, peeked at with load32
    OpenBatch open
    # the next line
    Batch *head                 # written with publish_batch by who appends: the sender peeks at it
    Batch *tail                 # the only one that may be OPEN
    int incomplete_count        # batches not DONE, queued or sent
    int8_t first_class          # of slabs, for the next batch's first one: what its last batch would have needed
    uint8_t codec               # as in `batching`; constant. Here, the drain finds it where it looks anyway
    Batch *first_outstanding
    int64_t last_ordinal
    Batch *last_outstanding
    int64_t producer_id         # whose sequences next_sequence continues
    int16_t producer_epoch
    uint16_t topic_generation   # how often the topic was created again; wraps
    int32_t next_sequence
    int32_t last_acked_sequence
    bint needs_new_epoch        # a sequence may be missing from the log: nothing new until a new epoch
    bint has_rank_gap           # a stored batch failed without a sequence: ranks of this epoch no longer tell sequences
    bint is_gap_in_doubt        # a batch of this epoch failed that may be in the log: its sequence is not used again
    int in_flight_count
    int32_t path_most           # bytes of a batch that the way to the leader carries in time; 0: as far as any
    int64_t transaction         # number of the last transaction that it was added to; see drain.pyx
    int64_t named_transaction   # number of the last transaction for which new_members() has named it
    # set under lock by metadata updates
    int32_t leader              # node id, -1: none
    int32_t leader_epoch
    Account *account            # the leader's share of the pool
    bint is_removed             # the topic was re-created smaller: its records fail
    # constant
    int32_t index
    int32_t topic_index
    const Batching *batching    # its topic's
    # guarded by lock: bytes of a batch that the topic's brokers take, as their refusals taught; 0: not known
    int32_t topic_most
    # guarded by the appender's partitioner state, see partitioner.pxd
    int64_t sticky_bytes
    # of a producer with a journal, and the sender's alone; see journal_pass.pyx
    Batch *stored_tail          # the last batch in the queue that is stored, guarded by lock
    Batch *unloaded_tail        # the last one in the queue that unload_batches() has looked at; NULL: from the head on
    int32_t journal_reference   # + 1; 0: it has none
    int64_t next_journal_rank
    int64_t resolved_rank       # ranks below have their outcome: what take_progress() returned last
    int64_t journal_offset      # of the last record known to be in the log, -1: none is
    bint has_progress           # a stored batch has had its outcome since take_progress()
    int64_t journal_producer_id     # + 1: of its last incarnation in the journal; 0: none
    int16_t journal_epoch
    int64_t journal_first_rank      # and the rank that has its sequence 0


cdef struct Hint:
    # What an append of one record to a partition will touch. Side by side for all partitions, so that they stay in the
    # cache and all can be prefetched at once. Any thread reads and writes them, atomically: addresses to prefetch
    # ahead and never to read at, for they may be old.
    char *position
    PyObject *completion


cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    # Lock-free links: publish_batch releases, observe_batch acquires.
    Batch *load_batch "kp_load"(Batch **p)
    void store_batch "kp_store"(Batch **p, Batch *b)
    void publish_batch "kp_publish"(Batch **p, Batch *b)
    Batch *observe_batch "kp_observe"(Batch **p)


cdef Batch *batch_open(BufferPool pool, Partition *partition, const RecordView *first_record, Py_ssize_t batch_size,
                       int64_t ticket, AppendStatus *status) noexcept nogil
cdef AppendStatus batch_extend(Batch *b, BufferPool pool, Py_ssize_t need, Py_ssize_t most,
                               int64_t ticket) noexcept nogil
cdef bint batch_fit(Batch *b, Py_ssize_t batch_size) noexcept nogil
cdef int batch_move(Batch *b, BatchState state) noexcept nogil
cdef Py_ssize_t batch_size_bytes(const Batch *b) noexcept nogil
cdef void batch_release_memory(Batch *b, BufferPool pool) noexcept nogil
cdef void batch_release(Batch *b, BufferPool pool) noexcept
cdef void batch_sum(Batch *b, const char *position, bint is_end) noexcept nogil
cdef int batch_seal(Batch *b) noexcept nogil
cdef char *batch_copy(char *target, const Batch *b) noexcept nogil
cdef list batch_records(Batch *b)
cdef int batch_set_compressed(Batch *b, bytes blob, int codec_id) except -1
cdef Py_ssize_t batch_sealed_size(const Batch *b) noexcept nogil


cdef inline Py_ssize_t most_batch(const Partition *p) noexcept nogil:
    """Bytes that a batch of the partition, whose lock the caller holds, may grow to while it waits to be taken."""
    cdef Py_ssize_t most = p.batching.max_batch_size
    if 0 < p.path_most < most:
        most = p.path_most
    if 0 < p.topic_most < most:
        most = p.topic_most
    return most


cdef inline void remember(Hint *hint, const OpenBatch *o) noexcept nogil:
    store_address(&hint.position, o.position)
    store_object(&hint.completion, o.completion)


cdef inline void prefetch_hinted(Hint *hint) noexcept nogil:
    """Prefetch where a record will be written, and the result object that its future will refer to."""
    cdef size_t position = <size_t>load_address(&hint.position)     # a number: nothing may be added to NULL
    prefetch_write(<char *>position)
    prefetch_write(<char *>(position + 64))
    prefetch_write(<char *>(position + 128))
    prefetch_write(load_object(&hint.completion))


cdef inline void prefetch_write_position(Partition *p, int lines) noexcept nogil:
    """Prefetch `lines` cache lines at the open batch's write position. Without the lock: a stale address does no harm."""
    cdef size_t position = <size_t>load_address(&p.open.position)
    while lines > 0:
        prefetch_write(<char *>position)
        position += 64
        lines -= 1


cdef inline void prefetch_batch(const Batch *b) noexcept nogil:
    """Prefetch the whole struct; NULL does no harm."""
    cdef size_t at = 0
    while at < sizeof(Batch):
        prefetch_write(<const char *>(<size_t>b + at))
        at += CACHE_LINE


cdef inline void batch_retain(Batch *b) noexcept nogil:
    add32(&b.references, 1)


cdef inline int64_t delta_between(int64_t timestamp, int64_t base) noexcept nogil:
    # Unsigned, because -1 minus INT64_MAX must wrap and not be undefined; readers add the same way.
    return <int64_t>(<uint64_t>timestamp - <uint64_t>base)


cdef inline void batch_check_tail(const Batch *b) noexcept nogil:
    """For debug builds: stop before foreign memory is written, if the tail slab was released under this batch."""
    if b.last.generation != b.last_generation:
        abort()


cdef inline Py_ssize_t batch_append(OpenBatch *o, const RecordView *r) noexcept nogil:
    """Write the record behind the last one and return its size in bytes; 0 if it does not fit the tail slab: nothing changed."""
    cdef int64_t timestamp_delta = delta_between(r.timestamp, o.base_timestamp)
    cdef Py_ssize_t body = record_body_size(r, timestamp_delta, o.record_count)
    cdef Py_ssize_t size = uvarint_size(<unsigned long long>body << 1) + body
    if size > o.end - o.position:
        return 0
    if KP_DEBUG:
        batch_check_tail(o.batch)
    store_address(&o.position, write_record(o.position, r, body, timestamp_delta, o.record_count))
    o.record_count += 1
    if r.timestamp > o.max_timestamp:
        o.max_timestamp = r.timestamp
    return size


cdef inline void prefetch_ahead(const OpenBatch *o) noexcept nogil:
    """Prefetch ahead of the write position: a reused slab was last touched a whole pool ago and is cold."""
    prefetch_write(o.position + BYTES_AHEAD)
    prefetch_write(o.position + BYTES_AHEAD + 64)


cdef inline void batch_hold(OpenBatch *o) noexcept nogil:
    """Take a reference to the open batch, to be given back by batch_release(), without touching its memory."""
    o.holds += 1
