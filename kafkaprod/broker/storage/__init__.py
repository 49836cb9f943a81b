"""The broker's durable log, in Apache Kafka's on-disk formats.

Who calls whom, top down: `log_dir` (one directory, one broker) -> `partition_log` (append, truncate, retain; its base
`readable_log` reads) -> `segments` (the ordered list) -> `segment` (one .log file and its indexes) -> `disk` (the only
module that writes). `recovery` turns the image of a partition directory into a plan, and `log_store` carries the plan
out; `cleaner` and `compaction` rewrite the closed segments of compacted logs.

What is truth and what is derived: the `.log` files, the log start offset and the topic id are truth and are synced by
the flush policy (`group_commit`) or at once, and so are leader epochs, which a clean start takes as they are. Offset,
time and transaction indexes and producer snapshots are derived: each carries or is given a checksum, and is rebuilt
from the `.log` when the checksum is wrong.
"""
