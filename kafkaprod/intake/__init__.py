"""From a call of the application to records in the accumulator. Never blocks: what must be waited for are steps.

records   one record: hooks, checks, append; waiting for metadata and for memory
blocks    lists, columns and tables
checks    what a topic, a partition, a timestamp and a column may be
"""
