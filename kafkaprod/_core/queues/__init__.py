"""Records waiting to be sent: from an append to a batch that the sender takes.

sequences        the order of an idempotent producer's batches
send_path        the compiled part of `Producer.send`
blocks           many records in one call
block_arguments  what is given to them, checked
refused_rows     the rows of a block that are left out, beside a node that may hold no more
rounds           the next rows of a block, sorted by partition
row_runs         where the rows of a block are
record_hooks     the user's code on the way of one record: interceptors, serializers, partitioner
placement        which partitions records without a key may take
accumulator      where records are appended
topic_queues     the partitions of one topic, each with its queue of batches
sticky           when records without a key leave the sticky partition
partitioner      which partition a record without a key takes
backlog          all batches without an outcome, and the gate to them
completion       the outcome of a batch, and who waits for it
batch            a chain of slabs that holds one record batch
buffer_pool      slabs, and who may have them
waiting_line     those who wait for memory, and what each node holds
slabs            memory in seven sizes, kept for reuse
spare_structs    batch structs, kept for reuse
"""
