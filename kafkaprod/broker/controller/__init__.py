"""The controller: one state machine that writes the cluster's metadata log.

cluster_view   the cluster as tests see it
process        the controller's process: its loop, its socket, a link to each broker
disk_log       the metadata log on disk: `__cluster_metadata-0`
snapshot_file  snapshots of the metadata on the disk
history        the history of a cluster for people, a line for each record
requests       what arrives at the controller's socket, and becomes its events
quorum         DescribeQuorum: the controller is a quorum of one, and brokers observe it
controller     takes one event at a time: a handler decides, records are appended, the image follows
event_queue    events in order, and timers
registrations  brokers come, beat, are fenced, shut down
topics         topics and partitions are created and deleted; placement says where
features       levels of features: what UpdateFeatures may change
settings       options, access control entries, quotas and credentials
tokens         delegation tokens are created, renewed, expired, removed when they are over
partitions     leaders' requests to change an ISR, elections on request
channels       pushes the log to each broker
placement      where the replicas of new partitions go: racks in turn, active brokers before fenced ones
reassignments  partitions move to other brokers
log_directories  log directories of brokers: where new replicas go, and what a failed one changes
elections      who becomes leader
context        what the controller knows: the image, sessions, shutdowns in progress
envelopes      how a client's request and its principal travel to the controller, and the answer back
wire           slices of the metadata log as requests, and their answers
events         what else the controller takes, timers and wishes of its host; and what handlers decide

Pure: time is an argument, no I/O. Sockets and clocks belong to the process around it.
"""
