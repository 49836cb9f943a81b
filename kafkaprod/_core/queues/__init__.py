"""Records waiting to be sent: from an append to a batch that the sender takes.

buffer_pool   slabs, and who may have them
batch         a chain of slabs that holds one record batch
partitioner   which partition a record without a key takes
topic_queues  the partitions of one topic, each with its queue of batches
sticky        when records without a key leave the sticky partition
backlog       all batches without an outcome, and the gate to them
accumulator   where records are appended
sequences     the order of an idempotent producer's batches
send_path     the compiled part of `Producer.send`
rounds        the next rows of a block, sorted by partition
row_runs      where the rows of a block are
blocks        many records in one call
completion    the outcome of a batch, and who waits for it
"""
