"""Prefetching: loading memory into the cache before it is needed.

Theory. A load from main memory takes about 80 ns, as long as a whole send(). With one partition everything an append touches
stays in the cache. With thousands, each append touches cold memory several times, and each load depends on the one before:
the partition, then its open batch's write position, then the slab. A loop over many partitions therefore prefetches in stages:
while it works on partition i it prefetches the struct of partition i + 2n, and the memory that the struct of partition i + n,
loaded by now, points to. Addresses for this are read without locks (`Hint`, OpenBatch.position); a stale one costs a useless
prefetch and nothing else. Slabs are the other cold memory: the pool hands them out in turn, so a reused slab was last touched
a whole pool ago; writers prefetch BYTES_AHEAD of their position. A prefetch is a hint: a bad address does no harm.
"""

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    void prefetch_read "kp_prefetch_read"(const void *p)
    void prefetch_write "kp_prefetch_write"(const void *p)
