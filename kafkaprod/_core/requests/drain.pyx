"""Which nodes can be sent to (ready), and which batches go out to one (drain). Sender thread only.

Ready rules, per partition with data whose leader is known and that is not muted and whose sequence allows it; `head`
is the first batch of its queue (source: RecordAccumulator.ready, KIP-480, KIP-951):

| term        | meaning                                                                                         |
|-------------|-------------------------------------------------------------------------------------------------|
| waited      | now - creation (in microseconds), or - last requeue                                             |
| backing off | head was requeued, waited < its backoff, and the leader epoch is the one it failed under         |
| full        | more than one batch queued, or head has reached batch_size (it may grow on until it is taken)    |
| hurry       | a thread waits for bytes that are not free, or that the node may not hold; flush, closing       |
| sendable    | not backing off and (full or waited >= linger - LINGER_SLACK_US or hurry)                        |

Drain goes round the node's partitions from where the node's last drain stopped, takes the head of each queue that is
not backing off, and stops before the request would pass its room; one oversized batch goes alone.
Over many partitions the loops run without the GIL; codecs release it themselves.
"""

cimport cython
from libc.stdlib cimport free, malloc

from kafkaprod._core.queues.topic_queues cimport FEW_PARTITIONS, TopicQueues
from kafkaprod._core.queues.batch cimport (
    CLOSED,
    OPEN,
    SENT,
    batch_move,
    batch_size_bytes,
    observe_batch,
    prefetch_batch,
)
from kafkaprod._core.queues.slabs cimport size_class_for
from kafkaprod._core.queues.sticky cimport ALL_ARE_BLOCKED
from kafkaprod._core.machine.cache_lines cimport CACHE_LINE
from kafkaprod._core.machine.gil_turns cimport have_gil, want_gil
from kafkaprod._core.machine.lock cimport load32, mutex_lock, mutex_unlock, store32, store_i64
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.machine.types cimport forbid_new
from kafkaprod._core.requests.batch_compressor cimport BatchCompressor, estimated_size
from kafkaprod._core.requests.produce_request cimport ProduceRequest
from kafkaprod._core.queues.sequences cimport assign_sequence, sequence_allows

from kafkaprod.errors import InvalidRecordError

cdef enum:
    AHEAD = 4                           # partitions between two stages of prefetching
    NOTHING_TO_WAIT_FOR = 0x7FFFFFFF    # in us: 35 minutes
    NOT_TRANSACTIONAL = -1
    NO_TRANSACTION = 0
    # From the end of a timer, itself about 70 us late, it takes 150 to 200 us until the batch is written: a batch starts
    # so much early, and has then waited for its linger and not longer.
    LINGER_SLACK_US = 150

cdef double[1] AS_THEY_ARE
AS_THEY_ARE[0] = 1.0


@cython.final
cdef class NodeQueues:
    """Made by Drain.update_leaders()."""

    def __init__(self):
        raise TypeError("NodeQueues are made by Drain.update_leaders()")

    def __dealloc__(self):
        free(self.partitions)


forbid_new(NodeQueues)


cdef dict _queues_by_leader(list topics):
    """Return a NodeQueues for each leader by its node id; that of -1 holds the partitions without one."""
    cdef TopicQueues topic
    cdef NodeQueues node
    cdef int32_t i
    cdef dict counts = {}
    cdef dict nodes = {}
    for topic in topics:
        for i in range(topic.allocated_count):
            leader = topic.partitions[i].leader
            counts[leader] = counts.get(leader, 0) + 1
    for leader, count in counts.items():
        node = NodeQueues.__new__(NodeQueues)
        node.node_id = leader
        node.partitions = <Partition **>malloc(<size_t>count * sizeof(Partition *))
        if node.partitions is NULL:
            raise MemoryError
        nodes[leader] = node
    for topic in topics:
        for i in range(topic.allocated_count):
            node = nodes[topic.partitions[i].leader]
            node.account = topic.partitions[i].account
            node.partitions[node.partition_count] = topic.partitions[i]
            node.partition_count += 1
    return nodes


@cython.final
cdef class Drain:
    """Selection for one producer.

    Args:
        linger_ms: How long a batch that is not full may wait, but for topics of other batching.
        max_request_bytes: Most bytes of batches in one request, unless a single batch is larger.
        is_idempotent: Number the batches; nothing goes out until set_producer().
        mutes: Keep one batch in flight per partition (max_in_flight_requests_per_connection == 1).
        codec: A compression.Codec, or None.
        topic_codecs: More of them; those of topics whose `Accumulator.topic_batching` names them, counted from 1.
        workers: An object with Executor.map, to compress several batches at a time; None: one after the other.
        first_limit: Bytes that a batch may grow to until limit_path() names its node; 0: as far as any.
    """

    def __cinit__(self, Accumulator accumulator not None, int64_t linger_ms=5, Py_ssize_t max_request_bytes=1048576,
                  bint is_idempotent=False, bint mutes=False, codec=None, workers=None, int32_t first_limit=0,
                  topic_codecs=()):
        self.accumulator = accumulator
        self.linger_ms = linger_ms
        self.max_request_bytes = max_request_bytes
        self.is_idempotent = is_idempotent
        self.mutes = mutes
        accumulator.set_sending(linger_ms * 1000, codec is None)
        codecs = (codec, *topic_codecs)
        if any(each is not None for each in codecs):
            self.compressor = BatchCompressor(accumulator, codecs, workers)
        self.producer_id = -1
        self.producer_epoch = -1
        self.transaction = NOT_TRANSACTIONAL
        self._nodes = {}
        self._path_limits = {}
        self._first_limit = first_limit

    def set_producer(self, int64_t producer_id, int16_t producer_epoch, bint reuses_sequences=False):
        """Set the id and epoch that batches drained from now on are numbered under; -1, -1 for none.

        Args: reuses_sequences: no newer epoch can be had, so that a partition takes the sequences of batches that were
        definitely rejected again, instead of waiting for one.
        """
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.reuses_sequences = reuses_sequences
        self.wants_epoch = False

    def set_transaction(self, int64_t number, bint adds_implicitly):
        """Let batches go out in transaction `number`, 1 or more and higher than before; 0: hold all batches back.

        Args: adds_implicitly: the leader adds partitions by itself; else each waits for add_members().
        """
        if number != self.transaction:
            self.has_drained = False
            self.has_new_members = False
        self.transaction = number
        self.adds_implicitly = adds_implicitly

    def new_members(self):
        """Take the (topic, partition) pairs that hold batches and wait to be added to the open transaction.

        Each is named once for a transaction: whoever takes it has it added, however long that takes.
        """
        cdef TopicQueues topic
        cdef Partition *p
        cdef int32_t i
        cdef list found = []
        self.has_new_members = False
        if self.transaction <= NO_TRANSACTION or self.adds_implicitly:
            return found
        for topic in self.accumulator.topic_list:
            for i in range(topic.allocated_count):
                p = topic.partitions[i]
                if self._is_unnamed(p) and load32(&p.queue_length) > 0:
                    p.named_transaction = self.transaction
                    found.append((topic.name, i))
        return found

    def add_members(self, partitions):
        """Let batches of these (topic, partition) pairs go out in the open transaction."""
        cdef dict topics = {(<TopicQueues>topic).name: topic for topic in self.accumulator.topic_list}
        cdef TopicQueues topic
        for name, number in partitions:
            topic = topics[name]
            topic.partitions[<int32_t>number].transaction = self.transaction

    def resume_partition(self, str topic not None, int32_t partition, int32_t next_sequence):
        """Continue a partition's sequence where an earlier process with this producer id and epoch stopped.

        To be called after set_producer() and before the partition's first record. Until its first batch is
        acknowledged one goes at a time: a leader that has forgotten the producer takes any sequence.
        """
        cdef TopicQueues queues = self.accumulator.topics[topic]
        cdef Partition *p
        if not 0 <= partition < queues._partition_count:
            raise InvalidRecordError(f"partition={partition} of topic {topic!r} is outside 0..{queues._partition_count - 1}")
        p = queues.partitions[partition]
        mutex_lock(&p.lock)
        p.producer_id = self.producer_id
        p.producer_epoch = self.producer_epoch
        p.next_sequence = next_sequence
        p.last_acked_sequence = -1
        mutex_unlock(&p.lock)

    def update_leaders(self):
        """Sort the partitions by leader again, after Accumulator.set_topic(). Nodes keep where their drain stopped."""
        cdef NodeQueues node
        cdef dict nodes = _queues_by_leader(self.accumulator.topic_list)
        for leader, old in self._nodes.items():
            if leader in nodes:
                node = nodes[leader]
                node.start = (<NodeQueues>old).start % node.partition_count
        self._nodes = nodes
        self._has_blocked = True        # perhaps, of those that are new here
        for node in nodes.values():
            most_bytes, is_measured = self._path_limits.get(node.node_id, (self._first_limit, False))
            _limit_node(node, most_bytes, is_measured)

    def limit_path(self, int32_t node_id, int32_t most_bytes, bint is_measured=True):
        """Let batches for a node grow to `most_bytes`, which the way to it carries in time; 0: as far as any.

        Args: is_measured: whether answers have shown that; until then a topic with a larger batch_size keeps it.
        """
        cdef NodeQueues node = self._nodes.get(node_id)
        limit = (most_bytes, is_measured)
        if self._path_limits.get(node_id) == limit:
            return
        self._path_limits[node_id] = limit
        if node is not None:
            with nogil:
                _limit_node(node, most_bytes, is_measured)

    def ready(self, int64_t now_us, bint hurry=False):
        """Look at the head of every queue.

        Args: hurry: send whatever there is (a thread waits for memory, a flush is in progress, the producer closes).
        Returns: (ids of nodes that have something sendable, names of topics with data but no leader).
        `next_check_us` says when the next batch becomes sendable by itself, `wants_epoch` whether a partition waits
        for a newer producer epoch.
        """
        cdef NodeQueues node
        cdef int64_t wait_us = NOTHING_TO_WAIT_FOR
        cdef bint is_ready
        cdef bint node_hurry
        cdef list ready_nodes = []
        cdef set unknown = set()
        hurry = hurry or self.accumulator.backlog.is_closed or self.accumulator.backlog.flush_count > 0 \
            or self.accumulator.pool.is_exhausted()
        self._hurries = hurry
        for node in self._nodes.values():
            if node.node_id < 0:
                self._find_waiting(node, unknown)
                continue
            node_hurry = hurry or self.accumulator.pool.is_short(node.account)
            if node.partition_count <= FEW_PARTITIONS:
                is_ready = self._node_ready(node, now_us, node_hurry, &wait_us)
            else:
                with nogil:
                    is_ready = self._node_ready(node, now_us, node_hurry, &wait_us)
                    want_gil()
                have_gil()
            if is_ready:
                ready_nodes.append(node.node_id)
        self.next_check_us = now_us + wait_us
        return ready_nodes, unknown

    def end_turn(self, int64_t now_us, set blocked not None):
        """Note that all that was due at `now_us` and could be sent was taken: records without a key avoid the rest.

        Args: blocked: ids of the nodes that cannot be sent to now.
        """
        cdef bint is_any_free = True
        if blocked or self._has_blocked:
            is_any_free = _mark_blocked(self._nodes, blocked)
            self._has_blocked = len(blocked) > 0
        store_i64(&self.accumulator.turn_us, now_us + LINGER_SLACK_US if is_any_free else ALL_ARE_BLOCKED)

    def has_queued(self, int32_t node_id):
        """Whether anything is queued for a node."""
        cdef NodeQueues node = self._nodes.get(node_id)
        cdef Py_ssize_t i
        if node is not None:
            for i in range(node.partition_count):
                if load32(&node.partitions[i].queue_length) > 0:
                    return True
        return False

    def may_wait(self, int32_t node_id, int64_t now_ms):
        """Whether what the node has could still grow: no head is closed, and ready() was in no hurry."""
        cdef NodeQueues node = self._nodes.get(node_id)
        cdef Py_ssize_t i
        cdef Partition *p
        cdef bint is_closed = False
        if self._hurries or node is None:
            return False
        with nogil:
            for i in range(node.partition_count):
                p = node.partitions[i]
                if load32(&p.queue_length) == 0:
                    continue
                mutex_lock(&p.lock)
                is_closed = p.head is not NULL and p.head.state != OPEN and self._may_go(p, p.head, now_ms)
                mutex_unlock(&p.lock)
                if is_closed:
                    break
        return not is_closed

    cdef int _find_waiting(self, NodeQueues node, set topics) except -1:
        cdef Py_ssize_t i
        for i in range(node.partition_count):
            if load32(&node.partitions[i].queue_length) > 0:
                topics.add((<TopicQueues>self.accumulator.topic_list[node.partitions[i].topic_index]).name)
        return 0

    cdef bint _node_ready(self, NodeQueues node, int64_t now_us, bint hurry, int64_t *wait_us) noexcept nogil:
        cdef Py_ssize_t i
        cdef Partition *p
        cdef bint is_ready = False
        for i in range(node.partition_count):
            p = node.partitions[i]
            if load32(&p.queue_length) == 0:
                continue
            mutex_lock(&p.lock)
            is_ready = p.head is not NULL and self._is_sendable(p, p.head, now_us, hurry, wait_us)
            mutex_unlock(&p.lock)
            if is_ready:
                break
        return is_ready

    cdef bint _may_go(self, Partition *p, Batch *b, int64_t now_ms) noexcept nogil:
        """Whether nothing but time spent lingering could hold the batch back."""
        if self.needs_stored and (not b.is_stored or b.first is NULL):
            return False
        if self.mutes and p.in_flight_count > 0:
            return False
        if b.attempts > 0 and now_ms - b.last_attempt_ms < b.backoff_ms and p.leader_epoch <= b.sent_leader_epoch:
            return False
        if self.transaction != NOT_TRANSACTIONAL and not self._is_member(p):
            return False
        return not self.is_idempotent or sequence_allows(
            p, b, self.producer_id, self.producer_epoch, self.reuses_sequences, &self.wants_epoch)

    cdef bint _is_member(self, const Partition *p) noexcept nogil:
        """Whether the partition's batches may go out in the open transaction."""
        if self.transaction == NO_TRANSACTION:
            return False
        if self.adds_implicitly or p.transaction == self.transaction:
            return True
        if self._is_unnamed(p):
            self.has_new_members = True
        return False

    cdef bint _is_unnamed(self, const Partition *p) noexcept nogil:
        return p.transaction != self.transaction and p.named_transaction != self.transaction

    cdef bint _is_sendable(self, Partition *p, Batch *b, int64_t now_us, bint hurry, int64_t *wait_us) noexcept nogil:
        cdef int64_t wait
        if self._may_go(p, b, now_us // 1000):
            wait = b.linger_end_us - LINGER_SLACK_US - now_us
            if hurry or b.next is not NULL or b.state != OPEN or b.is_full or wait <= 0:
                return True
        else:
            wait = (b.last_attempt_ms + b.backoff_ms) * 1000 - now_us
            if b.attempts == 0:
                wait = b.linger_end_us - LINGER_SLACK_US - now_us       # then it is behind: see sticky.pxd
            if wait <= 0:
                return False    # an answer, a new epoch or an unmute will make it sendable, not time
        if wait < wait_us[0]:
            wait_us[0] = wait
        return False

    def drain(self, int32_t node_id, int64_t now_ms, Py_ssize_t room_bytes=0):
        """Take the batches that go to a node in one request, sealed; None if there are none.

        At most one batch per partition and `room_bytes` in all, max_request_bytes if that is 0. The batches belong to
        the request until its finish(). Records that the codec refuses fail with its error.
        """
        cdef NodeQueues node = self._nodes.get(node_id)
        cdef ProduceRequest request
        if node is None:
            return None
        request = ProduceRequest(self.accumulator, node_id)
        if node.partition_count <= FEW_PARTITIONS:
            self._take_all(node, now_ms, room_bytes or self.max_request_bytes, request)
        else:
            with nogil:
                self._take_all(node, now_ms, room_bytes or self.max_request_bytes, request)
                want_gil()
            have_gil()
        if self.compressor is not None:
            self.compressor.run(request)
        return request if request.batch_count > 0 else None

    cdef void _take_all(self, NodeQueues node, int64_t now_ms, Py_ssize_t room, ProduceRequest request) noexcept nogil:
        """Fill the request, sealed if there is nothing to compress; without memory for it batches stay in their queues."""
        cdef Py_ssize_t looked_at = 0
        cdef bint compresses = self.compressor is not None
        cdef const double *ratios = self.compressor.ratios if compresses else AS_THEY_ARE
        cdef Batch *b
        self._leaves_more = False
        while looked_at < node.partition_count and request.reserve():
            b = self._take(node, now_ms, room, ratios, request.batch_count == 0, &looked_at)
            if b is NULL:
                break
            room -= estimated_size(b, ratios[b.partition.codec])
            request.add(b)
            if not compresses:
                request.seal(request.batch_count - 1)
        request.leaves_more = self._leaves_more
        request.arrange()

    cdef Batch *_take(self, NodeQueues node, int64_t now_ms, Py_ssize_t room, const double *ratios, bint is_first,
                      Py_ssize_t *looked_at) noexcept nogil:
        """Take the next batch of the round out of its queue; NULL at the end of the round or of the room."""
        cdef Partition *p
        cdef Batch *b
        while looked_at[0] < node.partition_count:
            if node.partition_count > FEW_PARTITIONS:
                _prefetch_ahead(node)
            p = node.partitions[node.start]
            b = NULL
            if load32(&p.queue_length) > 0:
                mutex_lock(&p.lock)
                b = p.head
                if b is not NULL and not self._may_go(p, b, now_ms):
                    b = NULL
                if b is not NULL and not is_first and estimated_size(b, ratios[p.codec]) > room:
                    mutex_unlock(&p.lock)
                    self._leaves_more = True
                    looked_at[0] = node.partition_count
                    return NULL                     # the next drain starts with this partition
                if b is not NULL:
                    self._take_head(p, b, now_ms)
                mutex_unlock(&p.lock)
            node.start = (node.start + 1) % node.partition_count
            looked_at[0] += 1
            if b is not NULL:
                return b
        return NULL

    cdef void _take_head(self, Partition *p, Batch *b, int64_t now_ms) noexcept nogil:
        if b.state == OPEN:
            batch_move(b, CLOSED)
            p.first_class = size_class_for(batch_size_bytes(b))
        batch_move(b, SENT)
        p.head = b.next
        if p.stored_tail == b:
            p.stored_tail = NULL
        if p.unloaded_tail == b:
            p.unloaded_tail = NULL
        if p.head is NULL:
            p.tail = NULL
        else:
            self._leaves_more = True
        b.next = NULL
        store32(&p.queue_length, p.queue_length - 1)
        p.in_flight_count += 1
        b.request_count += 1
        b.sent_ms = now_ms
        b.sent_leader_epoch = p.leader_epoch
        b.sent_generation = p.topic_generation
        if self.transaction != NOT_TRANSACTIONAL:
            b.transactional = True
            self.has_drained = True
        if self.is_idempotent:
            assign_sequence(p, b, self.producer_id, self.producer_epoch)


cdef bint _mark_blocked(dict nodes, set blocked) except -1:
    """Mark the accounts of blocked nodes; return whether a node is left that is not blocked."""
    cdef NodeQueues node
    cdef bint is_any_free = False
    for node in nodes.values():
        store32(&node.account.is_blocked, node.node_id in blocked)
        is_any_free = is_any_free or (node.node_id >= 0 and node.node_id not in blocked)
    return is_any_free


cdef void _limit_node(NodeQueues node, int32_t most_bytes, bint is_measured) noexcept nogil:
    cdef Py_ssize_t i
    cdef Partition *p
    for i in range(node.partition_count):
        p = node.partitions[i]
        mutex_lock(&p.lock)
        p.path_most = most_bytes
        if not is_measured and 0 < most_bytes < p.batching.batch_size:
            p.path_most = <int32_t>p.batching.batch_size
        mutex_unlock(&p.lock)


cdef inline void _prefetch_ahead(NodeQueues node) noexcept nogil:
    """Prefetch in three stages: the partition 12 ahead, the head batch 8 ahead, its first slab 4 ahead.

    Heads are read without the lock: only this thread takes batches out, so what is there stays.
    """
    cdef Py_ssize_t i = node.start + 3 * AHEAD
    cdef const Batch *head
    if i < node.partition_count:
        prefetch_write(&node.partitions[i].lock)
        prefetch_write(&node.partitions[i].head)
        prefetch_batch(_peek_head(node.partitions[i - AHEAD]))
        head = _peek_head(node.partitions[i - 2 * AHEAD])
        if head is not NULL:
            prefetch_write(head.first)
            prefetch_write(<const char *>(<size_t>head.first + CACHE_LINE))


cdef inline const Batch *_peek_head(Partition *p) noexcept nogil:
    return observe_batch(&p.head) if load32(&p.queue_length) > 0 else NULL
