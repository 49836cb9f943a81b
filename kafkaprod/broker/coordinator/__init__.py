"""What the broker remembers for clients: groups, committed offsets, producer ids. Pure state; time is an argument.

`group` is one group's state machine, `group_coordinator` all of them and their timers, `offsets` the committed offsets,
`offset_log` their durable form. All of it belongs to the control thread.
"""
