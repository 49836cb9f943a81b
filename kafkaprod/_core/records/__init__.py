"""The bytes of records: the lowest room of the core.

record_view       a record's parts as pointers and lengths
record_arguments  Python arguments of a record, converted once
integers          Python integers as int64, converted once and then checked
record_writer     writes one record, format v2
varint, murmur2, checksum, big_endian   arithmetic on bytes, without state
batch_reader      reads a record batch back
"""
