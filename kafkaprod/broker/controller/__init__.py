"""The controller: one state machine that writes the cluster's metadata log.

event_queue    events in order, and timers
controller     takes one event at a time: a handler decides, records are appended, the image follows
registrations  brokers come, beat, are fenced, shut down
topics         topics and partitions are created and deleted; placement says where
settings       options, access control entries, quotas and credentials
partitions     leaders' requests to change an ISR, elections on request
elections      who becomes leader
channels       pushes the log to each broker

Pure: time is an argument, no I/O. Sockets and clocks belong to the process around it.
"""
