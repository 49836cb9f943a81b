"""The bytes of records: the lowest room of the core.

record_arguments  Python arguments of a record, converted once
integers          Python integers as int64, converted once and then checked
record_writer     writes one record, format v2
murmur2           the hash that chooses the partition of a key, as Java's
batch_reader      reads a record batch back
record_view       a record's parts as pointers and lengths
big_endian        integers in network order
checksum          CRC-32C, extended and joined
varint            zigzag variable-length integers
batch_layout      where the fields of a record batch are, magic 2
"""
