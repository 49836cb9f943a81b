"""Replication: what a broker does with the partitions that the metadata gives it.

replica_manager        follows the image: which replica leads, which follows whom
metadata_queue         the partitions that metadata has changed and that are not followed yet
fetch_sessions         what followers wait for at a leader
fetcher                copies from one source broker
isr_requests           proposals to the controller, one request in flight
directory_assignments  what the controller must know of the log directories of replicas
partition              one replica: appending and reading as leader, the high watermark, the ISR
lifecycle              registration, heartbeats, controlled shutdown
partition_replica_log  a partition's log as replication sees it
replica_log            what replication needs of a partition's log, and the shape of what travels between replicas

Pure: time is an argument, no I/O; logs are reached through `replica_log`. Sockets and clocks belong to the process;
`tests/simulation` runs the same state machines.
"""
