"""Which partitions records without a key may take, and which of them are likely (KIP-480, KIP-794). Sender thread only.

| drawn from                                                        | if there are any; else       |
|-------------------------------------------------------------------|------------------------------|
| those of preferred nodes (in this rack), but not of avoided ones   | any that is not avoided      |
| those whose node is not avoided (it is slow or sick)               | any that has a leader        |
| those that have a leader                                          | all                          |

The current partition of a topic is left at once when it is no longer among them.
"""

cimport cython
from libc.stdint cimport int32_t

from kafkaprod._core.machine.lock cimport load32, store32
from kafkaprod._core.queues.sticky cimport leave_partition


@cython.final
cdef class Placement:
    """Gives the sticky partitioners of all topics what they draw from.

    Args:
        is_adaptive: Rather take partitions whose queues are short.
    """

    def __cinit__(self, Accumulator accumulator not None, bint is_adaptive=True):
        self.accumulator = accumulator
        self.is_adaptive = is_adaptive
        self.preferred_nodes = None
        self.avoided_nodes = frozenset()

    def prefer_nodes(self, node_ids):
        """Draw partitions from those that these nodes lead, where there are any; None: no preference."""
        self.preferred_nodes = None if node_ids is None else frozenset(node_ids)

    def avoid_nodes(self, node_ids):
        """Draw no partition that these nodes lead, where there are others; leave those that are current."""
        cdef TopicQueues topic
        self.avoided_nodes = frozenset(node_ids)
        for topic in self.accumulator.topic_list:
            self._update(topic)

    def update_leaders(self):
        """Take over new leaders, after Accumulator.set_topic()."""
        cdef TopicQueues topic
        if self.preferred_nodes is not None or self.avoided_nodes:  # from the first record of a topic on
            for topic in self.accumulator.topic_list:
                self._update(topic)

    def update_loads(self):
        """Take over the lengths of queues; cheap where no record without a key was sent since the last call."""
        cdef TopicQueues topic
        for topic in self.accumulator.topic_list:
            if load32(&topic.sticky_used):
                store32(&topic.sticky_used, 0)
                self._update(topic)

    cdef list _candidates(self, TopicQueues topic):
        cdef int32_t i
        cdef list led = [i for i in range(topic._partition_count) if topic.partitions[i].leader >= 0]
        cdef list well = led
        if self.avoided_nodes:
            well = [i for i in led if topic.partitions[<int32_t>i].leader not in self.avoided_nodes] or led
        if self.preferred_nodes is not None:
            well = [i for i in well if topic.partitions[<int32_t>i].leader in self.preferred_nodes] or well
        return well or list(range(topic._partition_count))

    cdef int _update(self, TopicQueues topic) except -1:
        cdef int32_t i
        cdef list queues = None
        cdef list candidates = self._candidates(topic)
        if self.is_adaptive:
            queues = [load32(&topic.partitions[i].queue_length) for i in candidates]
        topic.sticky.set_loads(candidates, queues)
        i = load32(&topic.sticky._current)
        if i not in candidates:
            leave_partition(topic.sticky, topic.partitions[i], i)
        return 0
