"""Where the fields of a record batch are, magic 2.

Batch header, 61 bytes (source: protocol guide "Record Batch", KIP-98):

| off | len | field           | off | len | field         | off | len | field          |
|-----|-----|-----------------|-----|-----|---------------|-----|-----|----------------|
| 0   | 8   | base offset     | 17  | 4   | CRC-32C       | 43  | 8   | producer id    |
| 8   | 4   | batch length    | 21  | 2   | attributes    | 51  | 2   | producer epoch |
| 12  | 4   | leader epoch    | 23  | 4   | last offset d.| 53  | 4   | base sequence  |
| 16  | 1   | magic 2         | 27  | 8   | base timestamp| 57  | 4   | record count   |
|     |     |                 | 35  | 8   | max timestamp | 61  |     | records        |
"""

cdef enum:
    BATCH_HEADER_BYTES = 61
    CRC_START = 21              # the CRC covers attributes to the end
    LOG_OVERHEAD = 12           # base offset and batch length are not counted by batch length
