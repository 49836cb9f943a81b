"""The compiled core. Each room imports only from those below it:

requests   drain, produce request and response, settlement
queues     accumulator, batches, buffer pool
text       rows as JSON, rows out of text
columns    byte columns and Arrow tables
records    the bytes of a record
machine    locks, time, caches, the GIL
"""
