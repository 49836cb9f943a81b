"""Columns: many values in a few buffers.

arrow           tables over the Arrow C data interface
text_columns    templates, numbers and times from columns of text
arrow_values    the values of Arrow columns as pointers and lengths
arrow_array     one Arrow array, checked
arrow_schema    what an Arrow schema says of a column
arrow_structs   the C structs of the Arrow data interface
row_partitions  the partition of each row, and how many rows each partition gets
row_digest      a digest of rows in their order
row_places      pointers and lengths of some rows of a column at a time
columns         byte columns over offsets, lists and views
row_partitions the partition of each row, rows by partition
"""
