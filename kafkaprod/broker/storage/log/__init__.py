"""A partition's log: appending, reading, segments, retention, and the directory that holds them.

opening            opens the log directories of a broker
log_dirs           all log directories of a broker: which partition is where, what moves, what is offline
settling           what the start makes of partitions and topics that are there twice, and of copies
replica_moves      the moves of partitions between the directories, one after the other
replica_move       the move of a partition to another directory
log_dir            one broker's data directory: who owns it, which partitions are in it, what survives a restart
upkeep             what is done for all logs of a directory: syncs, compaction, the close
directory_files    the names and the small files of a data directory
partition_log      the log of one partition: append, commit, truncate, retain
cleaner            carries a compaction out
log_appends        the ways into the log for a batch: client, coordinator, marker, leader
append_validation  the checks a client's batch passes before it may enter the log
readable_log       what readers see of a partition's log: offsets, states, records, lookups
fence              what a log remembers of its failures: whether it still takes appends
log_store          the state of one partition's log and its files, without lock or watermark
group_commit       when appended data goes to the disk, and how many appends share one sync
retention          which old segments may go
segments           the segments of one partition, in order
compaction         which records of the closed segments a compaction keeps
segment            one .log file and its indexes: append, locate, read
watermark          the high watermark, up to which consumers may read
"""
