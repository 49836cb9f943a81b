"""A durable spool: batches of records on a disk, which a later process finds and sends.

All partitions of a producer share one journal, and all that a restart must know is in it: there is no second file that
could disagree with it. The engine makes a spool if the option `spool_dir` is set; nothing else loads this room.

spooling  what a producer with a spool does in each turn of its sender thread: restore, store, allow
memory    which batches keep their bytes in memory, and which are in the journal alone
inspection  what slots have, read without their locks
slots     the numbered directories of a spool, each of one producer at a time
syncing   when a journal is forced to the disk, and the thread that does it
journal   the segments of one slot: appending, syncing, rolling, freeing, within a limit of bytes
reserve   room of the disk for the journal's own entries
recovery  from the image of a slot's directory to its state and the batches that are left to send
state     what a journal says of each partition: ranks, producer ids, what is resolved
entries   the bytes of a journal's entries: fields of stored batches, control entries
"""
