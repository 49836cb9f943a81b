"""The broker's durable log, in Apache Kafka's on-disk formats.

Who calls whom, top down: `log_dirs` (one broker) -> `log_dir` (one directory) -> `partition_log` (append, truncate,
retain; its base `readable_log` reads) -> `segments` (the ordered list) -> `segment` (one .log file and its indexes) ->
the room `storage` below the broker, whose `disk` alone changes files. `recovery` turns the image of a partition
directory into a plan, and `log_store` carries the plan out; `cleaner` and `compaction` rewrite the closed segments of
compacted logs.

What is truth and what is derived: the `.log` files, the log start offset and the topic id are truth and are synced by
the flush policy (`group_commit`) or at once, and so are leader epochs, which a clean start takes as they are. Offset,
time and transaction indexes and producer snapshots are derived: each carries or is given a checksum, and is rebuilt
from the `.log` when the checksum is wrong.

log               a partition's log: appending, reading, segments, retention, and the directory that holds them
directory_health  whether a log directory can be used, and what notices that it cannot
recovery          after a crash: scanning segments, checkpoints, leader epochs
producers         what a log remembers of each producer id: sequences, epochs, open transactions
errors            what the log refuses, each with the Kafka error code the client must see
index             sparse lookups beside a segment: by offset, by time, and aborted transactions
format            the bytes of the log: control batches, names of files
lru_cache         open handles, bounded
"""
