"""From a call of the application to records in the accumulator. Never blocks: what must be waited for are steps.

blocks   lists, columns and tables
records  one record: hooks, checks, append; waiting for metadata and for memory
drops    buffer_full_policy="drop": records that find no memory
checks   what a topic, a partition, a timestamp and a column may be
"""
