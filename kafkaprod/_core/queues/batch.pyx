"""Record batches as C structs: open, extend, seal, release. See the .pxd for the states and the byte layout.

Structs and not Python objects, because a block of columns opens and fills batches without the GIL. Everything that
writes a batch holds its partition's lock, except seal and release, which run when the batch is out of the queue.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.string cimport memcpy

from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES, CRC_START, LOG_OVERHEAD
from kafkaprod._core.records.big_endian cimport put_i16, put_i32, put_i64
from kafkaprod._core.queues.slabs cimport LARGEST_CLASS, class_payload
from kafkaprod._core.queues.spare_structs cimport spare_give, spare_take
from kafkaprod._core.records.checksum cimport extend_crc, join_crc
from kafkaprod._core.machine.lock cimport add32, store64, store_address
from kafkaprod._core.records.record_view cimport APPENDED, BATCH_FULL, OUT_OF_MEMORY, AppendStatus
from kafkaprod._core.records.record_writer cimport record_size_bound

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    # `blob` is an immutable bytes object: a reference keeps the pointer valid.
    const char *blob_start "kp_blob_start"(PyObject *blob)
    Py_ssize_t blob_size "kp_blob_size"(PyObject *blob)

# TRANSITIONS[state] has bit n set where state -> n is legal.
cdef int[4] TRANSITIONS
TRANSITIONS[<int>OPEN] = 1 << CLOSED | 1 << DONE
TRANSITIONS[<int>CLOSED] = 1 << SENT | 1 << DONE
TRANSITIONS[<int>SENT] = 1 << CLOSED | 1 << DONE
TRANSITIONS[<int>DONE] = 0


cdef int batch_move(Batch *b, BatchState state) noexcept nogil:
    """Change the state; return 0, or -1 with the state unchanged if the transition is illegal."""
    cdef OpenBatch *o = &b.partition.open
    if not TRANSITIONS[b.state] & (1 << <int>state):
        return -1
    if b.state == OPEN:
        b.position = o.position
        b.base_timestamp = o.base_timestamp
        b.max_timestamp = o.max_timestamp
        b.record_count = o.record_count
        add32(&b.references, o.holds - OPEN_BIAS)
        o.batch = NULL
    b.state = <uint8_t>state
    return 0


cdef inline char *_end_of_tail(const Batch *b) noexcept nogil:
    cdef Py_ssize_t room = b.limit - b.closed_bytes
    return b.last.data + (room if room < b.last.size else b.last.size)


cdef void _enter_slab(Batch *b, Slab *slab) noexcept nogil:
    cdef OpenBatch *o = &b.partition.open
    b.last = slab
    b.last_generation = slab.generation
    store_address(&o.position, slab.data)
    o.end = _end_of_tail(b)


cdef void _raise_limit(Batch *b, Py_ssize_t limit) noexcept nogil:
    b.limit = limit
    b.is_full = True
    b.partition.open.end = _end_of_tail(b)


cdef inline int _first_class(const Partition *p, Py_ssize_t batch_size) noexcept nogil:
    """What the partition's last batch needed: thousands of slow partitions cost little, and busy ones no extensions."""
    cdef int size_class = p.first_class
    while size_class > 0 and class_payload(size_class) > batch_size:
        size_class -= 1
    return size_class


cdef Batch *batch_open(BufferPool pool, Partition *partition, const RecordView *first_record, Py_ssize_t batch_size,
                       int64_t ticket, AppendStatus *status) noexcept nogil:
    """Make the partition's OPEN batch with one reference and a first slab that holds `first_record` for sure.

    NULL: no memory now; `status` is POOL_EXHAUSTED, NODE_EXHAUSTED or OUT_OF_MEMORY.
    """
    cdef Py_ssize_t need = BATCH_HEADER_BYTES + record_size_bound(first_record)
    cdef OpenBatch *o = &partition.open
    cdef Account *account = partition.account
    cdef Slab *slab = pool.try_acquire(account, need, _first_class(partition, batch_size), ticket, status)
    if slab is NULL:
        return NULL
    cdef Batch *b = <Batch *>spare_take(&pool.spares, sizeof(Batch))
    if b is NULL:
        status[0] = OUT_OF_MEMORY
        pool.release_chain(account, slab)
        return NULL
    b.partition = partition
    b.references = 1 + OPEN_BIAS
    b.state = OPEN
    b.limit = batch_size if batch_size > need else need
    b.account = account
    b.first = slab
    store64(&b.held_bytes, slab.total)
    _enter_slab(b, slab)
    o.batch = b
    store_address(&o.position, o.position + BATCH_HEADER_BYTES)
    o.base_timestamp = first_record.timestamp
    o.max_timestamp = first_record.timestamp
    o.completion = NULL
    o.record_count = 0
    o.holds = 0
    b.producer_id = -1
    b.producer_epoch = -1
    b.base_sequence = -1
    b.base_offset = -1
    b.log_append_time = -1
    return b


cdef AppendStatus batch_extend(Batch *b, BufferPool pool, Py_ssize_t need, Py_ssize_t most,
                               int64_t ticket) noexcept nogil:
    """Make room for `need` bytes. Only APPENDED changes anything; else BATCH_FULL, or why there is no memory.

    Args: most: bytes that the batch may grow to, if that is above its limit: then it `is_full`, and takes records on until
    the sender takes it.
    """
    cdef AppendStatus status
    cdef OpenBatch *o = &b.partition.open
    cdef Py_ssize_t used = o.position - b.last.data
    cdef Py_ssize_t room = b.limit - b.closed_bytes - used
    cdef Py_ssize_t limit = b.limit
    cdef int wanted = b.last.size_class + 1
    if need > room:
        limit = most
        room = most - b.closed_bytes - used
        if need > room:
            return BATCH_FULL
        if need <= b.last.size - used:
            _raise_limit(b, limit)
            return APPENDED
    if wanted > LARGEST_CLASS or b.last.size_class < 0:
        wanted = LARGEST_CLASS
    # No more than the batch may still grow by.
    while wanted > 0 and class_payload(wanted - 1) >= room:
        wanted -= 1
    cdef Slab *slab = pool.try_acquire(b.account, need, wanted, ticket, &status)
    if slab is NULL:
        return status
    b.last.used = used
    b.closed_bytes += used
    b.last.next = slab
    store64(&b.held_bytes, b.held_bytes + slab.total)
    _enter_slab(b, slab)
    if limit > b.limit:
        _raise_limit(b, limit)
    return APPENDED


cdef bint batch_fit(Batch *b, Py_ssize_t batch_size) noexcept nogil:
    """Take back the room that the first record was given beyond `batch_size`; return whether it is a batch alone."""
    cdef Py_ssize_t size = batch_size_bytes(b)
    b.limit = batch_size if batch_size > size else size
    b.is_full = size >= batch_size
    b.partition.open.end = _end_of_tail(b)
    return b.is_full


cdef Py_ssize_t batch_size_bytes(const Batch *b) noexcept nogil:
    """Bytes written so far, header included, uncompressed. Of a batch that may be OPEN the caller holds the lock."""
    cdef const char *position = b.partition.open.position if b.state == OPEN else b.position
    if b.first is NULL:
        return 0
    return b.closed_bytes + (position - b.last.data)


cdef Py_ssize_t batch_sealed_size(const Batch *b) noexcept nogil:
    """Bytes of the batch on the wire."""
    if b.compressed is not NULL:
        return BATCH_HEADER_BYTES + blob_size(b.compressed)
    return batch_size_bytes(b)


cdef void batch_release_memory(Batch *b, BufferPool pool) noexcept nogil:
    """Give the slabs back. The caller knows that the batch is DONE and no request references it."""
    cdef Slab *first = b.first
    if first is NULL:
        return
    b.first = NULL
    b.last = NULL
    b.position = NULL
    pool.release_chain(b.account, first)


cdef void batch_release(Batch *b, BufferPool pool) noexcept:
    """Drop one reference; the last one frees the struct. Needs the GIL."""
    if add32(&b.references, -1) > 0:
        return
    batch_release_memory(b, pool)
    Py_XDECREF(b.compressed)
    Py_XDECREF(b.completion)
    Py_XDECREF(b.error)
    Py_XDECREF(b.record_errors)
    Py_XDECREF(b.children)
    spare_give(&pool.spares, b)


cdef list batch_records(Batch *b):
    """The records section of a closed batch as memoryviews, one per slab; valid while the batch keeps its memory."""
    cdef list parts = []
    cdef Slab *slab = b.first
    b.last.used = b.position - b.last.data
    parts.append(PyMemoryView_FromMemory(slab.data + BATCH_HEADER_BYTES, slab.used - BATCH_HEADER_BYTES, PyBUF_READ))
    slab = slab.next
    while slab is not NULL:
        parts.append(PyMemoryView_FromMemory(slab.data, slab.used, PyBUF_READ))
        slab = slab.next
    return parts


cdef int batch_set_compressed(Batch *b, bytes blob, int codec_id) except -1:
    """Send `blob` in place of the records section."""
    Py_INCREF(blob)
    Py_XDECREF(b.compressed)
    b.compressed = <PyObject *>blob
    b.codec = <int8_t>codec_id
    b.sealed = False
    return 0


cdef void batch_sum(Batch *b, const char *position, bint is_end) noexcept nogil:
    """Carry the CRC of the last slab on over the records before `position`, while they are in the cache.

    Over whole steps of them, or over all of them if the slab takes no more (`is_end`): of what is left, the sender would
    have to fetch each line from memory. Records do not change any more, whatever header the batch is sealed with. The
    caller holds the partition's lock.
    """
    cdef Slab *slab = b.last
    cdef Py_ssize_t start = slab.summed
    cdef Py_ssize_t length
    if start == 0 and slab == b.first:
        start = BATCH_HEADER_BYTES
    length = position - slab.data - start
    if not is_end:
        length = length // SUM_STEP * SUM_STEP
    if length > 0:
        slab.crc = extend_crc(slab.crc, slab.data + start, length)
        slab.summed = start + length


cdef uint32_t _sum_of(const Batch *b) noexcept nogil:
    """Return the CRC of an uncompressed batch, whose header and `used` are complete."""
    cdef const Slab *slab = b.first
    cdef uint32_t crc = 0
    cdef Py_ssize_t start = CRC_START
    if slab.summed > 0:
        crc = extend_crc(0, slab.data + CRC_START, BATCH_HEADER_BYTES - CRC_START)
        start = BATCH_HEADER_BYTES
    while slab is not NULL:
        if slab.summed > 0:
            crc = join_crc(crc, slab.crc, slab.summed - start)
            start = slab.summed
        crc = extend_crc(crc, slab.data + start, slab.used - start)
        start = 0
        slab = slab.next
    return crc


cdef int batch_seal(Batch *b) noexcept nogil:
    """Write header and CRC; nothing if that was done for these header fields.

    The producer fields of a batch that is not OPEN are final. Returns 0; -1, and nothing is written, if it is OPEN or has
    no memory any more.
    """
    cdef char *header
    cdef uint32_t crc
    if b.sealed:
        return 0
    if b.state == OPEN or b.first is NULL:
        return -1
    b.last.used = b.position - b.last.data
    header = b.first.data
    put_i64(header, 0)
    put_i32(header + 8, <int32_t>(batch_sealed_size(b) - LOG_OVERHEAD))
    put_i32(header + 12, -1)
    header[16] = 2
    put_i16(header + 21, <int16_t>(b.codec | (0x10 if b.transactional else 0)))
    put_i32(header + 23, b.record_count - 1)
    put_i64(header + 27, b.base_timestamp)
    put_i64(header + 35, b.max_timestamp)
    put_i64(header + 43, b.producer_id)
    put_i16(header + 51, b.producer_epoch)
    put_i32(header + 53, b.base_sequence)
    put_i32(header + 57, b.record_count)
    if b.compressed is not NULL:
        crc = extend_crc(0, header + CRC_START, BATCH_HEADER_BYTES - CRC_START)
        crc = extend_crc(crc, blob_start(b.compressed), blob_size(b.compressed))
    else:
        crc = _sum_of(b)
    put_i32(header + 17, <int32_t>crc)
    b.sealed = True
    return 0


cdef char *batch_copy(char *target, const Batch *b) noexcept nogil:
    """Write the bytes of a sealed batch, batch_sealed_size() of them; return the position after them."""
    cdef const Slab *slab = b.first
    if b.compressed is not NULL:
        memcpy(target, slab.data, BATCH_HEADER_BYTES)
        target += BATCH_HEADER_BYTES
        memcpy(target, blob_start(b.compressed), <size_t>blob_size(b.compressed))
        return target + blob_size(b.compressed)
    while slab is not NULL:
        memcpy(target, slab.data, <size_t>slab.used)
        target += slab.used
        slab = slab.next
    return target
