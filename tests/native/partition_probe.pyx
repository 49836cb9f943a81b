"""Reads and sets the sequence numbers of a partition, which no test could reach by sending 2**31 records."""

from libc.stdint cimport int32_t

from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.queues.batch cimport Partition
from kafkaprod._core.machine.lock cimport mutex_lock, mutex_unlock


def set_sequences(TopicQueues topic not None, int32_t partition, int32_t next_sequence, int32_t last_acked_sequence):
    """Continue at `next_sequence`, as if everything up to `last_acked_sequence` had been acknowledged."""
    cdef Partition *p = topic.partitions[partition]
    mutex_lock(&p.lock)
    p.next_sequence = next_sequence
    p.last_acked_sequence = last_acked_sequence
    mutex_unlock(&p.lock)


def sequences(TopicQueues topic not None, int32_t partition):
    """(producer id, epoch, next sequence, last acknowledged sequence, batches in flight) of a partition."""
    cdef Partition *p = topic.partitions[partition]
    return p.producer_id, p.producer_epoch, p.next_sequence, p.last_acked_sequence, p.in_flight_count
