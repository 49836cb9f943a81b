"""Replication: what a broker does with the partitions that the metadata gives it.

replica_manager  follows the image: which replica leads, which follows whom
partition        one replica: appending and reading as leader, the high watermark, the ISR
fetcher          copies from one source broker
isr_requests     proposals to the controller, one request in flight
lifecycle        registration, heartbeats, controlled shutdown

Pure: time is an argument, no I/O; logs are reached through `replica_log`. Sockets and clocks belong to the process.
"""
