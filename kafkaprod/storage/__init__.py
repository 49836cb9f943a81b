"""Segments of record batches on a disk: what every log of this project shares, whoever owns it.

No producer and no broker is known here. `disk` is the only module that changes files.

directory_lock    the `.lock` file that keeps two owners out of one directory
batch_checks      whether bytes of a segment are a whole batch, and where the next one begins behind damage
segment_bytes     the bytes of a .log file as recovery reads them, a window at a time
disk              the calls that change files, one seam for faults in tests
internal_records  record batches that a log's owner writes for itself: uncompressed, without sequence, keys always set
batch_header      the fixed 61-byte header of a record batch
crc               CRC-32C by the package crc32c, without the rest of that package
"""
