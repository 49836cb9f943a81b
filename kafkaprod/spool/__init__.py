"""The journal of a durable spool: batches of records on a disk, which a later process finds and sends.

No option of the producer uses it yet. All partitions of a producer share one journal, and all that a restart must know
is in it: there is no second file that could disagree with it.

journal   the segments of one slot: appending, syncing, rolling, freeing, within a limit of bytes
recovery  from the image of a slot's directory to its state and the batches that are left to send
state     what a journal says of each partition: ranks, producer ids, grants, what is resolved
entries   the bytes of a journal's entries: batches as they are stored and as they are sent, control entries
"""
