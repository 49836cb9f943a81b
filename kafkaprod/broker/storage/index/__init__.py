"""Sparse lookups beside a segment: by offset, by time, and aborted transactions.

index_rule         when a batch gets index entries: one rule for the append path and for rebuilding
offset_index       offset -> file position of one segment, sparse
time_index         timestamp -> offset of one segment, sparse
index_file         a file of fixed-size entries, sorted by the caller: what offset index and time index have in common
transaction_index  the aborted transactions of one segment, by the offset of their ABORT markers
"""
