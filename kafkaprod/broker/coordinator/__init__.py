"""What the broker remembers for clients: groups, committed offsets, transactions. Time is an argument.

`group` is one group's state machine, `group_coordinator` all of them and their timers, `saved_groups` what is written
of them, `offsets` the committed offsets, `offset_log` the log of both. `transaction` has the rules of one transactional
id, `transaction_coordinator` all ids, `transaction_log` their durable form, `markers` what ends transactions in
partitions. The control thread owns all of it.
"""
