"""After a crash: scanning segments, checkpoints, leader epochs.

recovery       from the image of a partition directory to the state of its log and the repairs its files need
checkpoints    the small text files of a log directory
segment_scan   reads the bytes of one segment: where they stop being valid
leader_epochs  which leader epoch began at which offset: answers OffsetForLeaderEpoch and diverging fetches
"""
