"""Columns: many values in a few buffers.

columns        byte columns over offsets, lists and views
arrow          tables over the Arrow C data interface
text_columns   templates, numbers and times from columns of text
row_partitions the partition of each row, rows by partition
arrow_array, arrow_schema, arrow_structs, arrow_values   its parts
"""
